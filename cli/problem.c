#include "problem.h"

#include "array.h"
#include "number.h"
#include "parallel.h"
#include "program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- GEMM: layout ------------------------------------------------------------------------------------------------ */

/* A or B of a case: [mn, k], of which there are `batch`. */
static void describe_operand(struct operand *operand, const struct gemm *g, struct layout layout, int64_t batch,
                             int64_t mn, int64_t k)
{
    layout.dtype = DG_FLOAT8_E4M3;
    layout.batch = batch;
    layout.rows = g->test.flat ? 1 : mn;
    layout.cols = g->test.flat ? mn * k : k;
    layout.step = 1;
    operand_describe(operand, &layout, g->device);
}

/* How many entries A, B and D have; 0: they are matrices. */
struct entries {
    int64_t a, b, d;
};

static struct entries entries_of(const struct test_case *t)
{
    switch (t->kind) {
    case DG_GEMM_DENSE:
        return (struct entries){t->batch, t->batch, t->batch};
    case DG_GEMM_MASKED:
        return (struct entries){t->groups, t->groups, t->groups};
    case DG_GEMM_K_GROUPED:
        return (struct entries){0, 0, t->groups};
    default:
        return (struct entries){0, t->groups, 0};
    }
}

static void describe_operands(struct gemm *g, const struct entries *entries)
{
    const struct test_case *t = &g->test;
    const struct group_room *room = &g->groups.room;
    const bool inner = t->batch_layout == CASE_BATCH_INNER;
    const struct layout a = {.col_major = t->major == CASE_MAJOR_MK || t->major == CASE_MAJOR_MN,
                             .batch_inner = inner,
                             .broadcast = t->broadcast == CASE_BROADCAST_A,
                             .padding = t->lda};
    const struct layout b = {.col_major = t->major == CASE_MAJOR_KN || t->major == CASE_MAJOR_MN,
                             .broadcast = t->broadcast == CASE_BROADCAST_B,
                             .padding = t->ldb};
    describe_operand(&g->a, g, a, entries->a, room->rows, room->k);
    describe_operand(&g->b, g, b, entries->b, t->n, room->k);
    struct layout d = {.dtype = (dg_dtype)t->out, .batch = entries->d, .rows = room->rows, .cols = t->n};
    d.col_major = t->d_layout == CASE_D_COL;
    d.step = t->d_layout == CASE_D_STEP ? 2 : 1;
    d.batch_inner = inner;
    d.padding = t->ldd;
    operand_describe(&g->d, &d, g->device);
    if (t->c == CASE_C_SEPARATE)
        operand_describe(&g->c, &d, g->device);
    const struct layout layout = {
        .dtype = DG_INT32, .rows = room->layout, .cols = 1, .step = 1, .padding = t->layout_step};
    operand_describe(&g->layout, &layout, g->device);
}

bool gemm_describe(struct gemm *g, const struct test_case *t, int32_t device)
{
    const struct entries entries = entries_of(t);
    struct group_room *room = &g->groups.room;
    *g = (struct gemm){.test = *t, .device = device, .plan = {.size = sizeof(g->plan)}};
    if (!group_room(t, room))
        return false;
    describe_operands(g, &entries);
    const int64_t scaled_k = t->kind == DG_GEMM_K_GROUPED ? room->k_blocks * t->recipe[2] : room->k;
    return operand_describe_scales(&g->sfa, (enum case_scales)t->sfa_layout, room->rows, scaled_k, t->recipe[0],
                                   t->recipe[2], (dg_dtype)t->sfa, entries.a, t->broadcast == CASE_BROADCAST_A,
                                   device) &&
           operand_describe_scales(&g->sfb, (enum case_scales)t->sfb_layout, t->n, scaled_k, t->recipe[1], t->recipe[2],
                                   (dg_dtype)t->sfb, entries.b, t->broadcast == CASE_BROADCAST_B, device);
}

/* A matrix of one row, or of one column, as what it stands for. */
static dg_tensor vector_of(dg_tensor t, int dimension)
{
    t.ndim = 1;
    t.shape[0] = t.shape[dimension];
    t.stride[0] = t.stride[dimension];
    return t;
}

