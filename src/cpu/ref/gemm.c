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

/* A tile of D and what its sums are made of. */
struct tile {
    const float *value; /* of each FP8 code */
    const struct gemm_span *span;
    struct matrix a, b, sfa, sfb; /* of the span's range of K */
    int64_t m, n;                 /* the first element */
    int64_t rows, columns;
    int64_t depth; /* k of the group in hand */
    float a_values[ROWS][SCALE_GROUP];
    float b_values[SCALE_GROUP][COLUMNS]; /* columns beyond the tile's stay zero */
    float accumulator[ROWS][COLUMNS];
};

/* The part of an operand that holds the span's K. */
static struct matrix operand_of(const struct matrix *x, const struct gemm_span *span, bool flat)
{
    struct matrix part = *x;
    part.data += span->k_begin * (flat ? x->rows : x->col_stride);
    if (flat)
        part.row_stride = span->k;
    return part;
}

static struct matrix scales_of(const struct matrix *sf, const struct gemm_span *span)
{
    struct matrix part = *sf;
    part.data += span->k_block * sf->col_stride * (int64_t)sizeof(float);
    return part;
}

static void decode_group(struct tile *t, int64_t group)
{
    const int64_t k = group * SCALE_GROUP;
    t->depth = min_i64(SCALE_GROUP, t->span->k - k);
    for (int64_t i = 0; i < t->rows; ++i)
        for (int64_t j = 0; j < t->depth; ++j)
            t->a_values[i][j] = t->value[*element_fp8(&t->a, t->span->batch, t->m + i, k + j)];
    for (int64_t j = 0; j < t->depth; ++j)
        for (int64_t i = 0; i < t->columns; ++i)
            t->b_values[j][i] = t->value[*element_fp8(&t->b, t->span->group, t->n + i, k + j)];
}

/* COLUMNS sums side by side, each in the order of k: unrolled, the compiler keeps them in vector registers. */
static void sum_products(const struct tile *t, int64_t row, float partial[COLUMNS])
{
    float sum[COLUMNS] = {0};
    for (int64_t k = 0; k < t->depth; ++k) {
#pragma GCC unroll 16
        for (int i = 0; i < COLUMNS; ++i)
            sum[i] += t->a_values[row][k] * t->b_values[k][i];
    }
    for (int i = 0; i < COLUMNS; ++i)
        partial[i] = sum[i];
}

/* B's scales of the tile's columns; zeros beyond them. */
static void read_b_scales(const struct tile *t, const struct gemm_problem *p, int64_t group, float scale[COLUMNS])
{
    for (int64_t i = 0; i < COLUMNS; ++i) {
        const int64_t row = p->sfb_rows ? t->n + i : t->n / SCALE_GROUP;
        scale[i] = i < t->columns ? element_scale(&t->sfb, t->span->group, row, group) : 0.0f;
    }
}

static void add_group(struct tile *t, const struct gemm_problem *p, int64_t group)
{
    float scale_b[COLUMNS];
    read_b_scales(t, p, group, scale_b);
    decode_group(t, group);
    for (int64_t row = 0; row < t->rows; ++row) {
        float partial[COLUMNS];
        const float scale_a = element_scale(&t->sfa, t->span->batch, t->m + row, group);
        sum_products(t, row, partial);
        for (int i = 0; i < COLUMNS; ++i)
            t->accumulator[row][i] = fmaf(scale_a * scale_b[i], partial[i], t->accumulator[row][i]);
    }
}

static void store(const struct tile *t, const struct gemm_problem *p)
{
    const int64_t batch = t->span->batch;
    for (int64_t i = 0; i < t->rows; ++i)
        for (int64_t j = 0; j < t->columns; ++j) {
            float value = t->accumulator[i][j];
            if (p->has_c)
                value += element_read(&p->c, batch, t->m + i, t->n + j);
            element_write(&p->d, batch, t->m + i, t->n + j, value);
        }
}

/* Rows behind the span's end that are to be zeros. */
static void store_zeros(const struct tile *t, const struct gemm_problem *p, int64_t row, int64_t end)
{
    for (; row < end; ++row)
        for (int64_t j = 0; j < t->columns; ++j)
            element_write(&p->d, t->span->batch, row, t->n + j, 0.0f);
}

/* Tile number `index` of the span: rows of tiles from the top, in each the tiles from the left. */
static void compute_tile(const struct gemm_problem *p, const struct gemm_span *span, const float *value, int64_t index)
{
    struct tile t = {.value = value, .span = span};
    t.m = span->row + index / ceil_div(p->n, COLUMNS) * ROWS;
    t.n = index % ceil_div(p->n, COLUMNS) * COLUMNS;
    t.rows = max_i64(0, min_i64(ROWS, span->end - t.m));
    t.columns = min_i64(COLUMNS, p->n - t.n);
    t.a = operand_of(&p->a, span, p->a_flat);
    t.b = operand_of(&p->b, span, p->b_flat);
    t.sfa = scales_of(&p->sfa, span);
    t.sfb = scales_of(&p->sfb, span);
    if (t.rows > 0) {
        for (int64_t group = 0; group < ceil_div(span->k, SCALE_GROUP); ++group)
            add_group(&t, p, group);
        store(&t, p);
    }
    store_zeros(&t, p, t.m + t.rows, min_i64(t.m + ROWS, span->zero_end));
}

static void compute_tiles(void *user, int64_t begin, int64_t end)
{
    const struct gemm_problem *p = user;
    struct gemm_cursor cursor = gemm_cursor_begin(&p->groups);
    float value[256];
    for (int code = 0; code < 256; ++code)
        value[code] = e4m3_to_float((uint8_t)code);
    for (int64_t i = begin; i < end; ++i) {
        if (!gemm_cursor_seek(&p->groups, &cursor, i, ROWS, ceil_div(p->n, COLUMNS)))
            return;
        compute_tile(p, &cursor.span, value, i - cursor.before);
    }
}

/* Of all spans. A dense problem need not be walked through for that. */
static int64_t count_tiles(const struct gemm_problem *p)
{
    const int64_t across = ceil_div(p->n, COLUMNS);
    struct gemm_cursor cursor = gemm_cursor_begin(&p->groups);
    if (p->groups.kind == GEMM_KIND_DENSE)
        return p->batch * ceil_div(p->m, ROWS) * across;
    gemm_cursor_seek(&p->groups, &cursor, INT64_MAX, ROWS, across);
    return cursor.before;
}

void ref_gemm(const struct gemm_problem *problem)
{
    struct gemm_problem p = *problem;
    const int64_t cost = ROWS * COLUMNS / 2 * min_i64(p.k + 1, (int64_t)1 << 40); /* a product: half a nanosecond */
    cpu_parallel_for(count_tiles(&p), cost, compute_tiles, &p);
}
