/*
 * Instructions that no kernel uses yet, ready for those to come: when one does, its function moves to
 * kernels/common/ptx.h or tma.h, with PTX for its body, and to the file of that name here. Until then the kernels of
 * tests/emu/kernels use them.
 */
#ifndef COMMON_MORE_H
#define COMMON_MORE_H

#include "common/ptx.h"
#include "common/tma.h"

/* "elect.sync": true in one lane of the warp, whichever the hardware likes. */
EMU int elect_one(void);

/* "mbarrier.inval": the barrier's memory may be used for something else. */
EMU void mbarrier_inval(uint64_t *bar);

/* "ld.shared::cluster", "st.shared::cluster": a word of block `rank`, where p is in one's own. */
EMU uint32_t load_cluster_u32(const uint32_t *p, uint32_t rank);
EMU void store_cluster_u32(uint32_t *p, uint32_t rank, uint32_t value);

/* "cp.async.bulk": runs of bytes, multiples of 16. "cp.reduce.async.bulk": += on FP32, whole runs or boxes. */
EMU void bulk_load(void *smem, const void *global, uint32_t bytes, uint64_t *bar);
EMU void bulk_store(void *global, const void *smem, uint32_t bytes);
EMU void bulk_reduce_add_f32(float *global, const float *smem, uint32_t bytes);
EMU void tma_reduce_add(const struct tensor_map *map, const void *smem, int32_t col, int32_t row, int32_t batch);

/* "cp.async.bulk.wait_group": until all but `pending` groups have been written, not only read. */
EMU void tma_store_wait(uint32_t pending);

/* "tensormap.replace" on a map in global memory; "fence.proxy.tensormap": release by the editor, acquire by users. */
EMU void tma_map_set_address(struct tensor_map *map, const void *address);
EMU void tma_map_set_rows(struct tensor_map *map, uint32_t rows);
EMU void tma_map_release(void);
EMU void tma_map_acquire(const struct tensor_map *map);

/* For tests: what must be true. */
EMU void emu_expect(int condition, const char *text);

#endif