dg_gemm_args gemm_args(const struct gemm *g)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    for (int i = 0; i < 3; ++i)
        args.recipe[i] = (int32_t)g->test.recipe[i];
    args.kind = (dg_gemm_kind)g->test.kind;
    args.a = g->test.flat ? vector_of(g->a.view, 1) : g->a.view;
    args.b = g->test.flat ? vector_of(g->b.view, 1) : g->b.view;
    args.sfa = g->sfa.view;
    args.sfb = g->sfb.view;
    args.d = g->d.view;
    if (g->test.c != CASE_C_NONE)
        args.c = g->test.c == CASE_C_IS_D ? g->d.view : g->c.view;
    args.workspace = g->workspace;
    args.workspace_bytes = g->workspace ? g->plan.workspace_bytes : 0;
    args.num_sms = (int32_t)g->test.num_sms;
    args.flags = g->flags | (g->test.zero_padding ? DG_GEMM_ZERO_PADDING : 0);
    args.alignment = (int32_t)g->test.alignment;
    args.expected_m = (int32_t)g->test.expected_m;
    if (g->test.kind != DG_GEMM_DENSE)
        args.layout = vector_of(g->layout.view, 0);
    return args;
}

/* ---- GEMM: memory and data --------------------------------------------------------------------------------------- */

static bool allocate(struct gemm *g)
{
    const int64_t shift = g->test.shift;
    if (!operand_allocate(&g->a, shift) || !operand_allocate(&g->b, shift) || !operand_allocate(&g->d, shift) ||
        !operand_allocate(&g->sfa, 0) || !operand_allocate(&g->sfb, 0) || !operand_allocate(&g->layout, 0))
        return false;
    if (g->test.c == CASE_C_SEPARATE && !operand_allocate(&g->c, shift))
        return false;
    const dg_gemm_args args = gemm_args(g);
    if (!ok(dg_gemm_explain(NULL, &args, NULL, &g->plan)))
        return false;
    if (g->plan.workspace_bytes && !ok(dg_alloc(g->device, g->plan.workspace_bytes, &g->workspace)))
        return false;
    g->d_image = get_memory(g->d.bytes);
    return g->d_image != NULL;
}

static dg_tensor first_matrix(dg_tensor t)
{
    if (t.ndim == 3) {
        t.ndim = 2;
        memmove(t.shape, t.shape + 1, 2 * sizeof(t.shape[0]));
        memmove(t.stride, t.stride + 1, 2 * sizeof(t.stride[0]));
    }
    return t;
}

static bool quantize_on_device(const struct gemm *g, dg_tensor x, const struct operand *q, const struct operand *sf,
                               int64_t gran)
{
    dg_quantize_args args = DG_QUANTIZE_ARGS_INIT;
    const bool one = q->view.ndim == 3 && q->view.stride[0] == 0 && q->view.shape[0] != 1; /* broadcast */
    args.x = one ? first_matrix(x) : x;
    args.q = one ? first_matrix(q->view) : q->view;
    args.sf = one ? first_matrix(sf->view) : sf->view;
    args.gran_mn = (int32_t)gran;
    args.gran_k = (int32_t)g->test.recipe[2];
    return ok(dg_quantize_fp8(NULL, &args, NULL)) && ok(dg_synchronize(g->device, NULL));
}

/* x, random and row-major, on the host and then on the device, has become q and sf there. */
static bool quantize_random(const struct gemm *g, const struct operand *q, const struct operand *sf, int64_t gran,
                            enum random_style style, uint64_t seed)
{
    const int64_t rows = operand_rows(&q->view), cols = operand_cols(&q->view), batch = operand_batch(&q->view);
    struct layout layout = {.dtype = DG_BFLOAT16, .rows = rows, .cols = cols, .step = 1};
    layout.batch = q->view.ndim == 3 ? batch : 0;
    struct operand x;
    operand_describe(&x, &layout, g->device);
    if (rows == 0 || cols == 0)
        return true;
    bool done = operand_allocate(&x, 0);
    if (done)
        random_fill(DG_BFLOAT16, x.host.data, batch * rows, cols, style, seed);
    done = done && operand_upload(&x) && quantize_on_device(g, x.view, q, sf, gran);
    operand_free(&x);
    return done;
}

