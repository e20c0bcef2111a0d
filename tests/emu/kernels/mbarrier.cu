/* mbarriers, cp.async, shared memory between the blocks of a cluster. 64 threads. */
#include "config.h"
#include "part.h"

#define FIRST (thread_index() == 0)

/* ---- What must work ---------------------------------------------------------------------------------------------- */

/* The first warp fills two words in turn, the second empties them, eight times. */
DEVICE_FN void ring_of_two(const struct part_args *args)
{
    uint64_t *full = BARRIER, *empty = BARRIER + 2;
    (void)args;
    if (FIRST)
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], 1);
        }
    block_barrier();
    for (uint32_t i = 0; i < 16 && lane_index() == 0; ++i) {
        const uint32_t phase = i / 2 % 2;
        if (FIRST) {
            mbarrier_wait(&empty[i % 2], phase ^ 1);
            store_smem_u32(WORD(i % 2), i);
            mbarrier_arrive(&full[i % 2]);
        } else {
            while (!mbarrier_try_wait(&full[i % 2], phase)) {
            }
            EXPECT(load_smem_u32(WORD(i % 2)) == i);
            mbarrier_arrive(&empty[i % 2]);
        }
    }
}

DEVICE_FN void invalidated_and_used_again(const struct part_args *args)
{
    (void)args;
    if (!FIRST)
        return;
    mbarrier_init(BARRIER, 1);
    mbarrier_arrive(BARRIER);
    mbarrier_wait(BARRIER, 0);
    mbarrier_inval(BARRIER);
    store_smem_u32((uint32_t *)BARRIER, 5);
    EXPECT(load_smem_u32((uint32_t *)BARRIER) == 5);
    mbarrier_init(BARRIER, 2);
    mbarrier_arrive(BARRIER);
    mbarrier_arrive(BARRIER);
    mbarrier_wait(BARRIER, 0);
}

DEVICE_FN void blocks_signal_each_other(const struct part_args *args)
{
    const uint32_t other = cluster_rank() ^ 1;
    (void)args;
    begin_barrier(64);
    cluster_barrier();
    mbarrier_arrive_at(BARRIER, other);
    mbarrier_wait(BARRIER, 0);
    cluster_barrier();
}

/* A relaxed barrier is enough after the fence. */
DEVICE_FN void blocks_meet_relaxed(const struct part_args *args)
{
    (void)args;
    if (FIRST) {
        mbarrier_init(BARRIER, 64);
        mbarrier_init_fence();
    }
    cluster_barrier_relaxed();
    mbarrier_arrive_at(BARRIER, cluster_rank() ^ 1);
    mbarrier_wait(BARRIER, 0);
    cluster_barrier_relaxed();
}

DEVICE_FN void blocks_share_memory(const struct part_args *args)
{
    const uint32_t rank = cluster_rank();
    (void)args;
    store_smem_u32(WORD(thread_index()), 100 * rank + thread_index());
    store_cluster_u32(WORD(64 + thread_index()), rank ^ 1, rank);
    cluster_barrier();
    EXPECT(load_cluster_u32(WORD(thread_index()), rank ^ 1) == 100 * (rank ^ 1) + thread_index());
    EXPECT(load_smem_u32(WORD(64 + thread_index())) == (rank ^ 1));
    cluster_barrier();
}

DEVICE_FN void copies_waited_for(const struct part_args *args)
{
    const float *in = (const float *)args->in;
    copy_async_4(WORD(2 * thread_index()), in + thread_index(), 1);
    copy_async_4(WORD(2 * thread_index() + 1), in, 0);
    copy_async_wait_all();
    EXPECT(bits_float(load_smem_u32(WORD(2 * thread_index()))) == (float)thread_index());
    EXPECT(load_smem_u32(WORD(2 * thread_index() + 1)) == 0);
    block_barrier();
    EXPECT(bits_float(load_smem_u32(WORD(2 * (63 - thread_index())))) == (float)(63 - thread_index()));
}

