/*
 * dg_quantize_fp8, as deepgemm.h defines it. The bits matter: others compare theirs with them. For every group of
 * gran_mn x gran_k elements, in FP32:
 *
 *     amax  = max |x|, NaN if any x is; at least 1e-4
 *     scale = amax * (1 / 448), rounded up to a power of two if asked
 *     q     = e4m3(x * (1 / scale))
 */
#include "cpu/ref/element.h"
#include "cpu/ref/ref.h"
#include "cpu/threads.h"

#include <math.h>

static const float SMALLEST_AMAX = 1e-4f, E4M3_MAX_INVERSE = 1.0f / 448.0f;

/* The elements of one group: rows m_begin .. m_end-1, columns k_begin .. k_end-1 of a batch entry. */
struct group {
    int64_t batch, mn, k; /* which group */
    int64_t m_begin, m_end, k_begin, k_end;
};

static struct group group_at(const struct quantize_problem *p, int64_t batch, int64_t mn, int64_t k)
{
    return (struct group){
        .batch = batch,
        .mn = mn,
        .k = k,
        .m_begin = mn * p->gran_mn,
        .m_end = min_i64((mn + 1) * p->gran_mn, p->m),
        .k_begin = k * p->gran_k,
        .k_end = min_i64((k + 1) * p->gran_k, p->k),
    };
}

static float largest_magnitude(const struct quantize_problem *p, const struct group *g)
{
    float amax = SMALLEST_AMAX;
    for (int64_t m = g->m_begin; m < g->m_end; ++m)
        for (int64_t k = g->k_begin; k < g->k_end; ++k) {
            const float x = fabsf(element_read(&p->x, g->batch, m, k));
            if (isnan(x))
                return NAN;
            if (x > amax)
                amax = x;
        }
    return amax;
}

static void quantize_group(const struct quantize_problem *p, const struct group *g)
{
    float scale = largest_magnitude(p, g) * E4M3_MAX_INVERSE;
    if (p->round_scale)
        scale = round_up_to_ue8m0(scale);
    const float inverse = 1.0f / scale;
    for (int64_t m = g->m_begin; m < g->m_end; ++m)
        for (int64_t k = g->k_begin; k < g->k_end; ++k)
            *element_fp8(&p->q, g->batch, m, k) = float_to_e4m3(element_read(&p->x, g->batch, m, k) * inverse);
    if (p->packed)
        element_set_ue8m0(&p->sf, g->batch, g->mn, g->k, float_to_ue8m0(scale));
    else
        element_write(&p->sf, g->batch, g->mn, g->k, scale);
}

static void quantize_rows(void *user, int64_t begin, int64_t end)
{
    const struct quantize_problem *p = user;
    for (int64_t row = begin; row < end; ++row) {
        const int64_t batch = row / p->mn_groups, mn = row % p->mn_groups;
        for (int64_t word = 0; p->packed && word < p->sf.cols; ++word)
            *element_word(&p->sf, batch, mn, word) = 0;
        for (int64_t k = 0; k < p->k_groups; ++k) {
            const struct group group = group_at(p, batch, mn, k);
            quantize_group(p, &group);
        }
    }
}

void ref_quantize(const struct quantize_problem *problem)
{
    struct quantize_problem p = *problem;
    const int64_t cost = 12 * p.gran_mn * min_i64(p.k, (int64_t)1 << 28); /* an element: some twelve nanoseconds */
    cpu_parallel_for(p.batch * p.mn_groups, cost, quantize_rows, &p);
}
