#include "cupti.h"

#include "gpu_abi.h"
#include "library.h"
#include "program.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef void request_buffer(uint8_t **buffer, size_t *bytes, size_t *most_records);
typedef void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes);

static struct {
    int (*cuptiGetVersion)(uint32_t *version);
    int (*cuptiGetResultString)(int result, const char **text);
    int (*cuptiActivityRegisterCallbacks)(request_buffer *request, buffer_completed *completed);
    int (*cuptiActivityEnable)(int kind);
    int (*cuptiActivityDisable)(int kind);
    int (*cuptiActivityFlushAll)(uint32_t flags);
    int (*cuptiActivityGetNextRecord)(uint8_t *buffer, size_t valid_bytes, struct abi_activity_kernel **record);
} cupti;

enum { BUFFER_BYTES = 1 << 20, FLUSH_FORCED = 1 };

/* The callbacks may come from a thread of CUPTI's own. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t total_ns;
static int64_t kernels_seen;
static uint32_t version;

static void on_request(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0; /* as many as fit */
}

/* A fill that a driver might do by a kernel of its own is not the call's. */
static bool is_call(const struct abi_activity_kernel *record)
{
    return record->kind == ABI_ACTIVITY_CONCURRENT_KERNEL && !(record->name && strcasestr(record->name, "memset"));
}

static void on_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes)
{
    struct abi_activity_kernel *record = NULL;
    (void)context;
    (void)stream;
    (void)bytes;
    pthread_mutex_lock(&lock);
    while (valid_bytes > 0 && cupti.cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == 0) {
        if (is_call(record)) {
            total_ns += record->end_ns - record->start_ns;
            ++kernels_seen;
        }
    }
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static bool cupti_ok(int result, const char *what)
{
    const char *text = NULL;
    if (result == 0)
        return true;
    cupti.cuptiGetResultString(result, &text);
    return trouble("%s: %s", what, text ? text : "failed");
}

static bool load(void)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", NULL};
    void *library = library_open(names, "cuda_cupti");
#define SYMBOL(name) library_symbol(library, #name, (void *)&cupti.name)
    return library && SYMBOL(cuptiGetVersion) && SYMBOL(cuptiGetResultString) &&
           SYMBOL(cuptiActivityRegisterCallbacks) && SYMBOL(cuptiActivityEnable) && SYMBOL(cuptiActivityDisable) &&
           SYMBOL(cuptiActivityFlushAll) && SYMBOL(cuptiActivityGetNextRecord);
#undef SYMBOL
}

bool cupti_begin(void)
{
    return load() && cupti_ok(cupti.cuptiGetVersion(&version), "cuptiGetVersion") &&
           cupti_ok(cupti.cuptiActivityRegisterCallbacks(on_request, on_completed), "cuptiActivityRegisterCallbacks") &&
           cupti_ok(cupti.cuptiActivityEnable(ABI_ACTIVITY_CONCURRENT_KERNEL), "cuptiActivityEnable");
}

void cupti_end(void)
{
    if (version)
        cupti.cuptiActivityDisable(ABI_ACTIVITY_CONCURRENT_KERNEL);
    version = 0;
}

uint32_t cupti_version(void)
{
    return version;
}

bool cupti_collect(double *us, int64_t *kernels)
{
    if (!cupti_ok(cupti.cuptiActivityFlushAll(FLUSH_FORCED), "cuptiActivityFlushAll"))
        return false;
    pthread_mutex_lock(&lock);
    *us = 1e-3 * (double)total_ns;
    *kernels = kernels_seen;
    total_ns = 0;
    kernels_seen = 0;
    pthread_mutex_unlock(&lock);
    return true;
}

bool cupti_reset(void)
{
    double us;
    int64_t kernels;
    return cupti_collect(&us, &kernels);
}
