/* dg_gemm on a fake GPU: what it launches, with which maps, what it costs the second time, and every driver call
 * failing. */
#include "ops/gemm_memo.h"
#include "tests/fake/alone.h"
#include "tests/fake/balance.h"

#include <pthread.h>
#include <unistd.h>

enum { M = 1000, N = 2112, K = 7168 };

static struct fake *fake;
static dg_gemm_args args;
static CUstream stream;

static void *device_memory(int device, size_t bytes)
{
    void *data = NULL;
    EXPECT_OK(dg_alloc(device, bytes, &data));
    return data;
}

static dg_gemm_args make_args(int device, int64_t m, int64_t n, int64_t k)
{
    dg_gemm_args out = DG_GEMM_ARGS_INIT;
    int64_t kg = (k + 127) / 128, nb = (n + 127) / 128;
    out.a = dg_matrix(device_memory(device, (size_t)(m * k)), DG_FLOAT8_E4M3, device, m, k);
    out.b = dg_matrix(device_memory(device, (size_t)(n * k)), DG_FLOAT8_E4M3, device, n, k);
    out.sfa = dg_matrix(device_memory(device, (size_t)(m * kg * 4)), DG_FLOAT32, device, m, kg);
    out.sfb = dg_matrix(device_memory(device, (size_t)(nb * kg * 4)), DG_FLOAT32, device, nb, kg);
    out.d = dg_matrix(device_memory(device, (size_t)(m * n * 4)), DG_BFLOAT16, device, m, n);
    return out;
}

/* Kernels are compiled for real, into a cache of this process's own. */
static void set_up(void)
{
    fake = fake_open();
    setenv("DG_JIT_CACHE_DIR", fake_make_directory(), 1);
    fake->args_bytes = sizeof(struct gemm_1d2d_args);
    args = make_args(0, M, N, K);
    stream = fake->stream_create(fake->primary(0));
}

static const struct fake_launch *last_launch(void)
{
    EXPECT(fake->launch_count > 0);
    return &fake->launches[(fake->launch_count - 1) % FAKE_LAUNCHES];
}

static const struct gemm_1d2d_args *kernel_args(const struct fake_launch *launch)
{
    return (const struct gemm_1d2d_args *)(const void *)launch->args;
}

static struct gemm_1d2d_plan planned(const dg_gemm_args *a)
{
    struct gemm_problem p;
    struct gemm_1d2d_plan plan;
    dg_device_info h200 = DG_DEVICE_INFO_INIT;
    EXPECT_OK(dg_device_preset("h200", &h200));
    EXPECT_OK(gemm_problem_make(a, NULL_DATA_ACCEPTED, &p));
    gemm_1d2d_choose(&p, &h200, h200.num_sms, &plan);
    return plan;
}

/* ---- What is launched ---------------------------------------------------------------------------------------- */

static void expect_map(const struct tensor_map *map, const dg_tensor *t, int type, int box_rows, int box_cols,
                       int swizzle)
{
    struct fake_tensor_map m = fake_read_map(map);
    size_t element = dg_dtype_size(t->dtype);
    EXPECT(m.address == (uint64_t)(uintptr_t)t->data);
    EXPECT_INT(m.type, type);
    EXPECT_INT(m.rank, 3);
    EXPECT_INT(m.sizes[0], t->shape[1]);
    EXPECT_INT(m.sizes[1], t->shape[0]);
    EXPECT_INT(m.sizes[2], 1);
    EXPECT_INT(m.strides[0], t->stride[0] * (int64_t)element);
    EXPECT_INT(m.box[0], box_cols);
    EXPECT_INT(m.box[1], box_rows);
    EXPECT_INT(m.box[2], 1);
    EXPECT_INT(m.swizzle, swizzle);
}

