#include "judge.h"

#include "expect.h"
#include "number.h"
#include "program.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BATCHES = 3, MOST_GROUPS = 8 };

/* ---- Verdicts ---------------------------------------------------------------------------------------------------- */

static bool few(const struct verdict *v)
{
    return v->elements < 64;
}

double verdict_limit(const struct verdict *v, dg_dtype out)
{
    const double contract = out == DG_BFLOAT16 ? 5e-6 : 2e-6, rounding = number_rounding(out);
    return few(v) ? contract + rounding * rounding / 2.0 : contract;
}

double verdict_error(const struct verdict *v)
{
    const double divisor = few(v) ? fmax(v->energy, 2.0 * v->magnitude2) : v->energy;
    return divisor > 0.0 ? v->difference2 / divisor : v->difference2;
}

/*
 * What one element may be off by: its rounding, that of what was wanted if it was, and a share of its typical magnitude
 * for the FP8 accumulator. That keeps 13 fraction bits of sums over 128 products, so 2^-6 is generous, and yet a scale
 * from a wrong group shows.
 */
static double allowance(const struct verdict *v, double wanted, double magnitude, dg_dtype out)
{
    return (v->wanted_rounded ? 2.0 : 1.0) * number_rounding(out) * fabs(wanted) + 0x1p-6 * magnitude + 1e-30;
}

void verdict_add(struct verdict *v, const struct element *e, double magnitude, dg_dtype out)
{
    const double difference = e->got - e->wanted;
    const double multiple = fabs(difference) / allowance(v, e->wanted, magnitude, out);
    v->difference2 += difference * difference;
    v->energy += e->got * e->got + e->wanted * e->wanted;
    v->magnitude2 += magnitude * magnitude;
    ++v->elements;
    if (!(multiple <= v->worst_multiple)) { /* a NaN too */
        v->worst_multiple = isnan(multiple) ? INFINITY : multiple;
        v->worst = *e;
    }
}

bool verdict_accept(const struct verdict *v, dg_dtype out)
{
    const double error = verdict_error(v);
    const struct element *e = &v->worst;
    const bool near = v->worst_multiple <= 1.0;
    if (near && error <= verdict_limit(v, out))
        return true;
    return trouble("error %.3g (limit %.3g)%s; worst element [%" PRId64 ", %" PRId64 ", %" PRId64
                   "] (batch, row, column): got %.9g, wanted %.9g",
                   error, verdict_limit(v, out), near ? "" : ", and one element far off by itself", e->batch, e->row,
                   e->col, e->got, e->wanted);
}

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

int64_t sample_numbers(int64_t count, int64_t most, uint64_t seed, int64_t *numbers)
{
    if (count <= most) {
        for (int64_t i = 0; i < count; ++i)
            numbers[i] = i;
        return count;
    }
    for (int64_t i = 0; i < most; ++i) { /* one from each of `most` equal stretches */
        const int64_t begin = (int64_t)((double)count * (double)i / (double)most);
        const int64_t end = (int64_t)((double)count * (double)(i + 1) / (double)most);
        numbers[i] = begin + (int64_t)(random_bits(seed, (uint64_t)i) % (uint64_t)(end > begin ? end - begin : 1));
    }
    numbers[0] = 0;
    if (most > 1)
        numbers[most - 1] = count - 1;
    return most;
}

/* ---- The GEMM's judge -------------------------------------------------------------------------------------------- */

struct judgement {
    const struct gemm *gemm;
    const struct span *span;
    struct product product;
    int64_t *row_numbers, *col_numbers; /* rows count from the span's first */
    struct quantized_rows a, b;
    double *wanted, *row, *norm_a, *norm_b;
};

void row_norms(const struct rows *rows, double *row, double *norms)
{
    for (int64_t i = 0; i < rows->count; ++i) {
        double sum = 0.0;
        rows->read(rows->user, i, row);
        for (int64_t k = 0; k < rows->k; ++k)
            sum += row[k] * row[k];
        norms[i] = sqrt(sum);
    }
}

