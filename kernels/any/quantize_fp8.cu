/*
 * quantize_fp8 - x (FP32, FP16, BF16) to FP8 E4M3 with a scale for each group of elements; dg_quantize_fp8 on a GPU.
 *
 *   x, q   [batch, rows, cols], any strides; sf [batch, row groups, column groups], FP32 or packed UE8M0, any strides
 *   group  1 x 128 (of rows x columns), 128 x 128 or 128 x 1
 *
 * Rows and columns may be M and K or the reverse: the host calls columns what x is contiguous in. A block takes tiles
 * of 128 x 128; a thread holds eight chunks of the tile in registers, each eight neighbouring columns of a row, so that
 * x is read once, with up to 128 KB in flight on each SM:
 *
 *     16 threads side by side make a row of the tile; chunk c of thread t is in row t / 16 + 16 c
 *
 * Memory limits it: a thread spends about nine instructions on an element, and an H200 has time for some twenty. Hence
 * maxima are found in packed words, and with 1 x 128 groups each lane divides for one row only and tells the others.
 *
 * The bits are those of src/cpu/ref/quantize.c. What must stay: the divisions, rounded correctly; maxima of bits, which
 * keep NaN; and the plain conversion for groups with NaN or infinity, where the hardware's would saturate.
 */
#include "config.h"

#if !defined(X_TYPE) || !defined(GROUP_ROWS) || !defined(GROUP_COLS) || !defined(ROUND_SCALE) || !defined(PACK) ||     \
    !defined(X_VECTOR) || !defined(Q_VECTOR)
#error "config.h is incomplete"
#endif

#include "common/num.h"
#include "shared/scale_args.h"

#define X_BYTES (X_TYPE == TYPE_FLOAT32 ? 4 : 2)
#define CHUNK 8 /* elements */
#define CHUNK_WORDS (CHUNK * X_BYTES / 4)
#define ROW_THREADS (QUANTIZE_TILE / CHUNK)       /* side by side */
#define ROW_STEP (QUANTIZE_THREADS / ROW_THREADS) /* rows from one chunk of a thread to its next */
#define CHUNKS (QUANTIZE_TILE / ROW_STEP)         /* of a thread */
#define WARPS (QUANTIZE_THREADS / 32)

/* As many as leave enough registers; four have 128 KB of x in flight. */
#if X_TYPE == TYPE_FLOAT32
#define BLOCKS_PER_SM (X_VECTOR ? 2 : 1)
#else
#define BLOCKS_PER_SM (!X_VECTOR || !Q_VECTOR ? 2 : GROUP_ROWS == 1 ? 4 : 3)
#endif

/* The scales that a thread's elements need: one a chunk, one a column of its chunks, or one. */
#if GROUP_ROWS == 1
#define SCALES CHUNKS
#define SCALE_INDEX(chunk, col) (chunk)
#elif GROUP_COLS == 1
#define SCALES CHUNK
#define SCALE_INDEX(chunk, col) (col)
#else
#define SCALES 1
#define SCALE_INDEX(chunk, col) 0
#endif

struct chunk {
    uint32_t words[CHUNK_WORDS];
};

/* Where a thread's first chunk is, and how much of the matrix there is from there. */
struct place {
    int64_t batch, row, col;
    int32_t rows_left, cols_left;
};

/* Maxima of 16 threads side by side, from each warp. */
struct smem {
    uint32_t maxima[WARPS][ROW_THREADS * CHUNK_WORDS];
};

DEVICE_FN int32_t left_of(int64_t size, int64_t position)
{
    return (int32_t)(size - position < QUANTIZE_TILE ? size - position : QUANTIZE_TILE);
}

DEVICE_FN struct place place_of(const struct quantize_args *args, int64_t tile)
{
    const int64_t row_tiles = (args->rows + QUANTIZE_TILE - 1) / QUANTIZE_TILE;
    const int64_t col_tiles = (args->cols + QUANTIZE_TILE - 1) / QUANTIZE_TILE;
    const int64_t tile_row = tile / col_tiles;
    struct place at;
    at.batch = tile_row / row_tiles;
    at.row = (tile_row - at.batch * row_tiles) * QUANTIZE_TILE + thread_index() / ROW_THREADS;
    at.col = (tile - tile_row * col_tiles) * QUANTIZE_TILE + thread_index() % ROW_THREADS * CHUNK;
    at.rows_left = left_of(args->rows, at.row);
    at.cols_left = left_of(args->cols, at.col);
    return at;
}