TEST_ALONE(the_launch_is_what_was_planned)
{
    set_up();
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    const struct gemm_1d2d_plan plan = planned(&args);
    const struct fake_launch *l = last_launch();
    EXPECT(strcmp(l->kernel, "sm90_fp8_gemm_1d2d") == 0);
    EXPECT_INT(l->grid[0], plan.grid);
    EXPECT_INT(l->block[0], plan.threads);
    EXPECT_INT(l->smem_bytes, plan.config.smem_bytes);
    EXPECT_INT(l->cluster[0], plan.cluster > 1 ? plan.cluster : 0);
    EXPECT(l->stream == stream && !l->pdl && !l->loaded_late);
    const struct gemm_1d2d_args *k = kernel_args(l);
    expect_map(&k->a, &args.a, CU_TENSOR_MAP_DATA_TYPE_UINT8, plan.a_box_rows, 128, CU_TENSOR_MAP_SWIZZLE_128B);
    expect_map(&k->b, &args.b, CU_TENSOR_MAP_DATA_TYPE_UINT8, plan.b_box_rows, 128, CU_TENSOR_MAP_SWIZZLE_128B);
    int store_bytes = plan.config.store_cols * 2;
    expect_map(&k->d, &args.d, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 64, plan.config.store_cols,
               store_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
               : store_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                   : CU_TENSOR_MAP_SWIZZLE_32B);
    EXPECT(k->m == M && k->n == N && k->k_blocks == K / 128);
    EXPECT_INT(k->load_bytes, plan.load_bytes);
    EXPECT(k->sfa.data == (uint64_t)(uintptr_t)args.sfa.data && k->sfa.row_stride == 56 && k->sfa.col_stride == 1);
    EXPECT_INT(k->sched.tiles, plan.sched.tiles);
}

TEST_ALONE(aligned_scales_get_a_map)
{
    set_up();
    dg_tensor layout;
    EXPECT_OK(dg_scale_layout(M, K, 1, 128, DG_FLOAT32, 0, &layout, NULL));
    memcpy(args.sfa.stride, layout.stride, sizeof layout.stride);
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    const struct gemm_1d2d_plan plan = planned(&args);
    EXPECT_INT(plan.config.sfa_tma, 1);
    dg_tensor columns = dg_transposed(args.sfa);
    expect_map(&kernel_args(last_launch())->scales, &columns, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, plan.scale_box_rows,
               plan.config.block_m, CU_TENSOR_MAP_SWIZZLE_NONE);
    EXPECT_INT(kernel_args(last_launch())->load_bytes, plan.load_bytes);
}

/* With few rows the other kernel runs. */
TEST_ALONE(few_rows_launch_the_skinny_kernel)
{
    set_up();
    fake->args_bytes = sizeof(struct gemm_skinny_args);
    args = make_args(0, 5, N, K);
    dg_tensor layout;
    EXPECT_OK(dg_scale_layout(5, K, 1, 128, DG_FLOAT32, 0, &layout, NULL));
    memcpy(args.sfa.stride, layout.stride, sizeof layout.stride);
    args.sfa.data = device_memory(0, (size_t)(8 * K / 128 * 4));
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    struct gemm_problem p;
    struct gemm_skinny_plan plan;
    dg_device_info h200 = DG_DEVICE_INFO_INIT;
    EXPECT_OK(dg_device_preset("h200", &h200));
    EXPECT_OK(gemm_problem_make(&args, NULL_DATA_ACCEPTED, &p));
    EXPECT(gemm_skinny_choose(&p, &h200, h200.num_sms, &plan));
    const struct fake_launch *l = last_launch();
    const struct gemm_skinny_args *k = (const struct gemm_skinny_args *)(const void *)l->args;
    EXPECT(strcmp(l->kernel, "sm90_fp8_gemm_skinny") == 0);
    EXPECT_INT(l->grid[0], plan.grid);
    EXPECT_INT(l->block[0], 192);
    EXPECT_INT(l->smem_bytes, plan.config.smem_bytes);
    EXPECT_INT(l->cluster[0], plan.config.splits > 1 ? plan.config.splits : 0);
    expect_map(&k->a, &args.a, CU_TENSOR_MAP_DATA_TYPE_UINT8, 5, 128, CU_TENSOR_MAP_SWIZZLE_128B);
    expect_map(&k->b, &args.b, CU_TENSOR_MAP_DATA_TYPE_UINT8, 64, 128, CU_TENSOR_MAP_SWIZZLE_128B);
    dg_tensor columns = dg_transposed(args.sfa);
    expect_map(&k->scales, &columns, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, plan.config.step, plan.config.block_m,
               CU_TENSOR_MAP_SWIZZLE_NONE);
    EXPECT(k->m == 5 && k->n == N && k->k_blocks == K / 128 && k->tiles == plan.tiles);
    EXPECT_INT(k->load_bytes, plan.load_bytes);
}

