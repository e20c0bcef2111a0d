/*
 * The baseline: cuBLASLt's tensor-wise FP8 product, E4M3 x E4M3 with one scale (1.0) for each whole matrix, FP32
 * accumulation, fast accumulation off, 32 MiB of workspace, and the first algorithm that its heuristic offers. Loaded
 * with dlopen; on the same data it computes a product without fine-grained scales, so only its time is of use.
 */
#ifndef CLI_CUBLASLT_H
#define CLI_CUBLASLT_H

#include "deepgemm.h"

/* false leaves the reason in trouble_text(). gpu_begin(device) has been called. */
bool cublaslt_begin(int32_t device);
void cublaslt_end(void);
/* 130100 for 13.1.0. */
size_t cublaslt_version(void);

/* A plan for d[m,n] = a[m,k] b[n,k]^T with the tensors of a dg_gemm call, which must be K-major and row-major. */
struct cublaslt_plan {
    void *description, *a_layout, *b_layout, *d_layout, *preference;
    uint64_t algo[8];
    const void *a, *b;
    void *d;
};

/* false: cuBLASLt does not take the problem (trouble_text() says why). */
bool cublaslt_plan_make(struct cublaslt_plan *plan, const dg_gemm_args *args);
void cublaslt_plan_free(struct cublaslt_plan *plan);

/* A timed_call; `plan` is a struct cublaslt_plan. */
bool cublaslt_run(void *plan, dg_stream stream);

#endif
