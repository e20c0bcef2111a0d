/* wgmma on small numbers, against sums made here. One warpgroup: 128 threads. */
#include "config.h"
#include "part.h"
#include "wgmma.h"

#define COLS 16
#define B_AT 4096 /* of shared memory; A is at its beginning, and BARRIER 8 KiB behind */

/* ---- Operands: row r of A has at k the value r % 7 + k - 3, row c of B at k the value c % 5 - k % 3 -------------- */

DEVICE_FN int32_t a_value(uint32_t row, uint32_t k)
{
    return (int32_t)(row % 7) + (int32_t)(k % 8) - 3;
}

DEVICE_FN int32_t b_value(uint32_t col, uint32_t k)
{
    return (int32_t)(col % 5) - (int32_t)(k % 3);
}

DEVICE_FN uint32_t pair_of_bf16(int32_t low, int32_t high)
{
    return convert_to_bf16x2((float)low, (float)high);
}

DEVICE_FN uint32_t four_e4m3(int32_t v0, int32_t v1, int32_t v2, int32_t v3)
{
    return convert_to_e4m3x2((float)v0, (float)v1) | (uint32_t)convert_to_e4m3x2((float)v2, (float)v3) << 16;
}

/* Word `word` of a row's 32 bytes, in `type`'s elements. */
DEVICE_FN uint32_t word_of(int type, int is_a, uint32_t row, uint32_t word)
{
    int32_t v[4];
    const uint32_t each = type == EMU_E4M3 ? 4 : type == EMU_BF16 ? 2 : 1;
    for (uint32_t i = 0; i < each; ++i)
        v[i] = is_a ? a_value(row, word * each + i) : b_value(row, word * each + i);
    return type == EMU_E4M3   ? four_e4m3(v[0], v[1], v[2], v[3])
           : type == EMU_BF16 ? pair_of_bf16(v[0], v[1])
                              : float_bits((float)v[0]);
}

/* Rows of `span` bytes, of which 32 are filled, swizzled by `span` (0: 16-byte columns, one behind the other). */
DEVICE_FN void fill(int type, int is_a, uint32_t at, uint32_t rows, uint32_t span)
{
    for (uint32_t i = thread_index(); i < rows * 8; i += 128) {
        const uint32_t row = i / 8, byte = i % 8 * 4;
        const uint32_t place = span ? tma_swizzled(row, byte, span) : byte / 16 * (rows * 16) + row * 16 + byte % 16;
        store_smem_u32(WORD((at + place) / 4), word_of(type, is_a, row, i % 8));
    }
}

DEVICE_FN uint64_t descriptor(uint32_t at, uint32_t rows, uint32_t span)
{
    const uint32_t mode = span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0;
    const uint32_t leading = span ? 1 : rows * 16 >> 4, stride = (span ? 8 * span : 128) >> 4;
    return (uint64_t)(stride | mode << 30) << 32 | (smem_address(SMEM + at) >> 4 | leading << 16);
}

DEVICE_FN void expect_product(const float *acc, uint32_t depth, float before)
{
    for (uint32_t i = 0; i < COLS / 2; ++i) {
        const uint32_t row = thread_index() / 32 * 16 + lane_index() / 4 + i / 2 % 2 * 8;
        const uint32_t col = i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
        float sum = before;
        for (uint32_t k = 0; k < depth; ++k)
            sum += (float)(a_value(row, k) * b_value(col, k));
        EXPECT(acc[i] == sum);
    }
}

DEVICE_FN void fill_both(int type, uint32_t a_span, uint32_t b_span)
{
    fill(type, 1, 0, 64, a_span);
    fill(type, 0, B_AT * 2, COLS, b_span);
    fence_smem_for_async();
    block_barrier();
}

#define A_DESCRIPTOR(span) descriptor(0, 64, span)
#define B_DESCRIPTOR(span) descriptor(B_AT * 2, COLS, span)

