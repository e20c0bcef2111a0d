#include "plan/gemm_problem.h"

#include "core/context.h"
#include "plan/scale_problem.h"
#include "shared/base.h"

#include <stdio.h>

_Static_assert((int)DG_FLOAT32 == TYPE_FLOAT32 && (int)DG_FLOAT16 == TYPE_FLOAT16 &&
                   (int)DG_BFLOAT16 == TYPE_BFLOAT16 && (int)DG_FLOAT8_E4M3 == TYPE_FLOAT8_E4M3 &&
                   (int)DG_INT32 == TYPE_INT32,
               "the public dtypes and the numbers that kernels compare");

_Static_assert((int)DG_GEMM_DENSE == GEMM_KIND_DENSE && (int)DG_GEMM_CONTIGUOUS == GEMM_KIND_CONTIGUOUS &&
                   (int)DG_GEMM_PSUM == GEMM_KIND_PSUM && (int)DG_GEMM_MASKED == GEMM_KIND_MASKED &&
                   (int)DG_GEMM_K_GROUPED == GEMM_KIND_K_GROUPED,
               "the public kinds and the numbers that kernels compare");

/* ---- Kinds --------------------------------------------------------------------------------------------------- */

/* What a kind wants of its arguments; `most` dimensions where it leaves a choice. */
struct kind {
    const char *name;
    int32_t d_least, d_most; /* dimensions; a and sfa have as many if a_like_d */
    bool a_like_d, b_like_d; /* else a is [M,K], b [G,N,K], or of K groups */
    const char *layout;      /* what its length is; NULL: there is none */
};

static const struct kind kinds[] = {
    [DG_GEMM_DENSE] = {"DG_GEMM_DENSE", 2, 3, true, true, NULL},
    [DG_GEMM_CONTIGUOUS] = {"DG_GEMM_CONTIGUOUS", 2, 2, true, false, "a number for each row of d"},
    [DG_GEMM_PSUM] = {"DG_GEMM_PSUM", 2, 2, true, false, "an end for each group of b"},
    [DG_GEMM_MASKED] = {"DG_GEMM_MASKED", 3, 3, true, true, "a count for each group of d"},
    [DG_GEMM_K_GROUPED] = {"DG_GEMM_K_GROUPED", 3, 3, false, false, "a K for each group of d"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static bool recipe_is(const dg_gemm_args *args, int32_t m, int32_t n, int32_t k)
{
    return args->recipe[0] == m && args->recipe[1] == n && args->recipe[2] == k;
}

static bool aligned_kind(const dg_gemm_args *args)
{
    return args->kind == DG_GEMM_CONTIGUOUS || args->kind == DG_GEMM_PSUM;
}

/* ---- Arguments on their own ---------------------------------------------------------------------------------- */

static dg_status check_recipe(const dg_gemm_args *args)
{
    const bool unset = recipe_is(args, 0, 0, 0), rows = recipe_is(args, 1, 1, SCALE_GROUP);
    const bool blocks = recipe_is(args, 1, SCALE_GROUP, SCALE_GROUP) && args->kind != DG_GEMM_K_GROUPED;
    if (unset || rows || blocks)
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT, "recipe is {%d, %d, %d}; wanted %s{1, 1, 128} or zeros",
                (int)args->recipe[0], (int)args->recipe[1], (int)args->recipe[2],
                args->kind == DG_GEMM_K_GROUPED ? "" : "{1, 128, 128}, ");
}

static dg_status check_flags(const dg_gemm_args *args)
{
    if (args->flags & ~(uint32_t)(DG_GEMM_B_CONSTANT | DG_GEMM_ZERO_PADDING))
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "flags is %#x; wanted DG_GEMM_B_CONSTANT (1), DG_GEMM_ZERO_PADDING (2), both, or 0", args->flags);
    if ((args->flags & DG_GEMM_ZERO_PADDING) && args->kind != DG_GEMM_PSUM)
        return fail(DG_ERROR_INVALID_ARGUMENT, "flags has DG_GEMM_ZERO_PADDING, which is for DG_GEMM_PSUM; kind is %s",
                    kinds[args->kind].name);
    return DG_SUCCESS;
}

