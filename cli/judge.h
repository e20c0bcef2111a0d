/*
 * Judging results. What D should be is computed from the very bytes of A, B and their scales, for a sample of rows and
 * columns: either here in FP64, or by the library's CPU reference.
 */
#ifndef CLI_JUDGE_H
#define CLI_JUDGE_H

#include "expect.h"
#include "problem.h"

/* How far a result is from what it should be. */
struct verdict {
    double difference2, energy; /* sums of (got - wanted)^2 and got^2 + wanted^2 */
    double magnitude2;          /* sum of what wanted^2 is on average, from the norms of A's and B's rows */
    int64_t elements;
    bool wanted_rounded; /* to D's type, as what was got is */
    /* The element that misses by the largest multiple of what its type and the FP8 accumulator may cost. */
    double worst_multiple;
    struct element {
        int64_t batch, row, col;
        double got, wanted;
    } worst;
};

/* Count one element in; `magnitude` is the typical size of such a sum. */
void verdict_add(struct verdict *verdict, const struct element *element, double magnitude, dg_dtype out);

/*
 * 1 - 2<x,y>/(<x,x>+<y,y>), which is the sum of (x-y)^2 over <x,x>+<y,y>. For fewer than 64 elements, which may all
 * happen to be near zero, the divisor is at least what it would be on average.
 */
double verdict_error(const struct verdict *verdict);

/*
 * The error that the numerical contract allows: 5e-6 for a BF16 D, 2e-6 otherwise. Of fewer than 64 elements each may
 * have been rounded at its worst, which for BF16 costs 7.6e-6 by itself; that comes on top.
 */
double verdict_limit(const struct verdict *verdict, dg_dtype out);

/* Within the limit, and no element by itself far off; false tells the worst element in trouble_text(). */
bool verdict_accept(const struct verdict *verdict, dg_dtype out);

/* Up to `most` of the numbers 0..count-1 in rising order: all of them, or the first, the last and some between. */
int64_t sample_numbers(int64_t count, int64_t most, uint64_t seed, int64_t *numbers);

/* The Euclidean norms of rows; `row` has room for one. Over sqrt(k), the product of two is the typical size of a sum.
 */
void row_norms(const struct rows *rows, double *row, double *norms);

enum judge { JUDGE_FP64, JUDGE_REFERENCE };

/*
 * Compare D's host copy with what the host copies of A, B, C, the scales and the layout ask for: so many rows and
 * columns of up to three entries of a batch; of groups all, or if their rows are picked up to eight.
 */
bool judge_gemm(const struct gemm *gemm, enum judge judge, int64_t rows, int64_t cols, struct verdict *verdict);

/* Compare every element of D with the D of `other`, which was computed from the same numbers in another way. */
bool judge_whole(const struct gemm *gemm, const struct gemm *other, struct verdict *verdict);

/* Judges of the other two operations, by their definition; false tells the first element that is wrong. */
bool judge_quantization(const struct quantization *quantization);
bool judge_transform(const struct transform *transform);

/* Two operands have the same bytes, their guards and gaps too. */
bool same_bytes(const char *what, const struct operand *got, const struct operand *wanted);

#endif