struct product gemm_product(const struct gemm *g, const struct span *s)
{
    const struct test_case *t = &g->test;
    const int64_t rows = s->end - s->row, k_blocks = (s->k + t->recipe[2] - 1) / t->recipe[2];
    const bool packed_a = t->sfa == DG_INT32, packed_b = t->sfb == DG_INT32;
    const int64_t n_blocks = (t->n + t->recipe[1] - 1) / t->recipe[1];
    struct product p = {
        .sfa = operand_part(&g->sfa, s->batch, s->row, rows, s->k_block, packed_a ? (k_blocks + 3) / 4 : k_blocks),
        .sfb = operand_part(&g->sfb, s->group, 0, n_blocks, s->k_block, packed_b ? (k_blocks + 3) / 4 : k_blocks)};
    if (t->flat) {
        p.a = operand_flat_part(&g->a, g->groups.room.rows * s->k_begin, rows, s->k);
        p.b = operand_flat_part(&g->b, t->n * s->k_begin, t->n, s->k);
    } else {
        p.a = operand_part(&g->a, s->batch, s->row, rows, s->k_begin, s->k);
        p.b = operand_part(&g->b, s->group, 0, t->n, s->k_begin, s->k);
    }
    return p;
}

/* Each product's own rows of A and columns of both, where all of A, or of B, is not one matrix. */
static bool fill_products(const struct gemm *g, enum random_style style, uint64_t seed)
{
    for (int64_t i = 0; i < g->groups.count; ++i) {
        const struct product p = gemm_product(g, &g->groups.spans[i]);
        const uint64_t own = seed + ((uint64_t)i << 32);
        if (!quantize_random(g, &p.a, &p.sfa, g->test.recipe[0], style, 2 * own))
            return false;
        if (g->test.kind == DG_GEMM_K_GROUPED &&
            !quantize_random(g, &p.b, &p.sfb, g->test.recipe[1], style, 2 * own + 1))
            return false;
    }
    return true;
}

static bool poison(struct operand *q, struct operand *sf)
{
    operand_fill(q, 0x7f);
    operand_fill(sf, 0xff);
    return operand_upload(q) && operand_upload(sf);
}

static bool fill_operands(struct gemm *g, enum random_style style, uint64_t seed)
{
    const struct test_case *t = &g->test;
    if (!poison(&g->a, &g->sfa) || !poison(&g->b, &g->sfb))
        return false;
    if (t->kind == DG_GEMM_DENSE ? !quantize_random(g, &g->a, &g->sfa, t->recipe[0], style, 2 * seed)
                                 : !fill_products(g, style, seed))
        return false;
    if (t->kind != DG_GEMM_K_GROUPED && !quantize_random(g, &g->b, &g->sfb, t->recipe[1], style, 2 * seed + 1))
        return false;
    return operand_download(&g->a) && operand_download(&g->sfa) && operand_download(&g->b) && operand_download(&g->sfb);
}

/* Between the numbers lie others that name no group. */
static bool fill_layout(struct gemm *g, uint64_t seed)
{
    groups_free(&g->groups);
    if (!groups_make(&g->groups, &g->test, seed))
        return false;
    operand_fill(&g->layout, 0x7f);
    for (int64_t i = 0; i < g->groups.room.layout; ++i)
        memcpy(operand_element(&g->layout, 0, i, 0), &g->groups.layout[i], sizeof(int32_t));
    return operand_upload(&g->layout);
}

static float c_value(const struct gemm *g, int64_t batch, int64_t row, int64_t col, uint64_t seed)
{
    const uint64_t index = (uint64_t)((batch * g->groups.room.rows + row) * g->test.n + col);
    return 8.0f * random_normal(seed ^ 0xcccc, index);
}