TEST_ALONE(what_tma_cannot_take_goes_to_the_simple_kernel)
{
    set_up();
    args.a.shape[1] = args.b.shape[1] = K - 1;
    args.a.stride[0] = args.b.stride[0] = K - 1;
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT(strcmp(last_launch()->kernel, "gemm_simple") == 0);
    args = make_args(0, 5, 7, 0); /* K = 0: D becomes zeros */
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT(strcmp(last_launch()->kernel, "gemm_simple") == 0);
}

TEST_ALONE(an_empty_problem_touches_nothing)
{
    set_up();
    fake->reset();
    args.a.shape[0] = args.sfa.shape[0] = args.d.shape[0] = 0;
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_INT(fake->call_count, 0);
}

TEST_ALONE(settings_change_the_launch)
{
    set_up();
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    uint32_t all = last_launch()->grid[0];
    EXPECT_OK(dg_set(NULL, DG_SETTING_NUM_SMS, 7));
    EXPECT_OK(dg_set(NULL, DG_SETTING_PDL, 1));
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT(last_launch()->grid[0] <= 7 && last_launch()->grid[0] < all && last_launch()->pdl);
    args.num_sms = 20;
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT(last_launch()->grid[0] <= 20 && last_launch()->grid[0] > 7);
    args.num_sms = 1;
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_INT(last_launch()->grid[0], 1);
}

/* B comes early if the caller says that it is constant, and only under programmatic dependent launch; a remembered call
   of other flags or settings is another call. */
TEST_ALONE(constant_weights_are_loaded_early)
{
    set_up();
    for (int round = 0; round < 2; ++round)
        for (int pdl = 0; pdl < 2; ++pdl)
            for (uint32_t flags = 0; flags <= DG_GEMM_B_CONSTANT; ++flags) {
                EXPECT_OK(dg_set(NULL, DG_SETTING_PDL, pdl));
                args.flags = flags;
                EXPECT_OK(dg_gemm(NULL, &args, stream));
                EXPECT_INT(kernel_args(last_launch())->b_early, pdl && flags == DG_GEMM_B_CONSTANT);
                EXPECT_OK(dg_gemm(NULL, &args, stream));
                EXPECT_INT(kernel_args(last_launch())->b_early, pdl && flags == DG_GEMM_B_CONSTANT);
            }
}

TEST_ALONE(compiling_can_be_forbidden)
{
    set_up();
    EXPECT_OK(dg_set(NULL, DG_SETTING_COMPILE, 0));
    EXPECT_REFUSED(dg_gemm(NULL, &args, stream), DG_ERROR_COMPILE_FORBIDDEN, "sm90_fp8_gemm_1d2d");
    EXPECT_INT(fake->launch_count, 0);
    EXPECT_OK(dg_set(NULL, DG_SETTING_COMPILE, 1));
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_OK(dg_set(NULL, DG_SETTING_COMPILE, 0));
    EXPECT_OK(dg_gemm(NULL, &args, stream)); /* cached by now */
}

/* ---- The second time ----------------------------------------------------------------------------------------- */

TEST_ALONE(a_repeated_call_only_launches)
{
    set_up();
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    fake->reset();
    fake->args_bytes = sizeof(struct gemm_1d2d_args);
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_INT(fake->count("cuLaunchKernelEx"), 1);
    EXPECT_INT(fake->count("cuTensorMapEncodeTiled"), 0);
    EXPECT_INT(fake->count("cuPointerGetAttributes"), 0);
    EXPECT_THAT(fake->call_count <= 6, "%d driver calls", fake->call_count);
    EXPECT(kernel_args(last_launch())->sfa.data == (uint64_t)(uintptr_t)args.sfa.data);
}

