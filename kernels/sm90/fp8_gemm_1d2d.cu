/*
 * sm90_fp8_gemm_1d2d: D[M,N] = C + A[M,K] @ B[N,K]^T on Hopper's tensor cores; dense, or in groups of rows (KIND)
 *
 * A, B      FP8 E4M3, K contiguous, addressed by TMA.
 * sfa, sfb  scales 1x128 for A and 128x128 for B ("1d2d"), FP32 or packed UE8M0, any strides, read in place.
 * D, C      BF16, FP16 or FP32 (D_TYPE). K's last group, M's and N's last tiles may be partial: TMA fills with zeros
 *           and clips.
 *
 * Roles. A block has one producer warpgroup and WARPGROUPS math warpgroups, and stays for many tiles (persistent):
 *   producer warp 0   one thread keeps a ring of STAGES stages full with TMA: a BLOCK_M x 128 tile of A and a
 *                     BLOCK_N x 128 tile of B each
 *   producer warp 1   keeps a second ring full with scales, those of SPAN steps at a time: A's by TMA where they lie as
 *                     TMA can load them (SFA_TMA), else, as B's, 4 bytes a copy (cp.async). Per step instead of per
 *                     SPAN, copying, reporting and waiting cost a tenth of the whole
 *   producer warp 2   of grouped kinds: finds out on the device which tiles there are (common/spans.h), and tells the
 *                     others through a ring of TILES
 *   math warpgroups   own 64 rows of the tile each (2 x 64 with BLOCK_M = 256): wgmma, promotion, store. Rows that a
 *                     group does not have are neither loaded (but for up to a box of them) nor stored
 *
 * One step of the ring is one scale group of 128 k. The tensor core sums its products into `partial`, which starts
 * from zero in each step; then acc += (sfa * sfb) * partial in FP32 ("promotion"). Hopper's FP8 tensor core keeps 13
 * fraction bits of a sum, so promoting every 128 k is part of the result's meaning: do not merge steps.
 *
 * With PARTIALS = 2 a warpgroup has two products under way, each of 64 rows and PART_N columns, and promotes one behind
 * the other, so the tensor core has work all the time. The assembler keeps that order only where it sees a product
 * begin and end: across the back edge of a loop it allows what is under way to be waited for, all of it, but not one
 * of two. Hence SPAN groups a round, and one moment in each with nothing under way.
 *
 * Barriers, per stage and per span of scales:
 *   full    one arrival of the TMA thread, with the bytes to come; of scales, one of each lane that copied them, and
 *           with SFA_TMA another with the bytes
 *   empty   of a stage, one arrival per math warp of every block in the cluster: with multicast it may be overwritten
 *           only when no block of the cluster still reads it; of scales, one per math thread, which read them itself;
 *           of a told tile, one per thread that looks at it
 *
 * Clusters of two blocks take neighbouring tiles and share one operand: each loads half of it and multicasts it to
 * both, which halves what the L2 cache must deliver.
 *
 * Must not be "simplified": wgmma is asynchronous, its accumulators may not be touched between issue and wait
 * (wgmma_pin keeps the compiler from it); a stage is released only after the wait, scales only after they are read.
 */
#include "config.h"

#if !defined(KIND) || !defined(BLOCK_M) || !defined(BLOCK_N) || !defined(PART_N) || !defined(PARTIALS) ||              \
    !defined(SPAN) || !defined(WARPGROUPS) || !defined(STAGES) || !defined(CLUSTER_M) || !defined(CLUSTER_N) ||        \
    !defined(D_TYPE) || !defined(HAS_C) || !defined(SFA_TMA) || !defined(SFA_PACKED) || !defined(SFB_PACKED) ||        \
    !defined(TMA_STORE) || !defined(STORE_COLS) || !defined(SMEM_BYTES)
#error "config.h is incomplete"
#endif

#include "common/layout.h"
#include "common/pipeline.h"
#include "common/spans.h"
#include "common/store.h"
#include "common/tma.h"
#include "shared/gemm_args.h"
#include "wgmma.h"

#define GROUPED (KIND != GEMM_KIND_DENSE)
#define GROUP SCALE_GROUP
#define CLUSTER (CLUSTER_M * CLUSTER_N)
#define MATH_THREADS (WARPGROUPS * 128)
#define THREADS (MATH_THREADS + 128)
#define BARRIERS_MADE 8                     /* a named barrier; warpgroup i has number 1 + i */
#define WAVES (BLOCK_M / (64 * WARPGROUPS)) /* 64-row slices per math warpgroup */
#define PARTS (BLOCK_N / PART_N)
#define PRODUCTS (WAVES * PARTS) /* of a warpgroup in one group of k */
#define D_BYTES (D_TYPE == TYPE_FLOAT32 ? 4 : 2)

#define WGMMA_NAME_(n) wgmma_m64n##n##k32_e4m3
#define WGMMA_NAME(n) WGMMA_NAME_(n)
#define WGMMA WGMMA_NAME(PART_N)

/* Per thread, after the exchange: 64 K registers for all; a lone math warpgroup has enough from the start. The warp
   that finds tiles needs more than 32. */
