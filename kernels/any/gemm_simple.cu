/*
 * gemm_simple - D = C + A @ B^T with scales, on CUDA cores: every layout, every compute capability from 7.5 on. The
 * fallback of the fast kernels, and their judge at full size.
 *
 *   a [batch, m, k], b [groups, n, k] FP8 E4M3; c, d [batch, m, n] of type D_TYPE; any strides
 *   sfa [batch, m, k groups], sfb [groups, n blocks (or n: SFB_ROWS), k groups] FP32, or words of four UE8M0
 *   (SFA_PACKED, SFB_PACKED)
 *
 * What is multiplied with what, gemm_groups.h tells. A block takes tiles of 64 x 64 of D; a thread computes 4 x 4 of
 * one. K goes by in steps of 32: while a step is
 * multiplied from shared memory, where it lies as FP32 and K-major columns, the next one's bytes are on their way to
 * registers. Four steps make a group; its sums are then scaled into the accumulators.
 *
 * Operation for operation this is src/cpu/ref/gemm.c, and the results are the same bits (NaN apart): products are exact
 * in FP32, sums go in the order of k, and zeros stand for what lies outside the matrices.
 */
#include "config.h"

#if !defined(D_TYPE) || !defined(HAS_C) || !defined(SFA_PACKED) || !defined(SFB_PACKED) || !defined(SFB_ROWS)
#error "config.h is incomplete"
#endif

#include "common/num.h"
#include "shared/gemm_args.h"

#define TILE 64 /* rows and columns of D; divides 128, so that a tile lies in one block of B's scales */
#define STEP 32 /* k; divides SCALE_GROUP */
#define THREADS 256
#define BLOCKS_PER_SM 2
#define OWN 4                         /* rows and columns of a thread */
#define LOADS (TILE * STEP / THREADS) /* bytes that a thread brings of each operand */
#define PITCH (TILE + 4)              /* floats: loads of four stay aligned, and stores miss each other's banks */

struct smem {
    float a[STEP][PITCH], b[STEP][PITCH];
};

/* A tile: its first row and column in the span, which tells the rest. */
struct place {
    struct gemm_span span;
    int64_t m, n;
};

/* ---- Operands ------------------------------------------------------------------------------------------------ */

/*
 * What a thread brings of an operand: eight of each step's 64 rows x 32 k. Where rows are contiguous, a warp reads 32
 * of them at one k, and a thread's elements are four k apart; else it reads 8 k of each of 4 rows (whose stores into
 * the columns of shared memory fall into 32 banks), and a thread's elements are eight rows apart.
 */
struct operand {
    const uint8_t *next; /* the thread's first byte of the next step */
    int64_t stride;      /* from one of its bytes to the next, within a step */
    int32_t row, k;      /* its first element in a step */
    int32_t rows_left;   /* that exist from its first row on, 64 or more counting as 64 */
    int32_t rows_contiguous;
};

DEVICE_FN int32_t at_most_tile(int64_t count)
{
    return (int32_t)(count < TILE ? count : TILE);
}

/* The part of an operand of `rows` rows that holds the span's K. */
DEVICE_FN struct strided part_of_k(const struct strided *x, const struct gemm_span *span, int flat, int64_t rows)
{
    struct strided part = *x;
    part.data += (uint64_t)(span->k_begin * (flat ? rows : x->col_stride));
    if (flat)
        part.row_stride = span->k;
    return part;
}

DEVICE_FN struct operand operand_of(const struct strided *x, int64_t batch, int64_t first_row, int64_t rows)
{
    const int32_t thread = (int32_t)thread_index();
    struct operand o;
    o.rows_contiguous = x->row_stride == 1 && x->col_stride != 1;
    o.row = o.rows_contiguous ? thread % TILE : thread % 4 + thread / 128 * 4;
    o.k = o.rows_contiguous ? thread / TILE : thread / 4 % STEP;
    o.stride = o.rows_contiguous ? THREADS / TILE * x->col_stride : THREADS / STEP * x->row_stride;
    o.rows_left = at_most_tile(rows - first_row - o.row);
    o.next = (const uint8_t *)x->data + strided_offset(x, batch, first_row + o.row, o.k);
    return o;
}

/* The codes of the next step, of which `k_left` columns exist; zeros beyond. */
DEVICE_FN void load_step(struct operand *o, int64_t col_stride, int32_t k_left, uint8_t *codes)
{
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int row = o->rows_contiguous ? 0 : i * (THREADS / STEP),
                  k = o->rows_contiguous ? i * (THREADS / TILE) : 0;
        codes[i] = row < o->rows_left && o->k + k < k_left ? o->next[i * o->stride] : 0;
    }
    o->next += STEP * col_stride;
}

DEVICE_FN void stage_step(const struct operand *o, const uint8_t *codes, float (*column)[PITCH])
{
    float *first = &column[o->k][o->row];
    if (o->rows_contiguous) {
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            first[i * (THREADS / TILE) * PITCH] = e4m3_to_float(codes[i]);
    } else {
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            first[i * (THREADS / STEP)] = e4m3_to_float(codes[i]);
    }
}

/* ---- Sums ---------------------------------------------------------------------------------------------------- */

/* The thread's rows of the tile start at own_row(), its columns at own_col(). */
DEVICE_FN int32_t own_row(void)
{
    return (int32_t)(thread_index() / (TILE / OWN)) * OWN;
}

DEVICE_FN int32_t own_col(void)
{
    return (int32_t)(thread_index() % (TILE / OWN)) * OWN;
}

