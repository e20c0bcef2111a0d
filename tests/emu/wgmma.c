/*
 * wgmma. A product of m64 x n x 32 bytes of k is issued by the four warps of a warpgroup, each of which computes its 16
 * rows: nothing keeps the four together, so each warp has its own queue here. A product reads its operands and adds at
 * any time until its group has been waited for; products of a warp keep their order.
 *
 * From the first product until the wait the accumulators belong to the tensor core: the registers hold NaN, which must
 * still be there when the results are put back.
 */
#include "tests/emu/machine.h"

#include "cpu/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, MAX_N = 256, MAX_K = 32, K_BYTES = 32, LOG = 64, GROUPS = 64 };
static const uint32_t IN_USE = 0x7fe5a5e5; /* what a register of an unfinished product holds: a NaN */

/* An accumulator that products of a warp are adding to. */
struct sums {
    struct sums *next;
    float *registers[LANES];
    uint32_t n, last; /* last: number of its latest product */
    float sum[ROWS][MAX_N];
};

struct operand {
    uint32_t start, leading, stride, span; /* span: of the swizzling; 16: none */
};

struct product {
    struct event event;
    struct warp *warp;
    struct sums *sums;
    enum emu_type type;
    uint32_t n, first_row; /* of A's 64, of this warp */
    struct operand a, b;
    const uint32_t *a_registers[LANES]; /* or NULL */
    bool accumulate;
    struct reading a_reading, b_reading;
};

struct products {
    struct sums *sums;
    uint32_t issued, done;      /* products */
    uint32_t committed;         /* groups */
    uint32_t group_end[GROUPS]; /* products issued until group i % GROUPS was committed */
    bool open;                  /* products not committed yet */
    bool fenced;                /* since the latest wait */
    uint64_t latest_due;
};

static struct products *products_of(struct warp *warp)
{
    if (warp->products == NULL)
        warp->products = calloc(1, sizeof *warp->products);
    return warp->products;
}

/* ---- Descriptors --------------------------------------------------------------------------------------------- */

static struct operand decode(uint64_t descriptor)
{
    static const uint32_t spans[] = {16, 128, 64, 32};
    const struct operand o = {
        .start = (uint32_t)(descriptor & 0x3fff) << 4,
        .leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
        .stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4,
        .span = spans[descriptor >> 62],
    };
    if (descriptor >> 49 & 7)
        emu_wrong("a matrix descriptor with a base offset, %#llx", (unsigned long long)descriptor);
    return o;
}

/* The address of 16 of a row's 32 bytes, K-major: eight rows of `span` bytes lie together, `stride` from the next
   eight; without swizzling the two halves of k are `leading` apart. */
static uint32_t chunk_address(const struct operand *o, uint32_t row, uint32_t half)
{
    const uint32_t k = o->span == 16 ? half * o->leading : half * 16;
    return emu_swizzled(o->start + row / 8 * o->stride + row % 8 * o->span + k, o->span);
}

static const uint8_t *chunk(const struct product *p, const struct operand *o, uint32_t row, uint32_t half)
{
    return p->warp->block->smem.data + chunk_address(o, row, half) - SMEM_BASE;
}

/* Checks every chunk of rows first .. first+rows-1, and says between which bytes they lie. */
static struct reading check_operand(struct warp *warp, const struct operand *o, uint32_t first, uint32_t rows)
{
    struct check check = {.thread = &warp->threads[0], .block = warp->block, .what = "wgmma's read", .async = true};
    struct reading reading = {.begin = ~0u, .what = "a wgmma"};
    for (uint32_t i = 0; i < 2 * rows; ++i) {
        const uint32_t address = chunk_address(o, first + i / 2, i % 2), offset = address - SMEM_BASE;
        if (address < SMEM_BASE || offset + 16 > warp->block->smem.bytes)
            emu_wrong("a wgmma reads row %u of an operand at shared address %u, beyond the block's %u bytes",
                      first + i / 2, address, warp->block->smem.bytes);
        emu_check_read(&check, offset, 16);
        reading.begin = offset < reading.begin ? offset : reading.begin;
        reading.end = offset + 16 > reading.end ? offset + 16 : reading.end;
    }
    return reading;
}

/* ---- Arithmetic ---------------------------------------------------------------------------------------------- */

static uint32_t elements(enum emu_type type)
{
    return type == EMU_E4M3 ? 32 : type == EMU_BF16 ? 16 : 8;
}

