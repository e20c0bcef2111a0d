/*
 * D = C + A @ B^T with scales, as deepgemm.h defines it. For every element of D, with K in groups of 128:
 *
 *     accumulator = 0
 *     for each group:  partial = sum of a * b over the group's k, in order, in FP32    (a * b is exact in FP32)
 *                      accumulator = fma(scale_a * scale_b, partial, accumulator)      (scale_a * scale_b rounded once)
 *     d = round(accumulator + c)
 *
 * The order of these operations is that of kernels/any/gemm_simple.cu, which therefore gives the same bits. Here a tile
 * of D is computed at a time, so that each operand is decoded once a tile and not once a product.
 */
#include "cpu/ref/element.h"
#include "cpu/ref/ref.h"
#include "cpu/threads.h"
#include "shared/base.h"

#include <math.h>

enum { ROWS = 32, COLUMNS = 16 }; /* of a tile; COLUMNS divides 128, so that a tile lies in one block of B's scales */

struct tile {
    const float *value;  /* of each FP8 code */
    int64_t batch, m, n; /* the first element */
    int64_t rows, columns;
    int64_t depth; /* k of the group in hand */
    float a[ROWS][SCALE_GROUP];
    float b[SCALE_GROUP][COLUMNS]; /* columns beyond the tile's stay zero */
    float accumulator[ROWS][COLUMNS];
};

static void decode_group(struct tile *t, const struct gemm_problem *p, int64_t group)
{
    const int64_t k = group * SCALE_GROUP;
    t->depth = min_i64(SCALE_GROUP, p->k - k);
    for (int64_t i = 0; i < t->rows; ++i)
        for (int64_t j = 0; j < t->depth; ++j)
            t->a[i][j] = t->value[*element_fp8(&p->a, t->batch, t->m + i, k + j)];
    for (int64_t j = 0; j < t->depth; ++j)
        for (int64_t i = 0; i < t->columns; ++i)
            t->b[j][i] = t->value[*element_fp8(&p->b, t->batch, t->n + i, k + j)];
}

/* COLUMNS sums side by side, each in the order of k: unrolled, the compiler keeps them in vector registers. */
static void sum_products(const struct tile *t, int64_t row, float partial[COLUMNS])
{
    float sum[COLUMNS] = {0};
    for (int64_t k = 0; k < t->depth; ++k) {
#pragma GCC unroll 16
        for (int i = 0; i < COLUMNS; ++i)
            sum[i] += t->a[row][k] * t->b[k][i];
    }
    for (int i = 0; i < COLUMNS; ++i)
        partial[i] = sum[i];
}

static void add_group(struct tile *t, const struct gemm_problem *p, int64_t group)
{
    const float scale_b = element_scale(&p->sfb, t->batch, t->n / SCALE_GROUP, group);
    decode_group(t, p, group);
    for (int64_t row = 0; row < t->rows; ++row) {
        float partial[COLUMNS];
        const float scale = element_scale(&p->sfa, t->batch, t->m + row, group) * scale_b;
        sum_products(t, row, partial);
        for (int i = 0; i < COLUMNS; ++i)
            t->accumulator[row][i] = fmaf(scale, partial[i], t->accumulator[row][i]);
    }
}

static void store(const struct tile *t, const struct gemm_problem *p)
{
    for (int64_t i = 0; i < t->rows; ++i)
        for (int64_t j = 0; j < t->columns; ++j) {
            float value = t->accumulator[i][j];
            if (p->has_c)
                value += element_read(&p->c, t->batch, t->m + i, t->n + j);
            element_write(&p->d, t->batch, t->m + i, t->n + j, value);
        }
}

static void compute_tiles(void *user, int64_t begin, int64_t end)
{
    const struct gemm_problem *p = user;
    const int64_t m_tiles = ceil_div(p->m, ROWS), n_tiles = ceil_div(p->n, COLUMNS);
    float value[256];
    for (int code = 0; code < 256; ++code)
        value[code] = e4m3_to_float((uint8_t)code);
    for (int64_t i = begin; i < end; ++i) {
        struct tile t = {.value = value, .batch = i / (m_tiles * n_tiles)};
        t.m = i / n_tiles % m_tiles * ROWS;
        t.n = i % n_tiles * COLUMNS;
        t.rows = min_i64(ROWS, p->m - t.m);
        t.columns = min_i64(COLUMNS, p->n - t.n);
        for (int64_t group = 0; group < ceil_div(p->k, SCALE_GROUP); ++group)
            add_group(&t, p, group);
        store(&t, p);
    }
}

void ref_gemm(const struct gemm_problem *problem)
{
    struct gemm_problem p = *problem;
    const int64_t cost = ROWS * COLUMNS / 2 * min_i64(p.k + 1, (int64_t)1 << 40); /* a product: half a nanosecond */
    cpu_parallel_for(p.batch * ceil_div(p.m, ROWS) * ceil_div(p.n, COLUMNS), cost, compute_tiles, &p);
}
