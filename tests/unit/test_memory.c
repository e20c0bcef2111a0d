/* dg_alloc, dg_free, dg_copy, dg_synchronize, dg_device_count and dg_device_query, on the fake driver. */
#include "tests/fake/alone.h"
#include "tests/fake/balance.h"

#include <stdint.h>

/* ---- Questions ----------------------------------------------------------------------------------------------- */

TEST(device_count)
{
    int32_t count = 5;
    fake_open();
    EXPECT_OK(dg_device_count(&count));
    EXPECT_INT(count, 2);
    EXPECT_REFUSED(dg_device_count(NULL), DG_ERROR_INVALID_ARGUMENT, "dg_device_count: count is NULL");
}

TEST(device_query)
{
    dg_device_info info = DG_DEVICE_INFO_INIT;
    fake_open();
    EXPECT_OK(dg_device_query(1, &info));
    EXPECT_INT(info.size, sizeof info);
    EXPECT_TEXT(info.name, "Fake H200");
    EXPECT_INT(info.arch, 90);
    EXPECT_INT(info.num_sms, 132);
    EXPECT_INT(info.driver_version, 13000);
    EXPECT_REFUSED(dg_device_query(2, &info), DG_ERROR_NO_DEVICE, "dg_device_query: device is 2");
    EXPECT_REFUSED(dg_device_query(DG_CPU, &info), DG_ERROR_NO_DEVICE, "device is -1");
    EXPECT_REFUSED(dg_device_query(0, NULL), DG_ERROR_INVALID_ARGUMENT, "info is NULL");
    info.size = 0;
    EXPECT_REFUSED(dg_device_query(0, &info), DG_ERROR_INVALID_ARGUMENT, "dg_device_info.size is 0; set it to sizeof");
    EXPECT_INT(info.num_sms, 132); /* refused: untouched */
}

TEST(device_query_for_older_and_newer_callers)
{
    struct {
        dg_device_info info;
        char later[64];
    } newer;
    fake_open();
    memset(&newer, 0x55, sizeof newer);
    newer.info.size = offsetof(dg_device_info, num_sms);
    EXPECT_OK(dg_device_query(0, &newer.info));
    EXPECT_INT(newer.info.arch, 90);
    EXPECT_INT(newer.info.num_sms, 0x55555555); /* beyond what the caller knows */
    EXPECT_INT(newer.info.size, offsetof(dg_device_info, num_sms));
    newer.info.size = sizeof newer;
    EXPECT_OK(dg_device_query(0, &newer.info));
    EXPECT_INT(newer.info.num_sms, 132);
    EXPECT_INT(newer.info.size, sizeof newer);
    for (size_t i = 0; i < sizeof newer.later; ++i)
        EXPECT_INT(newer.later[i], 0);
}

/* ---- Allocation ---------------------------------------------------------------------------------------------- */

TEST(alloc_and_free)
{
    struct fake *fake = fake_open();
    const struct balance before = balance_now(fake);
    for (int32_t device = DG_CPU; device < 2; ++device) {
        void *data = NULL;
        EXPECT_OK(dg_alloc(device, 1001, &data));
        EXPECT(data != NULL && (uintptr_t)data % 256 == 0);
        memset(data, 1, 1001); /* the sanitizer watches the size */
        EXPECT_INT(fake->allocations, before.allocations + (device >= 0));
        EXPECT_OK(dg_free(device, data));
        EXPECT_INT(fake->allocations, before.allocations);
        EXPECT_OK(dg_alloc(device, 0, &data));
        EXPECT(data == NULL);
        EXPECT_OK(dg_free(device, NULL));
        balance_expect_thread(fake, before);
    }
}

TEST(alloc_refused)
{
    void *data = &data;
    fake_open();
    EXPECT_REFUSED(dg_alloc(0, 16, NULL), DG_ERROR_INVALID_ARGUMENT, "dg_alloc: data is NULL");
    EXPECT_REFUSED(dg_alloc(-2, 16, &data), DG_ERROR_INVALID_ARGUMENT, "device is -2; wanted DG_CPU (-1)");
    EXPECT_REFUSED(dg_alloc(2, 16, &data), DG_ERROR_NO_DEVICE, "device is 2");
    EXPECT_REFUSED(dg_alloc(1, (size_t)1 << 40, &data), DG_ERROR_OUT_OF_MEMORY,
                   "cuMemAlloc returned CUDA_ERROR_OUT_OF_MEMORY (2: ");
    EXPECT_TEXT(dg_last_error(), " for 1099511627776 bytes on CUDA device 1");
    EXPECT_REFUSED(dg_alloc(DG_CPU, SIZE_MAX, &data), DG_ERROR_OUT_OF_MEMORY,
                   "18446744073709551615 bytes of host memory could not be allocated");
    EXPECT(data == &data); /* refused: untouched */
    EXPECT_REFUSED(dg_free(-3, NULL), DG_ERROR_INVALID_ARGUMENT, "dg_free: device is -3");
    EXPECT_REFUSED(dg_free(0, &data), DG_ERROR_CUDA, "cuMemFree returned CUDA_ERROR_INVALID_VALUE");
}

