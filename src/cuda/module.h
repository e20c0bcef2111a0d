/* Bytes into kernels: cubins loaded as libraries, each kernel prepared once per device. */
#ifndef CUDA_MODULE_H
#define CUDA_MODULE_H

#include "cuda/device.h"

struct cuda_kernel {
    CUkernel handle; /* valid in every context of the device */
    int32_t device;
    int32_t smem_bytes;
};

/*
 * Load `symbol` from a cubin and prepare it for `smem_bytes` of dynamic shared memory on the scope's device. Works
 * under stream capture (the thread's capture mode is relaxed meanwhile), and loads the code into the current context
 * so that the launch that follows has nothing left to load. A cubin that the driver is too old for is
 * DG_ERROR_CUBIN_TOO_NEW. The library stays loaded for the life of the process.
 */
dg_status cuda_kernel_load(const struct cuda_scope *scope, const void *image, size_t bytes, const char *symbol,
                           int32_t smem_bytes, struct cuda_kernel *kernel);

/* Make sure the kernel's code is loaded in the scope's context (a second context on the same device). */
dg_status cuda_kernel_touch(const struct cuda_scope *scope, const struct cuda_kernel *kernel);

#endif
