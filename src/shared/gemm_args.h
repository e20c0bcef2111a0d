/* gemm_args.h - the one argument of each GEMM kernel: filled by src/ops, read by the kernel of the same name. */
#ifndef SHARED_GEMM_ARGS_H
#define SHARED_GEMM_ARGS_H

#include "shared/base.h"
#include "shared/gemm_groups.h"
#include "shared/gemm_sched.h"

/* kernels/sm90/fp8_gemm_1d2d.cu. Strides count elements (scales: 4-byte words). */
struct gemm_1d2d_args {
    struct tensor_map a, b;
    struct tensor_map d;      /* with TMA_STORE */
    struct tensor_map scales; /* A's, columns of BLOCK_M words, with SFA_TMA */
    struct strided sfa, sfb;  /* rows: m (or blocks of n), cols: k groups (or words of four) */
    struct strided c, out;    /* col_stride is 1; `out` is D for the direct store */
    struct gemm_sched sched;
    int32_t m, n;
    int32_t k_blocks;    /* ceil(K / 128) */
    uint32_t load_bytes; /* what one stage's TMA boxes bring into one block; with a_box_rows without A's */
    int32_t b_early;     /* B may be loaded while the kernel before still runs */
    int32_t b_once;      /* few tiles share a tile of B, so it need not stay in the L2 cache */
    /* Of grouped kinds, whose rows of tiles the device counts: */
    int32_t a_box_rows; /* of one load of A, which is as many as the tile's rows need; no multicast */
    struct gemm_groups groups;
};

/* kernels/sm90/fp8_gemm_skinny.cu. */
struct gemm_skinny_args {
    struct tensor_map a, b;
    struct tensor_map scales; /* A's, STEP columns of BLOCK_M words (packed: one), with SFA_TMA */
    struct strided sfa, sfb;  /* rows: m (or blocks of n), cols: k groups (or words of four) */
    struct strided c, out;    /* col_stride is 1 */
    int32_t m_tiles, n_tiles; /* of one batch entry */
    int32_t tiles;            /* of all batch entries */
    int32_t m, n;
    int32_t k_blocks;    /* ceil(K / 128) */
    uint32_t load_bytes; /* what one stage's TMA boxes bring */
    int32_t b_early;     /* B may be loaded while the kernel before still runs */
};

/* kernels/any/gemm_simple.cu: every layout there is. */
struct gemm_simple_args {
    struct strided a, b, sfa, sfb, c, out;
    struct gemm_groups groups;
    int64_t n;
    int32_t a_flat, b_flat; /* K groups, each a row-major matrix of its own */
};

#endif
