/*
 * ptx.h - the instructions that kernels use beyond plain C, one small function each, named after what it does. Each
 * comment names the section of the PTX ISA manual that defines the instruction. TMA has its own file, tma.h.
 *
 * Kernels touch the hardware only through kernels/common: indices, barriers, registers, and every access to shared
 * memory that TMA or wgmma also touches. So their text also compiles on the host, against an emulation of these
 * functions.
 */
#ifndef COMMON_PTX_H
#define COMMON_PTX_H

#include "shared/base.h"

#define DEVICE_FN static __device__ __forceinline__

/* A kernel: its one argument is a struct by value that stays in constant memory. */
#define KERNEL(name, threads, args_type) KERNEL_BLOCKS(name, threads, 1, args_type)

/* The same, with registers few enough for `blocks` blocks on an SM. */
#define KERNEL_BLOCKS(name, threads, blocks, args_type)                                                                \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ args_type args)

/* ---- Who am I (special registers) ---------------------------------------------------------------------------- */

DEVICE_FN uint32_t thread_index(void)
{
    return threadIdx.x;
}

DEVICE_FN uint32_t block_index(void)
{
    return blockIdx.x;
}

DEVICE_FN uint32_t grid_size(void)
{
    return gridDim.x;
}

DEVICE_FN uint32_t lane_index(void)
{
    return threadIdx.x % 32;
}

/* The same in all lanes of a warp, and known to be: the compiler may keep what depends on it in uniform registers. */
DEVICE_FN uint32_t warp_index(void)
{
    return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
}

DEVICE_FN uint32_t cluster_rank(void)
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* ---- Barriers ------------------------------------------------------------------------------------------------ */

DEVICE_FN void block_barrier(void)
{
    __syncthreads();
}

DEVICE_FN void warp_barrier(void)
{
    __syncwarp();
}

/* "barrier": `threads` threads of the block meet at the hardware barrier `id` (0 is block_barrier's). */
DEVICE_FN void named_barrier(uint32_t id, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* The same for whole warps that need not wait for the others, only the others for them. */
DEVICE_FN void named_barrier_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* "barrier.cluster": all threads of the cluster meet; writes to shared memory before it are visible after it. */
DEVICE_FN void cluster_barrier(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The same without the last part, and without waiting for stores: enough after mbarrier_init_fence, and to leave when
   the value of every load from another block has been used. */
DEVICE_FN void cluster_barrier_relaxed(void)
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* ---- Numbers ------------------------------------------------------------------------------------------------- */

DEVICE_FN uint32_t float_bits(float value)
{
    return __float_as_uint(value);
}

DEVICE_FN float bits_float(uint32_t bits)
{
    return __uint_as_float(bits);
}

/* Correctly rounded, whatever the compiler was told about division. */
DEVICE_FN float divide(float x, float y)
{
    return __fdiv_rn(x, y);
}

/* x * y + z, rounded once. */
DEVICE_FN float multiply_add(float x, float y, float z)
{
    return __fmaf_rn(x, y, z);
}

/* "max": of the two 16-bit halves each. From 9.0 on. */
DEVICE_FN uint32_t max_u16x2(uint32_t x, uint32_t y)
{
    uint32_t word;
    asm("max.u16x2 %0, %1, %2;" : "=r"(word) : "r"(x), "r"(y));
    return word;
}

/* "cvt": to nearest even, here and below. From 8.0 on. */
DEVICE_FN uint16_t convert_to_bf16(float value)
{
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

DEVICE_FN float convert_from_fp16(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

/* Beyond 65504 infinity. */
DEVICE_FN uint16_t convert_to_fp16(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/* Two at once, `low` into the lower half. From 8.0 on. */
DEVICE_FN uint32_t convert_to_bf16x2(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

DEVICE_FN uint32_t convert_to_fp16x2(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/* Saturates at +-448; NaN becomes 0x7f. From 8.9 on. */
DEVICE_FN uint16_t convert_to_e4m3x2(float low, float high)
{
    uint16_t codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
}

/* ---- Global memory and lanes --------------------------------------------------------------------------------- */

/*
 * 16 aligned bytes of global memory that are used once: past L1 ("ld"). Not ld.global.nc, which is for memory
 * that nobody writes while the kernel runs; under dependent launch the kernel before may still be writing.
 */
DEVICE_FN void load_once_16(const void *p, uint32_t *words)
{
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(p));
}

/* The value of lane (own ^ mask), or of lane `lane`; all 32 lanes take part. */
DEVICE_FN uint32_t exchange_xor(uint32_t value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

DEVICE_FN uint32_t exchange_from(uint32_t value, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, value, (int)lane);
}

/* A bit for each lane, set where the predicate holds; all 32 lanes take part. */
DEVICE_FN uint32_t vote_ballot(int predicate)
{
    return __ballot_sync(0xffffffffu, predicate);
}

/* The number of the highest bit that is set, of the lowest; the word is not 0. */
DEVICE_FN int32_t highest_bit(uint32_t word)
{
    return 31 - __clz((int)word);
}

DEVICE_FN int32_t lowest_bit(uint32_t word)
{
    return __ffs((int)word) - 1;
}

/* ---- Programmatic dependent launch ("griddepcontrol") --------------------------------------------------------- */

/* Wait until the kernels this one depends on have ended and their writes are visible; nothing if launched without. */
DEVICE_FN void grid_dependency_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Let the next kernel start its blocks once all of this grid's blocks have said so. It still waits for our writes. */
DEVICE_FN void grid_dependency_launch(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- Registers ("setmaxnreg"): by all warps of a warpgroup, in one branch per role ----------------------------- */

#define REGISTERS_RELEASE(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count))
#define REGISTERS_TAKE(count) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count))

/* ---- Shared memory ------------------------------------------------------------------------------------------- */

/* The block's dynamic shared memory, aligned for 128-byte swizzling. */
extern __shared__ uint8_t ptx_dynamic_smem[] __align__(1024);

DEVICE_FN uint8_t *dynamic_smem(void)
{
    return ptx_dynamic_smem;
}

/* A variable of a function, one for the block and uninitialised, beside the dynamic shared memory. */
#define SHARED(type, name) __shared__ type name

DEVICE_FN uint32_t smem_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Make this thread's plain writes to shared memory visible to TMA and wgmma ("membar, fence": the async proxy). */
DEVICE_FN void fence_smem_for_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* A word that TMA or cp.async may have written. */
DEVICE_FN uint32_t load_smem_u32(const uint32_t *p)
{
    return *p;
}

/* The same, two of them, aligned to 8 bytes. */
DEVICE_FN void load_smem_u32x2(const uint32_t *p, uint32_t *words)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(smem_address(p)) : "memory");
}

/* Four floats, aligned to 16 bytes. */
DEVICE_FN void load_smem_f32x4(const float *p, float *x)
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(smem_address(p))
                 : "memory");
}

/* The same of block `rank` of the cluster, where p is in one's own ("distributed shared memory"). */
DEVICE_FN void load_cluster_f32x4(const float *p, uint32_t rank, float *x)
{
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(smem_address(p)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(remote)
                 : "memory");
}

DEVICE_FN void store_smem_u32(uint32_t *p, uint32_t value)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(smem_address(p)), "r"(value) : "memory");
}

DEVICE_FN void store_smem_f32(float *p, float x)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(smem_address(p)), "f"(x) : "memory");
}