#define PRODUCER_REGISTERS (WARPGROUPS == 2 ? 40 : GROUPED ? 56 : 32)
#define MATH_REGISTERS (WARPGROUPS == 2 ? 232 : GROUPED ? 152 : 160)

#define SPANS 3                           /* of scales in shared memory */
#define SFA_WORDS (SFA_PACKED ? 1 : SPAN) /* per row and span; a packed word is four groups' */
#define SFB_WORDS (SFB_PACKED ? 1 : SPAN)

#define TILES 4               /* that the tile warp finds ahead, of a grouped product */
#define TILE_WORDS 6          /* struct tile */
#define NO_TILE (-0x40000000) /* a row that ends the list */
#define UNIT_ROWS (BLOCK_M * CLUSTER_M)

/* N tiles start at multiples of BLOCK_N, so they meet the edges of B's 128-blocks in multiples of SPLIT_STEP columns,
   and not at all if BLOCK_N divides 128. */
#define SPLIT_STEP (128 % BLOCK_N == 0 || BLOCK_N % 128 == 0 ? 128 : BLOCK_N & -BLOCK_N)

struct smem {
    uint8_t a[STAGES][BLOCK_M * GROUP];
    uint8_t b[STAGES][BLOCK_N * GROUP];
#if TMA_STORE
    uint8_t d[WARPGROUPS][2][64 * STORE_COLS * D_BYTES];
#endif
    uint32_t sfa[SPANS][SFA_WORDS][BLOCK_M]; /* as they came: the bits of a float, or a word of four UE8M0 */
    uint32_t sfb[SPANS][SFB_WORDS][2];       /* of the one or two 128-blocks of N that the tile touches */
    uint64_t full[STAGES], empty[STAGES], scales_full[SPANS], scales_empty[SPANS];
#if GROUPED
    uint64_t tiles_full[TILES], tiles_empty[TILES];
    uint32_t tiles[TILES][TILE_WORDS];
#endif
};
STATIC_CHECK(PARTIALS == 1 || SPAN * PARTS % 2 == 0, "a round must end with the second partial sum");
STATIC_CHECK(4 % SPAN == 0, "a packed word's four groups must be whole spans");
STATIC_CHECK((sizeof(struct smem) + 127) / 128 * 128 == SMEM_BYTES, "the plan and the kernel disagree on smem");

/* ---- Tiles --------------------------------------------------------------------------------------------------- */

struct tile {
    int32_t row, col;      /* the first */
    int32_t batch, group;  /* entry of A and D; of B */
    int32_t end, zero_end; /* rows to store end here, and those that become zeros here */
};

/* This block's share of cluster tile `index` of a dense product. */
DEVICE_FN struct tile tile_at(const struct gemm_1d2d_args *args, int32_t index)
{
    const struct gemm_tile t = gemm_sched_tile(&args->sched, index);
    const int32_t rank = CLUSTER > 1 ? (int32_t)cluster_rank() : 0;
    struct tile tile;
    tile.row = (t.m * CLUSTER_M + (CLUSTER_M > 1 ? rank : 0)) * BLOCK_M;
    tile.col = (t.n * CLUSTER_N + (CLUSTER_N > 1 ? rank : 0)) * BLOCK_N;
    tile.batch = tile.group = t.batch;
    tile.end = tile.zero_end = args->m;
    return tile;
}

/* Where a thread is in its block's tiles: of a dense product it knows them, of a grouped one it is told. */
struct tile_walk {
    int32_t index;
    struct ring ring;
};

DEVICE_FN struct tile_walk tile_walk_begin(void)
{
    struct tile_walk walk;
    walk.index = (int32_t)(block_index() / CLUSTER);
    walk.ring = ring_begin();
    return walk;
}

/* The tile in hand, if there is one. A grouped product's stays in shared memory until tile_done: so what is not needed
   in the main loop may be looked up again behind it, and takes no registers there. */
DEVICE_FN int tile_in_hand(const struct smem *s, const struct gemm_1d2d_args *args, const struct tile_walk *walk,
                           struct tile *tile)
{
#if GROUPED
    const uint32_t *words = s->tiles[walk->ring.stage];
    (void)args;
    tile->row = (int32_t)load_smem_u32(words);
    tile->col = (int32_t)load_smem_u32(words + 1);
    tile->batch = (int32_t)load_smem_u32(words + 2);
    tile->group = (int32_t)load_smem_u32(words + 3);
    tile->end = (int32_t)load_smem_u32(words + 4);
    tile->zero_end = (int32_t)load_smem_u32(words + 5);
    return tile->row >= 0;
#else
    (void)s;
    if (walk->index >= args->sched.tiles)
        return 0;
    *tile = tile_at(args, walk->index);
    return 1;
#endif
}

DEVICE_FN int await_tile(struct smem *s, const struct gemm_1d2d_args *args, const struct tile_walk *walk,
                         struct tile *tile)
{
#if GROUPED
    mbarrier_wait(&s->tiles_full[walk->ring.stage], walk->ring.phase);
#endif
    return tile_in_hand(s, args, walk, tile);
}

