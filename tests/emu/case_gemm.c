/*
 * Cases of dg_gemm and its kernels:
 *
 *   gemm 128x96 m=200 n=300 k=400 [batch=2] [cluster=2x1] [sms=7] [out=bf16|f16|f32] [c=other|d] [sfa=tma] [packed]
 *        [sfb=packed] [store=direct] [pdl] [early] [hopper] [ints] [special]
 *   gemm skinny=16x1x4x1 m=... as above: rows of tokens, step, splits, blocks on an SM
 *   gemm [128x96] kind=contiguous|psum|masked rows=100,0,-128,7 n=... [align=128] [m=...] [zeros] as above: rows of
 * each group, from the top; of contiguous products a negative number makes rows of no group gemm kind=k_grouped
 * ks=128,0,256 m=... n=... [flat] as above gemm m=... as above, and [arch=80] [a=cols] [b=spread] [sfa=cols] [d=cols]
 * ...: without a tile the library chooses
 *
 * The operands are random; `ints`: so small that every sum is exact, in any order and on any device; `special`: some
 * codes are NaN, zero, denormal or the largest, some packed scales the least power of two or NaN.
 */
#include "tests/emu/case.h"

#include "core/context.h"
#include "core/status.h"
#include "cpu/convert.h"
#include "ops/gemm_row.h"
#include "ops/kernel.h"
#include "tests/fake/fake.h"

#include <math.h>

static struct tensor *a, *b, *sfa, *sfb, *c, *d, *layout;

/* ---- Operands ------------------------------------------------------------------------------------------------ */

static void fill_fp8(struct tensor *t, bool ints)
{
    TENSOR_FOR_EACH(t, i, row, col)
    tensor_set(t, i, row, col, ints ? (float)(case_below(9) - 4) : case_uniform() * (case_below(4) ? 3.0f : 30.0f));
}

/* NaN in one row of a hundred elements or so, which leaves others to look at. */
static void make_special_codes(struct tensor *t)
{
    static const uint8_t codes[] = {0x7e, 0xfe, 0x00, 0x80, 0x01, 0x87, 0x08, 0x88};
    TENSOR_FOR_EACH(t, i, row, col)
    {
        uint8_t *code = tensor_at(t, i, row, col);
        if (row % 7 == 3 && case_below(100) == 0)
            *code = (uint8_t)(0x7f | case_below(2) << 7);
        else if (case_below(16) == 0)
            *code = codes[case_below(sizeof codes)];
    }
}

static void make_special_scales(struct tensor *t)
{
    if (t->host.dtype == DG_INT32)
        TENSOR_FOR_EACH(t, i, row, col)
    if (case_below(4) == 0)
        ((uint8_t *)tensor_at(t, i, row, col))[case_below(4)] = case_below(4) ? 0 : 255;
}

static void fill_scales(struct tensor *t, bool ints)
{
    TENSOR_FOR_EACH(t, i, row, col)
    {
        uint32_t word = 0;
        for (int byte = 0; byte < 4; ++byte)
            word |= (uint32_t)(125 + case_below(5)) << (8 * byte);
        if (t->host.dtype == DG_FLOAT32)
            tensor_set(t, i, row, col, ints ? ldexpf(1, (int)case_below(3) - 1) : 0.5f + fabsf(case_uniform()));
        else
            memcpy(tensor_at(t, i, row, col), &word, sizeof word);
    }
}

static void fill_output(struct tensor *t, bool ints)
{
    TENSOR_FOR_EACH(t, i, row, col)
    tensor_set(t, i, row, col, ints ? (float)(case_below(64) - 32) : 32.0f * case_uniform());
}

/* ---- Groups -------------------------------------------------------------------------------------------------- */

enum { MOST_GROUPS = 96 };

static dg_gemm_kind kind_of(const char *line)
{
    return case_has(line, "kind=contiguous")  ? DG_GEMM_CONTIGUOUS
           : case_has(line, "kind=psum")      ? DG_GEMM_PSUM
           : case_has(line, "kind=masked")    ? DG_GEMM_MASKED
           : case_has(line, "kind=k_grouped") ? DG_GEMM_K_GROUPED
                                              : DG_GEMM_DENSE;
}

static int64_t align_of(const char *line)
{
    return case_number(line, "align", 128);
}

