#include "plan/gemm_problem.h"

#include "plan/scale_problem.h"
#include "shared/base.h"

#include <stdio.h>

_Static_assert((int)DG_FLOAT32 == TYPE_FLOAT32 && (int)DG_FLOAT16 == TYPE_FLOAT16 &&
                   (int)DG_BFLOAT16 == TYPE_BFLOAT16 && (int)DG_FLOAT8_E4M3 == TYPE_FLOAT8_E4M3 &&
                   (int)DG_INT32 == TYPE_INT32,
               "the public dtypes and the numbers that kernels compare");

/* ---- Arguments on their own ---------------------------------------------------------------------------------- */

static dg_status check_kind_and_recipe(const dg_gemm_args *args)
{
    const int32_t *r = args->recipe;
    if (args->kind != DG_GEMM_DENSE)
        return fail(DG_ERROR_INVALID_ARGUMENT, "kind is %d; wanted DG_GEMM_DENSE (0)", (int)args->kind);
    bool unset = r[0] == 0 && r[1] == 0 && r[2] == 0;
    if (!unset && !(r[0] == 1 && r[1] == SCALE_GROUP && r[2] == SCALE_GROUP))
        return fail(DG_ERROR_INVALID_ARGUMENT, "recipe is {%d, %d, %d}; wanted {1, 128, 128} or zeros", (int)r[0],
                    (int)r[1], (int)r[2]);
    if (args->num_sms < 0)
        return fail(DG_ERROR_INVALID_ARGUMENT, "num_sms is %d; wanted 0 (the context's) or more", (int)args->num_sms);
    if (args->workspace_bytes > 0 && ((uintptr_t)args->workspace % 256 != 0 || args->workspace == NULL))
        return fail(DG_ERROR_INVALID_ARGUMENT, "workspace is %p with %zu bytes; wanted a pointer aligned to 256",
                    args->workspace, args->workspace_bytes);
    if (args->flags & ~(uint32_t)DG_GEMM_B_CONSTANT)
        return fail(DG_ERROR_INVALID_ARGUMENT, "flags is %#x; wanted DG_GEMM_B_CONSTANT (1), or 0", args->flags);
    return DG_SUCCESS;
}

static dg_status check_each(const dg_gemm_args *args, enum null_data null_data)
{
    const unsigned fp8 = DTYPE_BIT(DG_FLOAT8_E4M3), scale = DTYPE_BIT(DG_FLOAT32) | DTYPE_BIT(DG_INT32);
    const unsigned out = DTYPE_BIT(DG_BFLOAT16) | DTYPE_BIT(DG_FLOAT16) | DTYPE_BIT(DG_FLOAT32);
    int32_t rank = args->d.ndim;
    CHECK(check_tensor("d", &args->d, out, 2, 3, null_data));
    CHECK(check_tensor("a", &args->a, fp8, rank, rank, null_data));
    CHECK(check_tensor("b", &args->b, fp8, rank, rank, null_data));
    CHECK(check_tensor("sfa", &args->sfa, scale, rank, rank, null_data));
    CHECK(check_tensor("sfb", &args->sfb, scale, rank, rank, null_data));
    if (tensor_present(&args->c))
        CHECK(check_tensor("c", &args->c, out, rank, rank, null_data));
    else if (args->c.data || args->c.ndim)
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "c has data %p and %d dimensions, but the dtype DG_DTYPE_NONE; wanted "
                    "d's dtype, or all zeros for no c",
                    args->c.data, (int)args->c.ndim);
    CHECK(check_same_device("a", &args->a, "d", &args->d));
    CHECK(check_same_device("b", &args->b, "d", &args->d));
    CHECK(check_same_device("sfa", &args->sfa, "d", &args->d));
    CHECK(check_same_device("sfb", &args->sfb, "d", &args->d));
    if (tensor_present(&args->c))
        CHECK(check_same_device("c", &args->c, "d", &args->d));
    return DG_SUCCESS;
}

/* ---- Arguments against each other ---------------------------------------------------------------------------- */

static dg_status check_operands(const dg_gemm_args *args, int64_t m, int64_t n, int64_t k)
{
    const dg_tensor *d = &args->d;
    if (!shape_is(&args->a, d, m, k))
        return fail_shape("a", &args->a, d, m, k, "d, which is %s,", shape_text(d).s);
    if (!shape_is(&args->b, d, n, k))
        return fail_shape("b", &args->b, d, n, k, "d of %lld columns and a of K=%lld", (long long)n, (long long)k);
    if (!tensor_present(&args->c))
        return DG_SUCCESS;
    if (args->c.dtype != d->dtype)
        return fail(DG_ERROR_INVALID_ARGUMENT, "c is %s but d is %s; c must have d's dtype",
                    dg_dtype_name(args->c.dtype), dg_dtype_name(d->dtype));
    if (!shape_is(&args->c, d, m, n))
        return fail_shape("c", &args->c, d, m, n, "d, whose shape c shares,");
    return DG_SUCCESS;
}

