/* Cases with memory and data: what selftest, bench and the others call the library with. */
#ifndef CLI_PROBLEM_H
#define CLI_PROBLEM_H

#include "groups.h"
#include "operand.h"
#include "random.h"

/* ---- GEMM -------------------------------------------------------------------------------------------------------- */

struct gemm {
    struct test_case test;
    int32_t device;
    struct operand a, b, sfa, sfb, c, d; /* c only for c=separate */
    struct operand layout;               /* of grouped kinds */
    struct groups groups;
    uint8_t
        *d_image; /* the bytes of d's buffer before a call: guards, gaps, NaNs, or C; what has to stay is a pattern */
    void *workspace;
    dg_explanation plan;
    uint32_t flags; /* of dg_gemm_args; 0 at first */
};

/* Views without memory, for questions. */
bool gemm_describe(struct gemm *gemm, const struct test_case *test, int32_t device);

/* The arguments of dg_gemm, whether or not there is memory. */
dg_gemm_args gemm_args(const struct gemm *gemm);

/* Describe, ask for the plan, allocate, and fill A, B and C with random data quantised on the device. */
bool gemm_make(struct gemm *gemm, const struct test_case *test, int32_t device, enum random_style style);

/* New A and B (and C, and sizes of groups) in the same memory, from another seed. What no product has to read of A, B
   and their scales is NaN. */
bool gemm_refill(struct gemm *gemm, enum random_style style, uint64_t seed);

/* Put D's image back: NaN in every element (C where C is D), the guards and gaps intact. */
bool gemm_reset(struct gemm *gemm);

bool gemm_run(const struct gemm *gemm, dg_context *context, dg_stream stream);

/* The operands of one product: rows of A and their scales, all rows of B and its scales, each with the span's K. */
struct product {
    struct operand a, sfa, b, sfb;
};

struct product gemm_product(const struct gemm *gemm, const struct span *span);

/* Guards and gaps of D's host copy, and the rows that no group has, are as they were before the call; zeros are where
   they have to be; every element that has to be has been written (is no NaN). */
bool gemm_check_surroundings(const struct gemm *gemm);

void gemm_free(struct gemm *gemm);

/* ---- Quantisation and scale transforms --------------------------------------------------------------------------- */

struct quantization {
    struct test_case test;
    struct operand x, q, sf;
};

/* Views without memory, and arguments, as for dg_gemm. */
bool quantization_describe(struct quantization *quantization, const struct test_case *test, int32_t device);
dg_quantize_args quantization_args(const struct quantization *quantization);

bool quantization_make(struct quantization *quantization, const struct test_case *test, int32_t device);
bool quantization_run(const struct quantization *quantization, dg_stream stream);
void quantization_free(struct quantization *quantization);

struct transform {
    struct test_case test;
    struct operand src, dst;
};

bool transform_describe(struct transform *transform, const struct test_case *test, int32_t device);
dg_transform_scale_args transform_args(const struct transform *transform);

bool transform_make(struct transform *transform, const struct test_case *test, int32_t device);
bool transform_run(const struct transform *transform, dg_stream stream);
void transform_free(struct transform *transform);

#endif
