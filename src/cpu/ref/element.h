/* One element of a matrix at a time, as float: all that the reference knows of memory. */
#ifndef CPU_REF_ELEMENT_H
#define CPU_REF_ELEMENT_H

#include "core/tensor.h"
#include "cpu/convert.h"

static inline int64_t element_index(const struct matrix *x, int64_t batch, int64_t row, int64_t col)
{
    return batch * x->batch_stride + row * x->row_stride + col * x->col_stride;
}

static inline uint8_t *element_fp8(const struct matrix *x, int64_t batch, int64_t row, int64_t col)
{
    return (uint8_t *)x->data + element_index(x, batch, row, col);
}

/* FP32 elements, and words of packed scales. */
static inline uint32_t *element_word(const struct matrix *x, int64_t batch, int64_t row, int64_t col)
{
    return (uint32_t *)(void *)x->data + element_index(x, batch, row, col);
}

/* FP32, FP16 or BF16. */
static inline float element_read(const struct matrix *x, int64_t batch, int64_t row, int64_t col)
{
    const int64_t i = element_index(x, batch, row, col);
    if (x->dtype == DG_FLOAT32)
        return ((const float *)(const void *)x->data)[i];
    const uint16_t bits = ((const uint16_t *)(const void *)x->data)[i];
    return x->dtype == DG_BFLOAT16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

static inline void element_write(const struct matrix *x, int64_t batch, int64_t row, int64_t col, float value)
{
    const int64_t i = element_index(x, batch, row, col);
    if (x->dtype == DG_FLOAT32)
        ((float *)(void *)x->data)[i] = value;
    else
        ((uint16_t *)(void *)x->data)[i] = x->dtype == DG_BFLOAT16 ? float_to_bf16(value) : float_to_fp16(value);
}

/* Byte `group % 4` of the word that holds a packed scale. */
static inline uint8_t element_ue8m0(const struct matrix *sf, int64_t batch, int64_t row, int64_t group)
{
    return (uint8_t)(*element_word(sf, batch, row, group / 4) >> (8 * (group % 4)));
}

static inline void element_set_ue8m0(const struct matrix *sf, int64_t batch, int64_t row, int64_t group, uint8_t code)
{
    const int shift = (int)(8 * (group % 4));
    uint32_t *word = element_word(sf, batch, row, group / 4);
    *word = (*word & ~(0xffu << shift)) | (uint32_t)code << shift;
}

/* The scale of a group, whichever way it is stored. */
static inline float element_scale(const struct matrix *sf, int64_t batch, int64_t row, int64_t group)
{
    if (sf->dtype == DG_INT32)
        return ue8m0_to_float(element_ue8m0(sf, batch, row, group));
    return element_read(sf, batch, row, group);
}

#endif