static dg_status check_numbers(const dg_gemm_args *args)
{
    if ((int)args->kind < 0 || (int)args->kind >= KINDS)
        return fail(DG_ERROR_INVALID_ARGUMENT, "kind is %d; wanted one of enum dg_gemm_kind, 0 to %d", (int)args->kind,
                    KINDS - 1);
    CHECK(check_recipe(args));
    if (args->num_sms < 0)
        return fail(DG_ERROR_INVALID_ARGUMENT, "num_sms is %d; wanted 0 (the context's) or more", (int)args->num_sms);
    if (args->workspace_bytes > 0 && ((uintptr_t)args->workspace % 256 != 0 || args->workspace == NULL))
        return fail(DG_ERROR_INVALID_ARGUMENT, "workspace is %p with %zu bytes; wanted a pointer aligned to 256",
                    args->workspace, args->workspace_bytes);
    if (args->alignment != 0 && !(aligned_kind(args) && contiguous_alignment_valid(args->alignment)))
        return fail(DG_ERROR_INVALID_ARGUMENT, "alignment is %d; wanted %s, or 0", (int)args->alignment,
                    aligned_kind(args) ? CONTIGUOUS_ALIGNMENT_WANTED
                                       : "a kind that has one, DG_GEMM_CONTIGUOUS or DG_GEMM_PSUM");
    if (args->expected_m < 0)
        return fail(DG_ERROR_INVALID_ARGUMENT, "expected_m is %d; wanted 0 (unknown) or more", (int)args->expected_m);
    return check_flags(args);
}

static dg_status check_absent(const char *name, const dg_tensor *tensor, const char *otherwise)
{
    if (tensor->data == NULL && tensor->ndim == 0)
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT,
                "%s has data %p and %d dimensions, but the dtype DG_DTYPE_NONE; wanted %s, or all zeros for no %s",
                name, tensor->data, (int)tensor->ndim, otherwise, name);
}

static dg_status check_layout_tensor(const dg_gemm_args *args, const struct kind *kind, enum null_data null_data)
{
    if (kind->layout)
        return check_tensor("layout", &args->layout, DTYPE_BIT(DG_INT32), 1, 1, null_data);
    if (tensor_present(&args->layout))
        return fail(DG_ERROR_INVALID_ARGUMENT, "layout is %s, but kind is %s; wanted no layout, or a grouped kind",
                    tensor_text(&args->layout).s, kind->name);
    return check_absent("layout", &args->layout, "int32");
}

static dg_status check_each(const dg_gemm_args *args, const struct kind *kind, enum null_data null_data)
{
    const bool k_grouped = args->kind == DG_GEMM_K_GROUPED;
    const unsigned fp8 = DTYPE_BIT(DG_FLOAT8_E4M3), float32 = DTYPE_BIT(DG_FLOAT32);
    const unsigned scale = k_grouped ? float32 : float32 | DTYPE_BIT(DG_INT32);
    const unsigned out = DTYPE_BIT(DG_BFLOAT16) | DTYPE_BIT(DG_FLOAT16) | float32;
    CHECK(check_tensor("d", &args->d, out, kind->d_least, kind->d_most, null_data));
    const int32_t rank = args->d.ndim, a_rank = kind->a_like_d ? rank : 2,
                  b_rank = k_grouped        ? 2
                           : kind->b_like_d ? rank
                                            : 3;
    CHECK(check_tensor("a", &args->a, fp8, k_grouped ? 1 : a_rank, a_rank, null_data));
    CHECK(check_tensor("b", &args->b, fp8, k_grouped ? 1 : b_rank, b_rank, null_data));
    CHECK(check_tensor("sfa", &args->sfa, scale, a_rank, a_rank, null_data));
    CHECK(check_tensor("sfb", &args->sfb, scale, b_rank, b_rank, null_data));
    CHECK(check_layout_tensor(args, kind, null_data));
    return tensor_present(&args->c) ? check_tensor("c", &args->c, out, rank, rank, null_data)
                                    : check_absent("c", &args->c, "d's dtype");
}

