/* What the launchers of quantize_fp8 and transform_scale share, and which kernels they want. */
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

/* One of their launches, but for the kernel. */
static inline struct cuda_launch scale_launch(dg_context *context, const struct cuda_scope *scope, int64_t tiles,
                                              uint32_t threads)
{
    return (struct cuda_launch){.grid = {scale_grid(context, scope, tiles), 1, 1},
                                .threads = threads,
                                .cluster = 1,
                                .pdl = context_get(context, DG_SETTING_PDL) != 0};
}

#endif