/* Element k of 32 bytes. TF32 drops the lower 13 bits of an FP32. */
static float element(enum emu_type type, const uint8_t *bytes, uint32_t k)
{
    static float e4m3[256];
    static bool ready;
    for (int code = 0; !ready && code < 256; ++code)
        e4m3[code] = e4m3_to_float((uint8_t)code);
    ready = true;
    if (type == EMU_E4M3)
        return e4m3[bytes[k]];
    uint32_t bits = 0;
    memcpy(&bits, bytes + (type == EMU_BF16 ? 2 : 4) * k, type == EMU_BF16 ? 2 : 4);
    bits = type == EMU_BF16 ? bits << 16 : bits & 0xffffe000u;
    return bits_float(bits);
}

struct decoded {
    float a[ROWS][MAX_K], b[MAX_K][MAX_N];
};

/* A's fragment: word 2h + u of lane l is in row l / 4 + 8u, bytes 16h + 4 (l % 4) and the next three. */
static void row_from_registers(const struct product *p, uint32_t row, uint8_t *bytes)
{
    for (uint32_t i = 0; i < 8; ++i)
        memcpy(bytes + 4 * i, &p->a_registers[row % 8 * 4 + i % 4][i / 4 * 2 + row / 8], 4);
}

static void decode_operands(const struct product *p, struct decoded *out)
{
    const uint32_t count = elements(p->type);
    uint8_t bytes[K_BYTES];
    for (uint32_t row = 0; row < ROWS; ++row) {
        if (p->a_registers[0])
            row_from_registers(p, row, bytes);
        for (uint32_t half = 0; half < 2 && !p->a_registers[0]; ++half)
            memcpy(bytes + 16 * half, chunk(p, &p->a, p->first_row + row, half), 16);
        for (uint32_t k = 0; k < count; ++k)
            out->a[row][k] = element(p->type, bytes, k);
    }
    for (uint32_t col = 0; col < p->n; ++col) {
        for (uint32_t half = 0; half < 2; ++half)
            memcpy(bytes + 16 * half, chunk(p, &p->b, col, half), 16);
        for (uint32_t k = 0; k < count; ++k)
            out->b[k][col] = element(p->type, bytes, k);
    }
}

/* In FP32, in the order of k: the order of the CPU reference. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx2", "default")))
#endif
static void
add_in_order(float (*sum)[MAX_N], const struct decoded *d, uint32_t n, uint32_t count)
{
    for (uint32_t row = 0; row < ROWS; ++row)
        for (uint32_t k = 0; k < count; ++k)
            for (uint32_t col = 0; col < n; ++col)
                sum[row][col] += d->a[row][k] * d->b[k][col];
}

/* As Hopper does for FP8: all addends are cut to 13 fraction bits, counted from the largest one's exponent. */
static float add_cut(float sum, const struct decoded *d, uint32_t row, uint32_t col)
{
    enum { FRACTION_BITS = 13 };
    float addends[MAX_K + 1], largest = 0;
    int64_t units = 0;
    int exponent;
    for (uint32_t k = 0; k <= MAX_K; ++k) {
        addends[k] = k == MAX_K ? sum : d->a[row][k] * d->b[k][col];
        if (!(fabsf(addends[k]) <= 3.4028235e38f))
            return NAN;
        largest = fmaxf(largest, fabsf(addends[k]));
    }
    if (largest == 0)
        return 0;
    frexpf(largest, &exponent); /* largest = 0.1... * 2^exponent */
    for (uint32_t k = 0; k <= MAX_K; ++k)
        units += (int64_t)ldexp(addends[k], FRACTION_BITS + 1 - exponent);
    return (float)ldexp((double)units, exponent - FRACTION_BITS - 1);
}

static void compute(const struct product *p)
{
    static struct decoded decoded;
    decode_operands(p, &decoded);
    if (!p->accumulate)
        memset(p->sums->sum, 0, sizeof p->sums->sum);
    if (p->type == EMU_E4M3 && emu_settings.hopper_fp8)
        for (uint32_t i = 0; i < ROWS * p->n; ++i) {
            float *sum = &p->sums->sum[i / p->n][i % p->n];
            *sum = add_cut(*sum, &decoded, i / p->n, i % p->n);
        }
    else
        add_in_order(p->sums->sum, &decoded, p->n, elements(p->type));
}

/* ---- Registers ----------------------------------------------------------------------------------------------- */

