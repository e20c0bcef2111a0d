/* Devices, contexts, pointers, kernels, launches and tensor maps, on the fake driver. */
#include "cuda/launch.h"
#include "cuda/tensormap.h"
#include "plan/tma_rules.h"
#include "tests/fake/alone.h"
#include "tests/fake/balance.h"

#include <pthread.h>

/* ---- Devices ------------------------------------------------------------------------------------------------- */

TEST(a_device_is_read_once)
{
    const struct cuda_device *device, *again;
    struct fake *fake = fake_open();
    snprintf(fake->devices[1].name, sizeof fake->devices[1].name, "Fake H20");
    fake->devices[1].sms = 78;
    fake->devices[1].major = 8;
    fake->devices[1].minor = 9;
    EXPECT_OK(cuda_device_get(1, &device));
    EXPECT_INT(device->ordinal, 1);
    EXPECT_TEXT(device->info.name, "Fake H20");
    EXPECT_INT(device->info.size, sizeof(dg_device_info));
    EXPECT_INT(device->info.arch, 89);
    EXPECT_INT(device->info.num_sms, 78);
    EXPECT_INT(device->info.l2_bytes, 62914560);
    EXPECT_INT(device->info.memory_bytes, 150754820096);
    EXPECT_INT(device->info.smem_bytes_per_block, 232448);
    EXPECT_INT(device->info.driver_version, 13000);
    const int calls = fake->call_count;
    EXPECT_OK(cuda_device_get(1, &again));
    EXPECT(again == device);
    EXPECT_INT(fake->call_count, calls);
}

TEST(devices_that_are_not_there)
{
    static const int32_t none[] = {-1, 2, 63, 64, INT32_MAX, INT32_MIN};
    const struct cuda_device *device;
    char wanted[64];
    fake_open();
    for (size_t i = 0; i < sizeof none / sizeof *none; ++i) {
        snprintf(wanted, sizeof wanted, "device is %d; the number of CUDA devices here is 2", (int)none[i]);
        EXPECT_REFUSED(cuda_device_get(none[i], &device), DG_ERROR_NO_DEVICE, wanted);
    }
}

/* ---- Contexts ------------------------------------------------------------------------------------------------ */

/* Enter and leave with `stream`; inside, `wanted` must be current. */
static void expect_context(struct fake *fake, int32_t ordinal, dg_stream stream, CUcontext wanted)
{
    struct cuda_scope scope;
    const struct balance before = balance_now(fake);
    EXPECT_OK(cuda_enter(ordinal, stream, &scope));
    EXPECT(scope.context == wanted && fake->current() == wanted);
    EXPECT_INT(scope.device->ordinal, ordinal);
    EXPECT_INT(fake->depth() - before.depth, scope.pushed ? 1 : 0);
    EXPECT_INT(scope.pushed, before.current != wanted);
    cuda_leave(&scope);
    balance_expect_thread(fake, before);
    cuda_leave(&scope); /* nothing is left to leave */
    balance_expect_thread(fake, before);
}

static void expect_all_contexts(struct fake *fake)
{
    CUcontext own = fake->context_create(1), primary = fake->primary(1);
    expect_context(fake, 1, NULL, primary);
    expect_context(fake, 1, (dg_stream)(uintptr_t)1, primary);
    expect_context(fake, 1, (dg_stream)(uintptr_t)2, primary);
    expect_context(fake, 1, fake->stream_create(primary), primary);
    expect_context(fake, 1, fake->stream_create(own), own);
    expect_context(fake, 0, NULL, fake->primary(0));
}

TEST(no_context_is_current)
{
    struct fake *fake = fake_open();
    EXPECT(fake->current() == NULL);
    expect_all_contexts(fake);
}

TEST(the_right_context_is_current)
{
    struct fake *fake = fake_open();
    fake->push(fake->primary(1));
    expect_all_contexts(fake);
    fake->pop();
}

TEST(a_context_of_another_device_is_current)
{
    struct fake *fake = fake_open();
    fake->push(fake->primary(0));
    expect_all_contexts(fake);
    fake->pop();
}

TEST(another_context_of_the_device_is_current)
{
    struct fake *fake = fake_open();
    fake->push(fake->context_create(1));
    expect_all_contexts(fake);
    fake->pop();
}

TEST(a_stream_of_another_device)
{
    struct cuda_scope scope;
    struct fake *fake = fake_open();
    const CUcontext contexts[] = {fake->primary(1), fake->context_create(1)};
    for (int current = 0; current < 2; ++current)
        for (int i = 0; i < 2; ++i) {
            CUstream stream = fake->stream_create(contexts[i]);
            if (current)
                fake->push(contexts[i]);
            const struct balance before = balance_now(fake);
            EXPECT_REFUSED(cuda_enter(0, stream, &scope), DG_ERROR_INVALID_ARGUMENT,
                           "stream belongs to CUDA device 1; wanted one of CUDA device 0");
            balance_expect_thread(fake, before);
            if (current)
                fake->pop();
        }
}

