/*
 * Which configuration of kernels/sm90/fp8_gemm_1d2d.cu a problem gets on a Hopper GPU. Pure: a problem, a device
 * description and a number of SMs in, a plan out.
 */
#ifndef PLAN_GEMM_SM90_H
#define PLAN_GEMM_SM90_H

#include "plan/config_text.h"
#include "plan/gemm_problem.h"
#include "shared/gemm_sched.h"

/* Of the cost model, in cycles at 1.7 GHz: `deepgemm tune` fits and writes them. */
struct gemm_1d2d_costs {
#define COST(name, value, what) double name;
#include "plan/gemm_sm90_costs.def"
#undef COST
};

extern const struct gemm_1d2d_costs gemm_1d2d_costs;

/* What the kernel is compiled for. Shapes are not in it: one kernel serves all problems of a configuration. */
#define GEMM_1D2D_CONFIG(X)                                                                                            \
    X(kind, KIND)             /* dense, contiguous, psum or masked (shared/gemm_groups.h) */                           \
    X(block_m, BLOCK_M)       /* rows of D per block: 64, 128, 192 or 256 */                                           \
    X(block_n, BLOCK_N)       /* columns of D per block: a multiple of 16 */                                           \
    X(part_n, PART_N)         /* columns of one product: all of block_n, or half of them */                            \
    X(partials, PARTIALS)     /* products that a warpgroup has under way at once: 1 or 2 */                            \
    X(span, SPAN)             /* K groups whose scales are loaded at once: 2 or 4 */                                   \
    X(warpgroups, WARPGROUPS) /* that do the math; each owns 64 rows, or 2 x 64 with block_m 256 */                    \
    X(stages, STAGES)         /* of the shared-memory ring, one K group of 128 each */                                 \
    X(cluster_m, CLUSTER_M)   /* blocks along m that share, and multicast, their B tile */                             \
    X(cluster_n, CLUSTER_N)   /* blocks along n that share their A tile */                                             \
    X(d_type, D_TYPE)                                                                                                  \
    X(has_c, HAS_C)                                                                                                    \
    X(sfa_tma, SFA_TMA) /* A's scales lie MN-major and aligned: loaded by TMA, else four bytes at a time */            \
    X(sfa_packed, SFA_PACKED)                                                                                          \
    X(sfb_packed, SFB_PACKED)                                                                                          \
    X(tma_store, TMA_STORE)   /* else from registers, for a D that TMA cannot address */                               \
    X(store_cols, STORE_COLS) /* columns of one TMA store: 128, 64 or 32 bytes */                                      \
    X(smem_bytes, SMEM_BYTES)

struct gemm_1d2d_config {
    GEMM_1D2D_CONFIG(CONFIG_FIELD)
};

extern const struct config_field gemm_1d2d_fields[];
extern const size_t gemm_1d2d_field_count;

/* A choice of what a plan leaves open. */
struct gemm_1d2d_tile {
    int32_t block_m, block_n, cluster_m, cluster_n;
};

struct gemm_1d2d_plan {
    struct gemm_1d2d_config config;
    struct gemm_sched sched;
    int32_t grid, threads, cluster;
    int32_t a_box_rows, b_box_rows; /* of one TMA load; a share of the tile under multicast */
    int32_t scale_box_rows;         /* K groups, or words of four, of one TMA load of A's scales */
    int32_t load_bytes;             /* that a stage of one block receives; of grouped rows without multicast: of B */
    bool b_once;                    /* a tile of B is for one or two tiles of D: it may leave the L2 cache */
    double cycles;                  /* predicted, at 1.7 GHz */
};

/* Why the kernel cannot take the problem; empty when it can. */
struct text gemm_1d2d_refusal(const struct gemm_problem *p, const dg_device_info *device, bool batch_invariant);

/* A's scales with columns as rows, which is how TMA sees MN-major ones. */
struct matrix gemm_1d2d_scale_columns(const struct gemm_problem *p);

/* The problem must not be empty and must have passed the refusal. */
void gemm_1d2d_choose(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms,
                      struct gemm_1d2d_plan *plan);

/* Tile number `index` of all that there are, or false behind the last. */
bool gemm_1d2d_tile_at(int32_t index, struct gemm_1d2d_tile *tile);

/*
 * For tests and tuning: the plan of a given tile and cluster, or false when that combination does not exist for the
 * problem (too much shared memory, say).
 */
bool gemm_1d2d_plan_tile(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms, int32_t block_m,
                         int32_t block_n, int32_t cluster_m, int32_t cluster_n, struct gemm_1d2d_plan *plan);

/* Predicted cycles of a plan. */
double gemm_1d2d_predict(const struct gemm_1d2d_costs *costs, const struct gemm_problem *p,
                         const struct gemm_1d2d_plan *plan);

#endif
