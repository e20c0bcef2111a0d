#include "number.h"

#include <math.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* Moved to a float's place the fields mean the same but for the exponent's bias, which a product corrects; that is
   right for denormals too. */
float number_from_e4m3(uint8_t code)
{
    const float magnitude = (code & 0x7f) == 0x7f ? NAN : from_bits((uint32_t)(code & 0x7f) << 20) * 0x1p120f;
    return code & 0x80 ? -magnitude : magnitude;
}

float number_from_bf16(uint16_t bits)
{
    return from_bits((uint32_t)bits << 16);
}

float number_from_fp16(uint16_t bits)
{
    float magnitude = from_bits((uint32_t)(bits & 0x7fff) << 13) * 0x1p112f;
    if ((bits & 0x7c00) == 0x7c00)
        magnitude = bits & 0x3ff ? NAN : INFINITY;
    return bits & 0x8000 ? -magnitude : magnitude;
}

float number_from_ue8m0(uint8_t code)
{
    return code == 255 ? NAN : ldexpf(1.0f, code - 127);
}

uint16_t number_to_bf16(float value)
{
    const uint32_t bits = to_bits(value);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t number_to_fp16(float value)
{
    const uint16_t sign = (uint16_t)(to_bits(value) >> 16 & 0x8000);
    const float magnitude = fabsf(value);
    int exponent;
    if (!(magnitude < 65520.0f)) /* half way from 65504 to the next */
        return sign | (isnan(value) ? 0x7e00 : 0x7c00);
    if (magnitude < 6.103515625e-05f) /* 2^-14: denormals, a multiple of 2^-24 */
        return sign | (uint16_t)lrintf(ldexpf(magnitude, 24));
    frexpf(magnitude, &exponent);                                   /* magnitude = [0.5, 1) * 2^exponent */
    const long fraction = lrintf(ldexpf(magnitude, 11 - exponent)); /* 1024 .. 2048; 2048 carries by the addition */
    return sign | (uint16_t)(((exponent + 14) << 10) + (fraction - 1024));
}

float number_read(dg_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case DG_FLOAT32:
        return ((const float *)data)[index];
    case DG_FLOAT16:
        return number_from_fp16(((const uint16_t *)data)[index]);
    case DG_BFLOAT16:
        return number_from_bf16(((const uint16_t *)data)[index]);
    case DG_FLOAT8_E4M3:
        return number_from_e4m3(((const uint8_t *)data)[index]);
    default:
        return NAN;
    }
}

void number_write(dg_dtype dtype, void *data, int64_t index, float value)
{
    if (dtype == DG_FLOAT32)
        ((float *)data)[index] = value;
    else if (dtype == DG_FLOAT16)
        ((uint16_t *)data)[index] = number_to_fp16(value);
    else
        ((uint16_t *)data)[index] = number_to_bf16(value);
}

double number_rounding(dg_dtype dtype)
{
    return dtype == DG_BFLOAT16 ? 0x1p-8 : dtype == DG_FLOAT16 ? 0x1p-11 : 0x1p-24;
}
