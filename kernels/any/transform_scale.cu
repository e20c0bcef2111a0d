/*
 * transform_scale - scales from one layout and type to another; dg_transform_scale on a GPU.
 *
 *   src, dst  [batch, rows, k groups] FP32, or [batch, rows, ceil(k groups / 4)] words of four UE8M0; any strides
 *   SRC_PACKED, DST_PACKED  which of the two is packed, not both; none: FP32 is copied bit by bit
 *   ROUND_SCALE  packing rounds up to powers of two; otherwise what is none becomes code 255, NaN
 *
 * A block moves tiles of 32 rows x 32 groups through shared memory, reading and writing along whichever dimension is
 * contiguous on each side. The row of 33 words keeps columns of the tile in different banks.
 */
#include "config.h"

#if !defined(SRC_PACKED) || !defined(DST_PACKED) || !defined(ROUND_SCALE)
#error "config.h is incomplete"
#endif

#include "common/num.h"
#include "shared/scale_args.h"

#define TILE TRANSFORM_TILE
#define SRC_COLS (SRC_PACKED ? TILE / 4 : TILE) /* of a tile */
#define DST_COLS (DST_PACKED ? TILE / 4 : TILE)

/* For each group of the tile what dst will have: the bits of an FP32 number, or a code; zero where there is none. */
struct smem {
    uint32_t group[TILE][TILE + 1];
};

struct place {
    int64_t batch, row, col; /* col: k groups */
};

/* Element `index` of a tile of 32 rows and `cols` columns, taken along the rows' dimension or the columns'. */
struct cell {
    int32_t row, col;
};

DEVICE_FN struct cell cell_of(const struct strided *matrix, int index, int cols)
{
    const int down = matrix->row_stride < matrix->col_stride;
    struct cell cell;
    cell.row = down ? index % TILE : index / cols;
    cell.col = down ? index / TILE : index % cols;
    return cell;
}

DEVICE_FN uint32_t *word_at(const struct strided *matrix, int64_t batch, int64_t row, int64_t col)
{
    return (uint32_t *)matrix->data + strided_offset(matrix, batch, row, col);
}

#if !SRC_PACKED
/* What a group of an FP32 source becomes. */
DEVICE_FN uint32_t transformed(uint32_t bits)
{
#if !DST_PACKED
    return bits;
#elif ROUND_SCALE
    return round_up_to_ue8m0(bits_float(bits));
#else
    return float_to_ue8m0(bits_float(bits));
#endif
}
#endif

DEVICE_FN void load_tile(const struct transform_scale_args *args, const struct place *at, struct smem *smem)
{
    for (int i = (int)thread_index(); i < TILE * SRC_COLS; i += TRANSFORM_THREADS) {
        const struct cell cell = cell_of(&args->src, i, SRC_COLS);
        const int64_t row = at->row + cell.row;
#if SRC_PACKED
        const int64_t col = at->col / 4 + cell.col;
        const int exists = row < args->rows && 4 * col < args->k_groups;
        const uint32_t word = exists ? *word_at(&args->src, at->batch, row, col) : 0;
        for (int j = 0; j < 4; ++j)
            smem->group[cell.row][4 * cell.col + j] = ue8m0_to_float_bits(word >> (8 * j) & 0xff);
#else
        const int64_t col = at->col + cell.col;
        const int exists = row < args->rows && col < args->k_groups;
        smem->group[cell.row][cell.col] = exists ? transformed(*word_at(&args->src, at->batch, row, col)) : 0;
#endif
    }
}

DEVICE_FN void store_tile(const struct transform_scale_args *args, const struct place *at, const struct smem *smem)
{
    for (int i = (int)thread_index(); i < TILE * DST_COLS; i += TRANSFORM_THREADS) {
        const struct cell cell = cell_of(&args->dst, i, DST_COLS);
        const int64_t row = at->row + cell.row;
#if DST_PACKED
        const int64_t col = at->col / 4 + cell.col;
        const int exists = row < args->rows && 4 * col < args->k_groups;
        uint32_t word = 0;
        for (int j = 0; j < 4; ++j)
            word |= smem->group[cell.row][4 * cell.col + j] << (8 * j);
#else
        const int64_t col = at->col + cell.col;
        const int exists = row < args->rows && col < args->k_groups;
        const uint32_t word = smem->group[cell.row][cell.col];
#endif
        if (exists)
            *word_at(&args->dst, at->batch, row, col) = word;
    }
}

KERNEL(transform_scale, TRANSFORM_THREADS, struct transform_scale_args)
{
    SHARED(struct smem, smem);
    grid_dependency_launch(); /* the next kernel may come: it waits for this one, and this for the one before */
    grid_dependency_wait();
    const int64_t row_tiles = (args.rows + TILE - 1) / TILE, col_tiles = (args.k_groups + TILE - 1) / TILE;
    for (int64_t tile = block_index(); tile < args.batch * row_tiles * col_tiles; tile += grid_size()) {
        struct place at;
        at.batch = tile / (row_tiles * col_tiles);
        at.row = tile / col_tiles % row_tiles * TILE;
        at.col = tile % col_tiles * TILE;
        load_tile(&args, &at, &smem);
        block_barrier();
        store_tile(&args, &at, &smem);
        block_barrier();
    }
}
