/* CUDA devices by driver ordinal, and the CUDA context that a call works in. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include "cuda/driver.h"

enum { MAX_DEVICES = 64 };

struct cuda_device {
    int32_t ordinal;
    CUdevice handle;
    dg_device_info info;
};

/* Filled once per device and kept for the life of the process. */
dg_status cuda_device_get(int32_t ordinal, const struct cuda_device **device);

/* NULL and the handles 1 (legacy) and 2 (per thread): streams of whatever context is current, not of their own. */
static inline bool cuda_is_default_stream(dg_stream stream)
{
    return (uintptr_t)stream <= 2;
}

/*
 * Make the context that a call must use current: the stream's own, or for default streams the device's primary one,
 * which is retained once and kept. Checks that the stream belongs to the device. cuda_leave restores what was current;
 * call it on every path after a successful cuda_enter. In the steady state of one thread using one context this is two
 * or three driver queries and no change.
 */
struct cuda_scope {
    const struct driver *driver;
    const struct cuda_device *device;
    CUcontext context; /* current inside the scope */
    bool pushed;
};

dg_status cuda_enter(int32_t ordinal, dg_stream stream, struct cuda_scope *scope);
void cuda_leave(struct cuda_scope *scope);

/* Every pointer of a first call is checked: is it memory that this device can reach? `name` for the sentence. */
dg_status cuda_check_pointer(const struct cuda_scope *scope, const char *name, const void *pointer);

#endif