/* ---- What must work ---------------------------------------------------------------------------------------------- */

DEVICE_FN void e4m3_swizzled_by_128(const struct part_args *args)
{
    float acc[COLS / 2] = {0};
    (void)args;
    fill_both(EMU_E4M3, 128, 128);
    wgmma_fence();
    wgmma_m64n16k32_e4m3(acc, A_DESCRIPTOR(128), B_DESCRIPTOR(128), 0);
    wgmma_commit();
    WGMMA_WAIT(0);
    expect_product(acc, 32, 0);
}

DEVICE_FN void bf16_swizzled_by_64_and_32(const struct part_args *args)
{
    float acc[COLS / 2];
    (void)args;
    for (int i = 0; i < COLS / 2; ++i)
        acc[i] = 10;
    fill_both(EMU_BF16, 64, 32);
    wgmma_fence();
    wgmma_m64n16k16_bf16(acc, A_DESCRIPTOR(64), B_DESCRIPTOR(32), 1);
    wgmma_commit();
    WGMMA_WAIT(0);
    expect_product(acc, 16, 10);
}

DEVICE_FN void tf32_not_swizzled(const struct part_args *args)
{
    float acc[COLS / 2] = {0};
    (void)args;
    fill_both(EMU_TF32, 0, 0);
    wgmma_fence();
    wgmma_m64n16k8_tf32(acc, A_DESCRIPTOR(0), B_DESCRIPTOR(0), 0);
    wgmma_commit();
    WGMMA_WAIT(0);
    expect_product(acc, 8, 0);
}

DEVICE_FN void a_in_registers(const struct part_args *args)
{
    float acc[COLS / 2] = {0};
    uint32_t a[4];
    (void)args;
    fill_both(EMU_E4M3, 128, 128);
    for (uint32_t i = 0; i < 4; ++i)
        a[i] =
            word_of(EMU_E4M3, 1, thread_index() / 32 * 16 + lane_index() / 4 + i % 2 * 8, i / 2 * 4 + lane_index() % 4);
    wgmma_fence();
    wgmma_m64n16k32_e4m3_rs(acc, a, B_DESCRIPTOR(128), 0);
    wgmma_commit();
    WGMMA_WAIT(0);
    expect_product(acc, 32, 0);
}

/* Row 0 of A begins 256, 2^-6, 2^-6, 2^-6, all else is 0; B is 1. Exactly the sum is 256.046875. Hopper keeps 13
   fraction bits of the largest addend, here multiples of 2^-5, and cuts each of the others. */
DEVICE_FN void hopper_cuts_each_addend(const struct part_args *args)
{
    float acc[COLS / 2] = {0};
    (void)args;
    for (uint32_t i = thread_index(); i < 64 * 32; i += 128)
        store_smem_u32(WORD(i), i == 0 ? 0x08080878 : 0);
    for (uint32_t i = thread_index(); i < COLS * 32; i += 128)
        store_smem_u32(WORD(B_AT * 2 / 4 + i), 0x38383838);
    fence_smem_for_async();
    block_barrier();
    wgmma_fence();
    wgmma_m64n16k32_e4m3(acc, A_DESCRIPTOR(128), B_DESCRIPTOR(128), 0);
    wgmma_commit();
    WGMMA_WAIT(0);
    EXPECT(thread_index() != 0 || acc[0] == 256.0f);
    EXPECT(acc[2] == 0.0f);
}

DEVICE_FN void two_groups_in_flight(const struct part_args *args)
{
    float first[COLS / 2] = {0}, second[COLS / 2] = {0};
    (void)args;
    fill_both(EMU_E4M3, 128, 128);
    wgmma_fence();
    wgmma_m64n16k32_e4m3(first, A_DESCRIPTOR(128), B_DESCRIPTOR(128), 0);
    wgmma_commit();
    wgmma_m64n16k32_e4m3(second, A_DESCRIPTOR(128), B_DESCRIPTOR(128), 0);
    wgmma_commit();
    WGMMA_WAIT(1);
    expect_product(first, 32, 0);
    WGMMA_WAIT(0);
    expect_product(second, 32, 0);
}

