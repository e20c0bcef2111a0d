#include "cuda/module.h"

#include <string.h>

/*
 * A thread that captures a stream may not make "potentially unsafe" calls, loading code among them, unless its capture
 * mode is relaxed; nothing that loads enters the graph. The mode that was set is put back on every path.
 */
static dg_status relax_capture(const struct driver *driver, CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK_CUDA(driver, cuThreadExchangeStreamCaptureMode, (mode));
    return DG_SUCCESS;
}

static void restore_capture(const struct driver *driver, CUstreamCaptureMode mode)
{
    driver->cuThreadExchangeStreamCaptureMode(&mode); /* fails only for a mode that does not exist */
}

struct load {
    const struct cuda_scope *scope;
    const void *image;
    const char *symbol;
    int32_t smem_bytes;
};

/*
 * Why the driver would not load the code; with lazy loading it may say so in any call. A cubin was whole when the cache
 * handed it out, so one that the driver cannot read is of a later format than the driver knows.
 */
static dg_status load_fail(const struct load *load, CUresult result, const char *what)
{
    const struct cuda_device *device = load->scope->device;
    const int major = device->info.driver_version / 1000, minor = device->info.driver_version % 1000 / 10;
    dg_status status;
    switch (result) {
    case CUDA_ERROR_NOT_FOUND:
        return fail(DG_ERROR_INTERNAL, "the compiled code has no kernel %s", load->symbol);
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        return fail(DG_ERROR_UNSUPPORTED_ARCH,
                    "the code of %s is not for CUDA device %d (%s, compute capability %d.%d)", load->symbol,
                    (int)device->ordinal, device->info.name, (int)device->info.arch / 10, (int)device->info.arch % 10);
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        if (memcmp(load->image, "\177ELF", 4) != 0)
            return fail(DG_ERROR_INTERNAL, "the code of %s is not a cubin (CUDA error %d)", load->symbol, result);
        return fail(DG_ERROR_CUBIN_TOO_NEW,
                    "the driver, of CUDA %d.%d, cannot read the code of %s (CUDA error %d), which a later NVRTC must "
                    "have made; update the driver, or let DG_NVRTC_PATH name an NVRTC of CUDA %d",
                    major, minor, load->symbol, result, major);
    default:
        status = driver_fail(result, what);
        fail_more(", loading %s", load->symbol);
        return status;
    }
}

static dg_status set_smem(const struct load *load, CUkernel kernel)
{
    const struct cuda_device *device = load->scope->device;
    CUresult result = load->scope->driver->cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                                load->smem_bytes, kernel, device->handle);
    if (result == CUDA_SUCCESS)
        return DG_SUCCESS;
    dg_status status = load_fail(load, result, "cuKernelSetAttribute");
    fail_more("; %d bytes of dynamic shared memory were asked for, and CUDA device %d has %d for a block",
              (int)load->smem_bytes, (int)device->ordinal, (int)device->info.smem_bytes_per_block);
    return status;
}

/*
 * Under CUDA_MODULE_LOADING=LAZY (the default since 12.2) cuLibraryLoadData only reads the image. Asking for the
 * function in a context loads its module there; cuFuncLoad (12.4) then loads the function itself, which older drivers
 * do when they hand it out. `what`: the call that failed.
 */
static CUresult load_in_context(const struct driver *driver, CUkernel kernel, const char **what)
{
    CUfunction function;
    *what = "cuKernelGetFunction";
    CUresult result = driver->cuKernelGetFunction(&function, kernel);
    if (result != CUDA_SUCCESS || driver->cuFuncLoad == NULL)
        return result;
    *what = "cuFuncLoad";
    return driver->cuFuncLoad(function);
}

/* The kernel of a loaded library, ready for launches in the current context. */
static dg_status prepare_kernel(const struct load *load, CUlibrary library, CUkernel *kernel)
{
    const struct driver *driver = load->scope->driver;
    const char *what;
    CUresult result = driver->cuLibraryGetKernel(kernel, library, load->symbol);
    if (result != CUDA_SUCCESS)
        return load_fail(load, result, "cuLibraryGetKernel");
    CHECK(set_smem(load, *kernel));
    result = load_in_context(driver, *kernel, &what);
    return result == CUDA_SUCCESS ? DG_SUCCESS : load_fail(load, result, what);
}

static dg_status load_library(const struct load *load, CUkernel *kernel)
{
    const struct driver *driver = load->scope->driver;
    CUlibrary library;
    CUresult result = driver->cuLibraryLoadData(&library, load->image, NULL, NULL, 0, NULL, NULL, 0);
    if (result != CUDA_SUCCESS)
        return load_fail(load, result, "cuLibraryLoadData");
    dg_status status = prepare_kernel(load, library, kernel);
    if (status != DG_SUCCESS)
        driver->cuLibraryUnload(library);
    return status;
}

dg_status cuda_kernel_load(const struct cuda_scope *scope, const void *image, size_t bytes, const char *symbol,
                           int32_t smem_bytes, struct cuda_kernel *kernel)
{
    const struct load load = {scope, image, symbol, smem_bytes};
    CUstreamCaptureMode mode;
    CUkernel handle = NULL;
    if (bytes < 64) /* an ELF header; the driver is told no length and would read on */
        return fail(DG_ERROR_INTERNAL, "the code of %s has only %zu bytes", symbol, bytes);
    CHECK(relax_capture(scope->driver, &mode));
    dg_status status = load_library(&load, &handle);
    restore_capture(scope->driver, mode);
    if (status == DG_SUCCESS)
        *kernel = (struct cuda_kernel){handle, scope->device->ordinal, smem_bytes};
    return status;
}

dg_status cuda_kernel_touch(const struct cuda_scope *scope, const struct cuda_kernel *kernel)
{
    CUstreamCaptureMode mode;
    const char *what;
    CHECK(relax_capture(scope->driver, &mode));
    CUresult result = load_in_context(scope->driver, kernel->handle, &what);
    restore_capture(scope->driver, mode);
    return result == CUDA_SUCCESS ? DG_SUCCESS : driver_fail(result, what);
}