TEST(the_primary_context_is_retained_once)
{
    struct cuda_scope scope;
    struct fake *fake = fake_open();
    EXPECT_OK(cuda_enter(0, NULL, &scope));
    cuda_leave(&scope);
    const int64_t primaries = fake->primaries;
    for (int i = 0; i < 10; ++i) {
        EXPECT_OK(cuda_enter(0, NULL, &scope));
        cuda_leave(&scope);
    }
    EXPECT_INT(fake->primaries, primaries);
}

/* The primary context costs memory on the device: a program that works in contexts of its own must not pay for it. */
TEST_ALONE(a_stream_of_an_own_context_needs_no_primary_one)
{
    struct fake *fake = fake_open();
    CUcontext own = fake->context_create(0);
    expect_context(fake, 0, fake->stream_create(own), own);
    EXPECT_INT(fake->count("cuDevicePrimaryCtxRetain"), 0);
}

/* The driver calls of one enter and leave when nothing has to change: they are on the path of every launch. */
TEST(entering_is_cheap)
{
    struct cuda_scope scope;
    struct fake *fake = fake_open();
    CUcontext own = fake->context_create(0), primary = fake->primary(0);
    const struct {
        CUcontext current;
        dg_stream stream;
        int calls;
    } cases[] = {
        {primary, NULL, 1},                         /* cuCtxGetCurrent */
        {primary, fake->stream_create(primary), 2}, /* and cuStreamGetCtx */
        {own, fake->stream_create(own), 3},         /* and cuCtxGetDevice */
        {NULL, fake->stream_create(primary), 4},    /* cuStreamGetCtx, cuCtxGetCurrent, push, pop */
    };
    EXPECT_OK(cuda_enter(0, NULL, &scope)); /* the first time costs more */
    cuda_leave(&scope);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        if (cases[i].current)
            fake->push(cases[i].current);
        const int before = fake->call_count;
        EXPECT_OK(cuda_enter(0, cases[i].stream, &scope));
        cuda_leave(&scope);
        EXPECT_THAT(fake->call_count - before == cases[i].calls, "case %zu: %d calls", i, fake->call_count - before);
        if (cases[i].current)
            fake->pop();
    }
}

static void *enter_often(void *result)
{
    struct cuda_scope scope;
    bool good = true;
    for (int i = 0; i < 200; ++i) {
        good = good && cuda_enter(i % 2, NULL, &scope) == DG_SUCCESS && scope.device->info.arch == 90;
        cuda_leave(&scope);
    }
    *(bool *)result = good;
    return NULL;
}

TEST_ALONE(new_threads_without_a_context)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    bool good[THREADS] = {false};
    struct fake *fake = fake_open();
    for (int i = 0; i < THREADS; ++i)
        EXPECT(pthread_create(&threads[i], NULL, enter_often, &good[i]) == 0);
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
        EXPECT(good[i]);
    }
    EXPECT_INT(fake->primaries, 2);
}

TEST(entering_during_a_capture)
{
    struct fake *fake = fake_open();
    CUstream stream = fake->stream_create(fake->primary(0));
    fake->capture(stream, true);
    expect_context(fake, 0, stream, fake->primary(0));
    EXPECT(!fake->capture_spoilt(stream));
    fake->capture(stream, false);
}

/* ---- Pointers ------------------------------------------------------------------------------------------------ */

enum { RANGE = 64 };

/* One byte range that cuPointerGetAttributes is told about, and what cuda_check_pointer says of its second half. */
static dg_status check_range(struct fake *fake, CUmemorytype type, int device, unsigned reach)
{
    static char memory[RANGE];
    struct cuda_scope scope;
    EXPECT_OK(cuda_enter(0, NULL, &scope));
    fake->pointer_add(memory, RANGE, type, device, reach);
    dg_status status = cuda_check_pointer(&scope, "a", memory + RANGE / 2);
    fake->pointer_remove(memory);
    cuda_leave(&scope);
    return status;
}

TEST(pointers_that_the_device_reaches)
{
    struct fake *fake = fake_open();
    EXPECT_OK(check_range(fake, CU_MEMORYTYPE_DEVICE, 0, 1)); /* its own */
    EXPECT_OK(check_range(fake, CU_MEMORYTYPE_DEVICE, 0, 0)); /* its own, though no address is told (virtual memory) */
    EXPECT_OK(check_range(fake, CU_MEMORYTYPE_DEVICE, 1, 3)); /* a peer's, or managed memory that lies there */
    EXPECT_OK(check_range(fake, CU_MEMORYTYPE_HOST, 0, 1));   /* pinned, or managed memory that lies here */
}