DEVICE_FN void multiply_step(const struct smem *smem, float (*partial)[OWN])
{
#pragma unroll 8
    for (int k = 0; k < STEP; ++k) {
        const struct floats4 a = *(const struct floats4 *)&smem->a[k][own_row()];
        const struct floats4 b = *(const struct floats4 *)&smem->b[k][own_col()];
#pragma unroll
        for (int i = 0; i < OWN * OWN; ++i)
            partial[i / OWN][i % OWN] = multiply_add(a.x[i / OWN], b.x[i % OWN], partial[i / OWN][i % OWN]);
    }
}

DEVICE_FN float load_scale(const struct strided *sf, int packed, int64_t batch, int64_t row, int64_t group)
{
    const uint32_t *words = (const uint32_t *)sf->data;
    return scale_value(words[strided_offset(sf, batch, row, packed ? group / 4 : group)], packed, (int32_t)(group % 4));
}

DEVICE_FN void scale_group(const struct gemm_simple_args *args, const struct place *at, int64_t group,
                           float (*partial)[OWN], float (*accumulator)[OWN])
{
    float scale_b[OWN];
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        const int64_t col = at->n + own_col() + j;
        scale_b[j] = SFB_ROWS && col >= args->n ? 0.0f
                                                : load_scale(&args->sfb, SFB_PACKED, at->span.group,
                                                             SFB_ROWS ? col : at->n / SCALE_GROUP, group);
    }
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int64_t row = at->m + own_row() + i;
        const float scale_a =
            row < at->span.end ? load_scale(&args->sfa, SFA_PACKED, at->span.batch, row, group) : 0.0f;
#pragma unroll
        for (int j = 0; j < OWN; ++j) {
            accumulator[i][j] = multiply_add(scale_a * scale_b[j], partial[i][j], accumulator[i][j]);
            partial[i][j] = 0.0f;
        }
    }
}

/* ---- Output -------------------------------------------------------------------------------------------------- */

DEVICE_FN float load_output(const struct strided *x, int64_t offset)
{
#if D_TYPE == TYPE_FLOAT32
    return ((const float *)x->data)[offset];
#elif D_TYPE == TYPE_BFLOAT16
    return bf16_to_float(((const uint16_t *)x->data)[offset]);
#else
    return fp16_to_float(((const uint16_t *)x->data)[offset]);
#endif
}

DEVICE_FN void store_output(const struct strided *x, int64_t offset, float value)
{
#if D_TYPE == TYPE_FLOAT32
    ((float *)x->data)[offset] = value;
#elif D_TYPE == TYPE_BFLOAT16
    ((uint16_t *)x->data)[offset] = float_to_bf16(value);
#else
    ((uint16_t *)x->data)[offset] = float_to_fp16(value);
#endif
}

DEVICE_FN void store_tile(const struct gemm_simple_args *args, const struct place *at, float (*accumulator)[OWN])
{
#pragma unroll
    for (int i = 0; i < OWN * OWN; ++i) {
        const int64_t row = at->m + own_row() + i / OWN, col = at->n + own_col() + i % OWN;
        if (row < at->span.zero_end && col < args->n) {
            float value = row < at->span.end ? accumulator[i / OWN][i % OWN] : 0.0f;
            if (HAS_C && row < at->span.end)
                value += load_output(&args->c, strided_offset(&args->c, at->span.batch, row, col));
            store_output(&args->out, strided_offset(&args->out, at->span.batch, row, col), value);
        }
    }
}

/* ---- The kernel ---------------------------------------------------------------------------------------------- */

DEVICE_FN void compute_tile(const struct gemm_simple_args *args, const struct place *at, struct smem *smem)
{
    float accumulator[OWN][OWN] = {{0}}, partial[OWN][OWN] = {{0}};
    const struct strided a_part = part_of_k(&args->a, &at->span, args->a_flat, args->groups.rows);
    const struct strided b_part = part_of_k(&args->b, &at->span, args->b_flat, args->n);
    struct operand a = operand_of(&a_part, at->span.batch, at->m, at->span.end);
    struct operand b = operand_of(&b_part, at->span.group, at->n, args->n);
    const int64_t depth = at->span.k;
    uint8_t a_codes[LOADS], b_codes[LOADS];
    load_step(&a, a_part.col_stride, at_most_tile(depth), a_codes);
    load_step(&b, b_part.col_stride, at_most_tile(depth), b_codes);
    for (int64_t k = 0; k < depth; k += STEP) {
        stage_step(&a, a_codes, smem->a);
        stage_step(&b, b_codes, smem->b);
        block_barrier();
        load_step(&a, a_part.col_stride, at_most_tile(depth - k - STEP), a_codes);
        load_step(&b, b_part.col_stride, at_most_tile(depth - k - STEP), b_codes);
        multiply_step(smem, partial);
        if ((k + STEP) % SCALE_GROUP == 0 || k + STEP >= depth)
            scale_group(args, at, at->span.k_block + k / SCALE_GROUP, partial, accumulator);
        block_barrier();
    }
    store_tile(args, at, accumulator);
}

KERNEL_BLOCKS(gemm_simple, THREADS, BLOCKS_PER_SM, struct gemm_simple_args)
{
    SHARED(struct smem, smem);
    grid_dependency_launch(); /* the next kernel may come: it waits for this one, and this for the one before */
    grid_dependency_wait();
    const int64_t n_tiles = (args.n + TILE - 1) / TILE;
    struct gemm_cursor cursor = gemm_cursor_begin(&args.groups);
    for (int64_t tile = block_index(); gemm_cursor_seek(&args.groups, &cursor, tile, TILE, n_tiles);
         tile += grid_size()) {
        struct place at;
        at.span = cursor.span;
        at.m = cursor.span.row + (tile - cursor.before) / n_tiles * TILE;
        at.n = (tile - cursor.before) % n_tiles * TILE;
        compute_tile(&args, &at, &smem);
    }
}