/* ---- Elements ------------------------------------------------------------------------------------------------ */

DEVICE_FN void load_chunk(const uint8_t *x, int64_t col_stride, int32_t cols_left, struct chunk *chunk)
{
#pragma unroll
    for (int i = 0; i < CHUNK_WORDS; ++i)
        chunk->words[i] = 0;
#if X_VECTOR
#pragma unroll
    for (int i = 0; i < CHUNK_WORDS; i += 4)
        load_once_16(x + 4 * i, chunk->words + i);
#else
#pragma unroll
    for (int i = 0; i < CHUNK; ++i)
        if (i < cols_left) {
#if X_TYPE == TYPE_FLOAT32
            chunk->words[i] = ((const uint32_t *)x)[i * col_stride];
#else
            chunk->words[i / 2] |= (uint32_t)((const uint16_t *)x)[i * col_stride] << (16 * (i % 2));
#endif
        }
#endif
}

/*
 * The eight chunks of a thread, all loads before the first use. X_VECTOR promises that columns come in whole chunks
 * aligned to 16 bytes. Rows beyond the last are loaded as the last, columns as the last eight or as zeros: neither
 * changes a maximum that counts, and loads without conditions stay together.
 */
DEVICE_FN void load_tile(const struct quantize_args *args, const struct place *at, struct chunk *chunks)
{
    const int32_t last_row = at->rows_left - 1, shift = X_VECTOR && at->cols_left < CHUNK ? at->cols_left - CHUNK : 0;
    const uint8_t *x =
        (const uint8_t *)args->x.data + strided_offset(&args->x, at->batch, at->row, at->col + shift) * X_BYTES;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int32_t row = c * ROW_STEP < last_row ? c * ROW_STEP : last_row;
        load_chunk(x + row * args->x.row_stride * X_BYTES, args->x.col_stride, at->cols_left, &chunks[c]);
    }
}

DEVICE_FN float chunk_value(const struct chunk *chunk, int i)
{
#if X_TYPE == TYPE_FLOAT32
    return bits_float(chunk->words[i]);
#elif X_TYPE == TYPE_BFLOAT16
    return bf16_to_float((uint16_t)(chunk->words[i / 2] >> (16 * (i % 2))));
#else
    return fp16_to_float((uint16_t)(chunk->words[i / 2] >> (16 * (i % 2))));
#endif
}

/* Codes of one chunk, eight bytes in two words; Q_VECTOR promises what X_VECTOR does, for 8 bytes. */
DEVICE_FN void store_chunk(uint8_t *q, int64_t col_stride, int32_t cols_left, const struct words2 *codes)
{
#if Q_VECTOR
    if (cols_left > 0)
        *(struct words2 *)q = *codes;
#else
#pragma unroll
    for (int i = 0; i < CHUNK; ++i)
        if (i < cols_left)
            q[i * col_stride] = (uint8_t)(codes->word[i / 4] >> (8 * (i % 4)));
#endif
}

/* ---- Scales -------------------------------------------------------------------------------------------------- */

/* From the bits of the largest magnitude. */
DEVICE_FN float scale_of(uint32_t amax)
{
    const float scale = bits_float(max_bits(amax, float_bits(1e-4f))) * (1.0f / 448.0f);
#if ROUND_SCALE
    return bits_float(round_up_to_ue8m0(scale) << 23);
#else
    return amax > FLOAT_INFINITY_BITS ? bits_float(FLOAT_NAN_BITS) : scale;
#endif
}

/*
 * Whether 1 / scale belongs to a group of numbers: these have scales below 2^121. A NaN or an infinity in the group
 * makes the scale NaN, infinite, or 2^127 when rounded, whose inverses are NaN, zero and a denormal.
 */
DEVICE_FN int is_ordinary(float inverse)
{
    return inverse >= bits_float(1u << 23);
}