static double c_element(const struct gemm *g, int64_t batch, int64_t row, int64_t col)
{
    const struct operand *d = &g->d;
    if (g->test.c == CASE_C_NONE)
        return 0.0;
    if (g->test.c == CASE_C_SEPARATE)
        return (double)number_read(g->c.host.dtype, operand_element(&g->c, batch, row, col), 0);
    const size_t at = (size_t)((uint8_t *)operand_element(d, batch, row, col) - (uint8_t *)d->host_memory);
    return (double)number_read(d->host.dtype, g->d_image + at, 0);
}

static double d_element(const struct gemm *g, int64_t batch, int64_t row, int64_t col)
{
    return (double)number_read(g->d.host.dtype, operand_element(&g->d, batch, row, col), 0);
}

/* What each picked element should be: by FP64, by the CPU reference, or as `other` has it. */
static bool expect(struct judgement *j, enum judge judge, const struct gemm *other)
{
    const int64_t batch = j->span->batch, cols = j->b.count;
    const struct rows a = rows_of_quantized(&j->a), b = rows_of_quantized(&j->b);
    if (other == NULL &&
        !(judge == JUDGE_FP64 ? expect_fp64(&a, &b, j->wanted) : expect_reference(&j->a, &j->b, j->wanted)))
        return false;
    for (int64_t i = 0; i < a.count * cols; ++i) {
        const int64_t row = j->span->row + j->row_numbers[i / cols], col = j->col_numbers[i % cols];
        j->wanted[i] = other ? d_element(other, batch, row, col) : j->wanted[i] + c_element(j->gemm, batch, row, col);
    }
    return true;
}

static void compare(struct judgement *j, struct verdict *v)
{
    const dg_dtype out = j->gemm->d.host.dtype;
    const struct rows a = rows_of_quantized(&j->a), b = rows_of_quantized(&j->b);
    row_norms(&a, j->row, j->norm_a);
    row_norms(&b, j->row, j->norm_b);
    for (int64_t i = 0; i < a.count; ++i) {
        for (int64_t l = 0; l < b.count; ++l) {
            struct element e = {j->span->batch, j->span->row + j->row_numbers[i], j->col_numbers[l], 0.0, 0.0};
            e.got = d_element(j->gemm, e.batch, e.row, e.col);
            e.wanted = j->wanted[i * b.count + l];
            const double magnitude = a.k ? j->norm_a[i] * j->norm_b[l] / sqrt((double)a.k) : 0.0;
            verdict_add(v, &e, magnitude, out);
        }
    }
}

static bool judgement_make(struct judgement *j, const struct gemm *g, const struct span *span, int64_t most_rows,
                           int64_t most_cols)
{
    const struct test_case *t = &g->test;
    const int64_t all_rows = span->end - span->row;
    const uint64_t seed = (uint64_t)t->seed;
    *j = (struct judgement){.gemm = g, .span = span, .product = gemm_product(g, span)};
    most_rows = most_rows < all_rows ? most_rows : all_rows;
    most_cols = most_cols < t->n ? most_cols : t->n;
    j->row_numbers = get_memory((size_t)most_rows * sizeof(int64_t));
    j->col_numbers = get_memory((size_t)most_cols * sizeof(int64_t));
    j->wanted = get_memory((size_t)(most_rows * most_cols) * sizeof(double));
    j->row = get_memory((size_t)span->k * sizeof(double));
    j->norm_a = get_memory((size_t)most_rows * sizeof(double));
    j->norm_b = get_memory((size_t)most_cols * sizeof(double));
    if (!j->row_numbers || !j->col_numbers || !j->wanted || !j->row || !j->norm_a || !j->norm_b)
        return false;
    const int64_t rows = sample_numbers(all_rows, most_rows, seed + 1, j->row_numbers);
    const int64_t cols = sample_numbers(t->n, most_cols, seed + 2, j->col_numbers);
    j->a = (struct quantized_rows){&j->product.a, &j->product.sfa, t->recipe[0], 0, rows, j->row_numbers};
    j->b = (struct quantized_rows){&j->product.b, &j->product.sfb, t->recipe[1], 0, cols, j->col_numbers};
    return true;
}

