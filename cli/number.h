/* The program's own reading of the element types, independent of the library that it judges. */
#ifndef CLI_NUMBER_H
#define CLI_NUMBER_H

#include "deepgemm.h"

float number_from_e4m3(uint8_t code);
float number_from_bf16(uint16_t bits);
float number_from_fp16(uint16_t bits);
float number_from_ue8m0(uint8_t code); /* 2^(code-127); 255 is NaN */
uint16_t number_to_bf16(float value);  /* to nearest even; no NaN expected */
uint16_t number_to_fp16(float value);  /* likewise; beyond 65504 infinity */

/* Element `index` of an array of FLOAT32, FLOAT16, BFLOAT16 or FLOAT8_E4M3. */
float number_read(dg_dtype dtype, const void *data, int64_t index);
/* Store to FLOAT32, FLOAT16 or BFLOAT16. */
void number_write(dg_dtype dtype, void *data, int64_t index, float value);

/* Half a unit in the last place of 1.0: what rounding to the type may cost, relatively. */
double number_rounding(dg_dtype dtype);

#endif