TEST(pointers_that_the_device_does_not_reach)
{
    static char host[RANGE], alias[RANGE];
    struct cuda_scope scope;
    struct fake *fake = fake_open();
    EXPECT_REFUSED(check_range(fake, CU_MEMORYTYPE_DEVICE, 1, 2), DG_ERROR_INVALID_ARGUMENT,
                   "memory of CUDA device 1, to which CUDA device 0 has no peer access");
    EXPECT_REFUSED(check_range(fake, CU_MEMORYTYPE_HOST, 0, 0), DG_ERROR_INVALID_ARGUMENT,
                   "host memory that is not mapped for CUDA device 0");
    EXPECT_OK(cuda_enter(0, NULL, &scope));
    EXPECT_REFUSED(cuda_check_pointer(&scope, "sfb", host), DG_ERROR_INVALID_ARGUMENT, "sfb.data is 0x");
    EXPECT_TEXT(dg_last_error(), "which is no memory that CUDA knows; wanted memory that CUDA device 0 can reach");
    fake->pointer_alias(host, RANGE, alias);
    EXPECT_REFUSED(cuda_check_pointer(&scope, "d", host), DG_ERROR_INVALID_ARGUMENT, "CUDA device 0 reaches it at 0x");
    fake->pointer_remove(host);
    cuda_leave(&scope);
}

TEST(pointers_during_a_capture)
{
    struct fake *fake = fake_open();
    CUstream stream = fake->stream_create(fake->primary(0));
    fake->capture(stream, true);
    EXPECT_OK(check_range(fake, CU_MEMORYTYPE_DEVICE, 0, 1));
    EXPECT(!fake->capture_spoilt(stream));
    fake->capture(stream, false);
}

/* ---- Kernels ------------------------------------------------------------------------------------------------- */

/* An ELF header and nothing else: the fake driver finds every kernel in it. */
static const unsigned char cubin[64] = "\177ELF";

static dg_status load_kernel(int32_t ordinal, const void *image, size_t bytes, int32_t smem_bytes,
                             struct cuda_kernel *kernel)
{
    struct cuda_scope scope;
    dg_status status;
    CHECK(cuda_enter(ordinal, NULL, &scope));
    status = cuda_kernel_load(&scope, image, bytes, "sm90_test", smem_bytes, kernel);
    cuda_leave(&scope);
    return status;
}

static dg_status launch_kernel(int32_t ordinal, dg_stream stream, const struct cuda_launch *launch, const void *args)
{
    struct cuda_scope scope;
    dg_status status;
    CHECK(cuda_enter(ordinal, stream, &scope));
    status = cuda_launch(&scope, launch, args, stream);
    cuda_leave(&scope);
    return status;
}

TEST(a_kernel_is_loaded_and_nothing_is_left_for_the_launch)
{
    struct cuda_kernel kernel = {0};
    struct fake *fake = fake_open();
    const int64_t libraries = fake->libraries;
    EXPECT_OK(load_kernel(0, cubin, sizeof cubin, 200000, &kernel));
    EXPECT_INT(kernel.device, 0);
    EXPECT_INT(kernel.smem_bytes, 200000);
    EXPECT_INT(fake->libraries, libraries + 1);
    EXPECT_INT(fake->count("cuFuncLoad"), 1);
    const struct cuda_launch launch = {.kernel = kernel, .grid = {4, 1, 1}, .threads = 128, .cluster = 1};
    EXPECT_OK(launch_kernel(0, NULL, &launch, cubin));
    EXPECT_INT(fake->launch_count, 1);
    EXPECT(!fake->launches[0].loaded_late);
    EXPECT_INT(fake->launches[0].smem_bytes, 200000);
}

TEST(a_second_context_wants_a_touch)
{
    struct cuda_kernel kernel;
    struct cuda_scope scope;
    struct fake *fake = fake_open();
    CUstream stream = fake->stream_create(fake->context_create(0));
    EXPECT_OK(load_kernel(0, cubin, sizeof cubin, 0, &kernel));
    const struct cuda_launch launch = {.kernel = kernel, .grid = {1, 1, 1}, .threads = 32, .cluster = 1};
    EXPECT_OK(launch_kernel(0, stream, &launch, cubin));
    EXPECT(fake->launches[0].loaded_late);
    EXPECT_OK(cuda_enter(0, stream, &scope));
    EXPECT_OK(cuda_kernel_touch(&scope, &kernel));
    cuda_leave(&scope);
    EXPECT_OK(launch_kernel(0, stream, &launch, cubin));
    EXPECT(!fake->launches[1].loaded_late);
}