struct fill_c {
    const struct gemm *gemm;
    const struct operand *operand;
    uint64_t seed;
};

static void fill_c_rows(void *user, int64_t begin, int64_t end)
{
    const struct fill_c *f = user;
    for (int64_t i = begin; i < end; ++i) {
        const int64_t batch = i / f->gemm->groups.room.rows, row = i % f->gemm->groups.room.rows;
        for (int64_t col = 0; col < f->gemm->test.n; ++col)
            number_write(f->operand->host.dtype, operand_element(f->operand, batch, row, col), 0,
                         c_value(f->gemm, batch, row, col, f->seed));
    }
}

static void fill_c(const struct gemm *g, const struct operand *operand, uint64_t seed)
{
    struct fill_c f = {g, operand, seed};
    parallel_for(operand_batch(&operand->host) * g->groups.room.rows, 1, fill_c_rows, &f);
}

static void fill_nan(void *user, uint8_t *data, size_t bytes)
{
    (void)user;
    memset(data, 0xff, bytes);
}

static struct operand d_rows(const struct gemm *g, const struct span *span, int64_t row, int64_t end)
{
    return operand_part(&g->d, span->batch, row, end - row, 0, g->test.n);
}

static void make_d_image(struct gemm *g, uint64_t seed)
{
    operand_fill_pattern(&g->d);
    for (int64_t i = 0; i < g->groups.count; ++i) {
        const struct span *span = &g->groups.spans[i];
        const struct operand rows = d_rows(g, span, span->row, span->zero_end);
        operand_for_runs(&rows, fill_nan, NULL);
    }
    if (g->test.c == CASE_C_IS_D)
        fill_c(g, &g->d, seed);
    memcpy(g->d_image, g->d.host_memory, g->d.bytes);
}

bool gemm_refill(struct gemm *g, enum random_style style, uint64_t seed)
{
    if (!fill_layout(g, seed) || !fill_operands(g, style, seed))
        return false;
    if (g->test.c == CASE_C_SEPARATE) {
        operand_fill(&g->c, 0xff);
        fill_c(g, &g->c, seed);
        if (!operand_upload(&g->c))
            return false;
    }
    make_d_image(g, seed);
    return gemm_reset(g);
}

bool gemm_make(struct gemm *g, const struct test_case *t, int32_t device, enum random_style style)
{
    return gemm_describe(g, t, device) && allocate(g) && gemm_refill(g, style, (uint64_t)t->seed);
}

void gemm_free(struct gemm *g)
{
    operand_free(&g->a);
    operand_free(&g->b);
    operand_free(&g->sfa);
    operand_free(&g->sfb);
    operand_free(&g->c);
    operand_free(&g->d);
    operand_free(&g->layout);
    groups_free(&g->groups);
    if (g->workspace)
        dg_free(g->device, g->workspace);
    free(g->d_image);
    *g = (struct gemm){0};
}

/* ---- GEMM: running ----------------------------------------------------------------------------------------------- */

bool gemm_reset(struct gemm *g)
{
    memcpy(g->d.host_memory, g->d_image, g->d.bytes);
    return operand_upload(&g->d);
}

bool gemm_run(const struct gemm *g, dg_context *context, dg_stream stream)
{
    const dg_gemm_args args = gemm_args(g);
    return ok(dg_gemm(context, &args, stream));
}

/* What each row of D, entry after entry, has become. */
enum row_use { ROW_STAYS, ROW_ZERO, ROW_COMPUTED };

static uint8_t *row_uses(const struct gemm *g)
{
    const int64_t rows = g->groups.room.rows;
    uint8_t *uses = get_memory((size_t)(operand_batch(&g->d.host) * rows));
    if (uses == NULL)
        return NULL;
    memset(uses, ROW_STAYS, (size_t)(operand_batch(&g->d.host) * rows));
    for (int64_t i = 0; i < g->groups.count; ++i) {
        const struct span *s = &g->groups.spans[i];
        uint8_t *use = uses + s->batch * rows;
        memset(use + s->row, ROW_COMPUTED, (size_t)(s->end - s->row));
        memset(use + s->end, ROW_ZERO, (size_t)(s->zero_end - s->end));
    }
    return uses;
}

