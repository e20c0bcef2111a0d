/* TMA. 64 threads, of which the first does nearly everything. */
#include "config.h"
#include "part.h"

#define FIRST (thread_index() == 0)
#define BOX_BYTES 1024 /* 8 x 32 FP32 */

/* The box at (col, row) lies at the beginning of shared memory, and all know it. */
DEVICE_FN void load_box(const struct tensor_map *map, uint32_t bytes, int32_t col, int32_t row)
{
    begin_barrier(1);
    if (FIRST) {
        mbarrier_arrive_expect(BARRIER, bytes);
        tma_load(map, BARRIER, SMEM, col, row, 0);
    }
    mbarrier_wait(BARRIER, 0);
}

/* Every element of it: where swizzling by `span` puts it, zeros beyond the matrix. */
DEVICE_FN void expect_box(uint32_t span, uint32_t cols, int32_t col, int32_t row)
{
    for (uint32_t i = thread_index(); i < 8 * cols; i += 64) {
        const int32_t r = row + (int32_t)(i / cols), c = col + (int32_t)(i % cols);
        const uint32_t at = tma_swizzled(i / cols, i % cols * 4, cols * 4), plain = i * 4;
        const float wanted = r < 0 || r >= PART_ROWS || c < 0 || c >= PART_COLS ? 0.0f : (float)(r * PART_COLS + c);
        EXPECT(bits_float(load_smem_u32(WORD((span ? at : plain) / 4))) == wanted);
    }
}

/* ---- What must work ---------------------------------------------------------------------------------------------- */

DEVICE_FN void swizzled_by_128(const struct part_args *args)
{
    load_box(&args->in128, 1024, 32, 8);
    expect_box(128, 32, 32, 8);
}

DEVICE_FN void swizzled_by_64(const struct part_args *args)
{
    load_box(&args->in64, 512, 16, 3);
    expect_box(64, 16, 16, 3);
}

DEVICE_FN void swizzled_by_32(const struct part_args *args)
{
    load_box(&args->in32, 256, 8, 7);
    expect_box(32, 8, 8, 7);
}

DEVICE_FN void beyond_every_edge(const struct part_args *args)
{
    load_box(&args->plain, 1024, 48, 60);
    expect_box(0, 32, 48, 60);
}

DEVICE_FN void before_every_edge(const struct part_args *args)
{
    load_box(&args->in128, 1024, -3, -2);
    expect_box(128, 32, -3, -2);
}

DEVICE_FN void multicast_to_both(const struct part_args *args)
{
    begin_barrier(1);
    if (FIRST)
        mbarrier_arrive_expect(BARRIER, 1024);
    cluster_barrier();
    if (FIRST && cluster_rank() == 1)
        tma_load_multicast(&args->plain, BARRIER, SMEM, 0, 8, 0, 3);
    mbarrier_wait(BARRIER, 0);
    expect_box(0, 32, 0, 8);
    cluster_barrier();
}

DEVICE_FN void runs_of_bytes(const struct part_args *args)
{
    begin_barrier(1);
    if (!FIRST)
        return;
    mbarrier_arrive_expect(BARRIER, 256);
    bulk_load(SMEM, (const float *)args->in + 64, 256, BARRIER);
    mbarrier_wait(BARRIER, 0);
    EXPECT(bits_float(load_smem_u32(WORD(5))) == 69.0f);
    bulk_store((float *)args->out, SMEM, 256);
    tma_store_commit();
    tma_store_wait(0);
    EXPECT(((const volatile float *)args->out)[5] == 69.0f);
    bulk_reduce_add_f32((float *)args->out, (const float *)SMEM, 256);
    tma_store_commit();
    tma_store_wait(0);
    EXPECT(((const volatile float *)args->out)[5] == 138.0f);
}

