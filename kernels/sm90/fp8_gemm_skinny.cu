/*
 * sm90_fp8_gemm_skinny: D[M,N] = C + A[M,K] @ B[N,K]^T for few rows of A (tokens), where reading B (weights) is what
 * takes the time.
 *
 * A, B      FP8 E4M3, K contiguous, addressed by TMA.
 * sfa, sfb  scales 1x128 for A and 128x128 for B, FP32 or packed UE8M0, any strides, read in place.
 * D, C      BF16, FP16 or FP32 (D_TYPE), columns contiguous.
 *
 * Two things differ from sm90_fp8_gemm_1d2d:
 *
 *   Weights lie on wgmma's M side. It always has 64 rows, so tokens there would leave most of them empty, and every
 *   wgmma would read 64 rows of zeros from shared memory. On the N side there may be as few as 8.
 *
 *   K is split over the SPLITS blocks of a cluster. Reading fast takes many blocks with much in flight, and few rows
 *   make few tiles. Each block sums its share of K; then every block adds up a part of the tile from all of them,
 *   reading their shared memory, always in the order of the blocks: the bits repeat.
 *
 * Roles. One math warpgroup owns 64 rows of weights and all BLOCK_M tokens of a tile; one more warp keeps a ring of
 * STAGES stages full with TMA, and one copies scales into it (cp.async). A stage holds STEP groups of 128 k: the tensor
 * core works on the later ones while the first is promoted.
 *
 * Unsplit (SPLITS = 1), a block stays for many tiles; split, a cluster does one.
 *
 * Barriers, per stage:
 *   full    one arrival of the TMA thread, with the bytes to come, and one of each lane that copied scales
 *   empty   one arrival per math warp
 */
#include "config.h"

#if !defined(BLOCK_M) || !defined(STEP) || !defined(STAGES) || !defined(SPLITS) || !defined(BLOCKS_PER_SM) ||          \
    !defined(D_TYPE) || !defined(HAS_C) || !defined(SFA_TMA) || !defined(SFA_PACKED) || !defined(SFB_PACKED) ||        \
    !defined(D_VECTOR) || !defined(SMEM_BYTES)
#error "config.h is incomplete"
#endif

#include "common/layout.h"
#include "common/pipeline.h"
#include "common/store.h"
#include "common/tma.h"
#include "shared/gemm_args.h"
#include "wgmma.h"

#define GROUP SCALE_GROUP
#define BLOCK_N 64 /* divides 128: a tile lies in one 128-block of B's scales */
#define MATH_WARPS 4
#define THREADS (MATH_WARPS * 32 + 64)

/* Named barriers. */
#define MATH_MEETS 1
#define BARRIERS_MADE 2

#define WGMMA_NAME_(n) wgmma_m64n##n##k32_e4m3
#define WGMMA_NAME(n) WGMMA_NAME_(n)
#define WGMMA WGMMA_NAME(BLOCK_M)

/* TMA wants every box to start at a multiple of 128 bytes. */
#define SFA_WORDS ((STEP * BLOCK_M + 31) / 32 * 32)

/* A token's sums; the four more keep the banks apart when fragments are written. */
#define PITCH (BLOCK_N + 4)

struct smem {
    uint8_t b[STAGES][STEP * BLOCK_N * GROUP];
    uint8_t a[STAGES][STEP * BLOCK_M * GROUP];
    float sums[BLOCK_M * PITCH];
    uint32_t sfa[STAGES][SFA_WORDS]; /* as they came: the bits of a float, or a word of four UE8M0 */
    uint64_t full[STAGES], empty[STAGES];
    uint32_t sfb[STAGES][STEP];
};
STATIC_CHECK((sizeof(struct smem) + 127) / 128 * 128 == SMEM_BYTES, "the plan and the kernel disagree on smem");

/* ---- Tiles --------------------------------------------------------------------------------------------------- */

struct tile {
    int32_t row, col, batch; /* first token, first row of weights */
};

/* Which share of K is this block's. */
DEVICE_FN int32_t split_rank(void)
{
    return SPLITS > 1 ? (int32_t)cluster_rank() : 0;
}

