#include "plan/scale_problem.h"

#include "shared/base.h"

#include <stdio.h>

enum {
    WORD_GROUPS = 4,   /* UE8M0 exponents in an int32 */
    WORD_BYTES = 4,    /* of a scale, FP32 or packed */
    LAYOUT_ALIGN = 16, /* bytes: what TMA wants of strides */
};

int64_t scale_columns(int64_t k, int32_t gran_k, bool packed)
{
    const int64_t groups = ceil_div(k, gran_k);
    return packed ? ceil_div(groups, WORD_GROUPS) : groups;
}

/* ---- dg_quantize_fp8 ----------------------------------------------------------------------------------------- */

static dg_status granularity(const dg_quantize_args *args, struct quantize_problem *problem)
{
    const int32_t mn = args->gran_mn == 0 ? 1 : args->gran_mn, k = args->gran_k == 0 ? SCALE_GROUP : args->gran_k;
    const bool supported = (mn == 1 && k == SCALE_GROUP) || (mn == SCALE_GROUP && (k == SCALE_GROUP || k == 1));
    if (!supported)
        return fail(DG_ERROR_INVALID_ARGUMENT, "gran_mn x gran_k is %d x %d; supported: 1 x 128, 128 x 128, 128 x 1",
                    (int)mn, (int)k);
    problem->gran_mn = mn;
    problem->gran_k = k;
    return DG_SUCCESS;
}

static dg_status check_quantize_tensors(const dg_quantize_args *args, enum null_data null_data)
{
    const unsigned input = DTYPE_BIT(DG_FLOAT32) | DTYPE_BIT(DG_FLOAT16) | DTYPE_BIT(DG_BFLOAT16);
    const unsigned scale = DTYPE_BIT(DG_FLOAT32) | DTYPE_BIT(DG_INT32);
    CHECK(check_tensor("x", &args->x, input, 2, 3, null_data));
    CHECK(check_tensor("q", &args->q, DTYPE_BIT(DG_FLOAT8_E4M3), args->x.ndim, args->x.ndim, null_data));
    CHECK(check_tensor("sf", &args->sf, scale, args->x.ndim, args->x.ndim, null_data));
    CHECK(check_same_device("q", &args->q, "x", &args->x));
    return check_same_device("sf", &args->sf, "x", &args->x);
}

static dg_status check_quantize_shapes(const dg_quantize_args *args, const struct quantize_problem *p)
{
    const dg_tensor *x = &args->x;
    const int64_t cols = scale_columns(p->k, p->gran_k, p->packed);
    if (!shape_is(&args->q, x, p->m, p->k))
        return fail_shape("q", &args->q, x, p->m, p->k, "x, which is %s,", shape_text(x).s);
    if (!shape_is(&args->sf, x, p->mn_groups, cols))
        return fail_shape("sf", &args->sf, x, p->mn_groups, cols, "M=%lld, K=%lld with groups of %d x %d%s",
                          (long long)p->m, (long long)p->k, (int)p->gran_mn, (int)p->gran_k,
                          p->packed ? ", four to a word," : "");
    return DG_SUCCESS;
}

dg_status quantize_problem_make(const dg_quantize_args *args, enum null_data null_data,
                                struct quantize_problem *problem)
{
    struct quantize_problem p = {0};
    CHECK(check_reserved("reserved", args->reserved));
    CHECK(granularity(args, &p));
    CHECK(check_quantize_tensors(args, null_data));
    p.device = args->x.device;
    p.x = matrix_of(&args->x);
    p.batch = p.x.batch;
    p.m = p.x.rows;
    p.k = p.x.cols;
    p.packed = args->sf.dtype == DG_INT32;
    p.round_scale = p.packed || args->round_scale != 0;
    p.mn_groups = ceil_div(p.m, p.gran_mn);
    p.k_groups = ceil_div(p.k, p.gran_k);
    CHECK(check_quantize_shapes(args, &p));
    p.q = matrix_of(&args->q);
    p.sf = matrix_of(&args->sf);
    CHECK(check_writable("q", &p.q));
    CHECK(check_writable("sf", &p.sf));
    CHECK(check_disjoint("q", &p.q, "x", &p.x));
    CHECK(check_disjoint("sf", &p.sf, "x", &p.x));
    CHECK(check_disjoint("sf", &p.sf, "q", &p.q));
    *problem = p;
    return DG_SUCCESS;
}

/* ---- dg_transform_scale -------------------------------------------------------------------------------------- */

static dg_status check_transform_tensors(const dg_transform_scale_args *args, enum null_data null_data)
{
    const unsigned scale = DTYPE_BIT(DG_FLOAT32) | DTYPE_BIT(DG_INT32);
    CHECK(check_tensor("src", &args->src, scale, 2, 3, null_data));
    CHECK(check_tensor("dst", &args->dst, scale, args->src.ndim, args->src.ndim, null_data));
    if (args->src.dtype == DG_INT32 && args->dst.dtype == DG_INT32)
        return fail(DG_ERROR_INVALID_ARGUMENT, "src and dst are both int32; supported: float32 to float32 (a copy), "
                                               "float32 to int32 (packing), int32 to float32 (unpacking)");
    return check_same_device("dst", &args->dst, "src", &args->src);
}

