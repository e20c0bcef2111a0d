/* What can be said about a dg_tensor without looking at its elements. */
#ifndef CORE_TENSOR_H
#define CORE_TENSOR_H

#include "deepgemm.h"

/* A short text by value, so that an error sentence can hold several. */
struct text {
    char s[160];
};

/* "[128, 55] float32", and " with strides [..]" when it is not row-major and contiguous. */
struct text tensor_text(const dg_tensor *tensor);
struct text shape_text(const dg_tensor *tensor);

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static inline int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline bool tensor_present(const dg_tensor *tensor)
{
    return tensor->dtype != DG_DTYPE_NONE;
}

bool tensor_empty(const dg_tensor *tensor);

/*
 * A matrix view in the one form that everything behind the checks uses: always three dimensions, with the strides of
 * size-1 dimensions set to 0 so that two spellings of one view compare equal.
 */
struct matrix {
    char *data;
    dg_dtype dtype;
    int32_t device;
    int64_t batch, rows, cols;
    int64_t batch_stride, row_stride, col_stride; /* elements */
};

/* The tensor must have passed check_tensor with 2 or 3 dimensions. */
struct matrix matrix_of(const dg_tensor *tensor);

/* Whether two indices of the matrix reach the same element. */
bool matrix_overlaps_itself(const struct matrix *m);

/* Whether the two share a byte. Exact, also for views interleaved in one buffer. */
bool matrices_overlap(const struct matrix *a, const struct matrix *b);

#endif
