/*
 * num.h - numbers as bits: conversions between the element types and float, wide accesses to memory,
 * and where the elements of a strided matrix are.
 *
 * Each conversion gives the bits that its namesake in src/cpu/convert.h gives (NaN apart, whose bits are the
 * hardware's). Where an architecture lacks the instruction, bit arithmetic does it.
 */
#ifndef COMMON_NUM_H
#define COMMON_NUM_H

#include "common/ptx.h"

#define FLOAT_INFINITY_BITS 0x7f800000u
#define FLOAT_NAN_BITS 0x7fc00000u

DEVICE_FN uint32_t magnitude_bits(float value)
{
    return float_bits(value) & 0x7fffffffu;
}

/* Of an element, in elements. */
DEVICE_FN int64_t strided_offset(const struct strided *matrix, int64_t batch, int64_t row, int64_t col)
{
    return batch * matrix->batch_stride + row * matrix->row_stride + col * matrix->col_stride;
}

/* Magnitudes compare like their bits, except that a NaN is larger than everything: so a maximum keeps it. */
DEVICE_FN uint32_t max_bits(uint32_t x, uint32_t y)
{
    return x > y ? x : y;
}

/* The same for two 16-bit floats in a word, whose signs are cleared ("max"). */
DEVICE_FN uint32_t max_bits_16x2(uint32_t x, uint32_t y)
{
#if __CUDA_ARCH__ >= 900
    return max_u16x2(x, y);
#else
    return max_bits(x & 0xffff, y & 0xffff) | max_bits(x >> 16, y >> 16) << 16;
#endif
}

/* ---- 16-bit types -------------------------------------------------------------------------------------------- */

DEVICE_FN float bf16_to_float(uint16_t bits)
{
    return bits_float((uint32_t)bits << 16);
}

DEVICE_FN uint16_t float_to_bf16(float value)
{
#if __CUDA_ARCH__ >= 800
    return convert_to_bf16(value);
#else
    const uint32_t bits = float_bits(value);
    if (magnitude_bits(value) > FLOAT_INFINITY_BITS)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

DEVICE_FN float fp16_to_float(uint16_t bits)
{
    return convert_from_fp16(bits);
}

DEVICE_FN uint16_t float_to_fp16(float value)
{
    return convert_to_fp16(value);
}

/* ---- E4M3 ---------------------------------------------------------------------------------------------------- */

/* As the bits of a float, a code's exponent and fraction make 2^-120 of its value, denormals included. */
DEVICE_FN float e4m3_to_float(uint8_t code)
{
    const uint32_t magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
    const float value = bits_float(magnitude << 20) * bits_float((127u + 120u) << 23);
    return bits_float((magnitude == 0x7f ? FLOAT_NAN_BITS : float_bits(value)) | sign);
}

/* To nearest even; beyond 464 (halfway to what would be 480) and for NaN 0x7f. */
DEVICE_FN uint8_t float_to_e4m3(float value)
{
    const uint32_t magnitude = magnitude_bits(value), sign = float_bits(value) >> 24 & 0x80;
    if (magnitude > float_bits(464.0f))
        return 0x7f;
    if (magnitude < (127u - 6) << 23) /* a denormal: added to 2^14, whose last bit is worth 2^-9, it is rounded */
        return (uint8_t)(sign | (float_bits(bits_float(magnitude) + 16384.0f) - float_bits(16384.0f)));
    return (uint8_t)(sign | (((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120u << 3)));
}

/* Four values to four codes, the first in the lowest byte. */
DEVICE_FN uint32_t pack_e4m3(float v0, float v1, float v2, float v3)
{
    return float_to_e4m3(v0) | (uint32_t)float_to_e4m3(v1) << 8 | (uint32_t)float_to_e4m3(v2) << 16 |
           (uint32_t)float_to_e4m3(v3) << 24;
}

/* The same, fast, for numbers within +-464: the instruction saturates beyond. */
DEVICE_FN uint32_t pack_e4m3_in_range(float v0, float v1, float v2, float v3)
{
#if __CUDA_ARCH__ >= 890
    return convert_to_e4m3x2(v0, v1) | (uint32_t)convert_to_e4m3x2(v2, v3) << 16;
#else
    return pack_e4m3(v0, v1, v2, v3);
#endif
}

/* ---- UE8M0: the exponent bits of a float --------------------------------------------------------------------- */

#define UE8M0_NAN 255u
#define UE8M0_ZERO_BITS 0x00400000u /* code 0 is 2^-127, a denormal float */

/* The code of the smallest power of two that is not below the value, kept within 1..254. */
DEVICE_FN uint32_t round_up_to_ue8m0(float value)
{
    const uint32_t bits = magnitude_bits(value), code = (bits >> 23) + ((bits & 0x7fffffu) != 0);
    return code < 1 ? 1 : code > 254 ? 254 : code;
}

/* The code of a power of two in 2^-127 .. 2^127, NaN's for everything else. */
DEVICE_FN uint32_t float_to_ue8m0(float value)
{
    const uint32_t bits = float_bits(value);
    const int power = (bits & 0x7fffffu) == 0 && bits > 0 && bits < FLOAT_INFINITY_BITS;
    return power || bits == UE8M0_ZERO_BITS ? bits >> 23 : UE8M0_NAN;
}

DEVICE_FN uint32_t ue8m0_to_float_bits(uint32_t code)
{
    return code == 0 ? UE8M0_ZERO_BITS : code == UE8M0_NAN ? FLOAT_NAN_BITS : code << 23;
}

/* A scale of K group `group`: the word is the bits of a float, or packed, four UE8M0 for groups 4 i to 4 i + 3. */
DEVICE_FN float scale_value(uint32_t word, int packed, int32_t group)
{
    return bits_float(packed ? ue8m0_to_float_bits(word >> (group % 4 * 8) & 0xff) : word);
}

/* ---- Memory -------------------------------------------------------------------------------------------------- */

/* What one instruction loads or stores when it is aligned. */
struct ALIGNED(8) words2 {
    uint32_t word[2];
};

struct ALIGNED(8) floats2 {
    float x[2];
};

struct ALIGNED(16) floats4 {
    float x[4];
};

#endif
