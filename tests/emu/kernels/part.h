/*
 * What the kernels of this folder share with case_part.c. Each file tests one part of the emulation by functions of
 * which one, VARIANT, is compiled into a kernel, PART; parts.def says what must come of it.
 */
#ifndef PART_H
#define PART_H

#include "shared/base.h"

enum { PART_ROWS = 64, PART_COLS = 64 };

/* in and out: 64 x 64 FP32, row-major; in[r][c] = 64 r + c; out is zero. Boxes of eight rows, of as many bytes as they
   are swizzled by; `plain`: 8 x 32, no swizzling. */
struct part_args {
    struct tensor_map in128, in64, in32, plain;
    struct tensor_map out128;
    struct tensor_map edited; /* like `plain`; the kernel may edit the copy in global memory, at `map` */
    uint64_t in, out, map;
};

#ifdef __cplusplus
#include "common/layout.h"
#include "common/more.h"

#define SMEM (dynamic_smem())
#define WORD(i) ((uint32_t *)dynamic_smem() + (i))
#define BARRIER ((uint64_t *)(dynamic_smem() + 8192))
#define EXPECT(condition) emu_expect(condition, #condition)

/* BARRIER is there for all threads of the block, or the cluster. */
DEVICE_FN void begin_barrier(uint32_t arrivals)
{
    if (thread_index() == 0) {
        mbarrier_init(BARRIER, arrivals);
        mbarrier_init_fence();
    }
    block_barrier();
}
#endif

#endif
