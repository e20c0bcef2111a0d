/*
 * store.h - from wgmma's accumulator fragments to D.
 *
 * A warpgroup's m64nN accumulator: lane l of warp w holds rows 16w + l/4 and 8 below, in columns 8j + 2(l%4) and the
 * next; acc[4j], acc[4j+1] are the upper row's, acc[4j+2], acc[4j+3] the lower row's.
 */
#ifndef COMMON_STORE_H
#define COMMON_STORE_H

#include "common/layout.h"
#include "common/num.h"

#if D_TYPE == TYPE_FLOAT32
typedef float d_element;
#else
typedef uint16_t d_element;
#endif

DEVICE_FN float d_to_float(d_element bits)
{
#if D_TYPE == TYPE_FLOAT32
    return bits;
#elif D_TYPE == TYPE_BFLOAT16
    return bf16_to_float(bits);
#else
    return fp16_to_float(bits);
#endif
}

DEVICE_FN d_element float_to_d(float value)
{
#if D_TYPE == TYPE_FLOAT32
    return value;
#elif D_TYPE == TYPE_BFLOAT16
    return float_to_bf16(value);
#else
    return float_to_fp16(value);
#endif
}

/* Two neighbouring columns as one word (16-bit types). */
DEVICE_FN uint32_t pack_d(float low, float high)
{
#if D_TYPE == TYPE_BFLOAT16
    return convert_to_bf16x2(low, high);
#else
    return convert_to_fp16x2(low, high);
#endif
}

/* Four neighbours at once, where D is aligned for it. */
DEVICE_FN void store_d4(d_element *d, const float *x)
{
#if D_TYPE == TYPE_FLOAT32
    struct floats4 four;
    for (int i = 0; i < 4; ++i)
        four.x[i] = x[i];
    *(struct floats4 *)d = four;
#else
    struct words2 four;
    four.word[0] = pack_d(x[0], x[1]);
    four.word[1] = pack_d(x[2], x[3]);
    *(struct words2 *)d = four;
#endif
}

/*
 * `cols` columns of a fragment, from column `first` on, into a staging buffer of 64 rows of `cols` elements, swizzled
 * as TMA stores it; the caller fences and stores. cols is a multiple of 16 (8 for FP32).
 */
DEVICE_FN void stage_fragment(uint8_t *buffer, const float *acc, int first, int cols)
{
    const uint32_t lane = lane_index(), warp_row = thread_index() / 32 % 4 * 16;
#if D_TYPE == TYPE_FLOAT32
    const uint32_t row_bytes = (uint32_t)cols * 4, row = warp_row + lane / 4;
#pragma unroll
    for (int j = 0; j < cols / 8; ++j) {
        const float *v = acc + (first / 8 + j) * 4;
        const uint32_t byte = (uint32_t)j * 32 + lane % 4 * 8;
        store_smem_f32x2(buffer + tma_swizzled(row, byte, row_bytes), v[0], v[1]);
        store_smem_f32x2(buffer + tma_swizzled(row + 8, byte, row_bytes), v[2], v[3]);
    }
#else
    /* Matrices 0 and 1 of a store are the upper and lower eight rows of columns 8j, 2 and 3 those of 8j + 8. */
    const uint32_t row_bytes = (uint32_t)cols * 2, row = warp_row + lane % 16;
#pragma unroll
    for (int j = 0; j < cols / 8; j += 2) {
        const float *v = acc + (first / 8 + j) * 4;
        const uint32_t byte = (uint32_t)j * 16 + lane / 16 * 16;
        store_smem_matrices(buffer + tma_swizzled(row, byte, row_bytes), pack_d(v[0], v[1]), pack_d(v[2], v[3]),
                            pack_d(v[4], v[5]), pack_d(v[6], v[7]));
    }
#endif
}

/* Where the two rows of a thread's fragment start in a row-major matrix; `limit` rows and columns exist. */
struct fragment_rows {
    d_element *row[2];
    int exists[2];
    int32_t cols_left; /* from the tile's first column on; those beyond do not exist */
    int32_t col;       /* the thread's first column within the tile */
};

DEVICE_FN struct fragment_rows fragment_rows_of(const struct strided *matrix, int32_t batch, int32_t row0, int32_t col0,
                                                int32_t rows, int32_t cols)
{
    struct fragment_rows f;
    const int32_t row = row0 + (int32_t)(thread_index() / 32 % 4 * 16 + lane_index() / 4);
    d_element *start = (d_element *)matrix->data + batch * matrix->batch_stride + col0;
    f.row[0] = start + row * matrix->row_stride;
    f.row[1] = start + (row + 8) * matrix->row_stride;
    f.exists[0] = row < rows;
    f.exists[1] = row + 8 < rows;
    f.cols_left = cols - col0;
    f.col = (int32_t)(lane_index() % 4 * 2);
    return f;
}

/* acc += the matrix. */
DEVICE_FN void add_fragment(const struct fragment_rows *f, float *acc, int cols)
{
#pragma unroll
    for (int i = 0; i < cols / 2; ++i) {
        const int32_t col = i / 4 * 8 + f->col + i % 2;
        if (f->exists[i / 2 % 2] && col < f->cols_left)
            acc[i] += d_to_float(f->row[i / 2 % 2][col]);
    }
}

/* The matrix = acc, element by element: for every stride that TMA cannot store. */
DEVICE_FN void store_fragment(const struct fragment_rows *f, const float *acc, int cols)
{
#pragma unroll
    for (int i = 0; i < cols / 2; ++i) {
        const int32_t col = i / 4 * 8 + f->col + i % 2;
        if (f->exists[i / 2 % 2] && col < f->cols_left)
            f->row[i / 2 % 2][col] = float_to_d(acc[i]);
    }
}

/* Two neighbouring columns at once, where rows begin at multiples of eight bytes and N is even. */
DEVICE_FN void store_d2(d_element *d, float low, float high)
{
#if D_TYPE == TYPE_FLOAT32
    struct floats2 two;
    two.x[0] = low;
    two.x[1] = high;
    *(struct floats2 *)d = two;
#else
    *(uint32_t *)d = pack_d(low, high);
#endif
}

/* store_fragment for such a matrix. */
DEVICE_FN void store_fragment_pairs(const struct fragment_rows *f, const float *acc, int cols)
{
#pragma unroll
    for (int i = 0; i < cols / 2; i += 2) {
        const int32_t col = i / 4 * 8 + f->col;
        if (f->exists[i / 2 % 2] && col < f->cols_left)
            store_d2(f->row[i / 2 % 2] + col, acc[i], acc[i + 1]);
    }
}

#endif