/* A box comes, is stored where it hangs over the corner, and added there again. */
DEVICE_FN void stored_and_added(const struct part_args *args)
{
    const volatile float *out = (const volatile float *)args->out;
    load_box(&args->in128, BOX_BYTES, 0, 0);
    if (!FIRST)
        return;
    tma_store(&args->out128, SMEM, 48, 60, 0);
    tma_store_commit();
    TMA_STORE_WAIT_READ(0);
    tma_store_wait(0);
    EXPECT(out[60 * 64 + 47] == 0.0f && out[60 * 64 + 49] == 1.0f && out[63 * 64 + 63] == 3 * 64 + 15);
    tma_reduce_add(&args->out128, SMEM, 48, 60, 0);
    tma_store_commit();
    tma_store_wait(0);
    EXPECT(out[63 * 64 + 63] == 2 * (3 * 64 + 15));
}

/* By the memory model a fence anywhere between the write and the store will do, its issuer's own too. */
DEVICE_FN void fenced_by_the_issuer(const struct part_args *args)
{
    for (uint32_t i = thread_index(); i < 256; i += 64)
        store_smem_u32(WORD(i), 0);
    block_barrier();
    if (FIRST) {
        fence_smem_for_async();
        tma_store(&args->out128, SMEM, 0, 0, 0);
        tma_store_commit();
        TMA_STORE_WAIT_READ(0);
    }
}

DEVICE_FN void map_is_edited(const struct part_args *args)
{
    struct tensor_map *map = (struct tensor_map *)args->map;
    if (FIRST) {
        tma_map_set_address(map, (const float *)args->in + 64);
        tma_map_set_rows(map, 4);
        tma_map_release();
    }
    block_barrier();
    tma_map_acquire(map);
    load_box(map, 1024, 0, 0);
    EXPECT(bits_float(load_smem_u32(WORD(0))) == 64.0f);
    EXPECT(bits_float(load_smem_u32(WORD(3 * 32))) == 256.0f);
    EXPECT(bits_float(load_smem_u32(WORD(4 * 32))) == 0.0f);
}

/* ---- What must be found ------------------------------------------------------------------------------------------ */

DEVICE_FN void edited_map_is_not_acquired(const struct part_args *args)
{
    struct tensor_map *map = (struct tensor_map *)args->map;
    if (FIRST) {
        tma_map_set_address(map, (const float *)args->in + 64);
        tma_map_release();
    }
    block_barrier();
    load_box(map, 1024, 0, 0);
    EXPECT(bits_float(load_smem_u32(WORD(0))) == 64.0f);
}

DEVICE_FN void edited_map_is_not_released(const struct part_args *args)
{
    struct tensor_map *map = (struct tensor_map *)args->map;
    if (FIRST)
        tma_map_set_address(map, (const float *)args->in + 64);
    block_barrier();
    tma_map_acquire(map);
    load_box(map, 1024, 0, 0);
    EXPECT(bits_float(load_smem_u32(WORD(0))) == 64.0f);
}

DEVICE_FN void read_before_the_wait(const struct part_args *args)
{
    begin_barrier(1);
    if (FIRST) {
        mbarrier_arrive_expect(BARRIER, 1024);
        tma_load(&args->plain, BARRIER, SMEM, 0, 0, 0);
        load_smem_u32(WORD(0));
        mbarrier_wait(BARRIER, 0);
    }
}

DEVICE_FN void landed_but_not_waited_for(const struct part_args *args)
{
    load_box(&args->plain, 1024, 0, 0);
    if (FIRST) {
        mbarrier_arrive_expect(BARRIER, 2048);
        tma_load(&args->plain, BARRIER, SMEM, 0, 0, 0);
        tma_load(&args->plain, BARRIER, SMEM + 2048, 0, 0, 0);
        for (int i = 0; i < 1000; ++i)
            mbarrier_try_wait(BARRIER, 0); /* the phase before */
        load_smem_u32(WORD(0));
        mbarrier_wait(BARRIER, 1);
    }
}

DEVICE_FN void loaded_onto_words_of_another(const struct part_args *args)
{
    begin_barrier(1);
    if (thread_index() == 32)
        store_smem_u32(WORD(0), 1);
    if (FIRST) {
        mbarrier_arrive_expect(BARRIER, BOX_BYTES);
        tma_load(&args->plain, BARRIER, SMEM, 0, 0, 0);
    }
    mbarrier_wait(BARRIER, 0);
}

