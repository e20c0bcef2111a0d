/* tma.h for the host: see ptx.h beside it. Done by tma.c. */
#ifndef COMMON_TMA_H
#define COMMON_TMA_H

#include "common/ptx.h"

EMU void tma_prefetch_map(const struct tensor_map *map);
EMU void tma_load(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row, int32_t batch);
EMU uint64_t l2_evict_first(void);
EMU void tma_load_hinted(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row,
                         int32_t batch, uint64_t policy);
EMU void tma_load_multicast(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row,
                            int32_t batch, uint16_t blocks);
EMU void tma_store(const struct tensor_map *map, const void *smem, int32_t col, int32_t row, int32_t batch);
EMU void tma_store_commit(void);
EMU void tma_store_wait_read(uint32_t pending);
#define TMA_STORE_WAIT_READ(pending) tma_store_wait_read(pending)

#endif
