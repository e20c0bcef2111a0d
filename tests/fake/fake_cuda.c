/* The fake driver: recording, errors, devices, contexts, streams, memory, and the application's part. */
#include "tests/fake/fake_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { STREAMS = 64, POINTERS = 4096, SITES = 1024, DEPTH = 16 };

struct range {
    uintptr_t begin, end, device_address;
    CUmemorytype type;
    int device;
    unsigned reach;
    bool owned;
};

EXPORT struct fake fake;

static struct CUctx_st contexts[FAKE_CONTEXTS]; /* the first FAKE_DEVICES are the primary ones */
static struct CUstream_st streams[STREAMS];
static struct range ranges[POINTERS];
static int context_count = FAKE_DEVICES, stream_count, range_count;
static char failed_sites[SITES][128];
static int failed_count;
static pid_t initialised_in; /* 0: cuInit was not called */
static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;
static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Recording and failing ----------------------------------------------------------------------------------- */

void fake_unlock(pthread_mutex_t **held)
{
    pthread_mutex_unlock(*held);
}

static bool fails_now(const char *name, const char *what)
{
    char site[128];
    if (fake.fail_call > 0 && (fake.fail_function[0] == '\0' || strcmp(fake.fail_function, name) == 0))
        return --fake.fail_call == 0;
    if (!fake.fail_each_once)
        return false;
    snprintf(site, sizeof site, "%.38s %.87s", name, what);
    for (int i = 0; i < failed_count; ++i)
        if (strcmp(failed_sites[i], site) == 0)
            return false;
    if (failed_count == SITES)
        return false;
    memcpy(failed_sites[failed_count++], site, sizeof site);
    return true;
}

static CUresult record(bool spared, const char *name, const char *format, va_list values)
{
    struct fake_call call = {.result = CUDA_SUCCESS};
    snprintf(call.name, sizeof call.name, "%s", name);
    vsnprintf(call.what, sizeof call.what, format, values);
    if (!(spared && fake.fail_each_once) && fails_now(call.name, call.what)) {
        call.result = fake.fail_result;
        ++fake.injected;
    }
    if (fake.call_count < FAKE_CALLS)
        fake.calls[fake.call_count] = call;
    ++fake.call_count;
    return call.result;
}

CUresult fake_record(bool spared, const char *name, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    CUresult result = record(spared, name, format, values);
    va_end(values);
    return result;
}