/* Where register i of a lane is in the warp's 16 rows. */
static float *place_of(struct sums *s, uint32_t lane, uint32_t i)
{
    return &s->sum[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
}

static void take_registers(struct sums *s)
{
    for (uint32_t lane = 0; lane < LANES; ++lane)
        for (uint32_t i = 0; i < s->n / 2; ++i) {
            *place_of(s, lane, i) = s->registers[lane][i];
            memcpy(&s->registers[lane][i], &IN_USE, sizeof IN_USE);
        }
}

static void give_registers_back(struct sums *s)
{
    for (uint32_t lane = 0; lane < LANES; ++lane)
        for (uint32_t i = 0; i < s->n / 2; ++i) {
            if (float_bits(s->registers[lane][i]) != IN_USE)
                emu_wrong("lane %u has written its accumulator %u while a wgmma was adding to it", lane, i);
            s->registers[lane][i] = *place_of(s, lane, i);
        }
}

/* Results whose products have all been waited for. */
static void give_back_until(struct products *products, uint32_t product)
{
    struct sums **link = &products->sums;
    while (*link) {
        struct sums *s = *link;
        if (s->last <= product) {
            give_registers_back(s);
            *link = s->next;
            free(s);
        } else {
            link = &s->next;
        }
    }
}

/* The accumulator that is in use already, or NULL. It cannot be in use in another shape. */
static struct sums *find_sums(const struct products *products, float *const *registers, uint32_t n)
{
    for (struct sums *s = products->sums; s; s = s->next) {
        if (s->registers[0] == registers[0] && s->n == n)
            return s;
        if (registers[0] < s->registers[0] + s->n / 2 && s->registers[0] < registers[0] + n / 2)
            emu_wrong("a wgmma of n=%u on registers that one of n=%u is still adding to", n, s->n);
    }
    return NULL;
}

static struct sums *sums_for(struct products *products, float *const *registers, uint32_t n)
{
    struct sums *s = find_sums(products, registers, n);
    if (s)
        return s;
    if (!products->fenced)
        emu_wrong("wgmma_fence is missing: the registers may have been used since the latest wait");
    s = calloc(1, sizeof *s);
    memcpy(s->registers, registers, sizeof s->registers);
    s->n = n;
    s->next = products->sums;
    products->sums = s;
    take_registers(s);
    return s;
}

/* ---- Issuing ------------------------------------------------------------------------------------------------- */

/* What the lanes of a warp pass on when they meet. */
struct request {
    enum emu_type type;
    uint32_t n;
    uint64_t a, b;
    const uint32_t *a_registers;
    int accumulate;
    float *d;
};

/* The four warps of a warpgroup must issue the same products. */
static void compare_warps(const struct warp *warp, const struct request *r, uint32_t number)
{
    struct logged *log = &warp->block->logs[warp->index / 4].entry[number % LOG];
    const struct logged entry = {number, r->type, r->n, r->accumulate != 0, r->a_registers ? 0 : r->a, r->b};
    if (log->number == number && memcmp(log, &entry, sizeof entry) != 0)
        emu_wrong("the warps of a warpgroup issue different wgmmas: descriptors %#llx and %#llx here, %#llx and %#llx "
                  "elsewhere",
                  (unsigned long long)entry.a, (unsigned long long)entry.b, (unsigned long long)log->a,
                  (unsigned long long)log->b);
    *log = entry;
}

static void wake_if_done(struct warp *warp);

static void carry_out(struct event *event)
{
    struct product *p = (struct product *)(void *)event;
    struct block *block = p->warp->block;
    compute(p);
    if (!p->a_registers[0])
        emu_reading_end(block, &p->a_reading);
    emu_reading_end(block, &p->b_reading);
    ++p->warp->products->done;
    wake_if_done(p->warp);
    free(p);
}

static void queue_product(struct products *products, struct product *p)
{
    uint64_t due = emu_due(DELAY_WGMMA);
    if (due < products->latest_due)
        due = products->latest_due;
    products->latest_due = due;
    p->sums->last = ++products->issued;
    products->open = true;
    emu_schedule(&p->event, due, carry_out);
}

static void read_operands(struct product *p, const struct request *r)
{
    struct block *block = p->warp->block;
    p->b = decode(r->b);
    p->b_reading = check_operand(p->warp, &p->b, 0, p->n);
    emu_reading_begin(block, &p->b_reading);
    if (r->a_registers)
        return;
    p->a = decode(r->a);
    p->a_reading = check_operand(p->warp, &p->a, p->first_row, ROWS);
    emu_reading_begin(block, &p->a_reading);
}

static bool issue(struct warp *warp)
{
    struct products *products = products_of(warp);
    const struct request *r = warp->meeting.pointer[0];
    float *registers[LANES];
    struct product *p = calloc(1, sizeof *p);
    for (int lane = 0; lane < LANES; ++lane) {
        const struct request *other = warp->meeting.pointer[lane];
        if (other->a != r->a || other->b != r->b || other->accumulate != r->accumulate)
            emu_wrong("the lanes of a warp issue a wgmma with different descriptors");
        registers[lane] = other->d;
        p->a_registers[lane] = other->a_registers;
    }
    compare_warps(warp, r, products->issued + 1);
    p->warp = warp;
    p->type = r->type;
    p->n = r->n;
    p->first_row = warp->index % 4 * ROWS;
    p->accumulate = r->accumulate != 0;
    p->sums = sums_for(products, registers, r->n);
    read_operands(p, r);
    emu_trace(warp->block, "wgmma of A at %s", r->a_registers ? "registers" : emu_place(p->a.start - SMEM_BASE).s);
    queue_product(products, p);
    return true;
}

static void request(const struct request *r)
{
    struct meeting *m = &emu.self->warp->meeting;
    const uint32_t lane = emu.self->index % LANES;
    if (emu.self->warp->alive != ~0u || (emu.self->warp->index / 4 + 1) * 4 > emu.self->warp->block->warp_count)
        emu_wrong("wgmma wants a whole warpgroup");
    m->pointer[lane] = r;
    emu_meet(MEET_PRODUCT, r->n << 8 | r->type, issue);
}

void emu_wgmma(enum emu_type type, uint32_t n, float *d, uint64_t a, uint64_t b, int accumulate)
{
    ENTER();
    const struct request r = {type, n, a, b, NULL, accumulate, d};
    request(&r);
}

void emu_wgmma_rs(enum emu_type type, uint32_t n, float *d, const uint32_t *a_words, uint64_t b, int accumulate)
{
    ENTER();
    const struct request r = {type, n, 0, b, a_words, accumulate, d};
    request(&r);
}

/* ---- Fence, groups, waiting ---------------------------------------------------------------------------------- */

static bool fence(struct warp *warp)
{
    products_of(warp)->fenced = true;
    return true;
}

void wgmma_fence(void)
{
    ENTER();
    emu_meet(MEET_FENCE, 0, fence);
}

static bool commit(struct warp *warp)
{
    struct products *products = products_of(warp);
    products->group_end[++products->committed % GROUPS] = products->issued;
    products->open = false;
    return true;
}

void wgmma_commit(void)
{
    ENTER();
    emu_meet(MEET_COMMIT, 0, commit);
}

/* The number of the latest product that a wait with `pending` groups left is for. */
static uint32_t waited_product(const struct products *products, uint32_t pending)
{
    if (pending >= products->committed)
        return 0;
    return products->group_end[(products->committed - pending) % GROUPS];
}

static bool finish_wait(struct products *products, uint32_t pending)
{
    const uint32_t product = waited_product(products, pending);
    if (products->done < product)
        return false;
    give_back_until(products, product);
    products->fenced = false;
    return true;
}

static void wake_if_done(struct warp *warp)
{
    const struct thread *first = &warp->threads[0];
    if (first->waits != WAITS_PRODUCTS || !finish_wait(warp->products, first->detail))
        return;
    emu_trace(warp->block, "the products of warp %u are done", warp->index);
    emu_wake_warp(warp);
}

static bool wait(struct warp *warp)
{
    const uint32_t pending = warp->meeting.detail;
    if (pending >= GROUPS)
        emu_wrong("WGMMA_WAIT(%u): 0 to 7 make sense", pending);
    emu_warp_waits(warp, WAITS_PRODUCTS, pending);
    return finish_wait(products_of(warp), pending);
}

void wgmma_wait(uint32_t pending)
{
    ENTER();
    emu_meet(MEET_PRODUCTS, pending, wait);
}

void emu_products_end(struct warp *warp)
{
    const struct products *products = warp->products;
    const struct products *first = warp->block->warps[warp->index / 4 * 4].products;
    if ((products ? products->issued : 0) != (first ? first->issued : 0))
        emu_wrong("warp %u has issued %u wgmmas, the first warp of its warpgroup %u", warp->index,
                  products ? products->issued : 0, first ? first->issued : 0);
    if ((products ? products->committed : 0) != (first ? first->committed : 0))
        emu_wrong("warp %u has committed %u groups of wgmmas, the first warp of its warpgroup %u", warp->index,
                  products ? products->committed : 0, first ? first->committed : 0);
    if (products && products->open)
        emu_wrong("warp %u ends with wgmmas that it has not committed", warp->index);
    if (products && products->sums)
        emu_wrong("warp %u ends without having waited for its wgmmas", warp->index);
}