DEVICE_FN void tile_done(struct smem *s, struct tile_walk *walk)
{
#if GROUPED
    mbarrier_arrive(&s->tiles_empty[walk->ring.stage]);
    ring_advance(&walk->ring, TILES);
#else
    (void)s;
    walk->index += (int32_t)(grid_size() / CLUSTER);
#endif
}

#if GROUPED
/* ---- The tile warp ------------------------------------------------------------------------------------------- */

/* One lane tells: this block's share of a cluster tile, whose first unit of rows begins at `row`; a negative `row` is
   the end. */
DEVICE_FN void tell_tile(struct smem *s, uint32_t slot, const struct row_span *span, int32_t row, int32_t n_tile)
{
    const int32_t rank = CLUSTER > 1 ? (int32_t)cluster_rank() : 0;
    uint32_t *words = s->tiles[slot];
    store_smem_u32(words, (uint32_t)(row + (CLUSTER_M > 1 ? rank * BLOCK_M : 0)));
    store_smem_u32(words + 1, (uint32_t)((n_tile * CLUSTER_N + (CLUSTER_N > 1 ? rank : 0)) * BLOCK_N));
    store_smem_u32(words + 2, (uint32_t)span->batch);
    store_smem_u32(words + 3, (uint32_t)span->group);
    store_smem_u32(words + 4, (uint32_t)span->end);
    store_smem_u32(words + 5, (uint32_t)span->zero_end);
    mbarrier_arrive(&s->tiles_full[slot]);
}

DEVICE_FN void find_tiles(struct smem *s, const struct gemm_1d2d_args *args)
{
    struct gemm_groups groups = args->groups;
    struct gemm_sched sched = args->sched;
    groups.kind = KIND; /* known to the compiler */
    sched.m_tiles = count_units(&groups, UNIT_ROWS);
    sched.tiles = sched.m_tiles * sched.n_tiles;
    struct span_window window = span_window_begin(&groups, UNIT_ROWS);
    struct ring ring = ring_begin();
#pragma unroll 1
    for (int32_t index = (int32_t)(block_index() / CLUSTER); index < sched.tiles;
         index += (int32_t)(grid_size() / CLUSTER)) {
        const struct gemm_tile t = gemm_sched_tile(&sched, index);
        const int own = span_window_seek(&window, &groups, UNIT_ROWS, t.m);
        mbarrier_wait(&s->tiles_empty[ring.stage], ring.phase ^ 1);
        if (own)
            tell_tile(s, ring.stage, &window.span, span_window_row(&window, UNIT_ROWS, t.m), t.n);
        ring_advance(&ring, TILES);
    }
    mbarrier_wait(&s->tiles_empty[ring.stage], ring.phase ^ 1);
    if (lane_index() == 0)
        tell_tile(s, ring.stage, &window.span, NO_TILE, 0);
}
#endif

/* ---- Producer: operands -------------------------------------------------------------------------------------- */

/*
 * One operand's share of a stage: all of it, or under multicast this block's part, sent to both blocks. What hardly any
 * other block will read (`once`) spares in the L2 cache what others left there.
 */
DEVICE_FN void load_operand(const struct tensor_map *map, uint64_t *full, uint8_t *smem, int32_t k, int32_t row,
                            int32_t batch, int shared_by, int32_t tile_rows, int once)
{
    if (shared_by == 1 && once) {
        tma_load_hinted(map, full, smem, k, row, batch, l2_evict_first());
    } else if (shared_by == 1) {
        tma_load(map, full, smem, k, row, batch);
    } else {
        const int32_t part = tile_rows / shared_by, rank = (int32_t)cluster_rank();
        tma_load_multicast(map, full, smem + rank * part * GROUP, k, row + rank * part, batch,
                           (uint16_t)((1 << shared_by) - 1));
    }
}

#if GROUPED && CLUSTER_N == 1
/* Of a tile's rows only those that exist, in boxes of a few. */
DEVICE_FN int32_t rows_of(const struct tile *tile)
{
    const int32_t rows = tile->end - tile->row;
    return rows < BLOCK_M ? rows : BLOCK_M;
}

DEVICE_FN void load_a(struct smem *s, const struct gemm_1d2d_args *args, const struct tile *tile, uint32_t stage,
                      int32_t block)
{
    const int32_t rows = rows_of(tile);
#pragma unroll 1
    for (int32_t row = 0; row < rows; row += args->a_box_rows)
        tma_load(&args->a, &s->full[stage], s->a[stage] + row * GROUP, block * GROUP, tile->row + row, tile->batch);
}

/* What a stage of the tile receives. */
DEVICE_FN uint32_t bytes_of(const struct gemm_1d2d_args *args, const struct tile *tile)
{
    uint32_t bytes = args->load_bytes;
    for (int32_t row = 0; row < rows_of(tile); row += args->a_box_rows)
        bytes += (uint32_t)args->a_box_rows * GROUP;
    return bytes;
}
#else
DEVICE_FN uint32_t bytes_of(const struct gemm_1d2d_args *args, const struct tile *tile)
{
    (void)tile;
    return args->load_bytes;
}

DEVICE_FN void load_a(struct smem *s, const struct gemm_1d2d_args *args, const struct tile *tile, uint32_t stage,
                      int32_t block)
{
    load_operand(&args->a, &s->full[stage], s->a[stage], block * GROUP, tile->row, tile->batch, CLUSTER_N, BLOCK_M, 0);
}
#endif

