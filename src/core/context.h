/* A context is a set of settings. Kernels and devices are kept per process, so a context is cheap to make and free. */
#ifndef CORE_CONTEXT_H
#define CORE_CONTEXT_H

#include "core/status.h"

#include <stdatomic.h>

enum { SETTING_COUNT = 7 }; /* dg_setting values index the array */

struct dg_context {
    _Atomic uint64_t magic;
    _Atomic int64_t settings[SETTING_COUNT];
    /* Changes with every dg_set to a number that no context had before: what was prepared under one epoch is valid
       for as long as the context shows it. */
    _Atomic uint64_t epoch;
    dg_context *next_destroyed; /* debug builds keep destroyed contexts to recognise them */
};

/* The context to use for what the caller gave: itself, the process's default for NULL, an error if destroyed. */
dg_status context_resolve(dg_context *given, dg_context **context);

static inline int64_t context_get(dg_context *context, dg_setting setting)
{
    return atomic_load_explicit(&context->settings[setting], memory_order_relaxed);
}

static inline uint64_t context_epoch(dg_context *context)
{
    return atomic_load_explicit(&context->epoch, memory_order_acquire);
}

/* Of DG_SETTING_CONTIGUOUS_ALIGNMENT and dg_gemm_args.alignment. */
bool contiguous_alignment_valid(int64_t alignment);
#define CONTIGUOUS_ALIGNMENT_WANTED "8, 16 or a multiple of 32 up to 256"

/* SMs that a launch on a device with `device_sms` may use: the call's bound, the context's, its tensor-core share. */
int32_t context_sms(dg_context *context, int32_t per_call, int32_t device_sms);

#endif