DEVICE_FN void make_barrier_for_all(void)
{
    if (FIRST)
        mbarrier_init(BARRIER, 64);
    block_barrier();
}

DEVICE_FN void copies_arrive(const struct part_args *args)
{
    const float *in = (const float *)args->in;
    make_barrier_for_all();
    for (uint32_t phase = 0; phase < 3; ++phase) {
        copy_async_4(WORD(thread_index()), in + 64 * phase + thread_index(), 1);
        copy_async_arrive(BARRIER);
        mbarrier_wait(BARRIER, phase & 1);
        EXPECT(bits_float(load_smem_u32(WORD(63 - thread_index()))) == (float)(64 * phase + 63 - thread_index()));
        block_barrier();
    }
    copy_async_wait_all();
}

/* ---- What must be found ------------------------------------------------------------------------------------------ */

DEVICE_FN void wait_uninitialised(const struct part_args *args)
{
    (void)args;
    mbarrier_wait(BARRIER, 0);
}

DEVICE_FN void initialised_twice(const struct part_args *args)
{
    (void)args;
    if (FIRST) {
        mbarrier_init(BARRIER, 1);
        mbarrier_init(BARRIER, 1);
    }
}

DEVICE_FN void used_before_init_is_known(const struct part_args *args)
{
    (void)args;
    if (FIRST)
        mbarrier_init(BARRIER, 1);
    mbarrier_arrive(BARRIER);
}

DEVICE_FN void one_arrival_too_many(const struct part_args *args)
{
    (void)args;
    begin_barrier(1);
    if (FIRST) {
        mbarrier_arrive_expect(BARRIER, 64);
        mbarrier_arrive(BARRIER);
    }
}

DEVICE_FN void one_arrival_too_few(const struct part_args *args)
{
    (void)args;
    begin_barrier(3);
    if (lane_index() == 0)
        mbarrier_arrive(BARRIER);
    mbarrier_wait(BARRIER, 0);
}

DEVICE_FN void bytes_never_come(const struct part_args *args)
{
    (void)args;
    begin_barrier(1);
    if (FIRST)
        mbarrier_arrive_expect(BARRIER, 64);
}

DEVICE_FN void wrong_parity(const struct part_args *args)
{
    (void)args;
    begin_barrier(64);
    mbarrier_arrive(BARRIER);
    mbarrier_wait(BARRIER, 0);
    mbarrier_wait(BARRIER, 1);
}

DEVICE_FN void written_over(const struct part_args *args)
{
    (void)args;
    begin_barrier(1);
    if (FIRST)
        store_smem_u32((uint32_t *)BARRIER, 0);
}

DEVICE_FN void invalidated_while_waited_for(const struct part_args *args)
{
    (void)args;
    begin_barrier(1);
    if (thread_index() == 32)
        mbarrier_wait(BARRIER, 0);
    if (FIRST) {
        for (int i = 0; i < 100000; ++i)
            mbarrier_try_wait(BARRIER, 0);
        mbarrier_inval(BARRIER);
    }
}

DEVICE_FN void remote_without_fence(const struct part_args *args)
{
    (void)args;
    if (FIRST)
        mbarrier_init(BARRIER, 64);
    cluster_barrier();
    mbarrier_arrive_at(BARRIER, cluster_rank() ^ 1);
    cluster_barrier();
}

DEVICE_FN void relaxed_without_fence(const struct part_args *args)
{
    (void)args;
    if (FIRST)
        mbarrier_init(BARRIER, 64);
    cluster_barrier_relaxed();
    mbarrier_arrive_at(BARRIER, cluster_rank() ^ 1);
    cluster_barrier_relaxed();
}

DEVICE_FN void relaxed_before_the_fence(const struct part_args *args)
{
    (void)args;
    if (FIRST)
        mbarrier_init(BARRIER, 64);
    cluster_barrier_relaxed();
    if (FIRST)
        mbarrier_init_fence();
    mbarrier_arrive_at(BARRIER, cluster_rank() ^ 1);
    cluster_barrier_relaxed();
}