static void judgement_free(struct judgement *j)
{
    free(j->row_numbers);
    free(j->col_numbers);
    free(j->wanted);
    free(j->row);
    free(j->norm_a);
    free(j->norm_b);
}

static bool judge_span(const struct gemm *g, const struct span *span, enum judge judge, const struct gemm *other,
                       int64_t rows, int64_t cols, struct verdict *v)
{
    struct judgement j;
    if (span->end == span->row || g->test.n == 0)
        return true;
    const bool done = judgement_make(&j, g, span, rows, cols) && expect(&j, judge, other);
    if (done)
        compare(&j, v);
    judgement_free(&j);
    return done;
}

/* The number of the first span from `index` on that has rows; of none: count. */
static int64_t next_with_rows(const struct groups *groups, int64_t index)
{
    while (index < groups->count && groups->spans[index].end == groups->spans[index].row)
        ++index;
    return index;
}

static bool judge_spans(const struct gemm *g, enum judge judge, const struct gemm *other, int64_t rows, int64_t cols,
                        struct verdict *v)
{
    int64_t picked[MOST_GROUPS], before = -1;
    const struct groups *groups = &g->groups;
    const bool all = g->test.kind != DG_GEMM_DENSE && rows >= groups->room.rows;
    const int64_t most = g->test.kind == DG_GEMM_DENSE ? MOST_BATCHES : MOST_GROUPS;
    const int64_t count = all ? groups->count : sample_numbers(groups->count, most, (uint64_t)g->test.seed, picked);
    *v = (struct verdict){.wanted_rounded = other != NULL};
    for (int64_t i = 0; i < count; ++i) {
        const int64_t index = all ? i : next_with_rows(groups, picked[i]);
        if (index == before || index == groups->count)
            continue;
        before = index;
        if (!judge_span(g, &groups->spans[index], judge, other, rows, cols, v))
            return false;
    }
    return true;
}

bool judge_gemm(const struct gemm *g, enum judge judge, int64_t rows, int64_t cols, struct verdict *v)
{
    return judge_spans(g, judge, NULL, rows, cols, v);
}

bool judge_whole(const struct gemm *g, const struct gemm *other, struct verdict *v)
{
    return judge_spans(g, JUDGE_REFERENCE, other, g->groups.room.rows, g->test.n, v);
}

/* ---- Quantisation and transforms --------------------------------------------------------------------------------- */

bool same_bytes(const char *what, const struct operand *got, const struct operand *wanted)
{
    const uint8_t *a = got->host_memory, *b = wanted->host_memory;
    size_t at = 0;
    if (got->bytes != wanted->bytes)
        return trouble("%s has %zu bytes on one device and %zu on the other", what, got->bytes, wanted->bytes);
    if (memcmp(a, b, got->bytes) == 0)
        return true;
    while (a[at] == b[at])
        ++at;
    const int64_t from_first = (int64_t)at - ((const uint8_t *)got->host.data - a);
    return trouble("%s: byte %" PRId64 " from its first is 0x%02x, on the CPU 0x%02x", what, from_first, a[at], b[at]);
}

/* Smallest power of two that is not below a positive value, within 2^-126 .. 2^127. */
static float next_power_of_two(float value)
{
    int exponent;
    const float fraction = frexpf(value, &exponent);
    exponent = fraction == 0.5f ? exponent - 1 : exponent;
    return ldexpf(1.0f, exponent < -126 ? -126 : exponent > 127 ? 127 : exponent);
}

