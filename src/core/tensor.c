#include "core/tensor.h"

#include <stdio.h>
#include <string.h>

size_t dg_dtype_size(dg_dtype dtype)
{
    switch (dtype) {
    case DG_FLOAT32:
    case DG_INT32:
        return 4;
    case DG_FLOAT16:
    case DG_BFLOAT16:
        return 2;
    case DG_FLOAT8_E4M3:
        return 1;
    case DG_DTYPE_NONE:
        break;
    }
    return 0;
}

const char *dg_dtype_name(dg_dtype dtype)
{
    switch (dtype) {
    case DG_DTYPE_NONE:
        return "none";
    case DG_FLOAT32:
        return "float32";
    case DG_FLOAT16:
        return "float16";
    case DG_BFLOAT16:
        return "bfloat16";
    case DG_FLOAT8_E4M3:
        return "float8_e4m3";
    case DG_INT32:
        return "int32";
    }
    return "unknown";
}

/* ---- Texts --------------------------------------------------------------------------------------------------- */

static void append_list(struct text *out, const int64_t *values, int32_t count)
{
    size_t used = strlen(out->s);
    for (int32_t i = 0; i < count && used < sizeof out->s; ++i) {
        int n = snprintf(out->s + used, sizeof out->s - used, "%s%lld", i ? ", " : "[", (long long)values[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < sizeof out->s)
        snprintf(out->s + used, sizeof out->s - used, "%s", count ? "]" : "[]");
}

static bool row_major(const dg_tensor *t)
{
    int64_t expected = 1;
    for (int32_t i = t->ndim - 1; i >= 0; --i) {
        if (t->shape[i] != 1 && t->stride[i] != expected)
            return false;
        if (__builtin_mul_overflow(expected, t->shape[i], &expected))
            return false;
    }
    return true;
}

struct text shape_text(const dg_tensor *tensor)
{
    struct text out = {""};
    int32_t ndim = tensor->ndim < 0 ? 0 : tensor->ndim > DG_MAX_DIMS ? DG_MAX_DIMS : tensor->ndim;
    append_list(&out, tensor->shape, ndim);
    return out;
}

struct text tensor_text(const dg_tensor *tensor)
{
    struct text out = shape_text(tensor);
    size_t used = strlen(out.s);
    int n = snprintf(out.s + used, sizeof out.s - used, " %s", dg_dtype_name(tensor->dtype));
    used += n > 0 ? (size_t)n : 0;
    if (tensor->ndim >= 0 && tensor->ndim <= DG_MAX_DIMS && !row_major(tensor) && used < sizeof out.s - 40) {
        strcat(out.s, " with strides ");
        append_list(&out, tensor->stride, tensor->ndim);
    }
    return out;
}

/* ---- Matrices ------------------------------------------------------------------------------------------------ */

bool tensor_empty(const dg_tensor *tensor)
{
    for (int32_t i = 0; i < tensor->ndim && i < DG_MAX_DIMS; ++i)
        if (tensor->shape[i] == 0)
            return true;
    return false;
}

struct matrix matrix_of(const dg_tensor *tensor)
{
    int32_t r = tensor->ndim - 2, c = tensor->ndim - 1;
    struct matrix m = {.data = tensor->data, .dtype = tensor->dtype, .device = tensor->device};
    m.batch = tensor->ndim == 3 ? tensor->shape[0] : 1;
    m.rows = tensor->shape[r];
    m.cols = tensor->shape[c];
    m.batch_stride = m.batch > 1 ? tensor->stride[0] : 0;
    m.row_stride = m.rows > 1 ? tensor->stride[r] : 0;
    m.col_stride = m.cols > 1 ? tensor->stride[c] : 0;
    return m;
}

/*
 * A matrix as bytes: segments of `length` contiguous bytes, `count[i]` of them at distance `step[i]` in up to three
 * dimensions, largest step first.
 */
struct segments {
    int64_t start, length;
    int64_t count[3], step[3];
};

static void order_by_step(struct segments *s)
{
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2 - i; ++j)
            if (s->step[j] < s->step[j + 1]) {
                int64_t step = s->step[j], count = s->count[j];
                s->step[j] = s->step[j + 1];
                s->count[j] = s->count[j + 1];
                s->step[j + 1] = step;
                s->count[j + 1] = count;
            }
}

static struct segments segments_of(const struct matrix *m)
{
    int64_t bytes = (int64_t)dg_dtype_size(m->dtype);
    struct segments s = {.start = (int64_t)(intptr_t)m->data, .length = bytes};
    const int64_t count[3] = {m->batch, m->rows, m->cols};
    const int64_t step[3] = {m->batch_stride, m->row_stride, m->col_stride};
    for (int i = 0; i < 3; ++i) {
        s.count[i] = count[i] > 1 ? count[i] : 1;
        s.step[i] = count[i] > 1 ? step[i] * bytes : 0;
    }
    order_by_step(&s);
    /* Fold dimensions that continue the segment without a gap, innermost (smallest step) first. */
    for (int i = 2; i >= 0; --i)
        if (s.count[i] > 1 && s.step[i] == s.length) {
            s.length *= s.count[i];
            s.count[i] = 1;
            s.step[i] = 0;
        }
    order_by_step(&s);
    return s;
}

static int64_t span(const struct segments *s, int first)
{
    int64_t end = s->length;
    for (int i = first; i < 3; ++i)
        end += (s->count[i] - 1) * s->step[i];
    return end;
}

bool matrix_overlaps_itself(const struct matrix *m)
{
    if (m->batch == 0 || m->rows == 0 || m->cols == 0)
        return false;
    struct segments s = segments_of(m);
    /* Sorted by step, a dimension is free of overlap when its step clears everything inside it. This refuses a few
       exotic interleavings without overlap, which no producer of tensors makes. */
    for (int i = 0; i < 3; ++i)
        if (s.count[i] > 1 && s.step[i] < span(&s, i + 1))
            return true;
    return false;
}

/* A broadcast dimension is one and the same bytes again: for the question whether two share any, one is enough. */
static struct segments distinct_segments_of(const struct matrix *m)
{
    struct matrix distinct = *m;
    distinct.batch = m->batch_stride ? m->batch : 1;
    distinct.rows = m->row_stride ? m->rows : 1;
    distinct.cols = m->col_stride ? m->cols : 1;
    return segments_of(&distinct);
}

/* Sums of multiples 0 .. count-1 of each step, steps falling; `rest` is the largest sum from a dimension on. */
struct sums {
    int dims;
    int64_t count[6], step[6], rest[7];
};

static void add_dimension(struct sums *sums, int64_t count, int64_t step)
{
    int at = 0;
    while (at < sums->dims && sums->step[at] > step)
        ++at;
    if (at < sums->dims && sums->step[at] == step) {
        sums->count[at] += count - 1;
        return;
    }
    for (int i = sums->dims++; i > at; --i) {
        sums->count[i] = sums->count[i - 1];
        sums->step[i] = sums->step[i - 1];
    }
    sums->count[at] = count;
    sums->step[at] = step;
}

/* All that a segment of x and one of y may be apart, above the smallest such distance. */
static struct sums distances_of(const struct segments *x, const struct segments *y)
{
    struct sums sums = {0};
    for (int i = 0; i < 3; ++i) {
        if (x->count[i] > 1)
            add_dimension(&sums, x->count[i], x->step[i]);
        if (y->count[i] > 1)
            add_dimension(&sums, y->count[i], y->step[i]);
    }
    for (int i = sums.dims - 1; i >= 0; --i)
        sums.rest[i] = sums.rest[i + 1] + (sums.count[i] - 1) * sums.step[i];
    return sums;
}

/* Whether a sum of the dimensions from `dim` on lies in [begin, end). True, too, when `budget` visits do not tell. */
static bool any_in(const struct sums *sums, int dim, int64_t begin, int64_t end, int *budget)
{
    if (dim == sums->dims)
        return begin <= 0 && end > 0;
    const int64_t step = sums->step[dim], short_by = begin - sums->rest[dim + 1];
    const int64_t first = short_by <= 0 ? 0 : (short_by - 1) / step + 1; /* the rest cannot make up for less */
    int64_t last = end <= 0 ? -1 : (end - 1) / step;
    if (last > sums->count[dim] - 1)
        last = sums->count[dim] - 1;
    for (int64_t i = first; i <= last; ++i)
        if (--*budget < 0 || any_in(sums, dim + 1, begin - i * step, end - i * step, budget))
            return true;
    return false;
}

bool matrices_overlap(const struct matrix *a, const struct matrix *b)
{
    enum { BUDGET = 1 << 20 };          /* visits, a few milliseconds; matrices with two unit strides need a few */
    const int64_t most = INT64_MAX / 4; /* bytes; no address space has so many, and sums of two stay in range */
    if (a->device != b->device || a->batch == 0 || a->rows == 0 || a->cols == 0 || b->batch == 0 || b->rows == 0 ||
        b->cols == 0)
        return false;
    const struct segments x = distinct_segments_of(a), y = distinct_segments_of(b);
    const int64_t span_x = span(&x, 0), span_y = span(&y, 0);
    if (x.start >= y.start + span_y || y.start >= x.start + span_x)
        return false;
    if (span_x > most || span_y > most)
        return true;
    /* Two segments meet when x's begins less than x.length before y's, or less than y.length after it. */
    const struct sums distances = distances_of(&x, &y);
    const int64_t smallest = x.start - y.start - (span_y - y.length);
    int budget = BUDGET;
    return any_in(&distances, 0, 1 - x.length - smallest, y.length - smallest, &budget);
}