/* Packed, each group's byte is stored on its own; the last group also clears the bytes that no group has. */
DEVICE_FN void store_scale(const struct quantize_args *args, int64_t batch, int64_t row, int64_t col, float scale)
{
#if PACK == PACK_NONE
    ((float *)args->sf.data)[strided_offset(&args->sf, batch, row, col)] = scale;
#else
#if PACK == PACK_ALONG_COLS
    const int64_t groups = (args->cols + GROUP_COLS - 1) / GROUP_COLS, group = col;
    const int64_t offset = strided_offset(&args->sf, batch, row, col / 4);
#else
    const int64_t groups = (args->rows + GROUP_ROWS - 1) / GROUP_ROWS, group = row;
    const int64_t offset = strided_offset(&args->sf, batch, row / 4, col);
#endif
    uint8_t *word = (uint8_t *)args->sf.data + 4 * offset;
    const int byte = (int)(group % 4);
    word[byte] = (uint8_t)(float_bits(scale) >> 23);
    if (group == groups - 1)
        for (int i = byte + 1; i < 4; ++i)
            word[i] = 0;
#endif
}

/* ---- Maxima: magnitudes as bits, one (FP32) or two in a word -------------------------------------------------- */

#define MAGNITUDES (X_TYPE == TYPE_FLOAT32 ? 0x7fffffffu : 0x7fff7fffu)
#define WORD_ELEMENTS (4 / X_BYTES)

DEVICE_FN uint32_t max_words(uint32_t x, uint32_t y)
{
#if X_TYPE == TYPE_FLOAT32
    return max_bits(x, y);
#else
    return max_bits_16x2(x, y);
#endif
}

/* The bits, as a float, of magnitude i of a word. */
DEVICE_FN uint32_t widen_magnitude(uint32_t word, int i)
{
#if X_TYPE == TYPE_FLOAT32
    return word;
#elif X_TYPE == TYPE_BFLOAT16
    return i == 0 ? word << 16 : word & 0xffff0000u;
#else
    return float_bits(fp16_to_float((uint16_t)(word >> (16 * i))));
#endif
}

#if GROUP_COLS != 1
/* The largest of a word's. */
DEVICE_FN uint32_t widen_largest(uint32_t word)
{
    return max_bits(widen_magnitude(word, 0), widen_magnitude(word, WORD_ELEMENTS - 1));
}
#endif

#if GROUP_ROWS == 1

/*
 * A group is a row of the tile, and sixteen lanes hold eight rows. In three exchanges each lane gives away half of the
 * rows it has maxima of and takes a partner's maxima of the others; a fourth makes the two lanes of a row agree. Lane
 * l is then left with row l % 16 / 2, in rows[0].
 */
DEVICE_FN uint32_t row_maximum(uint32_t *rows)
{
#pragma unroll
    for (int half = CHUNKS / 2; half > 0; half /= 2) {
        const int upper = (lane_index() & (2 * half)) != 0;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const uint32_t kept = upper ? rows[i + half] : rows[i], given = upper ? rows[i] : rows[i + half];
            rows[i] = max_bits(kept, exchange_xor(given, 2 * half));
        }
    }
    return max_bits(rows[0], exchange_xor(rows[0], 1));
}

DEVICE_FN void find_scales(const struct quantize_args *args, const struct place *at, const struct chunk *chunks,
                           float *inverse)
{
    uint32_t rows[CHUNKS];
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < CHUNK_WORDS; ++i)
            word = max_words(word, chunks[c].words[i] & MAGNITUDES);
        rows[c] = widen_largest(word);
    }
    const float scale = scale_of(row_maximum(rows));
    const float own_inverse = divide(1.0f, scale);
    const int own = (int)(lane_index() % ROW_THREADS / 2) * ROW_STEP;
    if (lane_index() % 2 == 0 && own < at->rows_left)
        store_scale(args, at->batch, at->row + own, at->col / GROUP_COLS, scale);
#pragma unroll
    for (uint32_t c = 0; c < CHUNKS; ++c)
        inverse[c] =
            bits_float(exchange_from(float_bits(own_inverse), lane_index() / ROW_THREADS * ROW_THREADS + 2 * c));
}

#else

/* Maxima over all rows of the tile: words[i] of those in word i of a thread's chunks. */
DEVICE_FN void column_maxima(const struct chunk *chunks, uint32_t *words)
{
    SHARED(struct smem, smem);
    const uint32_t first = thread_index() % ROW_THREADS * CHUNK_WORDS;
#pragma unroll
    for (int i = 0; i < CHUNK_WORDS; ++i) {
        words[i] = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c)
            words[i] = max_words(words[i], chunks[c].words[i] & MAGNITUDES);
        words[i] = max_words(words[i], exchange_xor(words[i], ROW_THREADS));
    }
    block_barrier(); /* what the tile before left has been read */