TEST_ALONE(a_driver_without_cuFuncLoad)
{
    struct cuda_kernel kernel;
    struct fake *fake = fake_open();
    fake->version = 12020;
    EXPECT_OK(load_kernel(0, cubin, sizeof cubin, 0, &kernel));
    EXPECT_INT(fake->count("cuFuncLoad"), 0);
    const struct cuda_launch launch = {.kernel = kernel, .grid = {1, 1, 1}, .threads = 32, .cluster = 1};
    EXPECT_OK(launch_kernel(0, NULL, &launch, cubin));
    EXPECT(!fake->launches[0].loaded_late);
}

TEST(loading_during_a_capture)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, 1, CU_STREAM_CAPTURE_MODE_RELAXED};
    struct cuda_kernel kernel;
    struct cuda_scope scope;
    struct fake *fake = fake_open();
    CUstream stream = fake->stream_create(fake->primary(0));
    fake->capture(stream, true);
    for (int i = 0; i < 3; ++i) {
        fake->set_capture_mode(modes[i]);
        EXPECT_OK(load_kernel(0, cubin, sizeof cubin, 0, &kernel));
        EXPECT_INT(fake->capture_mode(), modes[i]);
        EXPECT_OK(cuda_enter(0, stream, &scope));
        EXPECT_OK(cuda_kernel_touch(&scope, &kernel));
        cuda_leave(&scope);
        EXPECT_INT(fake->capture_mode(), modes[i]);
    }
    fake->set_capture_mode(CU_STREAM_CAPTURE_MODE_GLOBAL);
    const struct cuda_launch launch = {.kernel = kernel, .grid = {1, 1, 1}, .threads = 32, .cluster = 1};
    EXPECT_OK(launch_kernel(0, stream, &launch, cubin));
    EXPECT(fake->launches[0].captured && !fake->launches[0].loaded_late);
    EXPECT(!fake->capture_spoilt(stream));
    fake->capture(stream, false);
}

/* Loading an image fails with `result`, in the driver's `function`. */
static dg_status load_failing(struct fake *fake, const char *function, CUresult result, const void *image)
{
    struct cuda_kernel kernel = {.device = 77};
    const struct balance before = balance_now(fake);
    fake->fail_result = result;
    snprintf(fake->fail_function, sizeof fake->fail_function, "%s", function);
    fake->fail_call = 1;
    dg_status status = load_kernel(0, image, 64, 0, &kernel);
    balance_expect_thread(fake, before);
    EXPECT_INT(kernel.device, 77);
    EXPECT_INT(fake->libraries, before.libraries);
    return status;
}

TEST(images_that_the_driver_does_not_load)
{
    static const unsigned char text[64] = ".version 8.0";
    static const CUresult too_new[] = {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_SOURCE,
                                       CUDA_ERROR_UNSUPPORTED_PTX_VERSION};
    static const char *const calls[] = {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelSetAttribute",
                                        "cuKernelGetFunction", "cuFuncLoad"}; /* any of them may be the first to look */
    struct fake *fake = fake_open();
    for (int c = 0; c < 5; ++c) {
        for (int i = 0; i < 3; ++i) {
            EXPECT_REFUSED(load_failing(fake, calls[c], too_new[i], cubin), DG_ERROR_CUBIN_TOO_NEW,
                           "the driver, of CUDA 13.0, cannot read the code of sm90_test");
            EXPECT_TEXT(dg_last_error(), "DG_NVRTC_PATH name an NVRTC of CUDA 13");
        }
        EXPECT_REFUSED(load_failing(fake, calls[c], CUDA_ERROR_NO_BINARY_FOR_GPU, cubin), DG_ERROR_UNSUPPORTED_ARCH,
                       "the code of sm90_test is not for CUDA device 0 (Fake H200, compute capability 9.0)");
        EXPECT_REFUSED(load_failing(fake, calls[c], CUDA_ERROR_OUT_OF_MEMORY, cubin), DG_ERROR_OUT_OF_MEMORY, calls[c]);
        EXPECT_TEXT(dg_last_error(), ", loading sm90_test");
        EXPECT_REFUSED(load_failing(fake, calls[c], CUDA_ERROR_ILLEGAL_ADDRESS, cubin), DG_ERROR_EARLIER_CUDA,
                       calls[c]);
        EXPECT_REFUSED(load_failing(fake, calls[c], CUDA_ERROR_UNKNOWN, cubin), DG_ERROR_CUDA, calls[c]);
    }
    for (int i = 0; i < 3; ++i)
        EXPECT_REFUSED(load_failing(fake, calls[0], too_new[i], text), DG_ERROR_INTERNAL,
                       "the code of sm90_test is not a cubin");
    struct cuda_kernel kernel;
    EXPECT_REFUSED(load_kernel(0, cubin, 12, 0, &kernel), DG_ERROR_INTERNAL, "has only 12 bytes");
}