/* ---- Copies -------------------------------------------------------------------------------------------------- */

enum { BYTES = 1000 };

/* Copies a pattern in through `from` to `to` and back to the host, and compares. */
static void copy_between(int32_t from, int32_t to, dg_stream stream)
{
    unsigned char pattern[BYTES], back[BYTES] = {0};
    void *a, *b;
    for (int i = 0; i < BYTES; ++i)
        pattern[i] = (unsigned char)(i * 7 + from * 31 + to);
    EXPECT_OK(dg_alloc(from, BYTES, &a));
    EXPECT_OK(dg_alloc(to, BYTES, &b));
    EXPECT_OK(dg_copy(a, from, pattern, DG_CPU, BYTES, NULL));
    EXPECT_OK(dg_copy(b, to, a, from, BYTES, stream));
    EXPECT_OK(dg_copy(back, DG_CPU, b, to, BYTES, NULL));
    EXPECT(memcmp(back, pattern, BYTES) == 0);
    EXPECT_OK(dg_free(from, a));
    EXPECT_OK(dg_free(to, b));
}

TEST(copies_between_all_places)
{
    struct fake *fake = fake_open();
    const struct balance before = balance_now(fake);
    for (int32_t from = DG_CPU; from < 2; ++from)
        for (int32_t to = DG_CPU; to < 2; ++to)
            copy_between(from, to, NULL);
    balance_expect_thread(fake, before);
    EXPECT_INT(fake->allocations, before.allocations);
}

TEST(copies_on_streams)
{
    struct fake *fake = fake_open();
    CUstream on_0 = fake->stream_create(fake->context_create(0)), on_1 = fake->stream_create(fake->primary(1));
    const struct balance before = balance_now(fake);
    copy_between(0, 0, on_0);
    copy_between(DG_CPU, 1, on_1);
    copy_between(0, 1, on_0); /* between GPUs: the stream of either */
    copy_between(0, 1, on_1);
    balance_expect_thread(fake, before);
}

TEST(a_copy_waits_for_both_default_streams)
{
    void *a, *b;
    struct fake *fake = fake_open();
    EXPECT_OK(dg_alloc(0, BYTES, &a));
    EXPECT_OK(dg_alloc(1, BYTES, &b));
    EXPECT_OK(dg_copy(a, 0, b, 1, BYTES, NULL));
    EXPECT_INT(fake->count("cuStreamSynchronize"), 2); /* the source's before, the destination's after */
    EXPECT_OK(dg_free(0, a));
    EXPECT_OK(dg_free(1, b));
}

TEST(copies_refused)
{
    char here[8] = "here", there[8] = "there";
    struct fake *fake = fake_open();
    CUstream stream = fake->stream_create(fake->primary(1));
    EXPECT_REFUSED(dg_copy(here, -2, there, DG_CPU, 8, NULL), DG_ERROR_INVALID_ARGUMENT, "dg_copy: dst_device is -2");
    EXPECT_REFUSED(dg_copy(here, 0, there, -5, 8, NULL), DG_ERROR_INVALID_ARGUMENT, "src_device is -5");
    EXPECT_REFUSED(dg_copy(NULL, 0, there, DG_CPU, 8, NULL), DG_ERROR_INVALID_ARGUMENT, "dst is NULL");
    EXPECT_REFUSED(dg_copy(here, 0, NULL, DG_CPU, 8, NULL), DG_ERROR_INVALID_ARGUMENT, "src is NULL");
    EXPECT_REFUSED(dg_copy(here, 7, there, DG_CPU, 8, NULL), DG_ERROR_NO_DEVICE, "device is 7");
    EXPECT_REFUSED(dg_copy(here, 0, there, DG_CPU, 8, stream), DG_ERROR_INVALID_ARGUMENT,
                   "stream belongs to CUDA device 1");
    EXPECT_TEXT(here, "here");
    EXPECT_OK(dg_copy(NULL, 0, NULL, 1, 0, NULL));
    EXPECT_INT(fake->count("cuMemcpyAsync"), 0);
    EXPECT_OK(dg_copy(here, DG_CPU, there, DG_CPU, 8, NULL));
    EXPECT_TEXT(here, "there");
}