TEST_ALONE(new_pointers_get_new_maps_only)
{
    set_up();
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    args = make_args(0, M, N, K);
    fake->reset();
    fake->args_bytes = sizeof(struct gemm_1d2d_args);
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_INT(fake->count("cuTensorMapEncodeTiled"), 3);
    EXPECT_INT(fake->count("cuLibraryLoadData"), 0);
    EXPECT(fake_read_map(&kernel_args(last_launch())->a).address == (uint64_t)(uintptr_t)args.a.data);
}

TEST_ALONE(many_shapes_evict_each_other_without_harm)
{
    set_up();
    for (int round = 0; round < 2; ++round)
        for (int64_t m = M - 199; m <= M; ++m) {
            args.a.shape[0] = args.sfa.shape[0] = args.d.shape[0] = m;
            EXPECT_OK(dg_gemm(NULL, &args, stream));
            EXPECT_INT(kernel_args(last_launch())->m, m);
        }
}

/* ---- Contexts, devices, capture, threads ---------------------------------------------------------------------- */

TEST_ALONE(each_context_gets_the_code_before_the_launch)
{
    set_up();
    CUcontext other = fake->context_create(0);
    CUstream second = fake->stream_create(other);
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_OK(dg_gemm(NULL, &args, second));
    EXPECT(last_launch()->context == other && !last_launch()->loaded_late);
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    EXPECT(last_launch()->context == fake->primary(0));
}

TEST_ALONE(two_devices_in_one_process)
{
    set_up();
    dg_gemm_args on_one = make_args(1, M, N, K);
    CUstream of_one = fake->stream_create(fake->primary(1));
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_OK(dg_gemm(NULL, &on_one, of_one));
    EXPECT_INT(last_launch()->device, 1);
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_INT(last_launch()->device, 0);
    EXPECT_REFUSED(dg_gemm(NULL, &args, of_one), DG_ERROR_INVALID_ARGUMENT, "stream");
}

TEST_ALONE(a_cold_call_inside_a_capture_works)
{
    set_up();
    fake->capture(stream, true);
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT(!fake->capture_spoilt(stream) && last_launch()->captured && !last_launch()->loaded_late);
    fake->capture(stream, false);
}

TEST_ALONE(host_memory_in_a_gpu_call_is_refused)
{
    static char host[M * K];
    set_up();
    args.a.data = host + (16 - (uintptr_t)host % 16);
    EXPECT_REFUSED(dg_gemm(NULL, &args, stream), DG_ERROR_INVALID_ARGUMENT, "a.data is");
    EXPECT(!dg_is_supported(NULL, &args));
    EXPECT_INT(fake->launch_count, 0);
    void *on_host = args.a.data;
    args = make_args(0, M, N, K);
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    args.a.data = on_host; /* the shape is known by now */
    EXPECT_REFUSED(dg_gemm(NULL, &args, stream), DG_ERROR_INVALID_ARGUMENT, "a.data is");
    EXPECT_INT(fake->launch_count, 1);
}

TEST_ALONE(a_reset_device_is_used_again)
{
    set_up();
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    fake->reset();
    snprintf(fake->fail_function, sizeof fake->fail_function, "cuCtxPushCurrent");
    fake->fail_call = 1;
    fake->fail_result = CUDA_ERROR_CONTEXT_IS_DESTROYED; /* what the retained primary context gives after a reset */
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    EXPECT_INT(fake->count("cuDevicePrimaryCtxRetain"), 1);
    EXPECT_INT(fake->launch_count, 1);
}