/* Tiles of the same weights come one after the other. */
DEVICE_FN struct tile tile_at(const struct gemm_skinny_args *args, int32_t index)
{
    int32_t m = 0, n = index, batch = 0;
    struct tile tile;
    if (args->m_tiles > 1) { /* the same for all blocks; divisions would hold up the first load */
        m = n % args->m_tiles;
        n /= args->m_tiles;
    }
    if (args->tiles > args->m_tiles * args->n_tiles) {
        batch = n / args->n_tiles;
        n -= batch * args->n_tiles;
    }
    tile.row = m * BLOCK_M;
    tile.col = n * BLOCK_N;
    tile.batch = batch;
    return tile;
}

#define FOR_EACH_TILE(args, index)                                                                                     \
    for (int32_t index = (int32_t)(block_index() / SPLITS); index < (args)->tiles;                                     \
         index += (int32_t)(grid_size() / SPLITS))

/* This block's share of the K groups, in steps of STEP groups. */
struct steps {
    int32_t begin, end;
};

DEVICE_FN struct steps own_steps(const struct gemm_skinny_args *args)
{
    const int32_t steps = (args->k_blocks + STEP - 1) / STEP, rank = split_rank();
    struct steps own;
    own.begin = steps * rank / SPLITS;
    own.end = steps * (rank + 1) / SPLITS;
    return own;
}

/* ---- Producer: operands -------------------------------------------------------------------------------------- */

/* Groups beyond the last one lie beyond K, where TMA fills with zeros without reading. */
DEVICE_FN void load_weights(struct smem *s, const struct gemm_skinny_args *args, const struct tile *tile,
                            uint32_t stage, int32_t step)
{
    const uint64_t once = l2_evict_first(); /* weights are read once, and spare what others left in the cache */
    uint64_t *full = &s->full[stage];
    mbarrier_arrive_expect(full, args->load_bytes);
#pragma unroll
    for (int i = 0; i < STEP; ++i)
        tma_load_hinted(&args->b, full, s->b[stage] + i * BLOCK_N * GROUP, (step * STEP + i) * GROUP, tile->col,
                        tile->batch, once);
}

DEVICE_FN void load_tokens(struct smem *s, const struct gemm_skinny_args *args, const struct tile *tile, uint32_t stage,
                           int32_t step)
{
    uint64_t *full = &s->full[stage];
#pragma unroll
    for (int i = 0; i < STEP; ++i)
        tma_load(&args->a, full, s->a[stage] + i * BLOCK_M * GROUP, (step * STEP + i) * GROUP, tile->row, tile->batch);
    if (SFA_TMA)
        tma_load(&args->scales, full, s->sfa[stage], tile->row, SFA_PACKED ? step * STEP / 4 : step * STEP,
                 tile->batch);
}

/* Stages of the first tile whose weights are loaded while the kernel before may still run. */
DEVICE_FN int32_t early_stages(const struct gemm_skinny_args *args)
{
    const struct steps own = own_steps(args);
    return own.end - own.begin < STAGES ? own.end - own.begin : STAGES;
}

DEVICE_FN void load_weights_early(struct smem *s, const struct gemm_skinny_args *args)
{
    const int32_t early = early_stages(args), begin = own_steps(args).begin;
    const struct tile tile = tile_at(args, (int32_t)(block_index() / SPLITS));
#pragma unroll 1
    for (int32_t i = 0; i < early; ++i)
        load_weights(s, args, &tile, (uint32_t)i, begin + i);
}

/* What the stages lack that have weights already. */
DEVICE_FN int32_t complete_early(struct smem *s, const struct gemm_skinny_args *args, struct ring *ring)
{
    const int32_t early = early_stages(args), begin = own_steps(args).begin;
    const struct tile tile = tile_at(args, (int32_t)(block_index() / SPLITS));
#pragma unroll 1
    for (int32_t i = 0; i < early; ++i) {
        load_tokens(s, args, &tile, ring->stage, begin + i);
        ring_advance(ring, STAGES);
    }
    return early;
}

