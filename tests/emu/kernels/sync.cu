/* Threads that meet: lanes, blocks, named barriers, registers; memory that is nobody's. 128 threads. */
#include "config.h"
#include "part.h"

/* ---- What must work ---------------------------------------------------------------------------------------------- */

DEVICE_FN void lanes_exchange(const struct part_args *args)
{
    (void)args;
    const uint32_t lane = lane_index();
    EXPECT(exchange_xor(lane, 5) == (lane ^ 5));
    EXPECT(exchange_from(lane * 3, 7) == 21);
    EXPECT(warp_index() == thread_index() / 32);
    EXPECT(vote_ballot(lane % 3 == 0) == 0x49249249u);
    const uint32_t ballot = vote_ballot(elect_one());
    EXPECT(ballot != 0 && (ballot & (ballot - 1)) == 0);
}

DEVICE_FN void block_sees_variable(const struct part_args *args)
{
    SHARED(uint32_t, sum);
    (void)args;
    if (thread_index() == 3)
        sum = 77;
    block_barrier();
    EXPECT(sum == 77);
}

/* Warps 0 and 1 hand words to warps 2 and 3, and wait for nothing else. */
DEVICE_FN void named_barriers_pair_up(const struct part_args *args)
{
    const uint32_t pair = thread_index() / 32 % 2, from = 32 * pair + lane_index();
    (void)args;
    if (thread_index() < 64)
        store_smem_u32(WORD(from), from);
    named_barrier(1 + pair, 64);
    if (thread_index() >= 64)
        EXPECT(load_smem_u32(WORD(from)) == from);
}

DEVICE_FN void warpgroups_trade_registers(const struct part_args *args)
{
    (void)args;
    if (thread_index() < 128)
        REGISTERS_RELEASE(40);
    else
        REGISTERS_TAKE(232);
}

/* ---- What must be found ------------------------------------------------------------------------------------------ */

DEVICE_FN void lanes_diverge(const struct part_args *args)
{
    (void)args;
    if (lane_index() < 16)
        warp_barrier();
    else
        exchange_xor(1, 1);
}

DEVICE_FN void lanes_disagree(const struct part_args *args)
{
    (void)args;
    named_barrier(1 + lane_index() / 16, 128);
}

DEVICE_FN void block_skips_barrier(const struct part_args *args)
{
    SHARED(uint32_t, last);
    (void)args;
    last = 0;
    block_barrier();
    last = thread_index();
    EXPECT(last == thread_index()); /* unless another thread has come between */
    exchange_xor(0, 1);
    EXPECT(last == thread_index());
}

DEVICE_FN void named_barrier_counts_differ(const struct part_args *args)
{
    (void)args;
    named_barrier(1, thread_index() < 32 ? 64 : 96);
}

DEVICE_FN void warp_misses_named_barrier(const struct part_args *args)
{
    (void)args;
    if (thread_index() < 96)
        named_barrier(3, 128);
}

DEVICE_FN void registers_for_one_warp(const struct part_args *args)
{
    (void)args;
    if (thread_index() < 32)
        REGISTERS_RELEASE(40);
}

DEVICE_FN void registers_out_of_nothing(const struct part_args *args)
{
    (void)args;
    REGISTERS_TAKE(256);
}

DEVICE_FN void registers_by_seven(const struct part_args *args)
{
    (void)args;
    REGISTERS_RELEASE(47);
}

DEVICE_FN void variable_overflows(const struct part_args *args)
{
    SHARED(uint32_t, word);
    (void)args;
    volatile uint32_t *beyond = &word;
    beyond[1] = 5;
}

DEVICE_FN void plain_access_to_dynamic_memory(const struct part_args *args)
{
    (void)args;
    *(volatile uint32_t *)WORD(4) = 5;
}

DEVICE_FN void access_beyond_a_tensor(const struct part_args *args)
{
    ((volatile float *)args->out)[64 * 64] = 1;
}

DEVICE_FN uint32_t recurse(volatile uint32_t *depth)
{
    volatile uint32_t room[64];
    room[*depth % 64] = (*depth)++;
    return *depth == 0 ? 0 : recurse(depth) + room[5];
}

DEVICE_FN void stack_overflows(const struct part_args *args)
{
    volatile uint32_t depth = 1;
    (void)args;
    recurse(&depth);
}

KERNEL(PART, 1024, struct part_args)
{
    VARIANT(&args);
}
