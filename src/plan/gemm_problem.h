/* A checked dg_gemm call in its one canonical form. Pure: no GPU, no globals, no files. */
#ifndef PLAN_GEMM_PROBLEM_H
#define PLAN_GEMM_PROBLEM_H

#include "core/check.h"

/* Scales as matrices: rows are m (or blocks of n), columns are k groups, or words of four groups when packed. */
struct gemm_problem {
    int32_t device;
    bool has_c;
    bool sfa_packed, sfb_packed; /* UE8M0, four to an int32 */
    int64_t batch, m, n, k;
    int64_t a_row_stride; /* as given, also with one row, where matrix a does not tell */
    struct matrix a, b, sfa, sfb, c, d;
};

/*
 * Check the arguments (already imported to this library's size) and canonicalise them. With NULL_DATA_ACCEPTED, data
 * pointers may be NULL (a question); overlap is then checked only between tensors that have data.
 */
dg_status gemm_problem_make(const dg_gemm_args *args, enum null_data null_data, struct gemm_problem *problem);

/* Nothing to compute: some of M, N, batch is 0. (K = 0 still stores C or zeros.) */
static inline bool gemm_problem_empty(const struct gemm_problem *p)
{
    return p->batch == 0 || p->m == 0 || p->n == 0;
}

/* "m=4096 n=7168 k=2048 out=bfloat16", for messages and DG_PRINT_CONFIGS. */
struct text gemm_problem_text(const struct gemm_problem *problem);

#endif