DEVICE_FN void relaxed_orders_no_memory(const struct part_args *args)
{
    (void)args;
    store_smem_u32(WORD(thread_index()), 1);
    cluster_barrier_relaxed();
    load_cluster_u32(WORD(thread_index()), cluster_rank() ^ 1);
    cluster_barrier_relaxed();
}

DEVICE_FN void relaxed_meets_another(const struct part_args *args)
{
    (void)args;
    if (cluster_rank() == 0)
        cluster_barrier_relaxed();
    else
        cluster_barrier();
}

DEVICE_FN void remote_has_left(const struct part_args *args)
{
    (void)args;
    begin_barrier(64);
    cluster_barrier();
    if (cluster_rank() == 0)
        mbarrier_arrive_at(BARRIER, 1);
}

DEVICE_FN void remote_memory_without_barrier(const struct part_args *args)
{
    (void)args;
    store_smem_u32(WORD(thread_index()), 1);
    load_cluster_u32(WORD(thread_index()), cluster_rank() ^ 1);
    cluster_barrier();
}

DEVICE_FN void word_without_barrier(const struct part_args *args)
{
    (void)args;
    store_smem_u32(WORD(thread_index()), 1);
    load_smem_u32(WORD(thread_index() ^ 32));
}

DEVICE_FN void copy_read_too_early(const struct part_args *args)
{
    copy_async_4(WORD(thread_index()), (const float *)args->in, 1);
    load_smem_u32(WORD(thread_index()));
    copy_async_wait_all();
}

DEVICE_FN void copy_waited_for_by_another(const struct part_args *args)
{
    copy_async_4(WORD(thread_index()), (const float *)args->in, 1);
    block_barrier();
    load_smem_u32(WORD(thread_index() ^ 1));
    copy_async_wait_all();
}

DEVICE_FN void copy_behind_the_arrival(const struct part_args *args)
{
    make_barrier_for_all();
    copy_async_arrive(BARRIER);
    copy_async_4(WORD(thread_index()), (const float *)args->in, 1);
    mbarrier_wait(BARRIER, 0);
    load_smem_u32(WORD(thread_index() ^ 1));
    copy_async_wait_all();
}

DEVICE_FN void copies_that_nobody_waits_for(const struct part_args *args)
{
    make_barrier_for_all();
    copy_async_4(WORD(thread_index()), (const float *)args->in, 1);
    copy_async_arrive(BARRIER);
    load_smem_u32(WORD(thread_index()));
    copy_async_wait_all();
}

DEVICE_FN void copies_arrive_too_often(const struct part_args *args)
{
    make_barrier_for_all();
    copy_async_4(WORD(thread_index()), (const float *)args->in, 1);
    copy_async_arrive(BARRIER);
    if (FIRST)
        mbarrier_arrive(BARRIER);
    mbarrier_wait(BARRIER, 0);
    mbarrier_wait(BARRIER, 1); /* for ever: the second phase has one arrival */
    copy_async_wait_all();
}

DEVICE_FN void copy_not_waited_for(const struct part_args *args)
{
    copy_async_4(WORD(thread_index()), (const float *)args->in, 1);
}

DEVICE_FN void arrival_not_waited_for(const struct part_args *args)
{
    make_barrier_for_all();
    copy_async_4(WORD(thread_index()), (const float *)args->in, 1);
    copy_async_arrive(BARRIER);
}

DEVICE_FN void copy_not_aligned(const struct part_args *args)
{
    copy_async_4(SMEM + 2, (const float *)args->in, 1);
}

DEVICE_FN void copy_from_nowhere(const struct part_args *args)
{
    copy_async_4(WORD(thread_index()), (const float *)args->in - 1, 1);
}

KERNEL(PART, 1024, struct part_args)
{
    VARIANT(&args);
}
