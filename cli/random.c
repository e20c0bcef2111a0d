#include "random.h"

#include "number.h"
#include "parallel.h"

#include <math.h>
#include <pthread.h>

/* Quantiles of the normal distribution at the middles of 2^14 equal steps: four draws from one 64-bit number. */
enum { QUANTILE_BITS = 14, QUANTILES = 1 << QUANTILE_BITS, GROUP = 128 };
static float quantiles[QUANTILES];
static pthread_once_t quantiles_made = PTHREAD_ONCE_INIT;

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

/* Newton steps from the previous quantile; the density is well away from 0 over the range that occurs. */
static void make_quantiles(void)
{
    double x = -4.0;
    for (int i = 0; i < QUANTILES; ++i) {
        const double wanted = (i + 0.5) / QUANTILES;
        for (int step = 0; step < 20; ++step)
            x -= (normal_cdf(x) - wanted) / (exp(-0.5 * x * x) * 0.3989422804014327);
        quantiles[i] = (float)x;
    }
}

/* Weyl sequence through the finaliser of MurmurHash3's 64-bit variant: SplitMix64. */
uint64_t random_bits(uint64_t seed, uint64_t counter)
{
    uint64_t x = seed * 0xd1342543de82ef95u + (counter + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The quantiles have been made. */
static float normal(uint64_t seed, uint64_t counter)
{
    const uint64_t bits = random_bits(seed, counter >> 2) >> (16 * (counter & 3));
    return quantiles[bits & (QUANTILES - 1)];
}

float random_normal(uint64_t seed, uint64_t counter)
{
    pthread_once(&quantiles_made, make_quantiles);
    return normal(seed, counter);
}

struct fill {
    dg_dtype dtype;
    void *data;
    int64_t cols;
    enum random_style style;
    uint64_t seed;
};

static float power_of_two(uint64_t bits)
{
    return ldexpf(1.0f, (int)(bits % 3) - 1); /* 1/2, 1 or 2 */
}

static float group_factor(const struct fill *f, int64_t row, int64_t group)
{
    const uint64_t block = (uint64_t)((row / GROUP) << 24) + (uint64_t)group;
    const uint64_t line = ((uint64_t)row << 24) + (uint64_t)group;
    return power_of_two(random_bits(f->seed ^ 0x5ca1e, block)) * power_of_two(random_bits(f->seed ^ 0x11e, line));
}

/* Columns begin .. end-1 of a row, all in one group of 128. */
static void fill_group(const struct fill *f, int64_t row, int64_t begin, int64_t end)
{
    const float factor = f->style == RANDOM_GROUPS ? group_factor(f, row, begin / GROUP) : 1.0f;
    const int64_t first = row * f->cols;
    for (int64_t col = begin; col < end; ++col) {
        float value = factor * normal(f->seed, (uint64_t)(first + col));
        if (f->style == RANDOM_MODEL && random_bits(f->seed ^ 0xc01, (uint64_t)col) % 64 == 0)
            value *= 20.0f;
        if (f->dtype == DG_BFLOAT16)
            ((uint16_t *)f->data)[first + col] = number_to_bf16(value);
        else
            number_write(f->dtype, f->data, first + col, value);
    }
}

static void fill_rows(void *user, int64_t begin, int64_t end)
{
    const struct fill *f = user;
    for (int64_t row = begin; row < end; ++row)
        for (int64_t col = 0; col < f->cols; col += GROUP)
            fill_group(f, row, col, f->cols - col < GROUP ? f->cols : col + GROUP);
}

void random_fill(dg_dtype dtype, void *data, int64_t rows, int64_t cols, enum random_style style, uint64_t seed)
{
    struct fill fill = {dtype, data, cols, style, seed};
    pthread_once(&quantiles_made, make_quantiles); /* before the threads */
    parallel_for(rows, 1, fill_rows, &fill);
}