/* Whether no neighbouring code is nearer to the value: rounding to nearest, without a second copy of rounding. */
static bool nearest_code(uint8_t code, float value)
{
    const double v = (double)value, distance = fabs((double)number_from_e4m3(code) - v);
    const int magnitude = code & 0x7f;
    if (magnitude == 0x7f || (magnitude && signbit(value) != 0) != (magnitude && (code & 0x80) != 0))
        return false;
    const bool above = magnitude == 0x7e || distance <= fabs((double)number_from_e4m3((uint8_t)(code + 1)) - v);
    const bool below = magnitude == 0 || distance <= fabs((double)number_from_e4m3((uint8_t)(code - 1)) - v);
    return above && below;
}

struct group {
    const struct quantization *z;
    int64_t batch, row, col; /* of the group, in groups */
    int64_t row_begin, row_end, col_begin, col_end;
};

static float group_amax(const struct group *g)
{
    float amax = 1e-4f;
    for (int64_t row = g->row_begin; row < g->row_end; ++row)
        for (int64_t col = g->col_begin; col < g->col_end; ++col)
            amax =
                fmaxf(amax, fabsf(number_read(g->z->x.host.dtype, operand_element(&g->z->x, g->batch, row, col), 0)));
    return amax;
}

static bool judge_group(const struct group *g)
{
    const struct test_case *t = &g->z->test;
    const float plain = group_amax(g) * (1.0f / 448.0f);
    const float wanted = t->round || t->sf == DG_INT32 ? next_power_of_two(plain) : plain;
    const float scale = scale_read(&g->z->sf, g->batch, g->row, g->col);
    if (scale != wanted)
        return trouble("the scale of group [%" PRId64 ", %" PRId64 ", %" PRId64 "] is %.9g, wanted %.9g", g->batch,
                       g->row, g->col, (double)scale, (double)wanted);
    for (int64_t row = g->row_begin; row < g->row_end; ++row) {
        for (int64_t col = g->col_begin; col < g->col_end; ++col) {
            const uint8_t code = *(const uint8_t *)operand_element(&g->z->q, g->batch, row, col);
            const float x = number_read(g->z->x.host.dtype, operand_element(&g->z->x, g->batch, row, col), 0);
            if (!nearest_code(code, x * (1.0f / scale)))
                return trouble("the code at [%" PRId64 ", %" PRId64 ", %" PRId64
                               "] is 0x%02x, which is not nearest to %.9g",
                               g->batch, row, col, code, (double)(x * (1.0f / scale)));
        }
    }
    return true;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

bool judge_quantization(const struct quantization *z)
{
    const struct test_case *t = &z->test;
    struct group g = {.z = z};
    for (g.batch = 0; g.batch < operand_batch(&z->x.host); ++g.batch) {
        for (g.row = 0; g.row * t->gran[0] < t->m; ++g.row) {
            for (g.col = 0; g.col * t->gran[1] < t->k; ++g.col) {
                g.row_begin = g.row * t->gran[0];
                g.row_end = least(g.row_begin + t->gran[0], t->m);
                g.col_begin = g.col * t->gran[1];
                g.col_end = least(g.col_begin + t->gran[1], t->k);
                if (!judge_group(&g))
                    return false;
            }
        }
    }
    return true;
}

bool judge_transform(const struct transform *f)
{
    const struct test_case *t = &f->test;
    const int64_t rows = (t->m + t->gran[0] - 1) / t->gran[0], groups = (t->k + t->gran[1] - 1) / t->gran[1];
    for (int64_t batch = 0; batch < operand_batch(&f->src.host); ++batch) {
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t group = 0; group < groups; ++group) {
                const float from = scale_read(&f->src, batch, row, group), to = scale_read(&f->dst, batch, row, group);
                const float wanted = t->round && t->to == DG_INT32 ? next_power_of_two(from) : from;
                if (to != wanted)
                    return trouble("scale [%" PRId64 ", %" PRId64 ", %" PRId64 "] became %.9g, wanted %.9g", batch, row,
                                   group, (double)to, (double)wanted);
            }
        }
    }
    return true;
}
