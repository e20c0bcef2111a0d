/* layout.h - where things lie in shared memory, as TMA and wgmma see it. Arithmetic only. */
#ifndef COMMON_LAYOUT_H
#define COMMON_LAYOUT_H

#include "common/ptx.h"

/* Byte `byte` of row `row` in a box stored with 128-, 64- or 32-byte swizzling (`row_bytes`): where TMA puts it. */
DEVICE_FN uint32_t tma_swizzled(uint32_t row, uint32_t byte, uint32_t row_bytes)
{
    /* 16-byte units are exchanged by the address bits just above a 128-byte line: row within 8 lines of 128 bytes. */
    const uint32_t offset = row * row_bytes + byte;
    const uint32_t units = row_bytes / 16;
    return offset ^ ((offset >> 7 & (units - 1)) << 4);
}

/*
 * "Matrix descriptor format": a tile in shared memory for wgmma, K-major with 128-byte swizzling: rows of 128 bytes,
 * groups of eight rows 1,024 bytes apart. wgmma_tile is the descriptor's lower word, in which addresses may be added
 * in units of 16 bytes (2 for 32 k of FP8, 64 for eight rows); its upper word is the same for all such tiles.
 */
DEVICE_FN uint32_t wgmma_tile(const void *smem)
{
    const uint32_t leading = 1;
    return (smem_address(smem) & 0x3ffffu) >> 4 | leading << 16;
}

DEVICE_FN uint64_t wgmma_descriptor(uint32_t tile)
{
    const uint32_t stride = 1024 >> 4, swizzle_128 = 1;
    return (uint64_t)(stride | swizzle_128 << 30) << 32 | tile;
}

#endif
