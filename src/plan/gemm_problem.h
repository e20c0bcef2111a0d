/* A checked dg_gemm call in its one canonical form. Pure: no GPU, no globals, no files. */
#ifndef PLAN_GEMM_PROBLEM_H
#define PLAN_GEMM_PROBLEM_H

#include "core/check.h"
#include "shared/gemm_groups.h"

/*
 * Scales as matrices: rows are m (or blocks of n), columns are k groups, or words of four groups when packed. Grouped
 * kinds: `batch` is d's, groups.groups b's; a_flat and b_flat operands are [m, k] and [n, k] with k all groups' and
 * strides that mean nothing.
 */
struct gemm_problem {
    int32_t device;
    bool has_c;
    bool sfa_packed, sfb_packed; /* UE8M0, four to an int32 */
    bool sfb_rows;               /* recipe {1,1,128}: a scale for each row of b instead of 128 of them */
    bool a_flat, b_flat;         /* each group a row-major matrix of its own */
    int64_t batch, m, n, k;
    int64_t a_row_stride; /* as given, also with one row, where matrix a does not tell */
    int32_t expected_m;   /* 0: unknown */
    struct matrix a, b, sfa, sfb, c, d;
    struct matrix layout; /* a row; no data in dense problems */
    struct gemm_groups groups;
};

/*
 * Check the arguments (already imported to this library's size) and canonicalise them. With NULL_DATA_ACCEPTED, data
 * pointers may be NULL (a question); overlap is then checked only between tensors that have data. An alignment of 0
 * means 128: a context's other one has been put in before.
 */
dg_status gemm_problem_make(const dg_gemm_args *args, enum null_data null_data, struct gemm_problem *problem);

/* Nothing to compute: some of M, N, batch, groups is 0. (K = 0 still stores C or zeros.) */
static inline bool gemm_problem_empty(const struct gemm_problem *p)
{
    return p->batch == 0 || p->groups.groups == 0 || p->m == 0 || p->n == 0;
}

/* "m=4096 n=7168 k=2048 out=bfloat16", for messages and DG_PRINT_CONFIGS. */
struct text gemm_problem_text(const struct gemm_problem *problem);

#endif
