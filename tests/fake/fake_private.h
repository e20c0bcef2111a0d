/* What the two halves of the fake driver share. */
#ifndef FAKE_PRIVATE_H
#define FAKE_PRIVATE_H

#include "tests/fake/fake_cuda.h"

#include <pthread.h>

enum { FAKE_CONTEXTS = 32 };

struct CUctx_st {
    int device;
    bool alive;
};

struct CUstream_st {
    CUcontext context;
    bool capturing, spoilt; /* spoilt: by a call that is not allowed during the capture */
};

extern struct fake fake;
extern pthread_mutex_t fake_lock;

#define DRIVER(name, version, need, parameters) CUresult fake_##name parameters;
#include "cuda/driver.def"
#undef DRIVER

/* ---- How every call begins ----------------------------------------------------------------------------------- */

void fake_unlock(pthread_mutex_t **held);

/* Write the call down; the result is the failure to inject, or CUDA_SUCCESS. */
CUresult fake_record(bool spared, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* An error before cuInit, and in a process forked after it. */
CUresult fake_usable(void);

#define LOCKED                                                                                                         \
    __attribute__((cleanup(fake_unlock))) pthread_mutex_t *held = &fake_lock;                                          \
    pthread_mutex_lock(held)

#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        CUresult try_result_ = (expression);                                                                           \
        if (try_result_ != CUDA_SUCCESS)                                                                               \
            return try_result_;                                                                                        \
    } while (0)

/* RESTORE: for what fail_each_once spares. */
#define ENTER(name, ...)                                                                                               \
    LOCKED;                                                                                                            \
    TRY(fake_record(false, #name, __VA_ARGS__));                                                                       \
    TRY(fake_usable())
#define RESTORE(name, ...)                                                                                             \
    LOCKED;                                                                                                            \
    TRY(fake_record(true, #name, __VA_ARGS__));                                                                        \
    TRY(fake_usable())

/* ---- Rules that several calls share, for use with the lock held ---------------------------------------------- */

CUcontext fake_top(void); /* the calling thread's current context, or NULL */
int fake_context_index(CUcontext context);
bool fake_good_device(CUdevice device);
CUresult fake_need_context(void);
CUresult fake_need_stream(CUstream stream); /* work goes to streams of the current context only */
/* A thread may not make calls that could disturb a capture while one goes on in the global mode. */
CUresult fake_need_no_capture(void);

static inline bool fake_is_default(CUstream stream)
{
    return (uintptr_t)stream <= 2;
}

#endif