static dg_status check_scales(const dg_gemm_args *args, int64_t m, int64_t n, int64_t k)
{
    const dg_tensor *sfa = &args->sfa, *sfb = &args->sfb;
    const bool a_packed = sfa->dtype == DG_INT32, b_packed = sfb->dtype == DG_INT32;
    const int64_t a_cols = scale_columns(k, SCALE_GROUP, a_packed), b_cols = scale_columns(k, SCALE_GROUP, b_packed);
    const int64_t blocks = ceil_div(n, SCALE_GROUP);
    if (!shape_is(sfa, &args->d, m, a_cols))
        return fail_shape("sfa", sfa, &args->d, m, a_cols, "K=%lld with 128-wide groups%s", (long long)k,
                          a_packed ? ", four to a word," : "");
    if (!shape_is(sfb, &args->d, blocks, b_cols))
        return fail_shape("sfb", sfb, &args->d, blocks, b_cols, "N=%lld, K=%lld with 128x128 blocks%s", (long long)n,
                          (long long)k, b_packed ? ", four to a word," : "");
    return DG_SUCCESS;
}

static dg_status check_shapes(const dg_gemm_args *args)
{
    const int32_t last = args->d.ndim - 1;
    const int64_t m = args->d.shape[last - 1], n = args->d.shape[last], k = args->a.shape[last];
    CHECK(check_operands(args, m, n, k));
    return check_scales(args, m, n, k);
}

static bool same_matrix(const struct matrix *x, const struct matrix *y)
{
    return x->data == y->data && x->batch_stride == y->batch_stride && x->row_stride == y->row_stride &&
           x->col_stride == y->col_stride;
}

static dg_status check_overlaps(const struct gemm_problem *p)
{
    CHECK(check_writable("d", &p->d));
    CHECK(check_disjoint("d", &p->d, "a", &p->a));
    CHECK(check_disjoint("d", &p->d, "b", &p->b));
    CHECK(check_disjoint("d", &p->d, "sfa", &p->sfa));
    CHECK(check_disjoint("d", &p->d, "sfb", &p->sfb));
    if (p->has_c && p->c.data && p->d.data && !same_matrix(&p->c, &p->d) && matrices_overlap(&p->c, &p->d))
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "c overlaps d without being d; wanted the same data and strides, or no shared element");
    return DG_SUCCESS;
}

/* ---- The problem --------------------------------------------------------------------------------------------- */

dg_status gemm_problem_make(const dg_gemm_args *args, enum null_data null_data, struct gemm_problem *problem)
{
    CHECK(check_kind_and_recipe(args));
    CHECK(check_each(args, null_data));
    CHECK(check_shapes(args));
    *problem = (struct gemm_problem){
        .device = args->d.device,
        .has_c = tensor_present(&args->c),
        .sfa_packed = args->sfa.dtype == DG_INT32,
        .sfb_packed = args->sfb.dtype == DG_INT32,
        .a = matrix_of(&args->a),
        .b = matrix_of(&args->b),
        .sfa = matrix_of(&args->sfa),
        .sfb = matrix_of(&args->sfb),
        .d = matrix_of(&args->d),
    };
    if (problem->has_c)
        problem->c = matrix_of(&args->c);
    problem->a_row_stride = args->a.stride[args->a.ndim - 2];
    problem->batch = problem->d.batch;
    problem->m = problem->d.rows;
    problem->n = problem->d.cols;
    problem->k = problem->a.cols;
    return check_overlaps(problem);
}

struct text gemm_problem_text(const struct gemm_problem *p)
{
    struct text out;
    int n = snprintf(out.s, sizeof out.s, "gemm fp8 m=%lld n=%lld k=%lld", (long long)p->m, (long long)p->n,
                     (long long)p->k);
    if (p->batch != 1)
        n += snprintf(out.s + n, sizeof out.s - (size_t)n, " batch=%lld", (long long)p->batch);
    snprintf(out.s + n, sizeof out.s - (size_t)n, " out=%s%s%s%s", dg_dtype_name(p->d.dtype), p->has_c ? " c" : "",
             p->sfa_packed ? " sfa=ue8m0" : "", p->sfb_packed ? " sfb=ue8m0" : "");
    return out;
}