/* The packed side's columns follow from the other side's, which tells how many groups there are. */
static dg_status check_transform_shapes(const dg_transform_scale_args *args, const struct transform_problem *p)
{
    const dg_tensor *src = &args->src, *dst = &args->dst;
    const int64_t words = ceil_div(p->k_groups, WORD_GROUPS), cols = p->dst_packed ? words : p->k_groups;
    if (p->src_packed && !shape_is(src, dst, p->mn, words))
        return fail_shape("src", src, dst, p->mn, words, "dst, which is %s, unpacked four to a word,",
                          shape_text(dst).s);
    if (!p->src_packed && !shape_is(dst, src, p->mn, cols))
        return fail_shape("dst", dst, src, p->mn, cols, "src, which is %s,%s", shape_text(src).s,
                          p->dst_packed ? " packed four to a word," : "");
    return DG_SUCCESS;
}

dg_status transform_problem_make(const dg_transform_scale_args *args, enum null_data null_data,
                                 struct transform_problem *problem)
{
    struct transform_problem p = {0};
    CHECK(check_reserved("reserved", args->reserved));
    CHECK(check_transform_tensors(args, null_data));
    p.device = args->src.device;
    p.src = matrix_of(&args->src);
    p.dst = matrix_of(&args->dst);
    p.src_packed = args->src.dtype == DG_INT32;
    p.dst_packed = args->dst.dtype == DG_INT32;
    p.round_scale = args->round_scale != 0;
    const struct matrix *unpacked = p.src_packed ? &p.dst : &p.src;
    p.batch = unpacked->batch;
    p.mn = unpacked->rows;
    p.k_groups = unpacked->cols;
    CHECK(check_transform_shapes(args, &p));
    CHECK(check_writable("dst", &p.dst));
    CHECK(check_disjoint("dst", &p.dst, "src", &p.src));
    *problem = p;
    return DG_SUCCESS;
}

/* ---- Layouts ------------------------------------------------------------------------------------------------- */

static dg_status check_layout_arguments(int64_t mn, int64_t k, int32_t gran_mn, int32_t gran_k, dg_dtype scale_dtype,
                                        int64_t batch)
{
    if (mn < 0 || k < 0 || batch < 0)
        return fail(DG_ERROR_INVALID_ARGUMENT, "mn, k, batch are %lld, %lld, %lld; wanted 0 or more", (long long)mn,
                    (long long)k, (long long)batch);
    if (gran_mn < 1 || gran_k < 1)
        return fail(DG_ERROR_INVALID_ARGUMENT, "gran_mn, gran_k are %d, %d; wanted 1 or more", (int)gran_mn,
                    (int)gran_k);
    if (scale_dtype != DG_FLOAT32 && scale_dtype != DG_INT32)
        return fail(DG_ERROR_INVALID_ARGUMENT, "scale_dtype is %s (%d); wanted float32 or int32",
                    dg_dtype_name(scale_dtype), (int)scale_dtype);
    return DG_SUCCESS;
}

dg_status scale_layout(int64_t mn, int64_t k, int32_t gran_mn, int32_t gran_k, dg_dtype scale_dtype, int64_t batch,
                       dg_tensor *layout, size_t *bytes)
{
    if (layout == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "layout is NULL; wanted a dg_tensor to fill");
    CHECK(check_layout_arguments(mn, k, gran_mn, gran_k, scale_dtype, batch));
    const int64_t rows = ceil_div(mn, gran_mn), cols = scale_columns(k, gran_k, scale_dtype == DG_INT32);
    int64_t matrix, total;
    if (rows > INT64_MAX - LAYOUT_ALIGN)
        return fail(DG_ERROR_INVALID_ARGUMENT, "mn is %lld: its scales cannot be addressed", (long long)mn);
    const int64_t column = round_up(rows, LAYOUT_ALIGN / WORD_BYTES);
    if (__builtin_mul_overflow(column, cols, &matrix) || __builtin_mul_overflow(matrix, batch ? batch : 1, &total) ||
        total > INT64_MAX / 16) /* the bound of check_tensor */
        return fail(DG_ERROR_INVALID_ARGUMENT, "mn=%lld, k=%lld, batch=%lld: these scales cannot be addressed",
                    (long long)mn, (long long)k, (long long)batch);
    *layout = (dg_tensor){.dtype = scale_dtype, .device = DG_CPU, .ndim = batch ? 3 : 2};
    const int32_t row = layout->ndim - 2;
    layout->shape[0] = batch;
    layout->stride[0] = matrix;
    layout->shape[row] = rows;
    layout->stride[row] = 1;
    layout->shape[row + 1] = cols;
    layout->stride[row + 1] = column;
    if (bytes)
        *bytes = (size_t)total * WORD_BYTES;
    return DG_SUCCESS;
}