DEVICE_FN void produce_operands(struct smem *s, const struct gemm_skinny_args *args)
{
    const struct steps own = own_steps(args);
    struct ring ring = ring_begin();
    int32_t step = own.begin + (args->b_early ? complete_early(s, args, &ring) : 0);
    FOR_EACH_TILE(args, index)
    {
        const struct tile tile = tile_at(args, index);
#pragma unroll 1
        for (; step < own.end; ++step) {
            mbarrier_wait(&s->empty[ring.stage], ring.phase ^ 1);
            load_weights(s, args, &tile, ring.stage, step);
            load_tokens(s, args, &tile, ring.stage, step);
            ring_advance(&ring, STAGES);
        }
        step = own.begin;
    }
}

/* ---- Producer: scales ---------------------------------------------------------------------------------------- */

/* Start to copy a step's scales into its stage, zeros for tokens and groups that do not exist; its barrier waits. */
DEVICE_FN void copy_scales(struct smem *s, const struct gemm_skinny_args *args, const struct tile *tile, uint32_t stage,
                           int32_t step)
{
    const int32_t lane = (int32_t)lane_index();
#if !SFA_TMA
    const uint32_t *a = (const uint32_t *)args->sfa.data + tile->batch * args->sfa.batch_stride;
#pragma unroll
    for (int i = 0; i < STEP; ++i) {
        const int32_t group = step * STEP + i, col = SFA_PACKED ? group / 4 : group;
#pragma unroll
        for (int row = 0; row < BLOCK_M; row += 32)
            if (BLOCK_M % 32 == 0 || row + lane < BLOCK_M)
                copy_async_4(&s->sfa[stage][i * BLOCK_M + row + lane],
                             a + (tile->row + row + lane) * args->sfa.row_stride + col * args->sfa.col_stride,
                             tile->row + row + lane < args->m && group < args->k_blocks);
    }
#endif
    if (lane < STEP) {
        const int32_t group = step * STEP + lane, col = SFB_PACKED ? group / 4 : group, block = tile->col / GROUP;
        copy_async_4(&s->sfb[stage][lane],
                     (const uint32_t *)args->sfb.data + tile->batch * args->sfb.batch_stride +
                         block * args->sfb.row_stride + col * args->sfb.col_stride,
                     group < args->k_blocks);
    }
    copy_async_arrive(&s->full[stage]);
}

DEVICE_FN void produce_scales(struct smem *s, const struct gemm_skinny_args *args)
{
    const struct steps own = own_steps(args);
    struct ring ring = ring_begin();
    FOR_EACH_TILE(args, index)
    {
        const struct tile tile = tile_at(args, index);
#pragma unroll 1
        for (int32_t step = own.begin; step < own.end; ++step) {
            mbarrier_wait(&s->empty[ring.stage], ring.phase ^ 1);
            copy_scales(s, args, &tile, ring.stage, step);
            ring_advance(&ring, STAGES);
        }
    }
    copy_async_wait_all(); /* no thread leaves before its copies */
}

/* ---- Math ---------------------------------------------------------------------------------------------------- */

/* partial = the products of one group of 128 k, not waited for. */
DEVICE_FN void multiply(float *partial, uint32_t weights, uint32_t tokens)
{
    wgmma_pin(partial, BLOCK_M / 2);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < GROUP / 32; ++k)
        WGMMA(partial, wgmma_descriptor(weights + 2 * k), wgmma_descriptor(tokens + 2 * k), k > 0);
    wgmma_commit();
}

/* Until all but the last `pending` groups are there. */
DEVICE_FN void wait_for_products(int pending)
{
    if (pending == 0)
        WGMMA_WAIT(0);
    else if (pending == 1)
        WGMMA_WAIT(1);
    else if (pending == 2)
        WGMMA_WAIT(2);
    else
        WGMMA_WAIT(3);
}

/* The group, or the last one: beyond it the products are zero, but bytes of a packed word may be anything. */
DEVICE_FN int32_t existing(const struct gemm_skinny_args *args, int32_t group)
{
    return group < args->k_blocks ? group : args->k_blocks - 1;
}

