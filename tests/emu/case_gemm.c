/*
 * Cases of dg_gemm and its kernels:
 *
 *   gemm 128x96 m=200 n=300 k=400 [batch=2] [cluster=2x1] [sms=7] [out=bf16|f16|f32] [c=other|d] [sfa=tma] [packed]
 *        [sfb=packed] [store=direct] [pdl] [early] [hopper] [ints] [special]
 *   gemm skinny=16x1x4x1 m=... as above: rows of tokens, step, splits, blocks on an SM
 *   gemm m=... as above, and [arch=80] [a=cols] [b=spread] [sfa=cols] [d=cols] ...: without a tile the library chooses
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

static struct tensor *a, *b, *sfa, *sfb, *c, *d;

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

/* As TMA loads them (columns contiguous, 16 bytes aligned), or as they come. */
static struct tensor *make_scales(const char *name, const char *line, int64_t rows, bool packed, bool tma)
{
    const int64_t groups = ceil_div(case_number(line, "k", 128), 128);
    return tensor_make(name, packed ? DG_INT32 : DG_FLOAT32, case_number(line, "batch", 0), rows,
                       packed ? ceil_div(groups, 4) : groups, tma ? LAYOUT_COLS : case_layout(line, name), tma ? 16 : 4,
                       0);
}

static void make_tensors(const char *line)
{
    const int64_t m = case_number(line, "m", 128), n = case_number(line, "n", 128), k = case_number(line, "k", 128);
    const int64_t batch = case_number(line, "batch", 0);
    const dg_dtype out = case_type(line, "out");
    const bool direct = case_has(line, "store=direct");
    a = tensor_make("A", DG_FLOAT8_E4M3, batch, m, k, case_layout(line, "a"), 16, 0);
    b = tensor_make("B", DG_FLOAT8_E4M3, batch, n, k, case_layout(line, "b"), 16, 0);
    sfa = make_scales("sfa", line, m, case_has(line, "packed"), case_has(line, "sfa=tma"));
    sfb = make_scales("sfb", line, ceil_div(n, 128), case_has(line, "sfb=packed"), false);
    d = tensor_make("D", out, batch, m, n, case_layout(line, "d"), direct ? 4 : 16, direct);
    c = case_has(line, "c=other") ? tensor_make("C", out, batch, m, n, LAYOUT_ROWS, 4, 1)
        : case_has(line, "c=d")   ? d
                                  : NULL;
    d->output = true;
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

static dg_gemm_args args_of(bool on_device)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    args.a = on_device ? a->device : a->host;
    args.b = on_device ? b->device : b->host;
    args.sfa = on_device ? sfa->device : sfa->host;
    args.sfb = on_device ? sfb->device : sfb->host;
    args.d = on_device ? d->device : d->host;
    if (c)
        args.c = on_device ? c->device : c->host;
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
    const dg_gemm_args args = args_of(on_device);
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