#pragma unroll
    for (int i = 0; i < CHUNK_WORDS; ++i)
        if (lane_index() < ROW_THREADS)
            smem.maxima[thread_index() / 32][first + i] = words[i];
    block_barrier();
#pragma unroll 1
    for (int warp = 0; warp < WARPS; ++warp)
#pragma unroll
        for (int i = 0; i < CHUNK_WORDS; ++i)
            words[i] = max_words(words[i], smem.maxima[warp][first + i]);
}

/* The magnitudes that the scales follow from, as bits of floats. */
DEVICE_FN void group_maxima(const struct chunk *chunks, uint32_t *amax)
{
    uint32_t words[CHUNK_WORDS];
    column_maxima(chunks, words);
#if GROUP_COLS == 1
#pragma unroll
    for (int i = 0; i < CHUNK; ++i)
        amax[i] = widen_magnitude(words[i / WORD_ELEMENTS], i % WORD_ELEMENTS);
#else
#pragma unroll
    for (int i = 1; i < CHUNK_WORDS; ++i)
        words[0] = max_words(words[0], words[i]);
    amax[0] = widen_largest(words[0]);
#pragma unroll
    for (int mask = 1; mask < ROW_THREADS; mask *= 2)
        amax[0] = max_bits(amax[0], exchange_xor(amax[0], mask));
#endif
}

DEVICE_FN void find_scales(const struct quantize_args *args, const struct place *at, const struct chunk *chunks,
                           float *inverse)
{
    uint32_t amax[SCALES];
    const int stores = thread_index() < (GROUP_COLS == 1 ? ROW_THREADS : 1);
    group_maxima(chunks, amax);
#pragma unroll
    for (int i = 0; i < SCALES; ++i) {
        const float scale = scale_of(amax[i]);
        inverse[i] = divide(1.0f, scale);
        if (stores && i < at->cols_left)
            store_scale(args, at->batch, at->row / GROUP_ROWS, at->col / GROUP_COLS + i, scale);
    }
}

#endif

/* ---- Codes --------------------------------------------------------------------------------------------------- */

DEVICE_FN struct words2 encode_chunk(const struct chunk *chunk, int index, const float *inverse, int ordinary)
{
    struct words2 codes;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float v[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            v[j] = chunk_value(chunk, 4 * i + j) * inverse[SCALE_INDEX(index, 4 * i + j)];
        codes.word[i] = ordinary ? pack_e4m3_in_range(v[0], v[1], v[2], v[3]) : pack_e4m3(v[0], v[1], v[2], v[3]);
    }
    return codes;
}

DEVICE_FN void store_tile(const struct quantize_args *args, const struct place *at, const struct chunk *chunks,
                          const float *inverse, int ordinary)
{
    uint8_t *q = (uint8_t *)args->q.data + strided_offset(&args->q, at->batch, at->row, at->col);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const struct words2 codes = encode_chunk(&chunks[c], c, inverse, ordinary);
        store_chunk(q + c * ROW_STEP * args->q.row_stride, args->q.col_stride,
                    c * ROW_STEP < at->rows_left ? at->cols_left : 0, &codes);
    }
}

KERNEL_BLOCKS(quantize_fp8, QUANTIZE_THREADS, BLOCKS_PER_SM, struct quantize_args)
{
    grid_dependency_launch(); /* the next kernel may come: it waits for this one, and this for the one before */
    grid_dependency_wait();
    const int64_t row_tiles = (args.rows + QUANTIZE_TILE - 1) / QUANTIZE_TILE;
    const int64_t col_tiles = (args.cols + QUANTIZE_TILE - 1) / QUANTIZE_TILE;
    for (int64_t tile = block_index(); tile < args.batch * row_tiles * col_tiles; tile += grid_size()) {
        const struct place at = place_of(&args, tile);
        struct chunk chunks[CHUNKS];
        float inverse[SCALES];
        int ordinary = 1;
        load_tile(&args, &at, chunks);
        find_scales(&args, &at, chunks, inverse);
#pragma unroll
        for (int i = 0; i < SCALES; ++i)
            ordinary = ordinary && is_ordinary(inverse[i]);
        if (ordinary)
            store_tile(&args, &at, chunks, inverse, 1);
        else
            store_tile(&args, &at, chunks, inverse, 0);
    }
}
