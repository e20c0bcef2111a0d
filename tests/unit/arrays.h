/* Tensors in host memory for tests: every layout, random content, and gaps whose bytes are watched. */
#ifndef UNIT_ARRAYS_H
#define UNIT_ARRAYS_H

#include "core/tensor.h"
#include "cpu/convert.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum layout {
    ROW_MAJOR,
    COL_MAJOR,
    PADDED,     /* row-major, three elements between rows and seven between batch entries */
    COL_PADDED, /* the same, transposed */
    SPREAD,     /* row-major, two elements apart everywhere */
    LAYOUTS
};

enum { CANARY = 0xa5 };

struct array {
    dg_tensor t;
    unsigned char *memory;
    size_t bytes;
};

/* ndim 2 ignores batch. All bytes are canaries at first. */
static inline struct array array_make(dg_dtype dtype, int32_t ndim, int64_t batch, int64_t rows, int64_t cols,
                                      enum layout layout)
{
    const int64_t unit = layout == SPREAD ? 2 : 1, pad = layout == PADDED || layout == COL_PADDED ? 3 : 0;
    const bool down = layout == COL_MAJOR || layout == COL_PADDED;
    const int64_t pitch = (down ? rows : cols) * unit + pad,
                  matrix = pitch * (down ? cols : rows) + 2 * pad + (pad > 0);
    struct array a = {.t = {.dtype = dtype, .device = DG_CPU, .ndim = ndim}};
    const int32_t r = ndim - 2;
    a.t.shape[0] = batch;
    a.t.stride[0] = matrix;
    a.t.shape[r] = rows;
    a.t.shape[r + 1] = cols;
    a.t.stride[r] = down ? unit : pitch;
    a.t.stride[r + 1] = down ? pitch : unit;
    a.bytes = (size_t)((ndim == 3 ? batch : 1) * matrix + 16) * dg_dtype_size(dtype);
    a.memory = malloc(a.bytes);
    memset(a.memory, CANARY, a.bytes);
    a.t.data = a.memory + 8 * dg_dtype_size(dtype);
    return a;
}

static inline void array_free(struct array *a)
{
    free(a->memory);
    a->memory = NULL;
}

static inline void *array_at(const struct array *a, int64_t batch, int64_t row, int64_t col)
{
    const int32_t r = a->t.ndim - 2;
    const int64_t index = (r ? batch * a->t.stride[0] : 0) + row * a->t.stride[r] + col * a->t.stride[r + 1];
    return (unsigned char *)a->t.data + index * (int64_t)dg_dtype_size(a->t.dtype);
}

static inline int64_t array_batch(const struct array *a)
{
    return a->t.ndim == 3 ? a->t.shape[0] : 1;
}

static inline int64_t array_rows(const struct array *a)
{
    return a->t.shape[a->t.ndim - 2];
}

static inline int64_t array_cols(const struct array *a)
{
    return a->t.shape[a->t.ndim - 1];
}

/* Calls `statement` for every b, r, c of the array. */
#define ARRAY_FOR_EACH(array, b, r, c)                                                                                 \
    for (int64_t b = 0; b < array_batch(array); ++b)                                                                   \
        for (int64_t r = 0; r < array_rows(array); ++r)                                                                \
            for (int64_t c = 0; c < array_cols(array); ++c)

/* Whether every byte that belongs to no element is as it was. Overwrites the elements. */
static inline bool array_gaps_intact(const struct array *a)
{
    ARRAY_FOR_EACH (a, b, r, c)
        memset(array_at(a, b, r, c), CANARY, dg_dtype_size(a->t.dtype));
    for (size_t i = 0; i < a->bytes; ++i)
        if (a->memory[i] != CANARY)
            return false;
    return true;
}

/* Whether nothing at all has been written. */
static inline bool array_untouched(const struct array *a)
{
    for (size_t i = 0; i < a->bytes; ++i)
        if (a->memory[i] != CANARY)
            return false;
    return true;
}

/* ---- Random numbers, the same on every run -------------------------------------------------------------------- */

struct random {
    uint64_t state;
};

static inline uint32_t random_bits(struct random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    return (uint32_t)(r->state >> 32);
}

/* 0 .. count-1 */
static inline int64_t random_below(struct random *r, int64_t count)
{
    return (int64_t)(((uint64_t)random_bits(r) * (uint64_t)count) >> 32);
}

/* -1 .. 1 */
static inline float random_float(struct random *r)
{
    return (float)((double)random_bits(r) / 2147483648.0 - 1.0);
}

#define PICK(random, list) ((list)[random_below((random), (int64_t)(sizeof(list) / sizeof *(list)))])

/* An element of FP32, FP16 or BF16. */
static inline float array_read(const struct array *x, int64_t batch, int64_t row, int64_t col)
{
    const void *p = array_at(x, batch, row, col);
    float value;
    uint16_t half;
    memcpy(&half, p, sizeof half);
    if (x->t.dtype == DG_BFLOAT16)
        return bf16_to_float(half);
    if (x->t.dtype == DG_FLOAT16)
        return fp16_to_float(half);
    memcpy(&value, p, sizeof value);
    return value;
}

static inline void array_write(const struct array *x, int64_t batch, int64_t row, int64_t col, float value)
{
    void *p = array_at(x, batch, row, col);
    const uint16_t half = x->t.dtype == DG_BFLOAT16 ? float_to_bf16(value) : float_to_fp16(value);
    if (x->t.dtype == DG_FLOAT32)
        memcpy(p, &value, sizeof value);
    else
        memcpy(p, &half, sizeof half);
}

#endif
