/* Random numbers that are the same on every machine and with any number of threads: element i depends on i alone. */
#ifndef CLI_RANDOM_H
#define CLI_RANDOM_H

#include "deepgemm.h"

/* A good 64-bit mix of a seed and a counter. */
uint64_t random_bits(uint64_t seed, uint64_t counter);

/* Standard normal values, made by table, good to about four standard deviations. */
float random_normal(uint64_t seed, uint64_t counter);

/*
 * Fill a row-major [rows, cols] array (FLOAT32, FLOAT16 or BFLOAT16) over all cores.
 *   RANDOM_PLAIN   normal
 *   RANDOM_GROUPS  normal, times one of 1/4 .. 4 for every 128x128 block and row of 128, so that a scale taken from
 *                  the wrong row, block or group is far off
 *   RANDOM_MODEL   normal, with one column in 64 about 20 times larger: what a language model's activations look like
 */
enum random_style { RANDOM_PLAIN, RANDOM_GROUPS, RANDOM_MODEL };
void random_fill(dg_dtype dtype, void *data, int64_t rows, int64_t cols, enum random_style style, uint64_t seed);

#endif