TEST_ALONE(an_earlier_error_is_reported_as_such)
{
    set_up();
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    fake->reset();
    snprintf(fake->fail_function, sizeof fake->fail_function, "cuLaunchKernelEx");
    fake->fail_call = 1;
    fake->fail_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    EXPECT_REFUSED(dg_gemm(NULL, &args, stream), DG_ERROR_EARLIER_CUDA, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

static dg_status call_gemm(void)
{
    return dg_gemm(NULL, &args, stream);
}

TEST_ALONE(every_driver_call_failing_in_turn)
{
    set_up();
    int failures = fail_everywhere_keeping(fake, call_gemm, 1);
    EXPECT_THAT(failures > 10, "only %d calls failed", failures);
}

static void *gemm_many(void *unused)
{
    (void)unused;
    for (int i = 0; i < 300; ++i)
        if (dg_gemm(NULL, &args, stream) != DG_SUCCESS)
            return (void *)1;
    return NULL;
}

TEST_ALONE(threads_call_at_once)
{
    pthread_t threads[8];
    void *failed[8];
    set_up();
    for (int i = 0; i < 8; ++i)
        EXPECT(pthread_create(&threads[i], NULL, gemm_many, NULL) == 0);
    for (int i = 0; i < 8; ++i)
        pthread_join(threads[i], &failed[i]);
    for (int i = 0; i < 8; ++i)
        EXPECT(failed[i] == NULL);
    EXPECT_INT(fake->launch_count, 8 * 300);
    EXPECT_INT(fake->count("cuLibraryLoadData"), 1);
}

static pthread_key_t late_key;
static dg_status late_status = DG_ERROR_INTERNAL;

static void call_late(void *unused)
{
    (void)unused;
    late_status = dg_gemm(NULL, &args, stream);
}

static void *call_and_leave(void *unused)
{
    (void)unused;
    late_status = dg_gemm(NULL, &args, stream); /* makes the memo's key first, whose destructor so runs first */
    pthread_key_create(&late_key, call_late);
    pthread_setspecific(late_key, &late_key);
    late_status = DG_ERROR_INTERNAL;
    return NULL;
}

TEST_ALONE(a_destructor_may_call_at_the_end_of_a_thread)
{
    pthread_t thread;
    set_up();
    EXPECT(pthread_create(&thread, NULL, call_and_leave, NULL) == 0);
    pthread_join(thread, NULL);
    EXPECT_INT(late_status, DG_SUCCESS);
}

TEST_ALONE(many_calls_are_remembered)
{
    enum { CALLS = 256 };
    static dg_gemm_args calls[CALLS];
    set_up();
    for (int i = 0; i < CALLS; ++i)
        calls[i] = make_args(0, 16, 128, 128);
    for (int round = 0; round < 2; ++round) {
        fake->reset();
        for (int i = 0; i < CALLS; ++i)
            EXPECT_OK(dg_gemm(NULL, &calls[i], stream));
    }
    EXPECT_THAT(fake->count("cuTensorMapEncodeTiled") < 3 * CALLS / 10, "%d maps made again",
                fake->count("cuTensorMapEncodeTiled"));
}

/* ---- Questions ----------------------------------------------------------------------------------------------- */

TEST_ALONE(is_supported_agrees_with_the_call)
{
    set_up();
    static const int64_t sizes[] = {0, 1, 5, 128, 130};
    for (size_t i = 0; i < 125; ++i) {
        dg_gemm_args a = make_args(0, sizes[i % 5], sizes[i / 5 % 5], sizes[i / 25]);
        if (i % 3 == 0)
            a.sfa.shape[0] += 1;
        if (i % 7 == 0)
            a.b.dtype = DG_BFLOAT16;
        EXPECT_INT(dg_is_supported(NULL, &a), dg_gemm(NULL, &a, stream) == DG_SUCCESS);
    }
}

static int64_t steps;

static void count_steps(void *user, int64_t done, int64_t total, const char *what)
{
    int64_t value;
    EXPECT(user == &steps && done <= total && what[0]);
    EXPECT_OK(dg_get(NULL, DG_SETTING_COMPILE, &value)); /* calls back must not confuse the sentences */
    ++steps;
}

TEST_ALONE(a_question_looks_at_the_pointers_it_has)
{
    static _Alignas(16) char host[M * N * 2];
    set_up();
    args.a.data = args.b.data = args.sfa.data = args.sfb.data = NULL;
    EXPECT(dg_is_supported(NULL, &args));
    args.d.data = host;
    EXPECT(!dg_is_supported(NULL, &args));
    EXPECT_TEXT(dg_last_error(), "d.data is");
}

TEST_ALONE(precompiling_stores_kernels_in_the_cache_of_the_moment)
{
    set_up();
    int64_t compiled = 0, cached = 0;
    dg_precompile_args p = DG_PRECOMPILE_ARGS_INIT;
    p.gemm = &args;
    EXPECT_OK(dg_precompile(NULL, &p, &compiled, &cached));
    EXPECT(compiled == 1 && cached == 0);
    const char *second = fake_make_directory();
    setenv("DG_JIT_CACHE_DIR", second, 1);
    EXPECT_OK(dg_precompile(NULL, &p, &compiled, &cached)); /* from memory into the new one */
    EXPECT(compiled == 0 && cached == 1);
    char command[512];
    snprintf(command, sizeof command, "ls '%s'/sm90_fp8_gemm_1d2d/*.cubin >/dev/null", second);
    EXPECT_INT(system(command), 0);
    setenv("DG_JIT_CACHE_DIR", "/proc/nowhere", 1);
    EXPECT_REFUSED(dg_precompile(NULL, &p, NULL, NULL), DG_ERROR_IO, "1 kernels could not be stored in /proc/nowhere");
}

TEST_ALONE(an_empty_batch_keeps_its_dimension_in_explanations)
{
    dg_gemm_args empty = DG_GEMM_ARGS_INIT;
    dg_explanation e = {.size = sizeof e};
    set_up();
    empty.a = (dg_tensor){NULL, DG_FLOAT8_E4M3, 0, 3, 0, {0, 8, 128}, {1024, 128, 1}};
    empty.b = empty.a;
    empty.sfa = (dg_tensor){NULL, DG_FLOAT32, 0, 3, 0, {0, 8, 1}, {8, 1, 1}};
    empty.sfb = (dg_tensor){NULL, DG_FLOAT32, 0, 3, 0, {0, 1, 1}, {1, 1, 1}};
    empty.d = (dg_tensor){NULL, DG_BFLOAT16, 0, 3, 0, {0, 8, 8}, {64, 8, 1}};
    EXPECT_OK(dg_gemm_explain(NULL, &empty, NULL, &e));
    EXPECT(e.sfa_layout.ndim == 3 && e.sfa_layout.shape[0] == 0 && e.sfa_layout.shape[1] == 8);
    EXPECT(e.sfb_layout.ndim == 3 && e.sfb_layout.shape[0] == 0 && e.sfb_layout.shape[1] == 1);
}

TEST_ALONE(precompiled_kernels_are_what_the_calls_want)
{
    set_up();
    int64_t compiled = 0, cached = 0;
    dg_precompile_args p = DG_PRECOMPILE_ARGS_INIT;
    p.gemm = &args;
    p.m_min = 1;
    p.m_max = M;
    p.progress = count_steps;
    p.user = &steps;
    EXPECT_OK(dg_precompile(NULL, &p, &compiled, &cached));
    EXPECT(compiled > 1 && cached == 0 && steps == 1 + compiled + 1);
    EXPECT_OK(dg_precompile(NULL, &p, &compiled, &cached));
    EXPECT(compiled == 0 && cached > 1);
    EXPECT_OK(dg_set(NULL, DG_SETTING_COMPILE, 0));
    for (int64_t m = 1; m <= M; m += 13) {
        args.a.shape[0] = args.sfa.shape[0] = args.d.shape[0] = m;
        EXPECT_OK(dg_gemm(NULL, &args, stream));
    }
    p.m_max = 0;
    EXPECT_REFUSED(dg_precompile(NULL, &p, NULL, NULL), DG_ERROR_INVALID_ARGUMENT, "m_min is 1 and m_max 0");
    p.m_max = INT64_MAX;
    EXPECT_REFUSED(dg_precompile(NULL, &p, NULL, NULL), DG_ERROR_INVALID_ARGUMENT, "m_max <= 2^40");
}

TEST_ALONE(precompiling_fails_where_kernels_cannot_be_stored)
{
    set_up();
    int64_t compiled = 0, cached = 0;
    dg_precompile_args p = DG_PRECOMPILE_ARGS_INIT;
    p.gemm = &args;
    p.progress = count_steps;
    p.user = &steps;
    EXPECT_OK(dg_set(NULL, DG_SETTING_COMPILE, 0));
    EXPECT_REFUSED(dg_precompile(NULL, &p, NULL, NULL), DG_ERROR_COMPILE_FORBIDDEN, "dg_precompile: kernel ");
    EXPECT_OK(dg_set(NULL, DG_SETTING_COMPILE, 1));
    setenv("DG_JIT_CACHE_DIR", "/proc/nowhere", 1);
    EXPECT_REFUSED(dg_precompile(NULL, &p, &compiled, &cached), DG_ERROR_IO,
                   "dg_precompile: 1 kernels could not be stored in /proc/nowhere (No such file or directory)");
    EXPECT(compiled == 1 && cached == 0);
    EXPECT_OK(dg_gemm(NULL, &args, stream)); /* a launch does with the kernel in memory */
    unsetenv("DG_JIT_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    EXPECT_REFUSED(dg_precompile(NULL, &p, NULL, NULL), DG_ERROR_IO, "as neither DG_JIT_CACHE_DIR nor");
}

static void precompile_pack(const char *path)
{
    dg_precompile_args p = DG_PRECOMPILE_ARGS_INIT;
    int64_t compiled = 0;
    p.gemm = &args;
    p.m_min = 1;
    p.m_max = M;
    p.pack = path;
    EXPECT_OK(dg_precompile(NULL, &p, &compiled, NULL));
    EXPECT(compiled > 1);
}

/* The cache cannot be written here, neither when the pack is made nor when it is used. */
TEST_ALONE(a_pack_is_all_that_calls_need)
{
    char path[512];
    int state = 0;
    snprintf(path, sizeof path, "%s/kernels.pack", fake_make_directory());
    pid_t child = fork(); /* so that the kernels are not in this process's memory */
    set_up();
    setenv("DG_JIT_CACHE_DIR", "/proc/nowhere", 1);
    if (child == 0) {
        precompile_pack(path);
        _exit(0);
    }
    EXPECT(waitpid(child, &state, 0) == child && state == 0);
    setenv("DG_NVRTC_PATH", "/nowhere", 1);
    EXPECT_REFUSED(dg_gemm(NULL, &args, stream), DG_ERROR_NO_COMPILER, "no NVRTC library");
    setenv("DG_PACK", path, 1);
    EXPECT_OK(dg_set(NULL, DG_SETTING_COMPILE, 0));
    for (int64_t m = 1; m <= M; m += 13) {
        args.a.shape[0] = args.sfa.shape[0] = args.d.shape[0] = m;
        EXPECT_OK(dg_gemm(NULL, &args, stream));
    }
}

TEST_ALONE(callers_of_before_a_field_existed_are_served)
{
    dg_precompile_args p = DG_PRECOMPILE_ARGS_INIT;
    set_up();
    p.size = offsetof(dg_precompile_args, pack);
    p.gemm = &args;
    p.pack = "/proc/nowhere/beyond.the.struct";
    p.quantize = (const void *)p.pack;
    EXPECT_OK(dg_precompile(NULL, &p, NULL, NULL));
    p.size = offsetof(dg_precompile_args, quantize);
    EXPECT_REFUSED(dg_precompile(NULL, &p, NULL, NULL), DG_ERROR_IO,
                   "dg_precompile: the pack /proc/nowhere/beyond.the.struct cannot be written");
}

TEST_ALONE(calls_work_when_the_process_has_no_thread_key_left)
{
    pthread_key_t key;
    dg_precompile_args p = DG_PRECOMPILE_ARGS_INIT;
    set_up();
    p.gemm = &args;
    EXPECT_OK(dg_precompile(NULL, &p, NULL, NULL)); /* NVRTC itself does not do without a key */
    while (pthread_key_create(&key, NULL) == 0) {
    }
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_OK(dg_gemm(NULL, &args, stream));
    EXPECT_INT(fake->launch_count, 2);
}