/* The numbers behind "rows=" or "ks="; how many. */
static int64_t group_sizes(const char *line, int64_t sizes[MOST_GROUPS])
{
    const char *word = strstr(line, "rows=") ? strstr(line, "rows=") + 5
                       : strstr(line, "ks=") ? strstr(line, "ks=") + 3
                                             : "";
    int64_t count = 0;
    for (char *end; count < MOST_GROUPS; word = end + 1) {
        const int64_t size = strtoll(word, &end, 10);
        if (end == word)
            break;
        sizes[count++] = size;
        if (*end != ',')
            break;
    }
    return count;
}

/* Rows of A in contiguous and psum products, where the line does not say. */
static int64_t rows_of(const char *line)
{
    int64_t sizes[MOST_GROUPS], rows = 0;
    const int64_t count = group_sizes(line, sizes);
    for (int64_t i = 0; i < count; ++i)
        rows = round_up(rows, align_of(line)) + llabs(sizes[i]);
    return case_number(line, "m", rows);
}

/* What the device reads: -1 behind a group's rows, up to the next block's. */
static void fill_row_numbers(const char *line)
{
    int64_t sizes[MOST_GROUPS], row = 0;
    const int64_t count = group_sizes(line, sizes), rows = rows_of(line);
    int32_t *numbers = tensor_at(layout, 0, 0, 0);
    for (int64_t i = 0; i < rows; ++i)
        numbers[i] = -1;
    for (int64_t i = 0; i < count; ++i) {
        row = round_up(row, align_of(line));
        for (int64_t j = 0; j < llabs(sizes[i]) && row < rows; ++j, ++row)
            numbers[row] = sizes[i] < 0 ? -(int32_t)i - 1 : (int32_t)i;
    }
}

static void make_layout(const char *line)
{
    int64_t sizes[MOST_GROUPS], end = 0;
    const int64_t count = group_sizes(line, sizes);
    const dg_gemm_kind kind = kind_of(line);
    layout = NULL;
    if (kind == DG_GEMM_DENSE)
        return;
    layout =
        tensor_make("layout", DG_INT32, 0, 1, kind == DG_GEMM_CONTIGUOUS ? rows_of(line) : count, LAYOUT_ROWS, 4, 0);
    if (kind == DG_GEMM_CONTIGUOUS) {
        fill_row_numbers(line);
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        end = kind == DG_GEMM_PSUM ? round_up(end, align_of(line)) + sizes[i] : sizes[i];
        *(int32_t *)tensor_at(layout, 0, 0, i) = (int32_t)end;
    }
}

/* As TMA loads them (columns contiguous, 16 bytes aligned), or as they come. */
static struct tensor *make_scales(const char *name, const char *line, int64_t batch, int64_t rows, int64_t groups,
                                  bool packed, bool tma)
{
    return tensor_make(name, packed ? DG_INT32 : DG_FLOAT32, batch, rows, packed ? ceil_div(groups, 4) : groups,
                       tma ? LAYOUT_COLS : case_layout(line, name), tma ? 16 : 4, 0);
}

static void make_tensors(const char *line)
{
    int64_t sizes[MOST_GROUPS], k = case_number(line, "k", 128), groups = ceil_div(k, 128);
    const dg_gemm_kind kind = kind_of(line);
    const bool by_rows = kind == DG_GEMM_CONTIGUOUS || kind == DG_GEMM_PSUM, by_k = kind == DG_GEMM_K_GROUPED;
    const int64_t m = by_rows ? rows_of(line) : case_number(line, "m", 128), n = case_number(line, "n", 128);
    const int64_t count = group_sizes(line, sizes),
                  entries = kind == DG_GEMM_DENSE ? case_number(line, "batch", 0) : count;
    const int64_t a_batch = by_rows || by_k ? 0 : entries, b_batch = by_k ? 0 : entries;
    const dg_dtype out = case_type(line, "out");
    const bool direct = case_has(line, "store=direct"), sfb_rows = by_k || case_has(line, "recipe=rows");
    if (by_k)
        k = groups = 0;
    for (int64_t i = 0; by_k && i < count; ++i) {
        k += sizes[i];
        groups += ceil_div(sizes[i], 128);
    }
    a = tensor_make("A", DG_FLOAT8_E4M3, a_batch, m, k, case_layout(line, "a"), 16, 0);
    b = tensor_make("B", DG_FLOAT8_E4M3, b_batch, n, k, case_layout(line, "b"), 16, 0);
    sfa = make_scales("sfa", line, a_batch, m, groups, case_has(line, "packed"), case_has(line, "sfa=tma"));
    sfb =
        make_scales("sfb", line, b_batch, sfb_rows ? n : ceil_div(n, 128), groups, case_has(line, "sfb=packed"), false);
    d = tensor_make("D", out, by_rows ? 0 : entries, m, n, case_layout(line, "d"), direct ? 4 : 16, direct);
    c = case_has(line, "c=other") ? tensor_make("C", out, by_rows ? 0 : entries, m, n, LAYOUT_ROWS, 4, 1)
        : case_has(line, "c=d")   ? d
                                  : NULL;
    d->output = true;
    make_layout(line);
}

