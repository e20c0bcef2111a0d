/* dg_alloc, dg_free, dg_copy, dg_synchronize, dg_device_count, dg_device_query: the driver's, in a thin coat. */
#include "cuda/device.h"

#include "core/check.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 }; /* what deepgemm.h promises; cuMemAlloc gives as much by itself */

static dg_status check_device(const char *name, int32_t device)
{
    if (device >= DG_CPU)
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT, "%s is %d; wanted DG_CPU (-1) or a CUDA device", name, (int)device);
}

/* ---- Devices ------------------------------------------------------------------------------------------------- */

dg_status dg_device_count(int32_t *count)
{
    const struct driver *driver;
    int found;
    operation_begin("dg_device_count");
    if (count == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "count is NULL; wanted where to store the number of devices");
    *count = 0;
    CHECK(driver_get(&driver));
    CHECK_CUDA(driver, cuDeviceGetCount, (&found));
    *count = found;
    return DG_SUCCESS;
}

dg_status dg_device_query(int32_t ordinal, dg_device_info *info)
{
    const struct cuda_device *device;
    operation_begin("dg_device_query");
    if (info == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "info is NULL; wanted a dg_device_info to fill in");
    CHECK(cuda_device_get(ordinal, &device));
    return export_struct(info, &device->info, sizeof device->info, "dg_device_info");
}

/* ---- Allocation ---------------------------------------------------------------------------------------------- */

static dg_status host_alloc(size_t bytes, void **data)
{
    void *memory = NULL;
    if (bytes <= SIZE_MAX - ALIGNMENT)
        memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (memory == NULL)
        return fail(DG_ERROR_OUT_OF_MEMORY, "%zu bytes of host memory could not be allocated", bytes);
    *data = memory;
    return DG_SUCCESS;
}

static dg_status device_alloc(int32_t device, size_t bytes, void **data)
{
    struct cuda_scope scope;
    CUdeviceptr pointer = 0;
    dg_status status = DG_SUCCESS;
    CHECK(cuda_enter(device, NULL, &scope));
    CUresult result = scope.driver->cuMemAlloc(&pointer, bytes);
    if (result != CUDA_SUCCESS) {
        status = driver_fail(result, "cuMemAlloc");
        fail_more(" for %zu bytes on CUDA device %d", bytes, (int)device);
    } else {
        *data = (void *)(uintptr_t)pointer;
    }
    cuda_leave(&scope);
    return status;
}

dg_status dg_alloc(int32_t device, size_t bytes, void **data)
{
    operation_begin("dg_alloc");
    if (data == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "data is NULL; wanted where to store the pointer");
    CHECK(check_device("device", device));
    if (bytes == 0) {
        *data = NULL; /* what an empty tensor may have */
        return DG_SUCCESS;
    }
    return device == DG_CPU ? host_alloc(bytes, data) : device_alloc(device, bytes, data);
}

static dg_status device_free(int32_t device, void *data)
{
    struct cuda_scope scope;
    CHECK(cuda_enter(device, NULL, &scope));
    CUresult result = scope.driver->cuMemFree((CUdeviceptr)(uintptr_t)data);
    dg_status status = result == CUDA_SUCCESS ? DG_SUCCESS : driver_fail(result, "cuMemFree");
    cuda_leave(&scope);
    return status;
}

dg_status dg_free(int32_t device, void *data)
{
    operation_begin("dg_free");
    CHECK(check_device("device", device));
    if (data == NULL)
        return DG_SUCCESS;
    if (device != DG_CPU)
        return device_free(device, data);
    free(data);
    return DG_SUCCESS;
}

/* ---- Copies and waiting -------------------------------------------------------------------------------------- */

/* Waiting for a stream that is being captured would spoil the capture; refused before anything is queued. */
static dg_status check_not_capturing(const struct cuda_scope *scope, dg_stream stream)
{
    CUstreamCaptureStatus capture;
    CHECK_CUDA(scope->driver, cuStreamIsCapturing, (stream, &capture));
    if (capture == CU_STREAM_CAPTURE_STATUS_NONE)
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT, "stream is being captured into a graph, where nothing can be waited for");
}

static dg_status wait_in(const struct cuda_scope *scope, dg_stream stream)
{
    CHECK(check_not_capturing(scope, stream));
    CHECK_CUDA(scope->driver, cuStreamSynchronize, (stream));
    return DG_SUCCESS;
}

static dg_status copy_in(const struct cuda_scope *scope, void *dst, const void *src, size_t bytes, dg_stream stream)
{
    CHECK(check_not_capturing(scope, stream));
    /* Addresses tell the driver by themselves which memory they belong to. */
    CHECK_CUDA(scope->driver, cuMemcpyAsync, ((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, bytes, stream));
    CHECK_CUDA(scope->driver, cuStreamSynchronize, (stream));
    return DG_SUCCESS;
}

static dg_status synchronize(int32_t device, dg_stream stream)
{
    struct cuda_scope scope;
    CHECK(cuda_enter(device, stream, &scope));
    dg_status status = wait_in(&scope, stream);
    cuda_leave(&scope);
    return status;
}

/* Which of two GPUs a stream belongs to; `a` when neither, and cuda_enter will complain. */
static dg_status owner_of(dg_stream stream, int32_t a, int32_t b, int32_t *owner)
{
    const struct driver *driver;
    const struct cuda_device *other;
    CUcontext context, popped;
    CUdevice handle;
    CHECK(cuda_device_get(b, &other));
    CHECK(driver_get(&driver));
    CHECK_CUDA(driver, cuStreamGetCtx, (stream, &context));
    CHECK_CUDA(driver, cuCtxPushCurrent, (context));
    CUresult result = driver->cuCtxGetDevice(&handle);
    driver->cuCtxPopCurrent(&popped);
    if (result != CUDA_SUCCESS)
        return driver_fail(result, "cuCtxGetDevice");
    *owner = handle == other->handle ? b : a;
    return DG_SUCCESS;
}

/* The device whose context a copy works in. Between two GPUs a default stream is the destination's, and what the
   source's has queued is waited for first. */
static dg_status choose_device(int32_t dst, int32_t src, dg_stream stream, int32_t *device)
{
    *device = dst == DG_CPU ? src : dst;
    if (dst == DG_CPU || src == DG_CPU || dst == src)
        return DG_SUCCESS;
    return cuda_is_default_stream(stream) ? synchronize(src, stream) : owner_of(stream, dst, src, device);
}

dg_status dg_copy(void *dst, int32_t dst_device, const void *src, int32_t src_device, size_t bytes, dg_stream stream)
{
    struct cuda_scope scope;
    int32_t device;
    operation_begin("dg_copy");
    CHECK(check_device("dst_device", dst_device));
    CHECK(check_device("src_device", src_device));
    if (bytes == 0)
        return DG_SUCCESS;
    if (dst == NULL || src == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s is NULL; wanted memory of %zu bytes", dst == NULL ? "dst" : "src",
                    bytes);
    if (dst_device == DG_CPU && src_device == DG_CPU) {
        memmove(dst, src, bytes);
        return DG_SUCCESS;
    }
    CHECK(choose_device(dst_device, src_device, stream, &device));
    CHECK(cuda_enter(device, stream, &scope));
    dg_status status = copy_in(&scope, dst, src, bytes, stream);
    cuda_leave(&scope);
    return status;
}

dg_status dg_synchronize(int32_t device, dg_stream stream)
{
    operation_begin("dg_synchronize");
    CHECK(check_device("device", device));
    return device == DG_CPU ? DG_SUCCESS : synchronize(device, stream);
}