DEVICE_FN void load_b(struct smem *s, const struct gemm_1d2d_args *args, const struct tile *tile, uint32_t stage,
                      int32_t block)
{
    load_operand(&args->b, &s->full[stage], s->b[stage], block * GROUP, tile->col, tile->group, CLUSTER_M, BLOCK_N,
                 args->b_once);
}

/* Stages of the first tile whose B is loaded while the kernel before may still run. */
DEVICE_FN int32_t early_stages(const struct gemm_1d2d_args *args)
{
    return args->k_blocks < STAGES ? args->k_blocks : STAGES;
}

DEVICE_FN void load_b_early(struct smem *s, const struct gemm_1d2d_args *args)
{
    const int32_t early = early_stages(args);
    const struct tile tile = tile_at(args, (int32_t)(block_index() / CLUSTER));
#pragma unroll 1
    for (int32_t block = 0; block < early; ++block) {
        mbarrier_arrive_expect(&s->full[block], args->load_bytes);
        load_b(s, args, &tile, (uint32_t)block, block);
    }
}

/* What the stages lack that have B already. */
DEVICE_FN int32_t complete_early(struct smem *s, const struct gemm_1d2d_args *args, struct ring *ring)
{
    const int32_t early = early_stages(args);
    const struct tile tile = tile_at(args, (int32_t)(block_index() / CLUSTER));
#pragma unroll 1
    for (int32_t block = 0; block < early; ++block) {
        load_a(s, args, &tile, ring->stage, block);
        ring_advance(ring, STAGES);
    }
    return early;
}

DEVICE_FN struct ring produce_operands(struct smem *s, const struct gemm_1d2d_args *args)
{
    struct ring ring = ring_begin();
    struct tile_walk walk = tile_walk_begin();
    struct tile tile;
    int32_t block = !GROUPED && args->b_early ? complete_early(s, args, &ring) : 0;
    while (await_tile(s, args, &walk, &tile)) {
        tile_done(s, &walk);
        const uint32_t bytes = bytes_of(args, &tile);
#pragma unroll 1
        for (; block < args->k_blocks; ++block) {
            mbarrier_wait(&s->empty[ring.stage], ring.phase ^ 1);
            mbarrier_arrive_expect(&s->full[ring.stage], bytes);
            load_a(s, args, &tile, ring.stage, block);
            load_b(s, args, &tile, ring.stage, block);
            ring_advance(&ring, STAGES);
        }
        block = 0;
    }
    return ring;
}

/* No block leaves while another may still signal it: the last signals are that all its stages are empty. */
DEVICE_FN void await_last_signals(struct smem *s, struct ring ring)
{
#pragma unroll 1
    for (int i = 0; i < STAGES; ++i) {
        mbarrier_wait(&s->empty[ring.stage], ring.phase ^ 1);
        ring_advance(&ring, STAGES);
    }
}

/* ---- Producer: scales ---------------------------------------------------------------------------------------- */

/* Where a lane's scales of the coming span are. */
struct scale_source {
    const uint32_t *a, *b; /* of A's rows lane, lane + 32, ... of the tile; of one 128-block of N and one group */
    int32_t rows_left;     /* that exist from the lane's first on */
    int b_exists;
};

DEVICE_FN struct scale_source scale_source_of(const struct gemm_1d2d_args *args, const struct tile *tile)
{
    const int32_t lane = (int32_t)lane_index(), n_block = tile->col / GROUP + lane % 2;
    struct scale_source source;
    source.a = (const uint32_t *)args->sfa.data + tile->batch * args->sfa.batch_stride +
               (tile->row + lane) * args->sfa.row_stride;
    source.b = (const uint32_t *)args->sfb.data + tile->group * args->sfb.batch_stride +
               n_block * args->sfb.row_stride + lane / 2 * args->sfb.col_stride;
    source.rows_left = tile->end - tile->row - lane;
    source.b_exists = n_block * GROUP < args->n;
    return source;
}

DEVICE_FN void copy_a_scales(struct smem *s, const struct gemm_1d2d_args *args, struct scale_source *source,
                             uint32_t span, int32_t block)
{
#pragma unroll
    for (int group = 0; group < SFA_WORDS; ++group) {
        const uint32_t *a = source->a;
#pragma unroll
        for (int i = 0; i < BLOCK_M / 32; ++i) {
            copy_async_4(&s->sfa[span][group][32 * i + lane_index()], a,
                         32 * i < source->rows_left && block + group < args->k_blocks);
            a += 32 * args->sfa.row_stride;
        }
        if (!SFA_PACKED || (block + SPAN) % 4 == 0)
            source->a += args->sfa.col_stride;
    }
}

DEVICE_FN void copy_b_scales(struct smem *s, const struct gemm_1d2d_args *args, struct scale_source *source,
                             uint32_t span, int32_t block)
{
    const uint32_t lane = lane_index();
    if (lane < 2 * SFB_WORDS)
        copy_async_4(&s->sfb[span][lane / 2][lane % 2], source->b,
                     source->b_exists && block + (int32_t)(lane / 2) < args->k_blocks);
    if (!SFB_PACKED)
        source->b += SPAN * args->sfb.col_stride;
    else if ((block + SPAN) % 4 == 0)
        source->b += args->sfb.col_stride;
}