DEVICE_FN void loaded_onto_words_not_fenced(const struct part_args *args)
{
    begin_barrier(1);
    if (FIRST) {
        store_smem_u32(WORD(0), 1);
        mbarrier_arrive_expect(BARRIER, BOX_BYTES);
        tma_load(&args->plain, BARRIER, SMEM, 0, 0, 0);
    }
    mbarrier_wait(BARRIER, 0);
}

DEVICE_FN void loaded_onto_a_load(const struct part_args *args)
{
    begin_barrier(1);
    if (FIRST) {
        mbarrier_arrive_expect(BARRIER, 2048);
        tma_load(&args->plain, BARRIER, SMEM, 0, 0, 0);
        tma_load(&args->plain, BARRIER, SMEM + 128, 0, 0, 0);
        mbarrier_wait(BARRIER, 0);
    }
}

DEVICE_FN void block_ends_before_the_load(const struct part_args *args)
{
    begin_barrier(1);
    if (FIRST) {
        mbarrier_arrive_expect(BARRIER, 1024);
        tma_load(&args->plain, BARRIER, SMEM, 0, 0, 0);
    }
}

DEVICE_FN void box_not_aligned(const struct part_args *args)
{
    begin_barrier(1);
    if (FIRST)
        tma_load(&args->plain, BARRIER, SMEM + 16, 0, 0, 0);
}

DEVICE_FN void box_beyond_shared_memory(const struct part_args *args)
{
    begin_barrier(1);
    if (FIRST)
        tma_load(&args->plain, BARRIER, SMEM + 16384 - 512, 0, 0, 0);
}

DEVICE_FN void no_fence_after_init(const struct part_args *args)
{
    if (FIRST) {
        mbarrier_init(BARRIER, 1);
        mbarrier_arrive_expect(BARRIER, 1024);
        tma_load(&args->plain, BARRIER, SMEM, 0, 0, 0);
    }
}

DEVICE_FN void no_map_there(const struct part_args *args)
{
    begin_barrier(1);
    if (FIRST)
        tma_load((const struct tensor_map *)args->in, BARRIER, SMEM, 0, 0, 0);
}

DEVICE_FN void store_without_proxy_fence(const struct part_args *args)
{
    fence_smem_for_async(); /* too early */
    for (uint32_t i = thread_index(); i < 256; i += 64)
        store_smem_u32(WORD(i), 0);
    block_barrier();
    if (FIRST) {
        tma_store(&args->out128, SMEM, 0, 0, 0);
        tma_store_commit();
        TMA_STORE_WAIT_READ(0);
    }
}

DEVICE_FN void store_is_overtaken(const struct part_args *args)
{
    load_box(&args->plain, 1024, 0, 0);
    if (FIRST) {
        tma_store(&args->out128, SMEM, 0, 0, 0);
        tma_store_commit();
        store_smem_u32(WORD(0), 5);
        TMA_STORE_WAIT_READ(0);
    }
}

DEVICE_FN void store_is_not_committed(const struct part_args *args)
{
    load_box(&args->plain, 1024, 0, 0);
    if (FIRST)
        tma_store(&args->out128, SMEM, 0, 0, 0);
}

DEVICE_FN void store_to_a_constant_tensor(const struct part_args *args)
{
    load_box(&args->plain, 1024, 0, 0);
    if (FIRST) {
        tma_store(&args->in128, SMEM, 0, 0, 0);
        tma_store_commit();
        TMA_STORE_WAIT_READ(0);
    }
}

DEVICE_FN void stored_but_only_read_is_waited_for(const struct part_args *args)
{
    load_box(&args->in128, 1024, 0, 0);
    if (FIRST) {
        tma_store(&args->out128, SMEM, 0, 0, 0);
        tma_store_commit();
        TMA_STORE_WAIT_READ(0);
        EXPECT(((const volatile float *)args->out)[1] == 1.0f);
    }
}

KERNEL(PART, 1024, struct part_args)
{
    VARIANT(&args);
}
