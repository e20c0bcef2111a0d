/*
 * Which configuration of kernels/sm90/fp8_gemm_skinny.cu a problem with few rows gets on a Hopper GPU. Pure: a problem,
 * a device description and a number of SMs in, a plan out.
 */
#ifndef PLAN_GEMM_SKINNY_H
#define PLAN_GEMM_SKINNY_H

#include "plan/config_text.h"
#include "plan/gemm_problem.h"

/* Of the cost model, in cycles at 1.7 GHz: `deepgemm tune` fits and writes them. */
struct gemm_skinny_costs {
#define COST(name, value, what) double name;
#include "plan/gemm_skinny_costs.def"
#undef COST
};

extern const struct gemm_skinny_costs gemm_skinny_costs;

/* What the kernel is compiled for. Shapes are not in it: one kernel serves all problems of a configuration. */
#define GEMM_SKINNY_CONFIG(X)                                                                                          \
    X(block_m, BLOCK_M)             /* rows of A (tokens) per tile: a multiple of 8 */                                 \
    X(step, STEP)                   /* K groups of 128 in a stage: 1, 2 or 4 */                                        \
    X(stages, STAGES)               /* of the shared-memory ring */                                                    \
    X(splits, SPLITS)               /* shares of K, one for each block of a cluster */                                 \
    X(blocks_per_sm, BLOCKS_PER_SM) /* at once: 1 or 2 */                                                              \
    X(d_type, D_TYPE)                                                                                                  \
    X(has_c, HAS_C)                                                                                                    \
    X(sfa_tma, SFA_TMA) /* A's scales lie MN-major and aligned: loaded by TMA, else four bytes at a time */            \
    X(sfa_packed, SFA_PACKED)                                                                                          \
    X(sfb_packed, SFB_PACKED)                                                                                          \
    X(d_vector, D_VECTOR) /* D is aligned for stores of four elements */                                               \
    X(smem_bytes, SMEM_BYTES)

struct gemm_skinny_config {
    GEMM_SKINNY_CONFIG(CONFIG_FIELD)
};

extern const struct config_field gemm_skinny_fields[];
extern const size_t gemm_skinny_field_count;

struct gemm_skinny_plan {
    struct gemm_skinny_config config;
    int32_t m_tiles, n_tiles, tiles; /* the last of all batch entries */
    int32_t grid;
    int32_t a_box_rows; /* of one TMA load: rows beyond M are not loaded */
    int32_t load_bytes; /* that a stage receives by TMA */
    double cycles;      /* predicted, at 1.7 GHz */
};

/* A choice of what a plan leaves open. */
struct gemm_skinny_tile {
    int32_t block_m, step, splits, blocks_per_sm;
};

enum {
    GEMM_SKINNY_BLOCK_N = 64,    /* rows of B (weights) per tile: the M of a wgmma */
    GEMM_SKINNY_THREADS = 192,   /* a math warpgroup, a warp for operands, one for scales */
    GEMM_SKINNY_ALWAYS = 48,     /* rows of A up to which sm90_fp8_gemm_1d2d was never seen faster */
    GEMM_SKINNY_MOST_ROWS = 256, /* with more, nothing is skinny */
};

/* The plan of a given tile, or false when that does not exist for the problem (too much shared memory, say). */
bool gemm_skinny_plan_tile(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms,
                           const struct gemm_skinny_tile *tile, struct gemm_skinny_plan *plan);

/* Tile number `index` of all that may be worth a try, or false behind the last. */
bool gemm_skinny_tile_at(int32_t index, struct gemm_skinny_tile *tile);

/* Wider tiles than M needs multiply nothing; much narrower ones load all of B many times. */
bool gemm_skinny_worth_a_try(const struct gemm_problem *p, const struct gemm_skinny_tile *tile);

/* The plan of the least predicted time, or false when no tile exists. For a problem that sm90_fp8_gemm_1d2d takes. */
bool gemm_skinny_choose(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms,
                        struct gemm_skinny_plan *plan);

/* Predicted cycles of a plan on that many SMs. */
double gemm_skinny_predict(const struct gemm_skinny_costs *costs, const struct gemm_problem *p, int32_t num_sms,
                           const struct gemm_skinny_plan *plan);

#endif