/* Start to copy the scales of groups block, block + 1, ..., zeros for what does not exist; the barrier waits for it. */
DEVICE_FN void copy_scales(struct smem *s, const struct gemm_1d2d_args *args, const struct tile *tile,
                           struct scale_source *source, uint32_t span, int32_t block)
{
#if SFA_TMA
    if (lane_index() == 0) {
        mbarrier_arrive_expect(&s->scales_full[span], SFA_WORDS * BLOCK_M * 4);
        tma_load(&args->scales, &s->scales_full[span], s->sfa[span][0], tile->row, SFA_PACKED ? block / 4 : block,
                 tile->batch);
    }
#else
    (void)tile;
    copy_a_scales(s, args, source, span, block);
#endif
    copy_b_scales(s, args, source, span, block);
    copy_async_arrive(&s->scales_full[span]);
}

DEVICE_FN void produce_scales(struct smem *s, const struct gemm_1d2d_args *args)
{
    struct ring ring = ring_begin();
    struct tile_walk walk = tile_walk_begin();
    struct tile tile;
    while (await_tile(s, args, &walk, &tile)) {
        tile_done(s, &walk);
        struct scale_source source = scale_source_of(args, &tile);
#pragma unroll 1
        for (int32_t block = 0; block < args->k_blocks; block += SPAN) {
            mbarrier_wait(&s->scales_empty[ring.stage], ring.phase ^ 1);
            copy_scales(s, args, &tile, &source, ring.stage, block);
            ring_advance(&ring, SPANS);
        }
    }
    copy_async_wait_all(); /* no thread leaves before its copies */
}

/* ---- Math ---------------------------------------------------------------------------------------------------- */

/* sfa * sfb of a thread's two rows in each slice, and of the one or two 128-blocks of N. */
struct scales {
    float of[WAVES][2][2];
};

DEVICE_FN struct scales read_scales(const struct smem *s, uint32_t span, uint32_t warpgroup, int32_t block)
{
    const uint32_t own_row = thread_index() / 32 % 4 * 16 + lane_index() / 4;
    const uint32_t *a = s->sfa[span][SFA_PACKED ? 0 : block % SPAN], *b = s->sfb[span][SFB_PACKED ? 0 : block % SPAN];
    struct scales scales;
#pragma unroll
    for (int i = 0; i < WAVES * 2; ++i) {
        const uint32_t row = (i / 2 * WARPGROUPS + warpgroup) * 64 + own_row + i % 2 * 8;
        const float of_a = scale_value(load_smem_u32(&a[row]), SFA_PACKED, block);
        scales.of[i / 2][i % 2][0] = of_a * scale_value(load_smem_u32(&b[0]), SFB_PACKED, block);
        scales.of[i / 2][i % 2][1] =
            SPLIT_STEP < 128 ? of_a * scale_value(load_smem_u32(&b[1]), SFB_PACKED, block) : 0.0f;
    }
    return scales;
}

/* A product's number says which: slices of 64 rows from the top, in each the parts from the left. */
DEVICE_FN int wave_of(int product)
{
    return product / PARTS;
}

DEVICE_FN int part_of(int product)
{
    return product % PARTS;
}

/* acc += scale * partial; columns below `split` belong to the first 128-block of N, the others to the second. */
DEVICE_FN void promote(float (*acc)[BLOCK_N / 2], const float *partial, const float (*scale)[2], int product, int split)
{
    float *sum = acc[wave_of(product)] + part_of(product) * PART_N / 2;
#pragma unroll
    for (int i = 0; i < PART_N / 2; ++i) {
        const int col = part_of(product) * PART_N + i / 4 * 8;
        const float first = scale[i / 2 % 2][0], second = scale[i / 2 % 2][1];
        const float factor = SPLIT_STEP == 128 || col / SPLIT_STEP * SPLIT_STEP < split ? first : second;
        sum[i] = multiply_add(factor, partial[i], sum[i]);
    }
}

#define WGMMAS (GROUP / 32)

/* The wgmmas first .. end - 1 of the WGMMAS that make up a product of one group of 128 k, not waited for. */
DEVICE_FN void multiply(float *partial, const struct smem *s, uint32_t stage, uint32_t warpgroup, int product,
                        int first, int end)
{
    const uint32_t a = wgmma_tile(s->a[0] + warpgroup * 64 * GROUP) +
                       (stage * BLOCK_M + (uint32_t)wave_of(product) * WARPGROUPS * 64) * (GROUP / 16);
    const uint32_t b = wgmma_tile(s->b[0]) + (stage * BLOCK_N + (uint32_t)part_of(product) * PART_N) * (GROUP / 16);
    if (first == 0) {
        wgmma_pin(partial, PART_N / 2);
        wgmma_fence();
    }
#pragma unroll
    for (int k = first; k < end; ++k)
        WGMMA(partial, wgmma_descriptor(a + 2 * k), wgmma_descriptor(b + 2 * k), k > 0);
    wgmma_commit();
}

