/* Writes "wgmma.h": the wrapper of each wgmma shape that a kernel wants, and of no other. */
#ifndef JIT_WGMMA_TEXT_H
#define JIT_WGMMA_TEXT_H

#include "jit/jit.h"

/*
 * The header's text for `count` shapes, one function each (a shape that is listed twice is written once):
 *
 *     void wgmma_m64n192k32_e4m3(float *d, uint64_t desc_a, uint64_t desc_b, int accumulate)
 *     void wgmma_m64n192k32_e4m3_rs(float *d, const uint32_t *a, uint64_t desc_b, int accumulate)
 *
 * d[0..n/2) are the thread's accumulators, a[0..4) its fragment of A; with accumulate 0 d is overwritten. K is 32 for
 * e4m3, 16 for bf16, 8 for tf32: always 32 bytes. Both operands in shared memory are K-major. The same shapes give the
 * same text, byte by byte. The caller frees it.
 */
dg_status wgmma_text(const struct jit_wgmma *shapes, int32_t count, char **text);

#endif