struct row_check {
    const struct gemm *gemm;
    enum row_use use;
    bool good;
};

static bool has_nan(dg_dtype dtype, const uint8_t *data, size_t bytes)
{
    const int64_t count = (int64_t)(bytes / dg_dtype_size(dtype));
    for (int64_t i = 0; i < count; ++i)
        if (isnan(number_read(dtype, data, i)))
            return true;
    return false;
}

static bool all_zero(const uint8_t *data, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && data[at] == 0)
        ++at;
    return at == bytes;
}

static void check_run(void *user, uint8_t *data, size_t bytes)
{
    struct row_check *check = user;
    const struct operand *d = &check->gemm->d;
    const uint8_t *before = check->gemm->d_image + (data - (uint8_t *)d->host_memory);
    check->good = check->good && (check->use == ROW_COMPUTED ? !has_nan(d->host.dtype, data, bytes)
                                  : check->use == ROW_ZERO   ? all_zero(data, bytes)
                                                             : memcmp(data, before, bytes) == 0);
}

static bool check_row(const struct gemm *g, int64_t batch, int64_t row, enum row_use use)
{
    static const char *const sentences[] = {
        [ROW_STAYS] = "belongs to no group and yet was changed",
        [ROW_ZERO] = "is padding that has to be zeros, and is not",
        [ROW_COMPUTED] = "is NaN somewhere: not written, or computed from what lies outside A, B or their scales"};
    struct row_check check = {g, use, true};
    const struct operand one = operand_part(&g->d, batch, row, 1, 0, g->test.n);
    operand_for_runs(&one, check_run, &check);
    return check.good || trouble("row %lld of D's entry %lld %s", (long long)row, (long long)batch, sentences[use]);
}

bool gemm_check_surroundings(const struct gemm *g)
{
    const int64_t rows = g->groups.room.rows, count = operand_batch(&g->d.host) * rows;
    if (!operand_gaps_same(&g->d, "D", g->d_image))
        return false;
    uint8_t *uses = row_uses(g);
    bool good = uses != NULL;
    for (int64_t i = 0; good && i < count; ++i)
        good = check_row(g, i / rows, i % rows, (enum row_use)uses[i]);
    free(uses);
    return good;
}

/* ---- Quantisation ------------------------------------------------------------------------------------------------ */

bool quantization_describe(struct quantization *z, const struct test_case *t, int32_t device)
{
    struct layout layout = {.dtype = (dg_dtype)t->in, .batch = t->batch, .rows = t->m, .cols = t->k, .step = 1};
    layout.padding = t->lda;
    *z = (struct quantization){.test = *t};
    operand_describe(&z->x, &layout, device);
    layout.dtype = DG_FLOAT8_E4M3;
    operand_describe(&z->q, &layout, device);
    return operand_describe_scales(&z->sf, (enum case_scales)t->sf_layout, t->m, t->k, t->gran[0], t->gran[1],
                                   (dg_dtype)t->sf, t->batch, false, device);
}

/* Values that quantisation treats differently are sown into the normal ones: zeros, denormals, large ones. */
static void fill_x(const struct quantization *z)
{
    static const float special[] = {0.0f, 1e-40f, 1e-7f, 448.0f, 1e4f, -3e4f};
    const struct test_case *t = &z->test;
    const uint64_t seed = (uint64_t)t->seed;
    for (int64_t batch = 0; batch < operand_batch(&z->x.host); ++batch) {
        for (int64_t row = 0; row < t->m; ++row) {
            for (int64_t col = 0; col < t->k; ++col) {
                const uint64_t index = (uint64_t)((batch * t->m + row) * t->k + col), bits = random_bits(seed, ~index);
                const float value = bits % 509 == 0 ? special[bits / 509 % 6] : random_normal(seed, index);
                number_write(z->x.host.dtype, operand_element(&z->x, batch, row, col), 0, row % 17 == 3 ? 0.0f : value);
            }
        }
    }
}