/* ---- What must be found ------------------------------------------------------------------------------------------ */

#define BEGIN_PRODUCT                                                                                                  \
    float acc[COLS / 2] = {0};                                                                                         \
    (void)args;                                                                                                        \
    fill_both(EMU_E4M3, 128, 128);                                                                                     \
    wgmma_fence();                                                                                                     \
    wgmma_m64n16k32_e4m3(acc, A_DESCRIPTOR(128), B_DESCRIPTOR(128), 0)

DEVICE_FN void sums_are_written_too_early(const struct part_args *args)
{
    BEGIN_PRODUCT;
    wgmma_commit();
    acc[3] = 0;
    WGMMA_WAIT(0);
}

DEVICE_FN void sums_are_read_too_early(const struct part_args *args)
{
    BEGIN_PRODUCT;
    wgmma_commit();
    EXPECT(acc[3] == acc[3]); /* no NaN */
    WGMMA_WAIT(0);
}

DEVICE_FN void fence_is_missing_after_a_wait(const struct part_args *args)
{
    BEGIN_PRODUCT;
    wgmma_commit();
    WGMMA_WAIT(0);
    wgmma_m64n16k32_e4m3(acc, A_DESCRIPTOR(128), B_DESCRIPTOR(128), 1);
    wgmma_commit();
    WGMMA_WAIT(0);
}

DEVICE_FN void never_committed(const struct part_args *args)
{
    BEGIN_PRODUCT;
    WGMMA_WAIT(0);
}

DEVICE_FN void never_waited_for(const struct part_args *args)
{
    BEGIN_PRODUCT;
    wgmma_commit();
}

DEVICE_FN void operand_is_overwritten(const struct part_args *args)
{
    BEGIN_PRODUCT;
    wgmma_commit();
    fill(EMU_E4M3, 0, B_AT * 2, COLS, 128);
    WGMMA_WAIT(0);
}

DEVICE_FN void operands_without_proxy_fence(const struct part_args *args)
{
    float acc[COLS / 2] = {0};
    (void)args;
    fill(EMU_E4M3, 1, 0, 64, 128);
    fill(EMU_E4M3, 0, B_AT * 2, COLS, 128);
    block_barrier();
    wgmma_fence();
    wgmma_m64n16k32_e4m3(acc, A_DESCRIPTOR(128), B_DESCRIPTOR(128), 0);
    wgmma_commit();
    WGMMA_WAIT(0);
}

DEVICE_FN void operand_beyond_shared_memory(const struct part_args *args)
{
    float acc[COLS / 2] = {0};
    (void)args;
    fill_both(EMU_E4M3, 128, 128);
    wgmma_fence();
    wgmma_m64n16k32_e4m3(acc, A_DESCRIPTOR(128), descriptor(15 * 1024, COLS, 128), 0);
    wgmma_commit();
    WGMMA_WAIT(0);
}

DEVICE_FN void warps_disagree(const struct part_args *args)
{
    float acc[COLS / 2] = {0};
    (void)args;
    fill_both(EMU_E4M3, 128, 128);
    wgmma_fence();
    wgmma_m64n16k32_e4m3(acc, A_DESCRIPTOR(128), B_DESCRIPTOR(128) + (thread_index() / 32 == 3), 0);
    wgmma_commit();
    WGMMA_WAIT(0);
}

DEVICE_FN void half_a_warpgroup(const struct part_args *args)
{
    if (thread_index() < 64) {
        BEGIN_PRODUCT;
        wgmma_commit();
        WGMMA_WAIT(0);
    } else {
        fill_both(EMU_E4M3, 128, 128);
    }
}

KERNEL(PART, 1024, struct part_args)
{
    VARIANT(&args);
}