DEVICE_FN void release_stage(uint64_t *empty)
{
    if (lane_index() < CLUSTER) {
        if (CLUSTER > 1)
            mbarrier_arrive_at(empty, lane_index());
        else
            mbarrier_arrive(empty);
    }
}

DEVICE_FN void release_scales(struct smem *s, struct ring *spans)
{
    mbarrier_arrive(&s->scales_empty[spans->stage]);
    ring_advance(spans, SPANS);
}

/* Where a math warpgroup is in both rings. */
struct place {
    struct ring stages, spans;
};

/* One group, each product promoted before the next begins. */
DEVICE_FN void add_group(struct smem *s, uint32_t warpgroup, int32_t block, int split, int products,
                         struct place *place, float (*acc)[BLOCK_N / 2], float *partial)
{
    const uint32_t stage = place->stages.stage;
    mbarrier_wait(&s->full[stage], place->stages.phase);
    const struct scales scales = read_scales(s, place->spans.stage, warpgroup, block);
#pragma unroll
    for (int i = 0; i < products; ++i) {
        multiply(partial, s, stage, warpgroup, i, 0, WGMMAS);
        WGMMA_WAIT(0);
        wgmma_pin(partial, PART_N / 2);
        if (i == products - 1)
            release_stage(&s->empty[stage]);
        promote(acc, partial, scales.of[wave_of(i)], i, split);
    }
    ring_advance(&place->stages, STAGES);
}

/* A span of groups, or what is left of K. */
DEVICE_FN void add_groups(struct smem *s, uint32_t warpgroup, int32_t block, int32_t count, int split, int products,
                          struct place *place, float (*acc)[BLOCK_N / 2], float *partial)
{
    mbarrier_wait(&s->scales_full[place->spans.stage], place->spans.phase);
#pragma unroll 1
    for (int32_t i = 0; i < count; ++i)
        add_group(s, warpgroup, block + i, split, products, place, acc, partial);
    release_scales(s, &place->spans);
}

#if PARTIALS == 2
/* The last product of a group, while it is under way or waits for promotion in the second partial sum. */
struct pending {
    int there;
    uint32_t stage; /* to release when it is done */
    float scale[2][2];
};

DEVICE_FN void finish_pending(struct smem *s, const struct pending *pending, float *partial)
{
    WGMMA_WAIT(0);
    wgmma_pin(partial, PART_N / 2);
    if (pending->there)
        release_stage(&s->empty[pending->stage]);
}

/* A span of groups: every product begins before the one before it, `pending` at first, is promoted. Only its first
   wgmma is issued before that is waited for: the others would have to queue, and the promotion behind them. */
DEVICE_FN void add_span(struct smem *s, uint32_t warpgroup, int32_t block, int split, int products, struct place *place,
                        float (*acc)[BLOCK_N / 2], float (*partial)[PART_N / 2], struct pending *pending)
{
    struct scales scales;
    mbarrier_wait(&s->scales_full[place->spans.stage], place->spans.phase);
#pragma unroll
    for (int i = 0; i < SPAN * products; ++i) {
        const int product = i % products, before = (i + products - 1) % products;
        const uint32_t stage = place->stages.stage;
        if (product == 0) {
            mbarrier_wait(&s->full[stage], place->stages.phase);
            scales = read_scales(s, place->spans.stage, warpgroup, block + i / products);
        }
        if (i == 0)
            finish_pending(s, pending, partial[1]);
        multiply(partial[i % 2], s, stage, warpgroup, product, 0, 1);
        if (i > 0) {
            WGMMA_WAIT(1);
            wgmma_pin(partial[1 - i % 2], PART_N / 2);
            if (product == 0)
                release_stage(&s->empty[pending->stage]);
        }
        multiply(partial[i % 2], s, stage, warpgroup, product, 1, WGMMAS);
        if (i == SPAN * products - 1)
            release_scales(s, &place->spans);
        promote(acc, partial[1 - i % 2], pending->scale, before, split);
#pragma unroll
        for (int j = 0; j < 4; ++j)
            pending->scale[j / 2][j % 2] = scales.of[wave_of(product)][j / 2][j % 2];
        pending->stage = stage;
        if (product == products - 1)
            ring_advance(&place->stages, STAGES);
    }
    pending->there = 1;
}

/* All whole spans of a tile; how many groups that were. */
DEVICE_FN int32_t add_spans(struct smem *s, int32_t k_blocks, uint32_t warpgroup, int split, int products,
                            struct place *place, float (*acc)[BLOCK_N / 2], float (*partial)[PART_N / 2])
{
    struct pending pending = {0, 0, {{0.0f, 0.0f}, {0.0f, 0.0f}}};
    int32_t block = 0;
#pragma unroll
    for (int i = 0; i < PART_N / 2; ++i)
        partial[1][i] = 0.0f; /* the first promotion adds zero */
#pragma unroll 1
    for (; block + SPAN <= k_blocks; block += SPAN)
        add_span(s, warpgroup, block, split, products, place, acc, partial, &pending);
    finish_pending(s, &pending, partial[1]);
    promote(acc, partial[1], pending.scale, products - 1, split);
    return block;
}
#endif

