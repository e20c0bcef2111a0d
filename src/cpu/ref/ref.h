/*
 * The CPU reference: the specification of every operation, slow and never clever. All other implementations are
 * judged by it. The problems passed in have been checked.
 */
#ifndef CPU_REF_H
#define CPU_REF_H

#include "plan/gemm_problem.h"
#include "plan/scale_problem.h"

void ref_gemm(const struct gemm_problem *problem);
void ref_quantize(const struct quantize_problem *problem);

/* Returns false, and names the first offender in *row, *col, when packing meets a value that is no power of two and
   rounding was not asked for; then nothing has been written. */
bool ref_transform_scale(const struct transform_problem *problem, int64_t *batch, int64_t *row, int64_t *col);

#endif
