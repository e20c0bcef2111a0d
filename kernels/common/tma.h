/* tma.h - the tensor memory accelerator: boxes of a matrix to and from shared memory (PTX ISA: "Tensor copy"). */
#ifndef COMMON_TMA_H
#define COMMON_TMA_H

#include "common/ptx.h"

/* Bring the descriptor into its cache, ahead of its first use. */
DEVICE_FN void tma_prefetch_map(const struct tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* The box at (col, row, batch) lands in `smem`; its bytes, zeros beyond the matrix included, count at `bar`. */
DEVICE_FN void tma_load(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row,
                        int32_t batch)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
                 "%4}], [%5];" ::"r"(smem_address(smem)),
                 "l"(map), "r"(col), "r"(row), "r"(batch), "r"(smem_address(bar))
                 : "memory");
}

/* What becomes of lines in the L2 cache: these leave it first ("createpolicy"). */
DEVICE_FN uint64_t l2_evict_first(void)
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* tma_load with such a policy. */
DEVICE_FN void tma_load_hinted(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row,
                               int32_t batch, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(smem_address(smem)),
                 "l"(map), "r"(col), "r"(row), "r"(batch), "r"(smem_address(bar)), "l"(policy)
                 : "memory");
}

/* tma_load to the same place in every block of the cluster whose bit is set in `blocks`, counted at each one's `bar`.
 */
DEVICE_FN void tma_load_multicast(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row,
                                  int32_t batch, uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(smem_address(smem)),
                 "l"(map), "r"(col), "r"(row), "r"(batch), "r"(smem_address(bar)), "h"(blocks)
                 : "memory");
}

/* Store a box; what lies beyond the matrix is dropped. Belongs to the thread's current store group. */
DEVICE_FN void tma_store(const struct tensor_map *map, const void *smem, int32_t col, int32_t row, int32_t batch)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map), "r"(col),
                 "r"(row), "r"(batch), "r"(smem_address(smem))
                 : "memory");
}

DEVICE_FN void tma_store_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Wait until all but the last `pending` (a constant) store groups of this thread have read their shared memory. */
#define TMA_STORE_WAIT_READ(pending) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory")

#endif
