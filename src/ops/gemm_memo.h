/*
 * What a thread remembers of its dg_gemm calls, so that a repeated one costs a look-up and a launch. Two tables per
 * thread, without locks:
 *   calls     the exact arguments -> the launch, with the filled kernel argument
 *   problems  shapes, strides, dtypes and alignment, but not the pointers -> plan and kernel
 * Both are keyed by the context's epoch too, which changes with every dg_set. A full set forgets its oldest entry.
 */
#ifndef OPS_GEMM_MEMO_H
#define OPS_GEMM_MEMO_H

#include "ops/gemm_row.h"

struct gemm_call {
    uint64_t epoch;
    dg_gemm_args args;
    struct cuda_launch launch;
    CUcontext loaded_in; /* the CUDA context that has the kernel's code */
    union gemm_kernel_args kernel_args;
};

/* A problem without its pointers, but with their alignment. */
enum { GEMM_KEY_WORDS = 44 };
struct gemm_key {
    int64_t words[GEMM_KEY_WORDS];
};

struct gemm_planned {
    struct gemm_key key;
    struct gemm_plan plan;
    struct cuda_kernel kernel;
    CUcontext loaded_in;
};

struct gemm_key gemm_key_of(uint64_t epoch, const struct gemm_problem *p, int32_t num_sms);

/* NULL when not remembered. What is found stays valid until the thread makes a new one. */
struct gemm_call *gemm_memo_call(uint64_t epoch, const dg_gemm_args *args);
struct gemm_planned *gemm_memo_problem(const struct gemm_key *key);

/* A place for the new entry, to be filled by the caller; NULL when memory is short. */
struct gemm_call *gemm_memo_new_call(uint64_t epoch, const dg_gemm_args *args);
struct gemm_planned *gemm_memo_new_problem(const struct gemm_key *key);

#endif
