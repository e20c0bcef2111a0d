/*
 * The CUDA driver, loaded with dlopen on first use: one table of the entry points in driver.def, each at a pinned
 * version. "No driver", "too old", "no device" and "entry point missing" are told apart.
 */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include "core/status.h"
#include "cuda/abi.h"

/* The oldest driver that will do: CUDA 12.0 brought cuLibrary*, cuKernel* and cuTensorMapEncodeTiled. */
enum { DRIVER_MINIMUM = 12000 };

struct driver {
#define DRIVER(name, version, need, parameters) CUresult(*name) parameters;
#include "cuda/driver.def"
#undef DRIVER
    int version; /* cuDriverGetVersion: 13000 for CUDA 13.0 */
};

/*
 * The table, loaded and initialised (cuInit) on the first call; later calls cost a load and a compare. After a failure
 * the next call tries again. In a process forked from one that had loaded it, DG_ERROR_FORKED.
 */
dg_status driver_get(const struct driver **driver);

/*
 * The status and the sentence for a driver error. `what` is the driver function that returned it. Errors that only
 * earlier asynchronous work can have caused (an illegal address, say) become DG_ERROR_EARLIER_CUDA.
 */
dg_status driver_fail(CUresult result, const char *what);

/* CHECK for driver calls: CHECK_CUDA(driver, cuStreamGetCtx, (stream, &context)); */
#define CHECK_CUDA(driver, function, arguments)                                                                        \
    do {                                                                                                               \
        CUresult check_result_ = (driver)->function arguments;                                                         \
        if (check_result_ != CUDA_SUCCESS)                                                                             \
            return driver_fail(check_result_, #function);                                                              \
    } while (0)

#endif
