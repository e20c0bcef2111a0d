/* Exact conversions between the element types and float, and the bits of UE8M0. One value at a time. */
#ifndef CPU_CONVERT_H
#define CPU_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

float e4m3_to_float(uint8_t code);  /* all 256 codes; 0x7f and 0xff are NaN */
uint8_t float_to_e4m3(float value); /* to nearest even; beyond 464, infinities and NaN become 0x7f, without sign */
float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value); /* to nearest even; NaN stays NaN */
float fp16_to_float(uint16_t bits);
uint16_t float_to_fp16(float value);  /* to nearest even; beyond 65504 infinity */
float ue8m0_to_float(uint8_t code);   /* 2^(code-127), exact down to 2^-127; 255 is NaN */
bool float_is_ue8m0(float value);     /* a power of two in 2^-127 .. 2^127 */
uint8_t float_to_ue8m0(float value);  /* of such a power */
float round_up_to_ue8m0(float value); /* smallest power of two >= value, exponent byte clamped to 1..254 */

#endif