TEST(a_kernel_that_wants_too_much_shared_memory)
{
    struct cuda_kernel kernel;
    struct fake *fake = fake_open();
    const struct balance before = balance_now(fake);
    EXPECT_REFUSED(
        load_kernel(0, cubin, sizeof cubin, 240000, &kernel), DG_ERROR_CUDA,
        ", loading sm90_test; 240000 bytes of dynamic shared memory were asked for, and CUDA device 0 has 232448");
    EXPECT_INT(fake->libraries, before.libraries);
    balance_expect_thread(fake, before);
}

/* This program is an ELF file too: the fake driver looks its symbols up as it would a cubin's. */
TEST(a_cubin_without_the_kernel)
{
    struct cuda_kernel kernel;
    struct cuda_scope scope;
    struct fake *fake = fake_open();
    FILE *self = fopen("/proc/self/exe", "rb");
    EXPECT(self != NULL && fseek(self, 0, SEEK_END) == 0);
    const size_t bytes = (size_t)ftell(self);
    unsigned char *image = malloc(bytes);
    rewind(self);
    EXPECT(image != NULL && fread(image, 1, bytes, self) == bytes);
    fclose(self);
    const int64_t libraries = fake->libraries;
    EXPECT_OK(cuda_enter(0, NULL, &scope));
    EXPECT_REFUSED(cuda_kernel_load(&scope, image, bytes, "sm90_test", 0, &kernel), DG_ERROR_INTERNAL,
                   "the compiled code has no kernel sm90_test");
    EXPECT_INT(fake->libraries, libraries);
    EXPECT_OK(cuda_kernel_load(&scope, image, bytes, "cuda_kernel_load", 0, &kernel));
    cuda_leave(&scope);
    free(image);
}

/* ---- Launches ------------------------------------------------------------------------------------------------ */

TEST(what_a_launch_tells_the_driver)
{
    struct cuda_launch launch = {.grid = {66, 3, 2}, .threads = 384, .cluster = 2, .pdl = true};
    const int64_t args[4] = {1, 2, 3, 4};
    struct fake *fake = fake_open();
    CUstream stream = fake->stream_create(fake->primary(1));
    EXPECT_OK(load_kernel(1, cubin, sizeof cubin, 100000, &launch.kernel));
    fake->args_bytes = sizeof args;
    EXPECT_OK(launch_kernel(1, stream, &launch, args));
    EXPECT_INT(fake->launch_count, 1);
    const struct fake_launch *l = &fake->launches[0];
    EXPECT_TEXT(l->kernel, "sm90_test");
    EXPECT(l->context == fake->primary(1) && l->stream == stream);
    EXPECT_INT(l->device, 1);
    EXPECT(l->grid[0] == 66 && l->grid[1] == 3 && l->grid[2] == 2);
    EXPECT(l->block[0] == 384 && l->block[1] == 1 && l->block[2] == 1);
    EXPECT_INT(l->smem_bytes, 100000);
    EXPECT_INT(l->attributes, 2);
    EXPECT(l->cluster[0] == 2 && l->cluster[1] == 1 && l->cluster[2] == 1 && l->pdl);
    EXPECT_INT(l->args_bytes, sizeof args);
    EXPECT(memcmp(l->args, args, sizeof args) == 0);
}

TEST(attributes_only_where_they_are_wanted)
{
    static const struct {
        uint32_t cluster;
        bool pdl;
        uint32_t attributes, cluster_seen;
    } cases[] = {{1, false, 0, 0}, {0, false, 0, 0}, {1, true, 1, 0}, {4, false, 1, 4}, {8, true, 2, 8}};
    struct cuda_launch launch = {.grid = {8, 1, 1}, .threads = 128};
    struct fake *fake = fake_open();
    EXPECT_OK(load_kernel(0, cubin, sizeof cubin, 0, &launch.kernel));
    for (int i = 0; i < 5; ++i) {
        launch.cluster = cases[i].cluster;
        launch.pdl = cases[i].pdl;
        EXPECT_OK(launch_kernel(0, NULL, &launch, cubin));
        EXPECT_INT(fake->launches[i].attributes, cases[i].attributes);
        EXPECT_INT(fake->launches[i].cluster[0], cases[i].cluster_seen);
        EXPECT_INT(fake->launches[i].pdl, cases[i].pdl);
    }
}