static dg_status check_devices(const dg_gemm_args *args)
{
    CHECK(check_same_device("a", &args->a, "d", &args->d));
    CHECK(check_same_device("b", &args->b, "d", &args->d));
    CHECK(check_same_device("sfa", &args->sfa, "d", &args->d));
    CHECK(check_same_device("sfb", &args->sfb, "d", &args->d));
    if (tensor_present(&args->layout))
        CHECK(check_same_device("layout", &args->layout, "d", &args->d));
    return tensor_present(&args->c) ? check_same_device("c", &args->c, "d", &args->d) : DG_SUCCESS;
}

/* ---- Arguments against each other ---------------------------------------------------------------------------- */

static dg_status check_c(const dg_gemm_args *args, int64_t m, int64_t n)
{
    const dg_tensor *d = &args->d;
    if (!tensor_present(&args->c))
        return DG_SUCCESS;
    if (args->c.dtype != d->dtype)
        return fail(DG_ERROR_INVALID_ARGUMENT, "c is %s but d is %s; c must have d's dtype",
                    dg_dtype_name(args->c.dtype), dg_dtype_name(d->dtype));
    if (!shape_is(&args->c, d, m, n))
        return fail_shape("c", &args->c, d, m, n, "d, whose shape c shares,");
    return DG_SUCCESS;
}

static dg_status check_operands(const dg_gemm_args *args, const dg_tensor *b_like, int64_t m, int64_t n, int64_t k)
{
    const dg_tensor *d = &args->d;
    if (!shape_is(&args->a, d, m, k))
        return fail_shape("a", &args->a, d, m, k, "d, which is %s,", shape_text(d).s);
    if (!shape_is(&args->b, b_like, n, k))
        return fail_shape("b", &args->b, b_like, n, k, "d of %lld columns and a of K=%lld", (long long)n, (long long)k);
    return check_c(args, m, n);
}

static dg_status check_scales(const dg_gemm_args *args, const dg_tensor *b_like, bool sfb_rows, int64_t m, int64_t n,
                              int64_t k)
{
    const dg_tensor *sfa = &args->sfa, *sfb = &args->sfb;
    const bool a_packed = sfa->dtype == DG_INT32, b_packed = sfb->dtype == DG_INT32;
    const int64_t a_cols = scale_columns(k, SCALE_GROUP, a_packed), b_cols = scale_columns(k, SCALE_GROUP, b_packed);
    const int64_t b_rows = sfb_rows ? n : ceil_div(n, SCALE_GROUP);
    if (!shape_is(sfa, &args->d, m, a_cols))
        return fail_shape("sfa", sfa, &args->d, m, a_cols, "K=%lld with 128-wide groups%s", (long long)k,
                          a_packed ? ", four to a word," : "");
    if (!shape_is(sfb, b_like, b_rows, b_cols))
        return fail_shape("sfb", sfb, b_like, b_rows, b_cols, "N=%lld, K=%lld with %s%s", (long long)n, (long long)k,
                          sfb_rows ? "128-wide groups" : "128x128 blocks", b_packed ? ", four to a word," : "");
    return DG_SUCCESS;
}

/* The K of an operand of K groups, [mn,K] or flat; -1 if its shape has none. */
static int64_t k_of(const dg_tensor *x, int64_t mn)
{
    if (x->ndim == 2)
        return x->shape[0] == mn ? x->shape[1] : -1;
    return mn > 0 && x->shape[0] % mn == 0 && (x->shape[0] <= 1 || x->stride[0] == 1) ? x->shape[0] / mn : -1;
}

