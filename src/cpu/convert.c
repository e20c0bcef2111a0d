#include "cpu/convert.h"

#include <math.h>
#include <string.h>

/* FP32: sign, 8 bits of exponent (bias 127), 23 of fraction. A magnitude is an FP32 pattern without its sign. */
enum { F32_FRACTION = 23, F32_BIAS = 127 };
static const uint32_t F32_INFINITY = 0x7f800000u;

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Drop the lowest `count` (1..31) bits of a value below 2^31, rounding to nearest even. */
static uint32_t drop_bits(uint32_t value, int count)
{
    const uint32_t below_half = (1u << (count - 1)) - 1, odd = (value >> count) & 1;
    return (value + below_half + odd) >> count;
}

/*
 * A finite magnitude in a narrower format: exponent and `fraction` bits, rounded to nearest even, denormals included.
 * A carry out of the fraction raises the exponent, as it should. Beyond the format's range the result is a number
 * larger than its largest code; the caller looks.
 */
static uint32_t narrow(uint32_t magnitude, int fraction, int bias)
{
    const int exponent = (int)(magnitude >> F32_FRACTION), drop = F32_FRACTION - fraction, rebias = F32_BIAS - bias;
    if (exponent > rebias)
        return drop_bits(magnitude - ((uint32_t)rebias << F32_FRACTION), drop);
    /* A denormal counts units of 2^(1 - bias - fraction); each exponent below the first costs one bit more. */
    const int more = drop + rebias + 1 - exponent;
    if (exponent == 0 || more > F32_FRACTION + 2)
        return 0; /* below half a unit */
    return drop_bits((magnitude & ((1u << F32_FRACTION) - 1)) | 1u << F32_FRACTION, more);
}

/* The reverse, exact; for finite codes without sign. */
static float widen(uint32_t code, int fraction, int bias)
{
    const uint32_t exponent = code >> fraction;
    if (exponent == 0)
        return ldexpf((float)code, 1 - bias - fraction);
    return from_bits((code << (F32_FRACTION - fraction)) + ((uint32_t)(F32_BIAS - bias) << F32_FRACTION));
}

/* ---- E4M3 "fn": bias 7, 3 bits of fraction, 0x7e is 448, 0x7f NaN --------------------------------------------- */

enum { E4M3_FRACTION = 3, E4M3_BIAS = 7, E4M3_NAN = 0x7f };

float e4m3_to_float(uint8_t code)
{
    const uint32_t magnitude = code & 0x7fu;
    const float value = magnitude == E4M3_NAN ? NAN : widen(magnitude, E4M3_FRACTION, E4M3_BIAS);
    return code & 0x80u ? -value : value;
}

uint8_t float_to_e4m3(float value)
{
    const uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffffu;
    if (magnitude > to_bits(464.0f)) /* halfway from 448 to what would be 480; also infinities and NaN */
        return E4M3_NAN;
    return (uint8_t)((bits >> 24 & 0x80u) | narrow(magnitude, E4M3_FRACTION, E4M3_BIAS));
}

/* ---- BF16: the upper half of FP32 ----------------------------------------------------------------------------- */

float bf16_to_float(uint16_t bits)
{
    return from_bits((uint32_t)bits << 16);
}

uint16_t float_to_bf16(float value)
{
    const uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (magnitude > F32_INFINITY)
        return 0x7fc0;
    return (uint16_t)(sign | drop_bits(magnitude, 16)); /* a carry beyond the largest value makes infinity */
}

/* ---- FP16: bias 15, 10 bits of fraction ----------------------------------------------------------------------- */

enum { F16_FRACTION = 10, F16_BIAS = 15, F16_INFINITY = 0x7c00 };

float fp16_to_float(uint16_t bits)
{
    const uint32_t magnitude = bits & 0x7fffu;
    float value = widen(magnitude, F16_FRACTION, F16_BIAS);
    if (magnitude >= F16_INFINITY)
        value = magnitude == F16_INFINITY ? INFINITY : NAN;
    return bits & 0x8000u ? -value : value;
}

uint16_t float_to_fp16(float value)
{
    const uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (magnitude > F32_INFINITY)
        return 0x7e00;
    uint32_t code = magnitude == F32_INFINITY ? F16_INFINITY : narrow(magnitude, F16_FRACTION, F16_BIAS);
    return (uint16_t)(sign | (code < F16_INFINITY ? code : F16_INFINITY));
}

/* ---- UE8M0: an FP32 exponent, 0 standing for the denormal 2^-127 ---------------------------------------------- */

enum { UE8M0_NAN = 255 };
static const uint32_t F32_HALF_OF_SMALLEST = 0x00400000u; /* 2^-127 */

float ue8m0_to_float(uint8_t code)
{
    if (code == UE8M0_NAN)
        return NAN;
    return from_bits(code == 0 ? F32_HALF_OF_SMALLEST : (uint32_t)code << F32_FRACTION);
}

bool float_is_ue8m0(float value)
{
    const uint32_t bits = to_bits(value), fraction = bits & 0x7fffffu;
    if (bits == F32_HALF_OF_SMALLEST)
        return true;
    return fraction == 0 && bits > 0 && bits < F32_INFINITY;
}

uint8_t float_to_ue8m0(float value)
{
    return (uint8_t)(to_bits(value) >> F32_FRACTION);
}

float round_up_to_ue8m0(float value)
{
    const uint32_t bits = to_bits(value) & 0x7fffffffu, fraction = bits & 0x7fffffu;
    uint32_t exponent = (bits >> F32_FRACTION) + (fraction != 0);
    exponent = exponent < 1 ? 1 : exponent > 254 ? 254 : exponent;
    return from_bits(exponent << F32_FRACTION);
}