TEST(launches_that_fail)
{
    struct cuda_launch launch = {.grid = {7, 1, 1}, .threads = 128, .cluster = 2};
    struct fake *fake = fake_open();
    EXPECT_OK(load_kernel(0, cubin, sizeof cubin, 1000, &launch.kernel));
    const struct balance before = balance_now(fake);
    EXPECT_REFUSED(launch_kernel(0, NULL, &launch, cubin), DG_ERROR_CUDA,
                   "cuLaunchKernelEx returned CUDA_ERROR_INVALID_VALUE (1: ");
    EXPECT_TEXT(dg_last_error(), "; grid 7 x 1 x 1 in clusters of 2, 128 threads, 1000 bytes of dynamic shared memory");
    fake->fail_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    fake->fail_call = 1;
    snprintf(fake->fail_function, sizeof fake->fail_function, "cuLaunchKernelEx");
    EXPECT_REFUSED(launch_kernel(0, NULL, &launch, cubin), DG_ERROR_EARLIER_CUDA, "CUDA_ERROR_ILLEGAL_ADDRESS (700");
    balance_expect_thread(fake, before);
    EXPECT_INT(fake->launch_count, 0);
}

/* ---- Tensor maps --------------------------------------------------------------------------------------------- */

static const struct driver *open_driver(void)
{
    const struct driver *driver;
    fake_open();
    EXPECT_OK(driver_get(&driver));
    return driver;
}

static struct matrix matrix_3d(dg_dtype dtype, int64_t batch, int64_t rows, int64_t cols, int64_t batch_stride,
                               int64_t row_stride)
{
    return (struct matrix){.data = (char *)0x7000000000,
                           .dtype = dtype,
                           .batch = batch,
                           .rows = rows,
                           .cols = cols,
                           .batch_stride = batch > 1 ? batch_stride : 0,
                           .row_stride = rows > 1 ? row_stride : 0,
                           .col_stride = cols > 1 ? 1 : 0};
}

