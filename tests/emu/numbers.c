/* Conversions as the GPU's "cvt" makes them: every NaN becomes the same one. The rest is src/cpu/convert.h's. */
#include "tests/emu/machine.h"

#include "cpu/convert.h"

#include <math.h>

enum { NAN_16 = 0x7fff, NAN_E4M3 = 0x7f, SIGN = 0x80 };

uint32_t max_u16x2(uint32_t x, uint32_t y)
{
    const uint32_t low = (x & 0xffff) > (y & 0xffff) ? x & 0xffff : y & 0xffff;
    const uint32_t high = x >> 16 > y >> 16 ? x >> 16 : y >> 16;
    return low | high << 16;
}

uint16_t convert_to_bf16(float value)
{
    return isnan(value) ? NAN_16 : float_to_bf16(value);
}

float convert_from_fp16(uint16_t bits)
{
    return fp16_to_float(bits);
}

uint16_t convert_to_fp16(float value)
{
    return isnan(value) ? NAN_16 : float_to_fp16(value);
}

uint32_t convert_to_bf16x2(float low, float high)
{
    return convert_to_bf16(low) | (uint32_t)convert_to_bf16(high) << 16;
}

uint32_t convert_to_fp16x2(float low, float high)
{
    return convert_to_fp16(low) | (uint32_t)convert_to_fp16(high) << 16;
}

/* Numbers beyond 448 become 448. */
static uint8_t saturated_e4m3(float value)
{
    const uint8_t sign = signbit(value) ? SIGN : 0;
    if (isnan(value))
        return NAN_E4M3;
    return fabsf(value) > 448.0f ? (uint8_t)(sign | float_to_e4m3(448.0f)) : float_to_e4m3(value);
}

uint16_t convert_to_e4m3x2(float low, float high)
{
    return (uint16_t)(saturated_e4m3(low) | saturated_e4m3(high) << 8);
}
