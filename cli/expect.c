#include "expect.h"

#include "number.h"
#include "parallel.h"
#include "program.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 128 }; /* k of a scale's group: the only one that dg_gemm takes */

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

float scale_read(const struct operand *sf, int64_t batch, int64_t row, int64_t group)
{
    float scale;
    uint32_t word;
    if (sf->host.dtype == DG_FLOAT32) {
        memcpy(&scale, operand_element(sf, batch, row, group), sizeof(scale));
        return scale;
    }
    memcpy(&word, operand_element(sf, batch, row, group / 4), sizeof(word));
    return number_from_ue8m0((uint8_t)(word >> (8 * (group % 4))));
}

static int64_t picked(const int64_t *numbers, int64_t i)
{
    return numbers ? numbers[i] : i;
}

static void read_quantized(const void *user, int64_t i, double *values)
{
    const struct quantized_rows *rows = user;
    const int64_t row = picked(rows->numbers, i), k = operand_cols(&rows->q->host);
    const uint8_t *codes = operand_element(rows->q, rows->batch, row, 0);
    const int64_t step = rows->q->host.stride[rows->q->host.ndim - 1];
    double scale = 0.0;
    for (int64_t j = 0; j < k; ++j) {
        if (j % GROUP == 0)
            scale = (double)scale_read(rows->sf, rows->batch, row / rows->gran_mn, j / GROUP);
        values[j] = (double)number_from_e4m3(codes[j * step]) * scale;
    }
}

struct rows rows_of_quantized(const struct quantized_rows *rows)
{
    return (struct rows){read_quantized, rows, rows->count, operand_cols(&rows->q->host)};
}

static void read_array(const void *user, int64_t i, double *values)
{
    const struct array_rows *rows = user;
    const int64_t begin = picked(rows->numbers, i) * rows->array->cols;
    for (int64_t j = 0; j < rows->array->cols; ++j)
        values[j] = (double)number_read(rows->array->dtype, rows->array->data, begin + j);
}

struct rows rows_of_array(const struct array_rows *rows)
{
    return (struct rows){read_array, rows, rows->count, rows->array->cols};
}

/* ---- FP64 -------------------------------------------------------------------------------------------------------- */

struct product {
    const double *a; /* all rows of A */
    int64_t a_count;
    const struct rows *b;
    double *wanted;
    atomic_bool failed;
};

/* One row of B with all of A, four at a time: four sums that do not wait for each other. */
static void multiply_column(const struct product *p, int64_t col, const double *b)
{
    const int64_t k_count = p->b->k;
    for (int64_t row = 0; row < p->a_count; row += 4) {
        const int64_t left = p->a_count - row;
        const double *a[4];
        double sum[4] = {0.0, 0.0, 0.0, 0.0};
        for (int64_t i = 0; i < 4; ++i)
            a[i] = p->a + (row + (i < left ? i : 0)) * k_count;
        for (int64_t k = 0; k < k_count; ++k)
            for (int i = 0; i < 4; ++i)
                sum[i] += a[i][k] * b[k];
        for (int64_t i = 0; i < 4 && i < left; ++i)
            p->wanted[(row + i) * p->b->count + col] = sum[i];
    }
}

static void multiply_columns(void *user, int64_t begin, int64_t end)
{
    struct product *p = user;
    double *b = malloc((size_t)(p->b->k + 1) * sizeof(*b));
    if (b == NULL)
        p->failed = true;
    for (int64_t col = begin; b && col < end; ++col) {
        p->b->read(p->b->user, col, b);
        multiply_column(p, col, b);
    }
    free(b);
}

bool expect_fp64(const struct rows *a, const struct rows *b, double *wanted)
{
    double *a_values = get_memory((size_t)(a->count * a->k) * sizeof(*a_values));
    struct product p = {.a = a_values, .a_count = a->count, .b = b, .wanted = wanted};
    if (a_values == NULL)
        return false;
    for (int64_t row = 0; row < a->count; ++row)
        a->read(a->user, row, a_values + row * a->k);
    parallel_for(b->count, 1, multiply_columns, &p);
    free(a_values);
    return !p.failed || trouble("no memory for a row of %lld numbers", (long long)b->k);
}

/* ---- The library's reference ------------------------------------------------------------------------------------- */

/* Copies of the picked rows: codes [count, k] and FP32 scales [count, groups], one scale row for each row. */
struct gathered {
    int64_t count, k, groups;
    uint8_t *codes;
    float *scales;
};

static bool gather(const struct quantized_rows *rows, struct gathered *g)
{
    const int64_t k = operand_cols(&rows->q->host), groups = (k + GROUP - 1) / GROUP;
    *g = (struct gathered){.count = rows->count, .k = k, .groups = groups};
    g->codes = get_memory((size_t)(rows->count * k));
    g->scales = get_memory((size_t)(rows->count * groups) * sizeof(float));
    for (int64_t i = 0; g->codes && g->scales && i < rows->count; ++i) {
        const int64_t row = picked(rows->numbers, i);
        for (int64_t j = 0; j < k; ++j)
            g->codes[i * k + j] = *(const uint8_t *)operand_element(rows->q, rows->batch, row, j);
        for (int64_t group = 0; group < groups; ++group)
            g->scales[i * groups + group] = scale_read(rows->sf, rows->batch, row / rows->gran_mn, group);
    }
    return g->codes && g->scales;
}

static void gathered_free(struct gathered *g)
{
    free(g->codes);
    free(g->scales);
}

/*
 * Columns of D were picked one by one, while B's scales hold for blocks of 128. So each column becomes a batch entry
 * of its own with N = 1, and A is the same in all of them.
 */
static bool multiply_gathered(const struct gathered *a, const struct gathered *b, float *d)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    const int64_t cols = b->count, rows = a->count, k = a->k, groups = a->groups;
    args.a = (dg_tensor){a->codes, DG_FLOAT8_E4M3, DG_CPU, 3, 0, {cols, rows, k}, {0, k, 1}};
    args.b = (dg_tensor){b->codes, DG_FLOAT8_E4M3, DG_CPU, 3, 0, {cols, 1, k}, {k, k, 1}};
    args.sfa = (dg_tensor){a->scales, DG_FLOAT32, DG_CPU, 3, 0, {cols, rows, groups}, {0, groups, 1}};
    args.sfb = (dg_tensor){b->scales, DG_FLOAT32, DG_CPU, 3, 0, {cols, 1, groups}, {groups, groups, 1}};
    args.d = (dg_tensor){d, DG_FLOAT32, DG_CPU, 3, 0, {cols, rows, 1}, {1, cols, 1}};
    return ok(dg_gemm(NULL, &args, NULL));
}

bool expect_reference(const struct quantized_rows *a_rows, const struct quantized_rows *b_rows, double *wanted)
{
    struct gathered a, b = {0};
    const int64_t count = a_rows->count * b_rows->count;
    float *d = get_memory((size_t)count * sizeof(*d));
    const bool done = gather(a_rows, &a) && gather(b_rows, &b) && d && multiply_gathered(&a, &b, d);
    for (int64_t i = 0; done && i < count; ++i)
        wanted[i] = (double)d[i];
    gathered_free(&a);
    gathered_free(&b);
    free(d);
    return done;
}
