/* dg_scale_layout and dg_transform_scale; on a GPU the launcher of kernels/any/transform_scale.cu. */
#include "core/context.h"
#include "cpu/ref/ref.h"
#include "ops/scale_kernels.h"
#include "ops/strided.h"
#include "shared/scale_args.h"

#include <stdio.h>

dg_status dg_scale_layout(int64_t mn, int64_t k, int32_t gran_mn, int32_t gran_k, dg_dtype scale_dtype, int64_t batch,
                          dg_tensor *layout, size_t *bytes)
{
    operation_begin("dg_scale_layout");
    return scale_layout(mn, k, gran_mn, gran_k, scale_dtype, batch, layout, bytes);
}

void transform_spec(const struct transform_problem *p, struct kernel_spec *spec)
{
    snprintf(spec->config, sizeof spec->config,
             "#define SRC_PACKED %d\n#define DST_PACKED %d\n#define ROUND_SCALE %d\n", p->src_packed, p->dst_packed,
             p->dst_packed && p->round_scale);
    spec->request = (struct jit_request){.kernel = "transform_scale", .config = spec->config};
}

static dg_status launch(dg_context *context, const struct cuda_scope *scope, const struct transform_problem *p,
                        dg_stream stream)
{
    struct kernel_spec spec;
    const int64_t tiles = p->batch * ceil_div(p->mn, TRANSFORM_TILE) * ceil_div(p->k_groups, TRANSFORM_TILE);
    const struct transform_scale_args args = {strided_of(&p->src), strided_of(&p->dst), p->batch, p->mn, p->k_groups};
    struct cuda_launch launch = scale_launch(context, scope, tiles, TRANSFORM_THREADS);
    CHECK(cuda_check_pointer(scope, "src", p->src.data));
    CHECK(cuda_check_pointer(scope, "dst", p->dst.data));
    transform_spec(p, &spec);
    CHECK(kernel_get(context, scope, &spec.request, 0, &launch.kernel));
    return cuda_launch(scope, &launch, &args, stream);
}

static dg_status run_on_gpu(dg_context *context, const struct transform_problem *p, dg_stream stream)
{
    struct cuda_scope scope;
    CHECK(cuda_enter(p->device, stream, &scope));
    const dg_status status = launch(context, &scope, p, stream);
    cuda_leave(&scope);
    return status;
}

static dg_status run_on_cpu(const struct transform_problem *p)
{
    int64_t batch, row, col;
    if (ref_transform_scale(p, &batch, &row, &col))
        return DG_SUCCESS;
    const int64_t offset = batch * p->src.batch_stride + row * p->src.row_stride + col * p->src.col_stride;
    return fail(DG_ERROR_INVALID_ARGUMENT,
                "src holds %.9g in batch %lld, row %lld, column %lld; packing without round_scale wants powers of two "
                "from 2^-127 to 2^127",
                (double)((const float *)(const void *)p->src.data)[offset], (long long)batch, (long long)row,
                (long long)col);
}

dg_status dg_transform_scale(dg_context *given, const dg_transform_scale_args *given_args, dg_stream stream)
{
    dg_context *context;
    dg_transform_scale_args args;
    struct transform_problem problem;
    operation_begin("dg_transform_scale");
    CHECK(context_resolve(given, &context));
    CHECK(import_args(&args, sizeof args, given_args, "dg_transform_scale_args"));
    CHECK(transform_problem_make(&args, NULL_DATA_REFUSED, &problem));
    if (transform_problem_empty(&problem))
        return DG_SUCCESS;
    return problem.device >= 0 ? run_on_gpu(context, &problem, stream) : run_on_cpu(&problem);
}
