#include "problem.h"

#include "array.h"
#include "number.h"
#include "parallel.h"
#include "program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- GEMM: layout ------------------------------------------------------------------------------------------------ */

static void describe_operands(struct gemm *g)
{
    const struct test_case *t = &g->test;
    const bool inner = t->batch_layout == CASE_BATCH_INNER;
    struct layout a = {.dtype = DG_FLOAT8_E4M3, .batch = t->batch, .rows = t->m, .cols = t->k, .step = 1};
    a.col_major = t->major == CASE_MAJOR_MK || t->major == CASE_MAJOR_MN;
    a.batch_inner = inner;
    a.broadcast = t->broadcast == CASE_BROADCAST_A;
    a.padding = t->lda;
    operand_describe(&g->a, &a, g->device);
    struct layout b = {.dtype = DG_FLOAT8_E4M3, .batch = t->batch, .rows = t->n, .cols = t->k, .step = 1};
    b.col_major = t->major == CASE_MAJOR_KN || t->major == CASE_MAJOR_MN;
    b.broadcast = t->broadcast == CASE_BROADCAST_B;
    b.padding = t->ldb;
    operand_describe(&g->b, &b, g->device);
    struct layout d = {.dtype = (dg_dtype)t->out, .batch = t->batch, .rows = t->m, .cols = t->n};
    d.col_major = t->d_layout == CASE_D_COL;
    d.step = t->d_layout == CASE_D_STEP ? 2 : 1;
    d.batch_inner = inner;
    d.padding = t->ldd;
    operand_describe(&g->d, &d, g->device);
    if (t->c == CASE_C_SEPARATE)
        operand_describe(&g->c, &d, g->device);
}

bool gemm_describe(struct gemm *g, const struct test_case *t, int32_t device)
{
    *g = (struct gemm){.test = *t, .device = device, .plan = {.size = sizeof(g->plan)}};
    describe_operands(g);
    return operand_describe_scales(&g->sfa, (enum case_scales)t->sfa_layout, t->m, t->k, t->recipe[0], t->recipe[2],
                                   (dg_dtype)t->sfa, t->batch, t->broadcast == CASE_BROADCAST_A, device) &&
           operand_describe_scales(&g->sfb, (enum case_scales)t->sfb_layout, t->n, t->k, t->recipe[1], t->recipe[2],
                                   (dg_dtype)t->sfb, t->batch, t->broadcast == CASE_BROADCAST_B, device);
}

dg_gemm_args gemm_args(const struct gemm *g)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    for (int i = 0; i < 3; ++i)
        args.recipe[i] = (int32_t)g->test.recipe[i];
    args.a = g->a.view;
    args.b = g->b.view;
    args.sfa = g->sfa.view;
    args.sfb = g->sfb.view;
    args.d = g->d.view;
    if (g->test.c != CASE_C_NONE)
        args.c = g->test.c == CASE_C_IS_D ? g->d.view : g->c.view;
    args.workspace = g->workspace;
    args.workspace_bytes = g->workspace ? g->plan.workspace_bytes : 0;
    args.num_sms = (int32_t)g->test.num_sms;
    args.flags = g->flags;
    return args;
}

/* ---- GEMM: memory and data --------------------------------------------------------------------------------------- */

static bool allocate(struct gemm *g)
{
    const int64_t shift = g->test.shift;
    if (!operand_allocate(&g->a, shift) || !operand_allocate(&g->b, shift) || !operand_allocate(&g->d, shift) ||
        !operand_allocate(&g->sfa, 0) || !operand_allocate(&g->sfb, 0))
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

/* x, random and row-major, on the host and then on the device, has become q and sf. */
static bool fill_operand(const struct gemm *g, struct operand *q, struct operand *sf, int64_t gran,
                         enum random_style style, uint64_t seed)
{
    const int64_t rows = operand_rows(&q->view), cols = operand_cols(&q->view), batch = operand_batch(&q->view);
    struct layout layout = {.dtype = DG_BFLOAT16, .rows = rows, .cols = cols, .step = 1};
    layout.batch = q->view.ndim == 3 ? batch : 0;
    struct operand x;
    operand_describe(&x, &layout, g->device);
    operand_fill(q, 0x7f);
    operand_fill(sf, 0xff);
    if (!operand_upload(q) || !operand_upload(sf))
        return false;
    if (rows == 0 || cols == 0)
        return true;
    bool done = operand_allocate(&x, 0);
    if (done)
        random_fill(DG_BFLOAT16, x.host.data, batch * rows, cols, style, seed);
    done = done && operand_upload(&x) && quantize_on_device(g, x.view, q, sf, gran) && operand_download(q) &&
           operand_download(sf);
    operand_free(&x);
    return done;
}

static float c_value(const struct gemm *g, int64_t batch, int64_t row, int64_t col, uint64_t seed)
{
    const uint64_t index = (uint64_t)((batch * g->test.m + row) * g->test.n + col);
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
        const int64_t batch = i / f->gemm->test.m, row = i % f->gemm->test.m;
        for (int64_t col = 0; col < f->gemm->test.n; ++col)
            number_write(f->operand->host.dtype, operand_element(f->operand, batch, row, col), 0,
                         c_value(f->gemm, batch, row, col, f->seed));
    }
}

static void fill_c(const struct gemm *g, const struct operand *operand, uint64_t seed)
{
    struct fill_c f = {g, operand, seed};
    parallel_for(operand_batch(&operand->host) * g->test.m, 1, fill_c_rows, &f);
}

static void fill_nan(void *user, uint8_t *data, size_t bytes)
{
    (void)user;
    memset(data, 0xff, bytes);
}

static void make_d_image(struct gemm *g, uint64_t seed)
{
    operand_fill_pattern(&g->d);
    operand_for_runs(&g->d, fill_nan, NULL);
    if (g->test.c == CASE_C_IS_D)
        fill_c(g, &g->d, seed);
    memcpy(g->d_image, g->d.host_memory, g->d.bytes);
}

bool gemm_refill(struct gemm *g, enum random_style style, uint64_t seed)
{
    if (!fill_operand(g, &g->a, &g->sfa, g->test.recipe[0], style, 2 * seed) ||
        !fill_operand(g, &g->b, &g->sfb, g->test.recipe[1], style, 2 * seed + 1))
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

struct nan_search {
    dg_dtype dtype;
    bool found;
};

static void search_nan(void *user, uint8_t *data, size_t bytes)
{
    struct nan_search *search = user;
    const int64_t count = (int64_t)(bytes / dg_dtype_size(search->dtype));
    for (int64_t i = 0; i < count && !search->found; ++i)
        search->found = isnan(number_read(search->dtype, data, i)) != 0;
}

bool gemm_check_surroundings(const struct gemm *g)
{
    struct nan_search search = {g->d.host.dtype, false};
    if (!operand_gaps_same(&g->d, "D", g->d_image))
        return false;
    operand_for_runs(&g->d, search_nan, &search);
    return !search.found ||
           trouble("an element of D is NaN: not written, or computed from what lies outside A, B or their scales");
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