bool quantization_make(struct quantization *z, const struct test_case *t, int32_t device)
{
    if (!quantization_describe(z, t, device) || !operand_allocate(&z->x, t->shift) ||
        !operand_allocate(&z->q, t->shift) || !operand_allocate(&z->sf, 0))
        return false;
    operand_fill(&z->x, 0xff);
    fill_x(z);
    operand_fill_pattern(&z->q);
    operand_fill_pattern(&z->sf);
    return operand_upload(&z->x) && operand_upload(&z->q) && operand_upload(&z->sf);
}

dg_quantize_args quantization_args(const struct quantization *z)
{
    dg_quantize_args args = DG_QUANTIZE_ARGS_INIT;
    args.x = z->x.view;
    args.q = z->q.view;
    args.sf = z->sf.view;
    args.gran_mn = (int32_t)z->test.gran[0];
    args.gran_k = (int32_t)z->test.gran[1];
    args.round_scale = (int32_t)z->test.round;
    return args;
}

bool quantization_run(const struct quantization *z, dg_stream stream)
{
    const dg_quantize_args args = quantization_args(z);
    return ok(dg_quantize_fp8(NULL, &args, stream));
}

void quantization_free(struct quantization *z)
{
    operand_free(&z->x);
    operand_free(&z->q);
    operand_free(&z->sf);
}

/* ---- Scale transforms -------------------------------------------------------------------------------------------- */

/* Scales as quantisation makes them: powers of two when they must pack exactly, any positive number otherwise. */
static void fill_scales(const struct transform *f)
{
    const dg_tensor *t = &f->src.host;
    for (int64_t batch = 0; batch < operand_batch(t); ++batch) {
        for (int64_t row = 0; row < operand_rows(t); ++row) {
            for (int64_t col = 0; col < operand_cols(t); ++col) {
                void *element = operand_element(&f->src, batch, row, col);
                const uint64_t bits = random_bits((uint64_t)f->test.seed,
                                                  (uint64_t)((batch * operand_rows(t) + row) * operand_cols(t) + col));
                const uint32_t word = (uint32_t)(bits & 0xfefefefe); /* any bytes but 255 */
                const float scale =
                    ldexpf(f->test.round ? 1.0f + (float)(bits >> 41) * 0x1p-23f : 1.0f, (int)(bits % 40) - 30);
                memcpy(element, t->dtype == DG_INT32 ? (const void *)&word : (const void *)&scale, 4);
            }
        }
    }
}

bool transform_describe(struct transform *f, const struct test_case *t, int32_t device)
{
    *f = (struct transform){.test = *t};
    return operand_describe_scales(&f->src, CASE_SF_ROW, t->m, t->k, t->gran[0], t->gran[1], (dg_dtype)t->from,
                                   t->batch, false, device) &&
           operand_describe_scales(&f->dst, (enum case_scales)t->sf_layout, t->m, t->k, t->gran[0], t->gran[1],
                                   (dg_dtype)t->to, t->batch, false, device);
}

bool transform_make(struct transform *f, const struct test_case *t, int32_t device)
{
    if (!transform_describe(f, t, device) || !operand_allocate(&f->src, 0) || !operand_allocate(&f->dst, 0))
        return false;
    operand_fill(&f->src, 0xff);
    fill_scales(f);
    operand_fill_pattern(&f->dst);
    return operand_upload(&f->src) && operand_upload(&f->dst);
}

dg_transform_scale_args transform_args(const struct transform *f)
{
    dg_transform_scale_args args = DG_TRANSFORM_SCALE_ARGS_INIT;
    args.src = f->src.view;
    args.dst = f->dst.view;
    args.round_scale = (int32_t)f->test.round;
    return args;
}

bool transform_run(const struct transform *f, dg_stream stream)
{
    const dg_transform_scale_args args = transform_args(f);
    return ok(dg_transform_scale(NULL, &args, stream));
}

void transform_free(struct transform *f)
{
    operand_free(&f->src);
    operand_free(&f->dst);
}