/* The driver's state does not survive a fork. */
CUresult fake_usable(void)
{
    return initialised_in == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

/* ---- Rules that several calls share -------------------------------------------------------------------------- */

CUcontext fake_top(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

CUresult fake_need_context(void)
{
    CUcontext context = fake_top();
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

int fake_context_index(CUcontext context)
{
    return (int)(context - contexts);
}

CUresult fake_need_no_capture(void)
{
    if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    for (int i = 0; i < stream_count; ++i)
        if (streams[i].capturing) {
            streams[i].spoilt = true;
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return CUDA_SUCCESS;
}

CUresult fake_need_stream(CUstream stream)
{
    TRY(fake_need_context());
    if (fake_is_default(stream))
        return CUDA_SUCCESS;
    return stream->context == fake_top() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static struct range *find_range(uintptr_t address)
{
    for (int i = 0; i < range_count; ++i)
        if (ranges[i].begin <= address && address < ranges[i].end)
            return &ranges[i];
    return NULL;
}

static void add_range(struct range range)
{
    if (range_count == POINTERS) {
        fprintf(stderr, "fake_cuda: more than %d ranges of memory\n", POINTERS);
        exit(70); /* of the test program that asked for it */
    }
    ranges[range_count++] = range;
}

bool fake_good_device(CUdevice device)
{
    return device >= 0 && device < fake.device_count;
}

/* ---- Errors, start, devices ---------------------------------------------------------------------------------- */

static const struct words {
    const char *name;
    CUresult number;
} words[] = {
#define VALUE(name, number) {#name, number},
#define SIZE(type, bytes)
#define OFFSET(type, field, bytes)
#include "cuda/abi.def"
#undef VALUE
#undef SIZE
#undef OFFSET
};

static const char *error_name(CUresult error)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
        if (words[i].number == error && strncmp(words[i].name, "CUDA_", 5) == 0)
            return words[i].name;
    return NULL;
}

CUresult fake_cuGetErrorName(CUresult error, const char **text)
{
    *text = error_name(error);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_cuGetErrorString(CUresult error, const char **text)
{
    *text = error_name(error) ? "what the driver says about it" : NULL;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDriverGetVersion(int *version);
EXPORT CUresult cuDriverGetVersion(int *version)
{
    LOCKED;
    TRY(fake_record(false, "cuDriverGetVersion", "%s", ""));
    *version = fake.version;
    return CUDA_SUCCESS;
}

CUresult fake_cuInit(unsigned int flags)
{
    LOCKED;
    TRY(fake_record(false, "cuInit", "%u", flags));
    usleep((useconds_t)fake.init_ms * 1000);
    if (initialised_in != 0)
        return fake_usable();
    TRY(fake.init);
    if (fake.device_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    initialised_in = getpid();
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetCount(int *count)
{
    ENTER(cuDeviceGetCount, "%s", "");
    *count = fake.device_count;
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(cuDeviceGet, "%d", ordinal);
    if (!fake_good_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    ENTER(cuDeviceGetName, "%d", device);
    if (!fake_good_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)bytes, "%s", fake.devices[device].name);
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    ENTER(cuDeviceTotalMem, "%d", device);
    if (!fake_good_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = fake.devices[device].memory_bytes;
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    ENTER(cuDeviceGetAttribute, "%d of device %d", attribute, device);
    if (!fake_good_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    const struct fake_device *d = &fake.devices[device];
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = d->major;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = d->minor;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = d->sms;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = d->l2_bytes;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = d->smem_bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- Contexts ------------------------------------------------------------------------------------------------ */

CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRetain, "%d", device);
    if (!fake_good_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    contexts[device] = (struct CUctx_st){device, true};
    *context = &contexts[device];
    ++fake.primaries;
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxGetCurrent(CUcontext *context)
{
    ENTER(cuCtxGetCurrent, "%s", "");
    *context = fake_top();
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxPushCurrent(CUcontext context)
{
    ENTER(cuCtxPushCurrent, "%d", context ? context->device : -1);
    if (context == NULL || depth == DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxPopCurrent(CUcontext *context)
{
    RESTORE(cuCtxPopCurrent, "%s", "");
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxGetDevice(CUdevice *device)
{
    ENTER(cuCtxGetDevice, "%s", "");
    TRY(fake_need_context());
    *device = fake_top()->device;
    return CUDA_SUCCESS;
}

/* ---- Streams ------------------------------------------------------------------------------------------------- */

CUresult fake_cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    ENTER(cuStreamGetCtx, "%s", "");
    if (fake_is_default(stream))
        TRY(fake_need_context());
    *context = fake_is_default(stream) ? fake_top() : stream->context;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    ENTER(cuStreamIsCapturing, "%s", "");
    TRY(fake_need_stream(stream));
    *status =
        !fake_is_default(stream) && stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamSynchronize(CUstream stream)
{
    ENTER(cuStreamSynchronize, "%s", "");
    TRY(fake_need_stream(stream));
    if (!fake_is_default(stream) && stream->capturing) {
        stream->spoilt = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    LOCKED;
    TRY(fake_record(*mode != CU_STREAM_CAPTURE_MODE_RELAXED, "cuThreadExchangeStreamCaptureMode", "%d", *mode));
    TRY(fake_usable());
    if (*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* ---- Memory -------------------------------------------------------------------------------------------------- */

CUresult fake_cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    ENTER(cuMemAlloc, "%zu", bytes);
    TRY(fake_need_context());
    TRY(fake_need_no_capture());
    const int device = fake_top()->device;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > fake.devices[device].memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* Exactly `bytes`, so that sanitizers see every byte beyond. */
    unsigned char *memory;
    if (posix_memalign((void **)&memory, 256, bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(memory, 0xcd, bytes);
    const uintptr_t begin = (uintptr_t)memory;
    add_range((struct range){begin, begin + bytes, begin, CU_MEMORYTYPE_DEVICE, device, 1u << device, true});
    *pointer = begin;
    ++fake.allocations;
    fake.allocated_bytes += (int64_t)bytes;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemFree(CUdeviceptr pointer)
{
    ENTER(cuMemFree, "%s", "");
    TRY(fake_need_context());
    TRY(fake_need_no_capture());
    struct range *range = find_range((uintptr_t)pointer);
    if (range == NULL || !range->owned || range->begin != pointer)
        return CUDA_ERROR_INVALID_VALUE;
    --fake.allocations;
    fake.allocated_bytes -= (int64_t)(range->end - range->begin);
    free((void *)range->begin);
    *range = ranges[--range_count];
    return CUDA_SUCCESS;
}

static bool within(uintptr_t address, size_t bytes)
{
    const struct range *range = find_range(address);
    return range == NULL || bytes <= range->end - address; /* memory that CUDA does not know is the host's */
}

CUresult fake_cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)
{
    ENTER(cuMemcpyAsync, "%zu", bytes);
    TRY(fake_need_stream(stream));
    if (!within((uintptr_t)destination, bytes) || !within((uintptr_t)source, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_is_default(stream) || !stream->capturing)
        memmove((void *)(uintptr_t)destination, (const void *)(uintptr_t)source, bytes);
    return CUDA_SUCCESS;
}

static void pointer_attribute(const struct range *range, uintptr_t pointer, CUpointer_attribute attribute, void *data)
{
    const bool reached = range && fake_top() && (range->reach >> fake_top()->device & 1);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = range ? (unsigned int)range->type : 0;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = range ? range->device : -2; /* CU_DEVICE_INVALID */
        break;
    default:
        *(CUdeviceptr *)data = reached ? range->device_address + (pointer - range->begin) : 0;
    }
}

CUresult fake_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                     CUdeviceptr pointer)
{
    ENTER(cuPointerGetAttributes, "%u attributes", count);
    TRY(fake_need_context());
    for (unsigned int i = 0; i < count; ++i)
        if (attributes[i] != CU_POINTER_ATTRIBUTE_MEMORY_TYPE && attributes[i] != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
            attributes[i] != CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
            return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count; ++i)
        pointer_attribute(find_range((uintptr_t)pointer), (uintptr_t)pointer, attributes[i], data[i]);
    return CUDA_SUCCESS;
}

/* ---- The way in ---------------------------------------------------------------------------------------------- */

static const struct entry {
    const char *name;
    int version;
    void (*function)(void);
} entries[] = {
#define DRIVER(name, version, need, parameters) {#name, version, (void (*)(void))fake_##name},
#include "cuda/driver.def"
#undef DRIVER
};

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags,
                                    CUdriverProcAddressQueryResult *found);
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags,
                                    CUdriverProcAddressQueryResult *found)
{
    LOCKED;
    TRY(fake_record(false, "cuGetProcAddress", "%s %d", name, version));
    *address = NULL;
    *found = 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    if (version > fake.version || flags != CU_GET_PROC_ADDRESS_LEGACY_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; ++i)
        if (strcmp(entries[i].name, name) == 0 && strcmp(fake.missing, name) != 0 && entries[i].version <= version) {
            memcpy(address, &entries[i].function, sizeof *address);
            *found = 0;
        }
    return CUDA_SUCCESS;
}

/* ---- The application's part ---------------------------------------------------------------------------------- */

static const struct fake_device h200 = {.name = "Fake H200",
                                        .major = 9,
                                        .minor = 0,
                                        .sms = 132,
                                        .l2_bytes = 62914560,
                                        .smem_bytes = 232448,
                                        .memory_bytes = 150754820096};

static void reset(void)
{
    LOCKED;
    fake.version = 13000;
    fake.device_count = 2;
    fake.init = CUDA_SUCCESS;
    fake.init_ms = 0;
    fake.missing[0] = fake.no_kernel[0] = fake.fail_function[0] = '\0';
    fake.fail_call = 0;
    fake.fail_each_once = false;
    fake.fail_result = CUDA_ERROR_UNKNOWN;
    fake.args_bytes = 0;
    fake.execute = NULL;
    fake.call_count = fake.launch_count = fake.injected = failed_count = 0;
    for (int i = 0; i < FAKE_DEVICES; ++i)
        fake.devices[i] = h200;
}

static int count_calls(const char *function)
{
    LOCKED;
    int count = 0;
    for (int i = 0; i < fake.call_count && i < FAKE_CALLS; ++i)
        count += strcmp(fake.calls[i].name, function) == 0;
    return count;
}

static CUcontext context_create(int device)
{
    LOCKED;
    if (context_count == FAKE_CONTEXTS)
        return NULL;
    contexts[context_count] = (struct CUctx_st){device, true};
    return &contexts[context_count++];
}

static CUcontext primary(int device)
{
    LOCKED;
    contexts[device] = (struct CUctx_st){device, true};
    return &contexts[device];
}

static CUstream stream_create(CUcontext context)
{
    LOCKED;
    if (stream_count == STREAMS)
        return NULL;
    streams[stream_count] = (struct CUstream_st){.context = context};
    return &streams[stream_count++];
}

static void capture(CUstream stream, bool on)
{
    LOCKED;
    stream->capturing = on;
    stream->spoilt = false;
}

static bool capture_spoilt(CUstream stream)
{
    return stream->spoilt;
}

static void pointer_add(const void *pointer, size_t bytes, CUmemorytype type, int device, unsigned reach)
{
    LOCKED;
    const uintptr_t begin = (uintptr_t)pointer;
    add_range((struct range){begin, begin + bytes, begin, type, device, reach, false});
}

static void pointer_alias(const void *pointer, size_t bytes, const void *device_address)
{
    LOCKED;
    const uintptr_t begin = (uintptr_t)pointer;
    add_range((struct range){begin, begin + bytes, (uintptr_t)device_address, CU_MEMORYTYPE_HOST, 0, ~0u, false});
}

static void pointer_remove(const void *pointer)
{
    LOCKED;
    struct range *range = find_range((uintptr_t)pointer);
    if (range && !range->owned)
        *range = ranges[--range_count];
}

static CUcontext current(void)
{
    return fake_top();
}

static int stack_depth(void)
{
    return depth;
}

static CUstreamCaptureMode thread_capture_mode(void)
{
    return capture_mode;
}

static void set_capture_mode(CUstreamCaptureMode mode)
{
    capture_mode = mode;
}

static void push(CUcontext context)
{
    stack[depth++] = context;
}

static void pop(void)
{
    --depth;
}

__attribute__((constructor)) static void start(void)
{
    fake.reset = reset;
    fake.count = count_calls;
    fake.context_create = context_create;
    fake.primary = primary;
    fake.stream_create = stream_create;
    fake.capture = capture;
    fake.capture_spoilt = capture_spoilt;
    fake.pointer_add = pointer_add;
    fake.pointer_alias = pointer_alias;
    fake.pointer_remove = pointer_remove;
    fake.current = current;
    fake.depth = stack_depth;
    fake.capture_mode = thread_capture_mode;
    fake.set_capture_mode = set_capture_mode;
    fake.push = push;
    fake.pop = pop;
    reset();
}
