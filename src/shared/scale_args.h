/* scale_args.h - the one argument of each kernel about scales: filled by src/ops, read by the kernel of its name. */
#ifndef SHARED_SCALE_ARGS_H
#define SHARED_SCALE_ARGS_H

#include "shared/base.h"

/* kernels/any/quantize_fp8.cu. A block takes a tile of 128 x 128 elements at a time. */
#define QUANTIZE_TILE 128
#define QUANTIZE_THREADS 256

/* How packed scales lie: four groups that are neighbours along the columns, or along the rows, share a word. */
#define PACK_NONE 0
#define PACK_ALONG_COLS 1
#define PACK_ALONG_ROWS 2

/*
 * Rows and columns are M and K, or K and M: "columns" is the dimension in which x is contiguous. A matrix of scales has
 * a row for each row of groups and a column for each column of groups, or a quarter of these in the packed dimension.
 */
struct quantize_args {
    struct strided x, q, sf;
    int64_t batch, rows, cols;
};

/* kernels/any/transform_scale.cu. A block takes a tile of 32 rows x 32 k groups at a time. */
#define TRANSFORM_TILE 32
#define TRANSFORM_THREADS 256

struct transform_scale_args {
    struct strided src, dst;
    int64_t batch, rows, k_groups; /* of the unpacked side */
};

#endif