/* First row of a warpgroup's slice of a tile. */
DEVICE_FN int32_t slice_row(const struct tile *tile, uint32_t warpgroup, int wave)
{
    return tile->row + (int32_t)(wave * WARPGROUPS + warpgroup) * 64;
}

#if GROUPED
/* Go past a tile of which the warpgroup has no rows, or only such as become zeros. */
DEVICE_FN void pass_tile(struct smem *s, int32_t k_blocks, struct place *place)
{
#pragma unroll 1
    for (int32_t block = 0; block < k_blocks; ++block) {
        mbarrier_wait(&s->full[place->stages.stage], place->stages.phase);
        warp_barrier(); /* no wgmma keeps lanes together here: one that still waits could miss the phase */
        release_stage(&s->empty[place->stages.stage]);
        ring_advance(&place->stages, STAGES);
        if (block % SPAN == 0) {
            mbarrier_wait(&s->scales_full[place->spans.stage], place->spans.phase);
            release_scales(s, &place->spans);
        }
    }
}
#endif

/* All steps of one tile, the first `products` (a constant) of each group: acc = the sum over k groups. */
DEVICE_FN void accumulate(struct smem *s, int32_t k_blocks, uint32_t warpgroup, int split, int products,
                          struct place *place, float (*acc)[BLOCK_N / 2], float (*partial)[PART_N / 2])
{
    int32_t block = 0;
#if PARTIALS == 2
    block = add_spans(s, k_blocks, warpgroup, split, products, place, acc, partial);
#endif
#pragma unroll 1
    for (; block < k_blocks; block += SPAN) {
        const int32_t left = k_blocks - block;
        add_groups(s, warpgroup, block, left < SPAN ? left : SPAN, split, products, place, acc, partial[0]);
    }
}

/* Slices without rows are left out: of a warpgroup both, which then passes over the tile, or the second. */
DEVICE_FN void accumulate_tile(struct smem *s, const struct gemm_1d2d_args *args, const struct tile *tile,
                               uint32_t warpgroup, struct place *place, float (*acc)[BLOCK_N / 2],
                               float (*partial)[PART_N / 2])
{
    const int split = GROUP - tile->col % GROUP;
#pragma unroll
    for (int i = 0; i < WAVES * BLOCK_N / 2; ++i)
        acc[i / (BLOCK_N / 2)][i % (BLOCK_N / 2)] = 0.0f;
#if GROUPED
    if (slice_row(tile, warpgroup, 0) >= tile->end) {
        pass_tile(s, args->k_blocks, place);
        return;
    }
    if (WAVES == 2 && slice_row(tile, warpgroup, 1) >= tile->end) {
        accumulate(s, args->k_blocks, warpgroup, split, PARTS, place, acc, partial);
        return;
    }
#endif
    accumulate(s, args->k_blocks, warpgroup, split, PRODUCTS, place, acc, partial);
}

/* ---- Epilogue ------------------------------------------------------------------------------------------------ */

#if TMA_STORE
/* In chunks of STORE_COLS columns through two staging buffers in turn: one is filled while TMA reads the other. */
DEVICE_FN void store_slice(struct smem *s, const struct gemm_1d2d_args *args, const float *acc, uint32_t warpgroup,
                           uint32_t *turn, int32_t row, int32_t col, int32_t batch)
{
    const int leader = thread_index() % 128 == 0;
#pragma unroll
    for (int chunk = 0; chunk < BLOCK_N / STORE_COLS; ++chunk) {
        uint8_t *buffer = s->d[warpgroup][*turn];
        if (leader)
            TMA_STORE_WAIT_READ(1);
        named_barrier(1 + warpgroup, 128); /* the buffer's previous store has read it */
        stage_fragment(buffer, acc, chunk * STORE_COLS, STORE_COLS);
        fence_smem_for_async();
        named_barrier(1 + warpgroup, 128);
        if (leader) {
            tma_store(&args->d, buffer, col + chunk * STORE_COLS, row, batch);
            tma_store_commit();
        }
        *turn ^= 1;
    }
}
#endif

#if GROUPED
/* Rows from tile->end on become zeros. */
DEVICE_FN void clear_rows(const struct tile *tile, int32_t row, float *acc)
{
    const int32_t own = row + (int32_t)(thread_index() / 32 % 4 * 16 + lane_index() / 4);
    if (row + 64 <= tile->end)
        return;
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i)
        acc[i] = own + i / 2 % 2 * 8 < tile->end ? acc[i] : 0.0f;
}
#endif

/* TMA stores 64 rows; it knows where the matrix ends, but not where a group does. */
DEVICE_FN int stored_by_tma(const struct gemm_1d2d_args *args, const struct tile *tile, int32_t row)
{
    return TMA_STORE && (!GROUPED || row + 64 <= tile->zero_end || tile->zero_end == args->m);
}