/* K is split, and the shares are summed at the end: other bits than the reference's, which sums in the order of k. */
static bool is_split(const char *line)
{
    const char *word = strstr(line, "skinny=");
    int splits;
    return word && sscanf(word, "skinny=%*dx%*dx%dx", &splits) == 1 && splits > 1;
}

static void prepare(const char *line)
{
    const bool ints = case_has(line, "ints");
    make_tensors(line);
    fill_fp8(a, ints);
    fill_fp8(b, ints);
    fill_scales(sfa, ints);
    fill_scales(sfb, ints);
    if (case_has(line, "special")) {
        make_special_codes(a);
        make_special_codes(b);
        make_special_scales(sfa);
        make_special_scales(sfb);
    }
    fill_output(d, ints);
    if (c && c != d)
        fill_output(c, ints);
    if ((case_has(line, "hopper") || is_split(line)) && !ints)
        d->within = 5e-6; /* deepgemm.h */
}

/* All elements of a row-major matrix in a row. */
static dg_tensor vector_of(const dg_tensor *matrix)
{
    dg_tensor vector = *matrix;
    vector.ndim = 1;
    vector.shape[0] = matrix->shape[0] * matrix->shape[1];
    vector.stride[0] = 1;
    return vector;
}

static dg_gemm_args args_of(const char *line, bool on_device)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    args.a = on_device ? a->device : a->host;
    args.b = on_device ? b->device : b->host;
    args.sfa = on_device ? sfa->device : sfa->host;
    args.sfb = on_device ? sfb->device : sfb->host;
    args.d = on_device ? d->device : d->host;
    if (c)
        args.c = on_device ? c->device : c->host;
    args.kind = kind_of(line);
    if (layout)
        args.layout = vector_of(on_device ? &layout->device : &layout->host);
    if (args.kind == DG_GEMM_CONTIGUOUS || args.kind == DG_GEMM_PSUM)
        args.alignment = (int32_t)align_of(line);
    if (case_has(line, "zeros"))
        args.flags |= DG_GEMM_ZERO_PADDING;
    if (case_has(line, "recipe=rows"))
        args.recipe[0] = args.recipe[1] = 1, args.recipe[2] = 128;
    if (case_has(line, "flat")) {
        args.a = vector_of(&args.a);
        args.b = vector_of(&args.b);
    }
    return args;
}

/* ---- Launching ----------------------------------------------------------------------------------------------- */

/* "128x96" and "cluster=2x1": the tile to use; false: the library's choice. */
static bool wanted_tile(const char *line, int32_t tile[4])
{
    int numbers[4] = {0, 0, 1, 1};
    const char *cluster = strstr(line, "cluster=");
    if (sscanf(line, "gemm %dx%d", &numbers[0], &numbers[1]) != 2)
        return false;
    if (cluster)
        sscanf(cluster, "cluster=%dx%d", &numbers[2], &numbers[3]);
    for (int i = 0; i < 4; ++i)
        tile[i] = numbers[i];
    return true;
}

static bool wanted_skinny(const char *line, struct gemm_skinny_tile *tile)
{
    const char *word = strstr(line, "skinny=");
    int n[4];
    if (word == NULL || sscanf(word, "skinny=%dx%dx%dx%d", &n[0], &n[1], &n[2], &n[3]) != 4)
        return false;
    *tile = (struct gemm_skinny_tile){n[0], n[1], n[2], n[3]};
    return true;
}