/* acc += (sfa * sfb) * partial, of group i of the stage; a thread has tokens 8 * j + 2 * (lane % 4) and the next. */
DEVICE_FN void promote(float *acc, const float *partial, const struct smem *s, uint32_t stage, int i, int32_t group)
{
    const uint32_t *own = &s->sfa[stage][(SFA_TMA && SFA_PACKED ? 0 : i * BLOCK_M) + lane_index() % 4 * 2];
    const float b = scale_value(load_smem_u32(&s->sfb[stage][i]), SFB_PACKED, group);
#pragma unroll
    for (int j = 0; j < BLOCK_M / 8; ++j) {
        uint32_t pair[2];
        load_smem_u32x2(own + 8 * j, pair);
        const float scale0 = scale_value(pair[0], SFA_PACKED, group) * b;
        const float scale1 = scale_value(pair[1], SFA_PACKED, group) * b;
        acc[4 * j] = multiply_add(scale0, partial[4 * j], acc[4 * j]);
        acc[4 * j + 1] = multiply_add(scale1, partial[4 * j + 1], acc[4 * j + 1]);
        acc[4 * j + 2] = multiply_add(scale0, partial[4 * j + 2], acc[4 * j + 2]);
        acc[4 * j + 3] = multiply_add(scale1, partial[4 * j + 3], acc[4 * j + 3]);
    }
}

DEVICE_FN void release_stage(uint64_t *empty)
{
    warp_barrier(); /* all lanes have read their scales */
    if (lane_index() == 0)
        mbarrier_arrive(empty);
}

/* All steps of this block's share of one tile. */
DEVICE_FN void accumulate_tile(struct smem *s, const struct gemm_skinny_args *args, const struct tile *tile,
                               struct ring *ring, float *acc, float (*partial)[BLOCK_M / 2])
{
    const struct steps own = own_steps(args);
    const uint32_t weights = wgmma_tile(s->b[0]), tokens = wgmma_tile(s->a[0]);
#pragma unroll
    for (int i = 0; i < BLOCK_M / 2; ++i)
        acc[i] = 0.0f;
#pragma unroll 1
    for (int32_t step = own.begin; step < own.end; ++step) {
        mbarrier_wait(&s->full[ring->stage], ring->phase);
#pragma unroll
        for (int i = 0; i < STEP; ++i)
            multiply(partial[i], weights + (ring->stage * STEP + i) * (BLOCK_N * GROUP / 16),
                     tokens + (ring->stage * STEP + i) * (BLOCK_M * GROUP / 16));
#pragma unroll
        for (int i = 0; i < STEP; ++i) {
            wait_for_products(STEP - 1 - i);
            wgmma_pin(partial[i], BLOCK_M / 2);
            promote(acc, partial[i], s, ring->stage, i, existing(args, step * STEP + i));
        }
        release_stage(&s->empty[ring->stage]);
        ring_advance(ring, STAGES);
    }
}

/* ---- Epilogue ------------------------------------------------------------------------------------------------ */

/* A thread has rows of weights `row` and row + 8, and of each of its tokens' pairs the one and the next. */
DEVICE_FN void write_sums(float *sums, const float *acc)
{
    const uint32_t row = thread_index() / 32 * 16 + lane_index() / 4, token = lane_index() % 4 * 2;
#pragma unroll
    for (int i = 0; i < BLOCK_M / 2; ++i)
        store_smem_f32(sums + (i / 4 * 8 + token + i % 2) * PITCH + row + i / 2 % 2 * 8, acc[i]);
}

/* Four neighbouring sums, over all shares of K in their order. */
DEVICE_FN void read_sums(const float *sums, float *x)
{
#if SPLITS == 1
    load_smem_f32x4(sums, x);
#else
    float share[SPLITS][4];
#pragma unroll
    for (int rank = 0; rank < SPLITS; ++rank)
        load_cluster_f32x4(sums, (uint32_t)rank, share[rank]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        x[i] = share[0][i];
#pragma unroll
        for (int rank = 1; rank < SPLITS; ++rank)
            x[i] += share[rank][i];
    }
#endif
}