DEVICE_FN void finish_slice(struct smem *s, const struct gemm_1d2d_args *args, const struct tile *tile, float *acc,
                            uint32_t warpgroup, uint32_t *turn, int32_t row)
{
    if (row >= tile->zero_end)
        return; /* the same for the whole warpgroup */
#if HAS_C
    const struct fragment_rows c = fragment_rows_of(&args->c, tile->batch, row, tile->col, tile->end, args->n);
    add_fragment(&c, acc, BLOCK_N);
#endif
#if GROUPED
    clear_rows(tile, row, acc);
#endif
#if TMA_STORE
    if (stored_by_tma(args, tile, row)) {
        store_slice(s, args, acc, warpgroup, turn, row, tile->col, tile->batch);
        return;
    }
#endif
#if GROUPED || !TMA_STORE
    const struct fragment_rows d = fragment_rows_of(&args->out, tile->batch, row, tile->col, tile->zero_end, args->n);
    if (TMA_STORE) /* what it can address is aligned */
        store_fragment_pairs(&d, acc, BLOCK_N);
    else
        store_fragment(&d, acc, BLOCK_N);
#endif
}

DEVICE_FN void consume(struct smem *s, const struct gemm_1d2d_args *args, uint32_t warpgroup)
{
    float acc[WAVES][BLOCK_N / 2], partial[PARTIALS][PART_N / 2];
    struct place place = {ring_begin(), ring_begin()};
    struct tile_walk walk = tile_walk_begin();
    struct tile tile;
    uint32_t turn = 0; /* of the staging buffers */
#pragma unroll
    for (int i = 0; i < PARTIALS * PART_N / 2; ++i)
        partial[i / (PART_N / 2)][i % (PART_N / 2)] = 0.0f;
    while (await_tile(s, args, &walk, &tile)) {
        accumulate_tile(s, args, &tile, warpgroup, &place, acc, partial);
        if (GROUPED)
            tile_in_hand(s, args, &walk, &tile);
#pragma unroll
        for (int wave = 0; wave < WAVES; ++wave)
            finish_slice(s, args, &tile, acc[wave], warpgroup, &turn, slice_row(&tile, warpgroup, wave));
        tile_done(s, &walk);
    }
#if TMA_STORE
    TMA_STORE_WAIT_READ(0); /* shared memory must outlive the stores that read it */
#endif
}

/* ---- Entry --------------------------------------------------------------------------------------------------- */

DEVICE_FN void make_barriers(struct smem *s, const struct gemm_1d2d_args *args)
{
    tma_prefetch_map(&args->a);
    tma_prefetch_map(&args->b);
    if (SFA_TMA)
        tma_prefetch_map(&args->scales);
    if (TMA_STORE)
        tma_prefetch_map(&args->d);
    for (int i = 0; i < STAGES; ++i) {
        mbarrier_init(&s->full[i], 1);
        mbarrier_init(&s->empty[i], CLUSTER * WARPGROUPS * 4);
    }
    for (int i = 0; i < SPANS; ++i) {
        mbarrier_init(&s->scales_full[i], 32 + SFA_TMA);
        mbarrier_init(&s->scales_empty[i], MATH_THREADS);
    }
#if GROUPED
    for (int i = 0; i < TILES; ++i) {
        mbarrier_init(&s->tiles_full[i], 1);
        mbarrier_init(&s->tiles_empty[i], 1 + 32 + MATH_THREADS);
    }
#endif
    mbarrier_init_fence();
}

/* The loading warp makes the barriers itself and, alone in its cluster, goes on at once: the first bytes take a
   microsecond to come. */
DEVICE_FN void set_up(struct smem *s, const struct gemm_1d2d_args *args, uint32_t warp)
{
    const int loading = warp == WARPGROUPS * 4;
    if (loading && lane_index() == 0)
        make_barriers(s, args);
    warp_barrier();
    if (CLUSTER > 1)
        cluster_barrier_relaxed();
    else if (loading)
        named_barrier_arrive(BARRIERS_MADE, THREADS);
    else
        named_barrier(BARRIERS_MADE, THREADS);
}

KERNEL(sm90_fp8_gemm_1d2d, THREADS, struct gemm_1d2d_args)
{
    struct smem *s = (struct smem *)dynamic_smem();
    const uint32_t warp = warp_index(), warpgroup = warp / 4;
    set_up(s, &args, warp);
    if (!GROUPED && args.b_early && warp == WARPGROUPS * 4) {
        if (lane_index() == 0)
            load_b_early(s, &args);
        warp_barrier(); /* registers are exchanged by whole warps */
    }
    grid_dependency_wait(); /* nothing else before this line reads or writes what another kernel may write */
    if (warpgroup == WARPGROUPS) {
        if (WARPGROUPS > 1)
            REGISTERS_RELEASE(PRODUCER_REGISTERS);
        if (warp % 4 == 0) {
            if (lane_index() == 0) {
                const struct ring ring = produce_operands(s, &args);
                grid_dependency_launch(); /* the last loads are on their way: the next kernel may come */
                if (CLUSTER > 1)
                    await_last_signals(s, ring);
            }
        } else if (warp % 4 == 1) {
            produce_scales(s, &args);
#if GROUPED
        } else if (warp % 4 == 2) {
            find_tiles(s, &args);
#endif
        }
    } else {
        if (WARPGROUPS > 1)
            REGISTERS_TAKE(MATH_REGISTERS);
        consume(s, &args, warpgroup);
    }
}
