/* dg_quantize_fp8 and dg_transform_scale on a fake GPU: what they launch, and every driver call failing. */
#include "shared/scale_args.h"
#include "tests/fake/alone.h"
#include "tests/fake/balance.h"
#include "tests/test.h"

enum { M = 300, K = 1000, GROUPS = 8, WORDS = 2 };

static struct fake *fake;
static CUstream stream;
static dg_quantize_args quantize = DG_QUANTIZE_ARGS_INIT;
static dg_transform_scale_args transform = DG_TRANSFORM_SCALE_ARGS_INIT;

static dg_tensor on_device(dg_dtype dtype, int64_t rows, int64_t cols)
{
    void *data = NULL;
    EXPECT_OK(dg_alloc(0, (size_t)(rows * cols) * dg_dtype_size(dtype), &data));
    return dg_matrix(data, dtype, 0, rows, cols);
}

/* Kernels are compiled for real, into a cache of this process's own. */
static void set_up(size_t args_bytes)
{
    fake = fake_open();
    setenv("DG_JIT_CACHE_DIR", fake_make_directory(), 1);
    fake->args_bytes = args_bytes;
    stream = fake->stream_create(fake->primary(0));
}

static void set_up_quantize(void)
{
    set_up(sizeof(struct quantize_args));
    quantize.x = on_device(DG_BFLOAT16, M, K);
    quantize.q = on_device(DG_FLOAT8_E4M3, M, K);
    quantize.sf = on_device(DG_FLOAT32, M, GROUPS);
    quantize.gran_mn = 1;
    quantize.gran_k = 128;
}

static void set_up_transform(void)
{
    set_up(sizeof(struct transform_scale_args));
    transform.src = on_device(DG_FLOAT32, M, GROUPS);
    transform.dst = on_device(DG_INT32, M, WORDS);
}

static dg_status call_quantize(void)
{
    return dg_quantize_fp8(NULL, &quantize, stream);
}

static dg_status call_transform(void)
{
    return dg_transform_scale(NULL, &transform, stream);
}

static const struct fake_launch *last_launch(void)
{
    EXPECT(fake->launch_count > 0);
    return &fake->launches[(fake->launch_count - 1) % FAKE_LAUNCHES];
}

static void expect_strided(const struct strided *got, const dg_tensor *wanted, bool flipped)
{
    EXPECT(got->data == (uint64_t)(uintptr_t)wanted->data);
    EXPECT_INT(got->row_stride, wanted->stride[flipped]);
    EXPECT_INT(got->col_stride, wanted->stride[!flipped]);
}

static void expect_launch(const char *kernel, int64_t grid, int64_t threads)
{
    const struct fake_launch *l = last_launch();
    EXPECT(strcmp(l->kernel, kernel) == 0);
    EXPECT_INT(l->grid[0], grid);
    EXPECT_INT(l->block[0], threads);
    EXPECT(l->stream == stream && !l->loaded_late);
}

/* ---- What is launched ------------------------------------------------------------------------------------------- */

TEST_ALONE(quantising_launches_a_block_for_each_tile)
{
    set_up_quantize();
    EXPECT_OK(call_quantize());
    expect_launch("quantize_fp8", 3 * 8, QUANTIZE_THREADS); /* 128 x 128 tiles of 300 x 1000 */
    const struct quantize_args *k = (const void *)last_launch()->args;
    expect_strided(&k->x, &quantize.x, false);
    expect_strided(&k->q, &quantize.q, false);
    expect_strided(&k->sf, &quantize.sf, false);
    EXPECT(k->batch == 1 && k->rows == M && k->cols == K);
}

/* The kernel's columns are the dimension in which x is contiguous. */
TEST_ALONE(a_transposed_matrix_is_quantised_along_its_columns)
{
    set_up_quantize();
    quantize.x = dg_transposed(on_device(DG_BFLOAT16, K, M));
    EXPECT_OK(call_quantize());
    const struct quantize_args *k = (const void *)last_launch()->args;
    expect_strided(&k->x, &quantize.x, true);
    expect_strided(&k->sf, &quantize.sf, true);
    EXPECT(k->rows == K && k->cols == M);
}

