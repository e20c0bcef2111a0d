/*
 * ptx.h for the host: the functions of kernels/common/ptx.h, done by the emulation. Kernels find this file in the place
 * of the other; the emulation itself includes it too, as C.
 *
 * Each function means what its namesake's PTX instruction means; what the host's compiler can do by itself is here, the
 * rest in the files of tests/emu. New functions of kernels/common/ptx.h get a second body here.
 */
#ifndef COMMON_PTX_H
#define COMMON_PTX_H

#include "shared/base.h"

#include <math.h>
#include <string.h>

#define DEVICE_FN static inline
#ifdef __cplusplus
#define EMU extern "C" __attribute__((visibility("default")))
#else
#define EMU __attribute__((visibility("default")))
#endif

#define KERNEL(name, threads, args_type) KERNEL_BLOCKS(name, threads, 1, args_type)

/* The entry takes a pointer; name_threads and name_args_bytes tell the emulation what the launch must agree with. */
#define KERNEL_BLOCKS(name, threads, blocks, args_type)                                                                \
    EMU const uint32_t name##_threads, name##_args_bytes;                                                              \
    const uint32_t name##_threads = (threads), name##_args_bytes = sizeof(args_type);                                  \
    static void name##_body(const args_type &args);                                                                    \
    EMU void name(const void *args);                                                                                   \
    void name(const void *args)                                                                                        \
    {                                                                                                                  \
        name##_body(*(const args_type *)args);                                                                         \
    }                                                                                                                  \
    static void name##_body(const args_type &args)

/* ---- sync.c: who am I, barriers, lanes, registers -------------------------------------------------------------- */

EMU uint32_t thread_index(void);
EMU uint32_t block_index(void);
EMU uint32_t grid_size(void);
EMU uint32_t lane_index(void);
EMU uint32_t warp_index(void);
EMU uint32_t cluster_rank(void);

EMU void block_barrier(void);
EMU void warp_barrier(void);
EMU void named_barrier(uint32_t id, uint32_t threads);
EMU void named_barrier_arrive(uint32_t id, uint32_t threads);
EMU void cluster_barrier(void);
EMU void cluster_barrier_relaxed(void);

EMU uint32_t exchange_xor(uint32_t value, int mask);
EMU uint32_t exchange_from(uint32_t value, uint32_t lane);
EMU uint32_t vote_ballot(int predicate);

DEVICE_FN int32_t highest_bit(uint32_t word)
{
    return 31 - __builtin_clz(word);
}

DEVICE_FN int32_t lowest_bit(uint32_t word)
{
    return __builtin_ctz(word);
}

EMU void registers_release(uint32_t count);
EMU void registers_take(uint32_t count);
#define REGISTERS_RELEASE(count) registers_release(count)
#define REGISTERS_TAKE(count) registers_take(count)

/* ---- Numbers: numbers.c ---------------------------------------------------------------------------------------- */

DEVICE_FN uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

DEVICE_FN float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

DEVICE_FN float divide(float x, float y)
{
    return x / y;
}

DEVICE_FN float multiply_add(float x, float y, float z)
{
    return fmaf(x, y, z);
}

EMU uint32_t max_u16x2(uint32_t x, uint32_t y);
EMU uint16_t convert_to_bf16(float value);
EMU float convert_from_fp16(uint16_t bits);
EMU uint16_t convert_to_fp16(float value);
EMU uint32_t convert_to_bf16x2(float low, float high);
EMU uint32_t convert_to_fp16x2(float low, float high);
EMU uint16_t convert_to_e4m3x2(float low, float high);

/* ---- memory.c: global memory and dependent launch --------------------------------------------------------------- */

EMU void load_once_16(const void *p, uint32_t *words);
EMU void grid_dependency_wait(void);
EMU void grid_dependency_launch(void);

/* ---- smem.c: shared memory ------------------------------------------------------------------------------------- */

EMU uint8_t *dynamic_smem(void);
/* The block's one copy of a variable; `key`: any address that is the variable's own. */
EMU void *static_smem(const void *key, uint32_t bytes);
#define SHARED(type, name)                                                                                             \
    static const char name##_key = 0;                                                                                  \
    type &name = *(type *)static_smem(&name##_key, sizeof(type))

EMU uint32_t smem_address(const void *p);
EMU void fence_smem_for_async(void);
EMU uint32_t load_smem_u32(const uint32_t *p);
EMU void load_smem_u32x2(const uint32_t *p, uint32_t *words);
EMU void load_smem_f32x4(const float *p, float *x);
EMU void load_cluster_f32x4(const float *p, uint32_t rank, float *x);
EMU void store_smem_u32(uint32_t *p, uint32_t value);
EMU void store_smem_f32(float *p, float x);
EMU void store_smem_f32x2(void *p, float x, float y);
EMU void store_smem_matrices(void *row, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3);

/* ---- copy.c: cp.async ------------------------------------------------------------------------------------------ */

EMU void copy_async_4(void *smem, const void *global, int valid);
EMU void copy_async_arrive(uint64_t *bar);
EMU void copy_async_wait_all(void);

/* ---- mbarrier.c ------------------------------------------------------------------------------------------------ */

EMU void mbarrier_init(uint64_t *bar, uint32_t arrivals);
EMU void mbarrier_init_fence(void);
EMU void mbarrier_arrive(uint64_t *bar);
EMU void mbarrier_arrive_at(uint64_t *bar, uint32_t rank);
EMU void mbarrier_arrive_expect(uint64_t *bar, uint32_t bytes);
EMU int mbarrier_try_wait(uint64_t *bar, uint32_t parity);
EMU void mbarrier_wait(uint64_t *bar, uint32_t parity);

/* ---- wgmma.c: each product of the generated wgmma.h becomes a call of one of these ------------------------------ */

enum emu_type { EMU_E4M3, EMU_BF16, EMU_TF32 };
EMU void emu_wgmma(enum emu_type type, uint32_t n, float *d, uint64_t a, uint64_t b, int accumulate);
EMU void emu_wgmma_rs(enum emu_type type, uint32_t n, float *d, const uint32_t *a, uint64_t b, int accumulate);

EMU void wgmma_fence(void);
EMU void wgmma_commit(void);
EMU void wgmma_wait(uint32_t pending);
#define WGMMA_WAIT(pending) wgmma_wait(pending)

/* For compilers only: the emulation's registers are poisoned while a product owns them. */
DEVICE_FN void wgmma_pin(float *accumulator, int count)
{
    (void)accumulator;
    (void)count;
}

#endif