TEST(nothing_waits_during_a_capture)
{
    char here[8] = "here", there[8] = "there";
    struct fake *fake = fake_open();
    CUstream stream = fake->stream_create(fake->primary(0));
    fake->capture(stream, true);
    EXPECT_REFUSED(dg_copy(here, 0, there, DG_CPU, 8, stream), DG_ERROR_INVALID_ARGUMENT,
                   "stream is being captured into a graph");
    EXPECT_REFUSED(dg_synchronize(0, stream), DG_ERROR_INVALID_ARGUMENT, "dg_synchronize: stream is being captured");
    EXPECT(!fake->capture_spoilt(stream));
    EXPECT_INT(fake->count("cuMemcpyAsync"), 0);
    fake->capture(stream, false);
    EXPECT_OK(dg_synchronize(0, stream));
}

TEST(synchronize)
{
    struct fake *fake = fake_open();
    EXPECT_OK(dg_synchronize(DG_CPU, NULL));
    EXPECT_INT(fake->call_count, 0);
    EXPECT_OK(dg_synchronize(1, NULL));
    EXPECT_REFUSED(dg_synchronize(-2, NULL), DG_ERROR_INVALID_ARGUMENT, "device is -2");
    snprintf(fake->fail_function, sizeof fake->fail_function, "cuStreamSynchronize");
    fake->fail_call = 1;
    fake->fail_result = CUDA_ERROR_MISALIGNED_ADDRESS;
    EXPECT_REFUSED(dg_synchronize(1, NULL), DG_ERROR_EARLIER_CUDA,
                   "earlier work on this CUDA context had failed with CUDA_ERROR_MISALIGNED_ADDRESS (716: ");
}

/* ---- Every driver call made to fail in turn ------------------------------------------------------------------ */

static struct fake *failing;
static CUstream failing_stream;
static void *on_0, *on_1;

static dg_status alloc_path(void)
{
    void *data = NULL;
    dg_status status = dg_alloc(1, BYTES, &data);
    EXPECT((data != NULL) == (status == DG_SUCCESS));
    CHECK(status);
    on_1 = data;
    --failing->allocations; /* kept for the other tests; the balance is about those that fail */
    return DG_SUCCESS;
}

static dg_status peer_copy_path(void)
{
    return dg_copy(on_0, 0, on_1, 1, BYTES, NULL);
}

static dg_status peer_copy_stream_path(void)
{
    return dg_copy(on_0, 0, on_1, 1, BYTES, failing_stream);
}

static dg_status host_copy_path(void)
{
    static char host[BYTES];
    return dg_copy(on_0, 0, host, DG_CPU, BYTES, NULL);
}

static dg_status free_path(void)
{
    CHECK(dg_free(1, on_1));
    ++failing->allocations; /* see alloc_path */
    return DG_SUCCESS;
}

static dg_status question_path(void)
{
    int32_t count;
    dg_device_info info = DG_DEVICE_INFO_INIT;
    CHECK(dg_device_count(&count));
    return dg_device_query(0, &info);
}

TEST_ALONE(every_failure_of_memory)
{
    failing = fake_open();
    /* version, required entry points, cuInit, 9 of the device; primary, current, push; the allocation */
    EXPECT_INT(fail_everywhere(failing, alloc_path), 1 + REQUIRED_ENTRIES + 1 + 9 + 3 + 1);
    EXPECT_OK(dg_alloc(0, BYTES, &on_0));
    EXPECT_OK(dg_synchronize(0, NULL));
    /* current; two pushes; capturing, synchronize, copy */
    EXPECT_INT(fail_everywhere(failing, peer_copy_path), 1 + 2 + 3);
    failing_stream = failing->stream_create(failing->context_create(1));
    /* stream, push, device; current; capturing, copy, synchronize */
    EXPECT_INT(fail_everywhere(failing, peer_copy_stream_path), 3 + 1 + 3);
    EXPECT_INT(fail_everywhere(failing, host_copy_path), 2 + 3); /* current, push; capturing, copy, synchronize */
    EXPECT_INT(fail_everywhere(failing, free_path), 2 + 1);
    EXPECT_OK(dg_free(0, on_0));
    EXPECT_INT(failing->allocations, 0);
    EXPECT_INT(failing->allocated_bytes, 0);
}

TEST_ALONE(every_failure_of_questions)
{
    failing = fake_open();
    EXPECT_INT(fail_everywhere(failing, question_path), 1 + REQUIRED_ENTRIES + 1 + 9);
}