/* The plan that the line asks for; false: there is no such tile. */
static bool plan_tile(const struct gemm_problem *p, const dg_device_info *info, const char *line,
                      struct gemm_plan *plan)
{
    const int32_t sms = (int32_t)case_number(line, "sms", info->num_sms);
    struct gemm_skinny_tile skinny;
    int32_t t[4];
    *plan = (struct gemm_plan){.row = &gemm_row_sm90_fp8_gemm_1d2d};
    if (wanted_skinny(line, &skinny)) {
        plan->row = &gemm_row_sm90_fp8_gemm_skinny;
        const bool there = gemm_skinny_plan_tile(p, info, sms, &skinny, &plan->skinny);
        gemm_skinny_shape(plan);
        return there;
    }
    const bool there = wanted_tile(line, t) && gemm_1d2d_plan_tile(p, info, sms, t[0], t[1], t[2], t[3], &plan->sm90);
    gemm_1d2d_shape(plan);
    return there;
}

/* What dg_gemm does, but for the choice. */
static dg_status launch_tile(const struct cuda_scope *scope, const dg_gemm_args *args, const char *line)
{
    struct gemm_plan plan;
    union gemm_kernel_args kernel_args;
    struct kernel_spec spec;
    struct gemm_problem p;
    CHECK(gemm_problem_make(args, NULL_DATA_REFUSED, &p));
    const struct text refusal = gemm_1d2d_refusal(&p, &scope->device->info, false);
    if (refusal.s[0])
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s", refusal.s);
    if (!plan_tile(&p, &scope->device->info, line, &plan))
        return fail(DG_ERROR_INVALID_ARGUMENT, "there is no such tile");
    struct cuda_launch launch = {
        .grid = {plan.grid, 1, 1}, .threads = plan.threads, .cluster = plan.cluster, .pdl = case_has(line, "pdl")};
    dg_context *context;
    CHECK(context_resolve(NULL, &context));
    plan.row->spec(&p, &plan, &spec);
    spec.request.config = spec.config;
    CHECK(kernel_get(context, scope, &spec.request, plan.smem_bytes, &launch.kernel));
    plan.b_early = case_has(line, "early");
    if (plan.b_early)
        emu_memory_constant(b->device_memory);
    CHECK(plan.row->bind(&p, &plan, scope->driver, &kernel_args));
    return cuda_launch(scope, &launch, &kernel_args, NULL);
}

static dg_status run(const char *line, bool on_device)
{
    const dg_gemm_args args = args_of(line, on_device);
    struct cuda_scope scope;
    int32_t tile[4];
    if (!on_device || (!wanted_tile(line, tile) && strstr(line, "skinny=") == NULL))
        return dg_gemm(NULL, &args, NULL);
    operation_begin("dg_gemm");
    CHECK(cuda_enter(0, NULL, &scope));
    const dg_status status = launch_tile(&scope, &args, line);
    cuda_leave(&scope);
    return status;
}

static const char *const words[] = {"[0-9]*x[0-9]*",
                                    "skinny=[0-9]*x[124]x[1-8]x[12]",
                                    "m=[0-9]*",
                                    "n=[0-9]*",
                                    "k=[0-9]*",
                                    "batch=[0-9]*",
                                    "cluster=[0-9]x[0-9]",
                                    "sms=[0-9]*",
                                    "arch=[0-9]*",
                                    "out=bf16",
                                    "out=f16",
                                    "out=f32",
                                    "c=other",
                                    "c=d",
                                    "sfa=tma",
                                    "packed",
                                    "store=direct",
                                    "pdl",
                                    "early",
                                    "kind=contiguous",
                                    "kind=psum",
                                    "kind=masked",
                                    "kind=k_grouped",
                                    "rows=[-0-9,]*",
                                    "ks=[-0-9,]*",
                                    "align=[0-9]*",
                                    "zeros",
                                    "flat",
                                    "recipe=rows",
                                    "hopper",
                                    "ints",
                                    "special",
                                    "sfb=packed",
                                    "[abd]=cols",
                                    "[abd]=spread",
                                    "sf[ab]=cols",
                                    "sf[ab]=spread",
                                    NULL};

const struct operation gemm_operation = {"gemm", words, prepare, run};
