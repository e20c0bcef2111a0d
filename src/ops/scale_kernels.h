/* What the launchers of quantize_fp8 and transform_scale share, and their kernels for tests that compile all. */
#ifndef OPS_SCALE_KERNELS_H
#define OPS_SCALE_KERNELS_H

#include "ops/kernel.h"
#include "plan/scale_problem.h"

void quantize_spec(const struct quantize_problem *p, struct kernel_spec *spec);
void transform_spec(const struct transform_problem *p, struct kernel_spec *spec);

/* Blocks for `tiles` tiles: one each, or with a bound on the SMs as many as fit on them; blocks loop over the rest. */
static inline uint32_t scale_grid(dg_context *context, const struct cuda_scope *scope, int64_t tiles)
{
    enum { BLOCKS_PER_SM = 4 };
    int32_t all = scope->device->info.num_sms, sms = context_sms(context, 0, all);
    return (uint32_t)min_i64(tiles, sms < all ? (int64_t)sms * BLOCKS_PER_SM : INT32_MAX);
}

#endif