TEST(what_a_tensor_map_says)
{
    const struct driver *driver = open_driver();
    struct tensor_map map;
    const struct matrix m = matrix_3d(DG_BFLOAT16, 3, 1000, 520, 1048576, 528);
    EXPECT_OK(tensormap_encode(driver, &map, &m, 64, 32, 64));
    const struct fake_tensor_map t = fake_read_map(&map);
    EXPECT_INT(t.type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
    EXPECT_INT(t.rank, 3);
    EXPECT(t.address == 0x7000000000);
    EXPECT(t.sizes[0] == 520 && t.sizes[1] == 1000 && t.sizes[2] == 3);
    EXPECT(t.strides[0] == 1056 && t.strides[1] == 2097152);
    EXPECT(t.box[0] == 32 && t.box[1] == 64 && t.box[2] == 1);
    EXPECT(t.element_strides[0] == 1 && t.element_strides[1] == 1 && t.element_strides[2] == 1);
    EXPECT_INT(t.interleave, CU_TENSOR_MAP_INTERLEAVE_NONE);
    EXPECT_INT(t.swizzle, CU_TENSOR_MAP_SWIZZLE_64B);
    EXPECT_INT(t.promotion, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
    EXPECT_INT(t.fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

TEST(types_and_swizzles_of_tensor_maps)
{
    static const struct {
        dg_dtype dtype;
        int type;
    } types[] = {{DG_FLOAT8_E4M3, CU_TENSOR_MAP_DATA_TYPE_UINT8},
                 {DG_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16},
                 {DG_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16},
                 {DG_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32},
                 {DG_INT32, CU_TENSOR_MAP_DATA_TYPE_INT32}};
    static const int32_t swizzles[] = {0, 32, 64, 128};
    const struct driver *driver = open_driver();
    struct tensor_map map;
    for (int i = 0; i < 5; ++i)
        for (int s = 0; s < 4; ++s) {
            const struct matrix m = matrix_3d(types[i].dtype, 1, 256, 1024, 0, 1024);
            const int32_t box_cols = (swizzles[s] ? swizzles[s] : 16) / (int32_t)dg_dtype_size(types[i].dtype);
            EXPECT_OK(tensormap_encode(driver, &map, &m, 128, box_cols, swizzles[s]));
            EXPECT_INT(fake_read_map(&map).type, types[i].type);
            EXPECT_INT(fake_read_map(&map).swizzle, s);
        }
}

TEST(tensor_maps_that_cannot_be)
{
    const struct driver *driver = open_driver();
    struct tensor_map map;
    struct matrix m = matrix_3d(DG_FLOAT8_E4M3, 1, 256, 1024, 0, 1024);
    EXPECT_REFUSED(tensormap_encode(driver, &map, &m, 128, 16, 16), DG_ERROR_INTERNAL,
                   "no tensor map of float8_e4m3 with a swizzle of 16 bytes");
    EXPECT_REFUSED(tensormap_encode(driver, &map, &m, 257, 128, 128), DG_ERROR_CUDA, "cuTensorMapEncodeTiled returned");
    EXPECT_TEXT(dg_last_error(), "1 x 256 x 1024 float8_e4m3 at 0x7000000000, strides 0 and 1024");
    EXPECT_TEXT(dg_last_error(), "boxes of 257 x 128, swizzle 128");
    EXPECT_REFUSED(tensormap_encode(driver, &map, &m, 128, 128, 64), DG_ERROR_CUDA, "swizzle 64");
    EXPECT_REFUSED(tensormap_encode(driver, &map, &m, 128, 24, 0), DG_ERROR_CUDA, "boxes of 128 x 24");
    m.dtype = DG_DTYPE_NONE;
    EXPECT_REFUSED(tensormap_encode(driver, &map, &m, 128, 128, 128), DG_ERROR_INTERNAL, "no tensor map of none");
}

TEST(dimensions_of_size_one_get_a_valid_stride)
{
    const struct driver *driver = open_driver();
    struct tensor_map map;
    const struct matrix row = matrix_3d(DG_FLOAT8_E4M3, 1, 1, 1000, 0, 0);
    EXPECT_OK(tensormap_encode(driver, &map, &row, 64, 128, 128));
    struct fake_tensor_map t = fake_read_map(&map);
    EXPECT(t.strides[0] == 1008 && t.strides[1] == 1008 && t.sizes[1] == 1 && t.sizes[2] == 1);
    const struct matrix column = matrix_3d(DG_FLOAT32, 4, 8, 1, 64, 4);
    EXPECT_OK(tensormap_encode(driver, &map, &column, 8, 4, 0));
    t = fake_read_map(&map);
    EXPECT(t.strides[0] == 16 && t.strides[1] == 256 && t.sizes[0] == 1);
}

TEST(what_tma_cannot_address)
{
    struct matrix m = matrix_3d(DG_BFLOAT16, 2, 64, 100, 1048576, 104);
    EXPECT_TEXT(tma_refusal("a", &m).s, "");
    EXPECT_INT(tma_refusal("a", &m).s[0], '\0');
    m.row_stride = 100;
    EXPECT_TEXT(tma_refusal("a", &m).s, "a's row stride is 200 bytes, no multiple of 16");
    m.row_stride = 0;
    EXPECT_TEXT(tma_refusal("a", &m).s, "a's row stride is 0");
    m = matrix_3d(DG_BFLOAT16, 2, 64, 100, 0, 104);
    EXPECT_TEXT(tma_refusal("b", &m).s, "b's batch stride is 0");
    m.batch_stride = (int64_t)1 << 39;
    EXPECT_TEXT(tma_refusal("b", &m).s, "b's batch stride is 549755813888 elements; TMA takes less than 2^40 bytes");
    m.batch_stride -= 8;
    EXPECT_INT(tma_refusal("b", &m).s[0], '\0');
    m.col_stride = 2;
    EXPECT_TEXT(tma_refusal("d", &m).s, "d's column stride is 2");
    m.col_stride = 0;
    EXPECT_TEXT(tma_refusal("d", &m).s, "d's column stride is 0");
    m.col_stride = 1;
    m.data += 8;
    EXPECT_TEXT(tma_refusal("d", &m).s, "d.data is 0x7000000008, not aligned to 16 bytes");
    m.data = NULL; /* a question: any aligned pointer */
    EXPECT_INT(tma_refusal("d", &m).s[0], '\0');
    m.rows = ((int64_t)1 << 32) + 1;
    EXPECT_TEXT(tma_refusal("d", &m).s, "d's row count is 4294967297; TMA takes up to 2^32");
    m.rows = 0;
    EXPECT_TEXT(tma_refusal("d", &m).s, "d is empty");
}

/* The pure predicate and the driver must agree on every matrix. */
TEST(the_rules_are_those_of_the_driver)
{
    static const int64_t sizes[] = {1, 2, 7, 64, 4096, (int64_t)1 << 32, ((int64_t)1 << 32) + 1};
    static const int64_t strides[] = {0, 1, 4, 8, 12, 16, 100, 128, 4096, ((int64_t)1 << 38) - 16, (int64_t)1 << 38};
    static const dg_dtype dtypes[] = {DG_FLOAT8_E4M3, DG_BFLOAT16, DG_FLOAT32};
    const struct driver *driver = open_driver();
    struct tensor_map map;
    int fine = 0, refused = 0;
    for (int n = 0; n < 3 * 7 * 7 * 11 * 11 * 2; ++n) {
        int at = n;
        const dg_dtype dtype = dtypes[at % 3];
        const int64_t batch = sizes[(at /= 3) % 7], rows = sizes[(at /= 7) % 7];
        const int64_t batch_stride = strides[(at /= 7) % 11], row_stride = strides[(at /= 11) % 11];
        struct matrix m = matrix_3d(dtype, batch, rows, 96, batch_stride, row_stride);
        m.data += at / 11 * 8;
        const struct text text = tma_refusal("a", &m);
        const dg_status status = tensormap_encode(driver, &map, &m, 1, 16, 0);
        EXPECT_THAT((text.s[0] == '\0') == (status == DG_SUCCESS), "\"%s\", but %s", text.s, dg_last_error());
        ++*(status == DG_SUCCESS ? &fine : &refused);
    }
    EXPECT(fine > 1000 && refused > 1000);
}

/* ---- Every driver call made to fail in turn ------------------------------------------------------------------ */

static struct fake *failing;
static CUstream failing_stream;

static dg_status enter_path(void)
{
    struct cuda_scope scope;
    CHECK(cuda_enter(1, NULL, &scope));
    cuda_leave(&scope);
    CHECK(cuda_enter(1, failing_stream, &scope));
    cuda_leave(&scope);
    return DG_SUCCESS;
}

TEST_ALONE(every_failure_of_the_first_enter)
{
    failing = fake_open();
    failing_stream = failing->stream_create(failing->context_create(1));
    /* version, required entry points, cuInit, 9 of the device; primary, current, push; the stream and its device */
    EXPECT_INT(fail_everywhere(failing, enter_path), 1 + REQUIRED_ENTRIES + 1 + 9 + 3 + 2);
}

static struct cuda_kernel failing_kernel;

static dg_status load_path(void)
{
    CHECK(load_kernel(0, cubin, sizeof cubin, 1000, &failing_kernel));
    --failing->libraries; /* one that is loaded stays, by design; the balance is about those that fail */
    return DG_SUCCESS;
}

static dg_status touch_path(void)
{
    struct cuda_scope scope;
    CHECK(cuda_enter(0, failing_stream, &scope));
    dg_status status = cuda_kernel_touch(&scope, &failing_kernel);
    cuda_leave(&scope);
    return status;
}

static dg_status launch_path(void)
{
    const struct cuda_launch launch = {.kernel = failing_kernel, .grid = {4, 1, 1}, .threads = 64, .cluster = 2};
    return launch_kernel(0, failing_stream, &launch, cubin);
}

TEST(every_failure_of_load_touch_and_launch)
{
    struct cuda_scope scope;
    failing = fake_open();
    failing_stream = failing->stream_create(failing->primary(0));
    EXPECT_OK(cuda_enter(0, NULL, &scope)); /* the first enter has its own test */
    cuda_leave(&scope);
    failing->capture(failing_stream, true);
    EXPECT_INT(fail_everywhere(failing, load_path),
               2 + 6); /* current, push; mode, load, kernel, size, function, load */
    EXPECT_INT(fail_everywhere(failing, touch_path), 3 + 3); /* stream, current, push; mode, function, load */
    EXPECT_INT(fail_everywhere(failing, launch_path), 3 + 1);
    EXPECT(!failing->capture_spoilt(failing_stream));
    failing->capture(failing_stream, false);
}

static dg_status encode_path(void)
{
    const struct driver *driver;
    struct tensor_map map;
    const struct matrix m = matrix_3d(DG_FLOAT8_E4M3, 1, 64, 128, 0, 128);
    CHECK(driver_get(&driver));
    return tensormap_encode(driver, &map, &m, 64, 128, 128);
}

static dg_status pointer_path(void)
{
    static char memory[RANGE];
    struct cuda_scope scope;
    dg_status status;
    CHECK(cuda_enter(0, NULL, &scope));
    failing->pointer_add(memory, RANGE, CU_MEMORYTYPE_DEVICE, 0, 1);
    status = cuda_check_pointer(&scope, "a", memory);
    failing->pointer_remove(memory);
    cuda_leave(&scope);
    return status;
}

TEST(every_failure_of_maps_and_pointers)
{
    struct cuda_scope scope;
    failing = fake_open();
    EXPECT_OK(cuda_enter(0, NULL, &scope));
    cuda_leave(&scope);
    EXPECT_INT(fail_everywhere(failing, encode_path), 1);
    EXPECT_INT(fail_everywhere(failing, pointer_path), 3);
}