static dg_status check_k_operand(const char *name, const dg_tensor *x, const char *of_name, const dg_tensor *sf,
                                 int64_t mn, int64_t k)
{
    if (k_of(x, mn) != k || k < 0)
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "%s is %s; d of %lld %s wants [%lld, K] with K=%lld the sum of the groups', or as many elements "
                    "in a flat vector of stride 1",
                    name, tensor_text(x).s, (long long)mn, name[0] == 'a' ? "rows" : "columns", (long long)mn,
                    (long long)k);
    if (sf->shape[0] != mn || sf->shape[1] < ceil_div(k, SCALE_GROUP))
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "%s is %s; %s of K=%lld wants [%lld, a column for every group of 128 in each K: %lld or more]",
                    of_name, tensor_text(sf).s, name, (long long)k, (long long)mn, (long long)ceil_div(k, SCALE_GROUP));
    return DG_SUCCESS;
}

static dg_status check_k_grouped(const dg_gemm_args *args)
{
    const int64_t m = args->d.shape[1], n = args->d.shape[2], k = m > 0 ? k_of(&args->a, m) : k_of(&args->b, n);
    if (m == 0 || n == 0)
        return DG_SUCCESS; /* nothing to compute, and no K to compare */
    CHECK(check_k_operand("a", &args->a, "sfa", &args->sfa, m, k));
    CHECK(check_k_operand("b", &args->b, "sfb", &args->sfb, n, k));
    if (args->sfa.shape[1] != args->sfb.shape[1])
        return fail(DG_ERROR_INVALID_ARGUMENT, "sfb is %s; sfa, which is %s, wants as many columns",
                    shape_text(&args->sfb).s, shape_text(&args->sfa).s);
    return check_c(args, m, n);
}

static dg_status check_layout(const dg_gemm_args *args, const struct kind *kind)
{
    const int64_t wanted = args->kind == DG_GEMM_PSUM ? args->b.shape[0] : args->d.shape[0];
    if (kind->layout == NULL || args->layout.shape[0] == wanted)
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT, "layout is %s; %s wants %s: [%lld]", shape_text(&args->layout).s, kind->name,
                kind->layout, (long long)wanted);
}

static dg_status check_shapes(const dg_gemm_args *args, const struct kind *kind, bool sfb_rows)
{
    const int32_t last = args->d.ndim - 1;
    const dg_tensor *b_like = kind->b_like_d ? &args->d : &args->b;
    if (args->kind == DG_GEMM_K_GROUPED) {
        CHECK(check_k_grouped(args));
    } else {
        const int64_t m = args->d.shape[last - 1], n = args->d.shape[last], k = args->a.shape[last];
        CHECK(check_operands(args, b_like, m, n, k));
        CHECK(check_scales(args, b_like, sfb_rows, m, n, k));
    }
    return check_layout(args, kind);
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
    if (p->layout.data)
        CHECK(check_disjoint("d", &p->d, "layout", &p->layout));
    if (p->has_c && p->c.data && p->d.data && !same_matrix(&p->c, &p->d) && matrices_overlap(&p->c, &p->d))
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "c overlaps d without being d; wanted the same data and strides, or no shared element");
    return DG_SUCCESS;
}

/* ---- The problem --------------------------------------------------------------------------------------------- */

/* A flat operand of K groups as a matrix of the same elements. */
static struct matrix operand_of(const dg_tensor *x, int64_t mn)
{
    dg_tensor matrix = *x;
    if (x->ndim == 1)
        matrix = dg_matrix(x->data, x->dtype, x->device, mn, mn > 0 ? x->shape[0] / mn : 0);
    return matrix_of(&matrix);
}

static struct matrix layout_of(const dg_tensor *layout)
{
    dg_tensor row = *layout;
    if (!tensor_present(layout))
        return (struct matrix){0};
    row.ndim = 2;
    row.shape[0] = 1;
    row.shape[1] = layout->shape[0];
    row.stride[0] = 0;
    row.stride[1] = layout->stride[0];
    return matrix_of(&row);
}