DEVICE_FN void store_smem_f32x2(void *p, float x, float y)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(smem_address(p)), "f"(x), "f"(y) : "memory");
}

/* "stmatrix": four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8, and holds
   in word j elements (row lane / 4, columns 2 * (lane % 4) and the next) of matrix j. */
DEVICE_FN void store_smem_matrices(void *row, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(row)), "r"(w0),
                 "r"(w1), "r"(w2), "r"(w3)
                 : "memory");
}

/* "cp.async": four bytes from global to shared memory without a register; zeros when `valid` is false. */
DEVICE_FN void copy_async_4(void *smem, const void *global, int valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem_address(smem)), "l"(global),
                 "r"(valid ? 4 : 0)
                 : "memory");
}

/* One of the arrivals that the barrier waits for, as soon as all copies that this thread has begun are done. */
DEVICE_FN void copy_async_arrive(uint64_t *bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_address(bar)) : "memory");
}

DEVICE_FN void copy_async_wait_all(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* ---- "mbarrier" ---------------------------------------------------------------------------------------------- */

/* A phase ends when `arrivals` threads have arrived and all expected bytes have come; then the next one begins. */
DEVICE_FN void mbarrier_init(uint64_t *bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(bar)), "r"(arrivals) : "memory");
}

/* Make initialised barriers visible to the cluster and to TMA, before the barrier that all threads meet at. */
DEVICE_FN void mbarrier_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

DEVICE_FN void mbarrier_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(bar)) : "memory");
}

/* Arrive at the same barrier in block `rank` of the cluster. No .release.cluster: that form costs 1,000 cycles. */
DEVICE_FN void mbarrier_arrive_at(uint64_t *bar, uint32_t rank)
{
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(smem_address(bar)), "r"(rank));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

DEVICE_FN void mbarrier_arrive_expect(uint64_t *bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(bar)), "r"(bytes)
                 : "memory");
}

DEVICE_FN int mbarrier_try_wait(uint64_t *bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(smem_address(bar)), "r"(parity)
                 : "memory");
    return (int)done;
}

/* Wait for the end of the phase with this parity (the first phase of a barrier has parity 0). */
DEVICE_FN void mbarrier_wait(uint64_t *bar, uint32_t parity)
{
    while (!mbarrier_try_wait(bar, parity)) {
    }
}

/* ---- "Asynchronous warpgroup level matrix instructions": the products themselves come from wgmma.h, generated -- */

/* Before the first wgmma, and before one that reads registers changed since: order register accesses. */
DEVICE_FN void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

DEVICE_FN void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Wait until at most `pending` (a constant) committed groups are unfinished. */
#define WGMMA_WAIT(pending) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory")

/* An accumulator that wgmma writes asynchronously: the compiler must not move its uses across this point. */
DEVICE_FN void wgmma_pin(float *accumulator, int count)
{
#pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(accumulator[i])::"memory");
}

#endif