TEST_ALONE(packing_launches_a_block_for_each_tile)
{
    set_up_transform();
    EXPECT_OK(call_transform());
    expect_launch("transform_scale", 10, TRANSFORM_THREADS); /* 32 x 32 tiles of 300 x 8 */
    const struct transform_scale_args *k = (const void *)last_launch()->args;
    expect_strided(&k->src, &transform.src, false);
    expect_strided(&k->dst, &transform.dst, false);
    EXPECT(k->batch == 1 && k->rows == M && k->k_groups == GROUPS);
}

TEST_ALONE(settings_bound_the_blocks)
{
    set_up_quantize();
    EXPECT_OK(dg_set(NULL, DG_SETTING_NUM_SMS, 2));
    EXPECT_OK(dg_set(NULL, DG_SETTING_PDL, 1));
    EXPECT_OK(call_quantize());
    EXPECT_INT(last_launch()->grid[0], 2 * 4);
    EXPECT(last_launch()->pdl);
}

TEST_ALONE(empty_matrices_touch_nothing)
{
    set_up_quantize();
    fake->reset();
    quantize.x.shape[0] = quantize.q.shape[0] = quantize.sf.shape[0] = 0;
    EXPECT_OK(call_quantize());
    EXPECT_INT(fake->call_count, 0);
}

/* ---- Precompiling ------------------------------------------------------------------------------------------------ */

enum { RANGE = 40 };

static dg_status precompile(const dg_quantize_args *q, const dg_transform_scale_args *t, const char *pack,
                            int64_t *compiled)
{
    dg_precompile_args p = DG_PRECOMPILE_ARGS_INIT;
    p.quantize = q;
    p.transform = t;
    p.m_min = 1;
    p.m_max = RANGE;
    p.pack = pack;
    return dg_precompile(NULL, &p, compiled, NULL);
}

/* Columns of x lie together, so that the kernel hangs on M: one for a single row, for multiples of 8, and for others.
 */
static void use_range(int64_t m)
{
    quantize.x = dg_transposed(on_device(DG_BFLOAT16, K, RANGE));
    quantize.x.shape[0] = quantize.q.shape[0] = quantize.sf.shape[0] = m;
}

/* In a child, so that this process has no kernel. The cache cannot be written, neither then nor when the pack is used.
 */
static void make_pack(const char *path)
{
    int64_t compiled = 0;
    int state = 0;
    const pid_t child = fork();
    set_up_quantize();
    set_up_transform();
    setenv("DG_JIT_CACHE_DIR", "/proc/nowhere", 1);
    use_range(3);
    if (child == 0) {
        EXPECT_OK(precompile(&quantize, &transform, path, &compiled));
        EXPECT_INT(compiled, 3 + 1);
        EXPECT_OK(precompile(&quantize, NULL, path, &compiled));
        EXPECT_INT(compiled, 0);
        _exit(0);
    }
    EXPECT(waitpid(child, &state, 0) == child && state == 0);
}

TEST_ALONE(a_pack_serves_quantisation_and_transforms)
{
    char path[512];
    snprintf(path, sizeof path, "%s/kernels.pack", fake_make_directory());
    make_pack(path);
    setenv("DG_NVRTC_PATH", "/nowhere", 1);
    EXPECT_REFUSED(call_quantize(), DG_ERROR_NO_COMPILER, "no NVRTC library");
    setenv("DG_PACK", path, 1);
    EXPECT_OK(dg_set(NULL, DG_SETTING_COMPILE, 0));
    fake->args_bytes = sizeof(struct quantize_args);
    for (int64_t m = 1; m <= RANGE; ++m) {
        use_range(m);
        EXPECT_OK(call_quantize());
    }
    fake->args_bytes = sizeof(struct transform_scale_args);
    EXPECT_OK(call_transform());
    transform.round_scale = 1;
    EXPECT_REFUSED(call_transform(), DG_ERROR_COMPILE_FORBIDDEN, "is in no pack of DG_PACK");
}

TEST_ALONE(an_empty_matrix_wants_no_kernel)
{
    dg_precompile_args p = DG_PRECOMPILE_ARGS_INIT;
    int64_t compiled = 1, cached = 1;
    set_up_quantize();
    set_up_transform();
    quantize.x.shape[0] = quantize.q.shape[0] = quantize.sf.shape[0] = 0;
    transform.src.shape[0] = transform.dst.shape[0] = 0;
    p.quantize = &quantize;
    p.transform = &transform;
    EXPECT_OK(dg_precompile(NULL, &p, &compiled, &cached));
    EXPECT(compiled == 0 && cached == 0);
}

