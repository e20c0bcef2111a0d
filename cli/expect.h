/* What a product should be: FP64 products of any rows, and the library's CPU reference on gathered copies of them. */
#ifndef CLI_EXPECT_H
#define CLI_EXPECT_H

#include "array.h"
#include "operand.h"

/* Rows of K numbers that can be read one by one, in any order and from several threads. */
struct rows {
    void (*read)(const void *user, int64_t row, double *values);
    const void *user;
    int64_t count, k;
};

/* wanted[a.count, b.count] = a b^T, over all cores. false: no memory. */
bool expect_fp64(const struct rows *a, const struct rows *b, double *wanted);

/* Quantised rows: E4M3 codes and their scales, in whatever layout and scale type; `numbers` picks rows (NULL: all). */
struct quantized_rows {
    const struct operand *q, *sf;
    int64_t gran_mn, batch, count;
    const int64_t *numbers;
};

/* The numbers that the codes stand for. The struct must outlive the rows. */
struct rows rows_of_quantized(const struct quantized_rows *quantized);

/* The rows of a matrix, of any float type; `numbers` as above. */
struct array_rows {
    const struct array *array;
    int64_t count;
    const int64_t *numbers;
};

struct rows rows_of_array(const struct array_rows *rows);

/* Likewise by dg_gemm on CPU tensors, with an FP32 D. */
bool expect_reference(const struct quantized_rows *a, const struct quantized_rows *b, double *wanted);

/* Scale [row block, group] of a scale tensor's host copy, whichever way it is stored. */
float scale_read(const struct operand *sf, int64_t batch, int64_t row, int64_t group);

#endif
