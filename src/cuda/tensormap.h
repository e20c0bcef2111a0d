/* TMA descriptors for tiled matrices. What TMA can address is decided in plan/tma_rules.h. */
#ifndef CUDA_TENSORMAP_H
#define CUDA_TENSORMAP_H

#include "core/tensor.h"
#include "cuda/driver.h"

/*
 * Boxes of box_rows x box_cols elements of m, of which tma_refusal must have nothing to say; the map has three
 * dimensions: cols, rows, batch. What lies outside m reads as zeros. swizzle_bytes is 128, 64, 32 or 0 (none), and
 * box_cols * element size must not exceed it (when not 0).
 */
dg_status tensormap_encode(const struct driver *driver, struct tensor_map *map, const struct matrix *m,
                           int32_t box_rows, int32_t box_cols, int32_t swizzle_bytes);

#endif
