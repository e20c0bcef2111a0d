/* dg_quantize_fp8; on a GPU the launcher of kernels/any/quantize_fp8.cu. */
#include "core/context.h"
#include "cpu/ref/ref.h"
#include "ops/scale_kernels.h"
#include "ops/strided.h"
#include "shared/scale_args.h"

#include <stdio.h>

enum { CHUNK = 8 }; /* elements that a thread of the kernel handles at once */

/* The problem as the kernel sees it: columns are the dimension in which x is contiguous. */
struct kernel_problem {
    struct matrix x, q, sf;
    int32_t group_rows, group_cols, pack;
    bool round_scale;
};

static struct matrix transposed(const struct matrix *m)
{
    struct matrix t = *m;
    t.rows = m->cols;
    t.cols = m->rows;
    t.row_stride = m->col_stride;
    t.col_stride = m->row_stride;
    return t;
}

static struct kernel_problem kernel_problem_of(const struct quantize_problem *p)
{
    struct kernel_problem k = {p->x, p->q, p->sf, p->gran_mn, p->gran_k, PACK_NONE, p->round_scale};
    const bool down = p->x.row_stride == 1 && p->x.col_stride != 1;
    if (down) {
        k.x = transposed(&p->x);
        k.q = transposed(&p->q);
        k.sf = transposed(&p->sf);
        k.group_rows = p->gran_k;
        k.group_cols = p->gran_mn;
    }
    if (p->packed)
        k.pack = down ? PACK_ALONG_ROWS : PACK_ALONG_COLS;
    return k;
}

/* Whether chunks of columns exist as a whole, lie together, and start at multiples of `align` bytes. */
static bool in_vectors(const struct matrix *m, int64_t align)
{
    const int64_t element = (int64_t)dg_dtype_size(m->dtype);
    return m->col_stride == 1 && m->cols % CHUNK == 0 && (uintptr_t)m->data % (uintptr_t)align == 0 &&
           m->row_stride * element % align == 0 && m->batch_stride * element % align == 0;
}

static void spec_of(const struct kernel_problem *k, struct kernel_spec *spec)
{
    snprintf(spec->config, sizeof spec->config,
             "#define X_TYPE %d\n#define GROUP_ROWS %d\n#define GROUP_COLS %d\n#define ROUND_SCALE %d\n"
             "#define PACK %d\n#define X_VECTOR %d\n#define Q_VECTOR %d\n",
             (int)k->x.dtype, (int)k->group_rows, (int)k->group_cols, k->round_scale, (int)k->pack,
             in_vectors(&k->x, 16), in_vectors(&k->q, CHUNK));
    spec->request = (struct jit_request){.kernel = "quantize_fp8", .config = spec->config};
}

void quantize_spec(const struct quantize_problem *p, struct kernel_spec *spec)
{
    const struct kernel_problem k = kernel_problem_of(p);
    spec_of(&k, spec);
}

static dg_status check_pointers(const struct cuda_scope *scope, const struct quantize_problem *p)
{
    CHECK(cuda_check_pointer(scope, "x", p->x.data));
    CHECK(cuda_check_pointer(scope, "q", p->q.data));
    return cuda_check_pointer(scope, "sf", p->sf.data);
}

static dg_status launch(dg_context *context, const struct cuda_scope *scope, const struct quantize_problem *p,
                        dg_stream stream)
{
    struct kernel_spec spec;
    const struct kernel_problem k = kernel_problem_of(p);
    const int64_t tiles = k.x.batch * ceil_div(k.x.rows, QUANTIZE_TILE) * ceil_div(k.x.cols, QUANTIZE_TILE);
    const struct quantize_args args = {strided_of(&k.x), strided_of(&k.q), strided_of(&k.sf),
                                       k.x.batch,        k.x.rows,         k.x.cols};
    struct cuda_launch launch = scale_launch(context, scope, tiles, QUANTIZE_THREADS);
    CHECK(check_pointers(scope, p));
    spec_of(&k, &spec);
    CHECK(kernel_get(context, scope, &spec.request, 0, &launch.kernel));
    return cuda_launch(scope, &launch, &args, stream);
}

static dg_status run_on_gpu(dg_context *context, const struct quantize_problem *p, dg_stream stream)
{
    struct cuda_scope scope;
    CHECK(cuda_enter(p->device, stream, &scope));
    const dg_status status = launch(context, &scope, p, stream);
    cuda_leave(&scope);
    return status;
}

dg_status dg_quantize_fp8(dg_context *given, const dg_quantize_args *given_args, dg_stream stream)
{
    dg_context *context;
    dg_quantize_args args;
    struct quantize_problem problem;
    operation_begin("dg_quantize_fp8");
    CHECK(context_resolve(given, &context));
    CHECK(import_args(&args, sizeof args, given_args, "dg_quantize_args"));
    CHECK(quantize_problem_make(&args, NULL_DATA_REFUSED, &problem));
    if (quantize_problem_empty(&problem))
        return DG_SUCCESS;
    if (problem.device >= 0)
        return run_on_gpu(context, &problem, stream);
    ref_quantize(&problem);
    return DG_SUCCESS;
}