static struct gemm_groups groups_of(const dg_gemm_args *args, const struct gemm_problem *p)
{
    struct gemm_groups g = {
        .kind = (int32_t)args->kind,
        .zero_padding = (args->flags & DG_GEMM_ZERO_PADDING) != 0,
        .spans = p->batch,
        .groups = args->kind == DG_GEMM_K_GROUPED ? p->batch : p->b.batch,
        .rows = p->m,
        .k = p->k,
        .k_blocks = args->kind == DG_GEMM_K_GROUPED ? p->sfa.cols : ceil_div(p->k, SCALE_GROUP),
        .alignment = args->alignment ? args->alignment : 128,
        .layout = (uint64_t)(uintptr_t)p->layout.data,
        .layout_stride = p->layout.col_stride,
    };
    if (args->kind == DG_GEMM_CONTIGUOUS)
        g.spans = ceil_div(p->m, g.alignment);
    else if (args->kind == DG_GEMM_PSUM)
        g.spans = g.groups;
    return g;
}

dg_status gemm_problem_make(const dg_gemm_args *args, enum null_data null_data, struct gemm_problem *problem)
{
    CHECK(check_numbers(args));
    const struct kind *kind = &kinds[args->kind];
    const bool sfb_rows = recipe_is(args, 1, 1, SCALE_GROUP) || args->kind == DG_GEMM_K_GROUPED;
    CHECK(check_each(args, kind, null_data));
    CHECK(check_devices(args));
    CHECK(check_shapes(args, kind, sfb_rows));
    struct gemm_problem *p = problem;
    *p = (struct gemm_problem){
        .device = args->d.device,
        .has_c = tensor_present(&args->c),
        .sfa_packed = args->sfa.dtype == DG_INT32,
        .sfb_packed = args->sfb.dtype == DG_INT32,
        .sfb_rows = sfb_rows,
        .a_flat = args->a.ndim == 1,
        .b_flat = args->b.ndim == 1,
        .expected_m = args->expected_m,
        .sfa = matrix_of(&args->sfa),
        .sfb = matrix_of(&args->sfb),
        .d = matrix_of(&args->d),
        .layout = layout_of(&args->layout),
    };
    p->batch = p->d.batch;
    p->m = p->d.rows;
    p->n = p->d.cols;
    p->a = operand_of(&args->a, p->m);
    p->b = operand_of(&args->b, p->n);
    p->k = p->a.cols;
    p->a_row_stride = args->a.ndim > 1 ? args->a.stride[args->a.ndim - 2] : p->k;
    if (p->has_c)
        p->c = matrix_of(&args->c);
    p->groups = groups_of(args, p);
    return check_overlaps(p);
}

struct text gemm_problem_text(const struct gemm_problem *p)
{
    struct text out;
    static const char *const names[KINDS] = {"", " kind=contiguous", " kind=psum", " kind=masked", " kind=k_grouped"};
    int n = snprintf(out.s, sizeof out.s, "gemm fp8%s m=%lld n=%lld k=%lld", names[p->groups.kind], (long long)p->m,
                     (long long)p->n, (long long)p->k);
    if (p->groups.kind != GEMM_KIND_DENSE)
        n += snprintf(out.s + n, sizeof out.s - (size_t)n, " groups=%lld", (long long)p->groups.groups);
    else if (p->batch != 1)
        n += snprintf(out.s + n, sizeof out.s - (size_t)n, " batch=%lld", (long long)p->batch);
    snprintf(out.s + n, sizeof out.s - (size_t)n, " out=%s%s%s%s%s", dg_dtype_name(p->d.dtype), p->has_c ? " c" : "",
             p->sfa_packed ? " sfa=ue8m0" : "", p->sfb_packed ? " sfb=ue8m0" : "",
             p->sfb_rows ? " recipe=1,1,128" : "");
    return out;
}