/* D's columns col .. col + 3 of one row, as far as they exist. */
DEVICE_FN void store_four(const struct gemm_skinny_args *args, int32_t batch, int32_t row, int32_t col, float *x)
{
    const int32_t left = args->n - col;
    d_element *d = (d_element *)args->out.data + batch * args->out.batch_stride + row * args->out.row_stride + col;
#if HAS_C
    const d_element *c =
        (const d_element *)args->c.data + batch * args->c.batch_stride + row * args->c.row_stride + col;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (i < left)
            x[i] += d_to_float(c[i]);
#endif
    if (D_VECTOR && left >= 4) {
        store_d4(d, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (i < left)
            d[i] = float_to_d(x[i]);
}

/* Four columns at a time: by the math threads of all blocks of the cluster. */
DEVICE_FN void store_tile(const struct smem *s, const struct gemm_skinny_args *args, const struct tile *tile)
{
    const int32_t rank = split_rank(), left = args->m - tile->row;
    const int32_t fours = (left < BLOCK_M ? left : BLOCK_M) * (BLOCK_N / 4);
#pragma unroll 1
    for (int32_t i = rank * 128 + (int32_t)thread_index(); i < fours; i += SPLITS * 128) {
        const int32_t token = i / (BLOCK_N / 4), col = i % (BLOCK_N / 4) * 4;
        float x[4];
        if (tile->col + col >= args->n)
            continue;
        read_sums(&s->sums[token * PITCH + col], x);
        store_four(args, tile->batch, tile->row + token, tile->col + col, x);
    }
}

/* All shares of the tile's sums are there. */
DEVICE_FN void sums_are_written(void)
{
    warp_barrier();
    if (SPLITS > 1)
        cluster_barrier();
    else
        named_barrier(MATH_MEETS, MATH_WARPS * 32);
}

DEVICE_FN void consume(struct smem *s, const struct gemm_skinny_args *args)
{
    float acc[BLOCK_M / 2], partial[STEP][BLOCK_M / 2];
    struct ring ring = ring_begin();
#pragma unroll
    for (int i = 0; i < STEP * BLOCK_M / 2; ++i)
        partial[i / (BLOCK_M / 2)][i % (BLOCK_M / 2)] = 0.0f;
    FOR_EACH_TILE(args, index)
    {
        const struct tile tile = tile_at(args, index);
        accumulate_tile(s, args, &tile, &ring, acc, partial);
        write_sums(s->sums, acc);
        sums_are_written();
        store_tile(s, args, &tile);
        if (SPLITS == 1)
            named_barrier(MATH_MEETS, MATH_WARPS * 32); /* they have been read, and may be overwritten */
    }
}

/* ---- Entry --------------------------------------------------------------------------------------------------- */

DEVICE_FN void make_barriers(struct smem *s, const struct gemm_skinny_args *args)
{
    tma_prefetch_map(&args->b);
    tma_prefetch_map(&args->a);
    if (SFA_TMA)
        tma_prefetch_map(&args->scales);
    for (int i = 0; i < STAGES; ++i) {
        mbarrier_init(&s->full[i], 1 + 32);
        mbarrier_init(&s->empty[i], MATH_WARPS);
    }
    mbarrier_init_fence();
}

/* The loading warp makes the barriers itself and goes on at once: the first bytes take a microsecond to come. */
DEVICE_FN void set_up(struct smem *s, const struct gemm_skinny_args *args, uint32_t warp)
{
    if (warp == MATH_WARPS) {
        if (lane_index() == 0)
            make_barriers(s, args);
        warp_barrier();
        named_barrier_arrive(BARRIERS_MADE, THREADS);
    } else {
        named_barrier(BARRIERS_MADE, THREADS);
    }
}

KERNEL_BLOCKS(sm90_fp8_gemm_skinny, THREADS, BLOCKS_PER_SM, struct gemm_skinny_args)
{
    struct smem *s = (struct smem *)dynamic_smem();
    const uint32_t warp = warp_index();
    set_up(s, &args, warp);
    if (args.b_early && warp == MATH_WARPS && lane_index() == 0)
        load_weights_early(s, &args);
    grid_dependency_wait(); /* nothing else before this line reads or writes what another kernel may write */
    if (warp < MATH_WARPS) {
        consume(s, &args);
    } else if (warp > MATH_WARPS) {
        produce_scales(s, &args);
    } else if (lane_index() == 0) {
        produce_operands(s, &args);
        grid_dependency_launch(); /* the last loads are on their way: the next kernel may come */
    }
    if (SPLITS > 1) {
        warp_barrier();
        if (warp >= MATH_WARPS)
            cluster_barrier();     /* sums_are_written */
        cluster_barrier_relaxed(); /* no block leaves while another may still read its sums: all have been used */
    }
}