/* Every case of the question: the refusals of the calls themselves, data left out, and devices. */
TEST_ALONE(questions_without_data_are_answered_and_bad_ones_refused)
{
    int64_t compiled = 0;
    set_up_quantize();
    set_up_transform();
    EXPECT_REFUSED(precompile(NULL, NULL, NULL, NULL), DG_ERROR_INVALID_ARGUMENT,
                   "dg_precompile: gemm, quantize and transform are all NULL");
    quantize.x.data = quantize.q.data = quantize.sf.data = transform.src.data = transform.dst.data = NULL;
    EXPECT_OK(precompile(&quantize, &transform, NULL, &compiled));
    EXPECT_INT(compiled, 2);
    EXPECT_REFUSED(call_quantize(), DG_ERROR_INVALID_ARGUMENT, "x.data is NULL"); /* the call is no question */
    EXPECT_REFUSED(call_transform(), DG_ERROR_INVALID_ARGUMENT, "src.data is NULL");
    transform.src.device = transform.dst.device = 1;
    EXPECT_REFUSED(precompile(&quantize, &transform, NULL, NULL), DG_ERROR_INVALID_ARGUMENT,
                   "transform's src is on CUDA device 1 but quantize's x is on CUDA device 0");
    transform.src.device = transform.dst.device = DG_CPU;
    EXPECT_REFUSED(precompile(NULL, &transform, NULL, NULL), DG_ERROR_INVALID_ARGUMENT, "the tensors are on the CPU");
    quantize.gran_mn = -1;
    EXPECT_REFUSED(precompile(&quantize, NULL, NULL, NULL), DG_ERROR_INVALID_ARGUMENT, "gran_mn x gran_k is -1 x 128");
    transform.size = 1;
    EXPECT_REFUSED(precompile(NULL, &transform, NULL, NULL), DG_ERROR_INVALID_ARGUMENT, "dg_transform_scale_args.size");
}

/* ---- What goes wrong --------------------------------------------------------------------------------------------- */

TEST_ALONE(cold_calls_inside_a_capture_work)
{
    set_up_quantize();
    fake->capture(stream, true);
    EXPECT_OK(call_quantize());
    EXPECT(!fake->capture_spoilt(stream) && last_launch()->captured && !last_launch()->loaded_late);
    fake->capture(stream, false);
}

static _Alignas(64) char host[M * K * 2];

TEST_ALONE(host_memory_is_refused_by_quantisation)
{
    set_up_quantize();
    dg_tensor *const tensors[] = {&quantize.x, &quantize.q, &quantize.sf};
    static const char *const names[] = {"x.data is", "q.data is", "sf.data is"};
    for (int i = 0; i < 3; ++i) {
        void *const good = tensors[i]->data;
        tensors[i]->data = host;
        EXPECT_REFUSED(call_quantize(), DG_ERROR_INVALID_ARGUMENT, names[i]);
        tensors[i]->data = good;
    }
    EXPECT_INT(fake->launch_count, 0);
    EXPECT_OK(call_quantize());
}

TEST_ALONE(host_memory_is_refused_by_transforms)
{
    set_up_transform();
    void *const good = transform.src.data;
    transform.src.data = host;
    EXPECT_REFUSED(call_transform(), DG_ERROR_INVALID_ARGUMENT, "src.data is");
    transform.src.data = good;
    transform.dst.data = host;
    EXPECT_REFUSED(call_transform(), DG_ERROR_INVALID_ARGUMENT, "dst.data is");
    EXPECT_INT(fake->launch_count, 0);
}

TEST_ALONE(an_earlier_error_is_reported_as_such)
{
    set_up_transform();
    EXPECT_OK(call_transform());
    fake->reset();
    snprintf(fake->fail_function, sizeof fake->fail_function, "cuLaunchKernelEx");
    fake->fail_call = 1;
    fake->fail_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    EXPECT_REFUSED(call_transform(), DG_ERROR_EARLIER_CUDA, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

TEST_ALONE(every_driver_call_of_quantisation_failing_in_turn)
{
    set_up_quantize();
    int failures = fail_everywhere_keeping(fake, call_quantize, 1);
    EXPECT_THAT(failures > 10, "only %d calls failed", failures);
}

TEST_ALONE(every_driver_call_of_transforms_failing_in_turn)
{
    set_up_transform();
    int failures = fail_everywhere_keeping(fake, call_transform, 1);
    EXPECT_THAT(failures > 10, "only %d calls failed", failures);
}
