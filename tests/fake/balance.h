/* What a call must leave as it found it, whether it succeeds or fails, and a way to make it fail at every point. */
#ifndef BALANCE_H
#define BALANCE_H

#include "core/status.h"
#include "tests/fake/fake.h"

/* How many entry points the loader must find. */
enum {
#define REQUIRED 1
#define OPTIONAL 0
#define DRIVER(name, version, need, parameters) +need
    REQUIRED_ENTRIES = 0
#include "cuda/driver.def"
#undef REQUIRED
#undef OPTIONAL
#undef DRIVER
};

struct balance {
    CUcontext current;
    int depth;
    CUstreamCaptureMode mode;
    int64_t libraries, allocations;
};

static inline struct balance balance_now(const struct fake *fake)
{
    return (struct balance){fake->current(), fake->depth(), fake->capture_mode(), fake->libraries, fake->allocations};
}

/* The calling thread's contexts and capture mode. */
static inline void balance_expect_thread(const struct fake *fake, struct balance before)
{
    EXPECT(fake->current() == before.current);
    EXPECT_INT(fake->depth(), before.depth);
    EXPECT_INT(fake->capture_mode(), before.mode);
}

static inline const struct fake_call *last_failure(const struct fake *fake)
{
    for (int i = fake->call_count - 1; i >= 0; --i)
        if (fake->calls[i].result != CUDA_SUCCESS)
            return &fake->calls[i];
    return NULL;
}

/*
 * Run `path` again and again while each driver call that it makes fails once, until nothing fails any more. Every
 * failure must be told by name and leave nothing behind; the last run must succeed. Returns the number of failures.
 * (Looking up an optional entry point fails too, unnoticed by the caller, in the same run as the call after it.) A path
 * may keep up to `kept_libraries` loaded: kernels that were ready before something later failed.
 */
static inline int fail_everywhere_keeping(struct fake *fake, dg_status (*path)(void), int64_t kept_libraries)
{
    int failures = 0;
    fake->reset();
    fake->fail_each_once = true;
    for (;; ++failures) {
        const int injected = fake->injected;
        const struct balance before = balance_now(fake);
        fake->call_count = 0;
        const dg_status status = path();
        balance_expect_thread(fake, before);
        if (fake->injected == injected) {
            EXPECT_OK(status);
            break;
        }
        const struct fake_call *failure = last_failure(fake);
        const bool look_up = strcmp(failure->name, "cuGetProcAddress") == 0;
        EXPECT_THAT(status == DG_ERROR_CUDA, "%s %s failed and the status is %s", failure->name, failure->what,
                    dg_status_name(status));
        EXPECT_TEXT(dg_last_error(), look_up ? "lacks cu" : failure->name);
        if (strcmp(failure->name, "cuDriverGetVersion") == 0) /* asked before the driver's words are at hand */
            EXPECT_TEXT(dg_last_error(), "the error 999");
        else if (!look_up)
            EXPECT_TEXT(dg_last_error(), "CUDA_ERROR_UNKNOWN (999");
        EXPECT(fake->libraries >= before.libraries && fake->libraries <= before.libraries + kept_libraries);
        EXPECT_INT(fake->allocations, before.allocations);
    }
    fake->fail_each_once = false;
    return failures;
}

static inline int fail_everywhere(struct fake *fake, dg_status (*path)(void))
{
    return fail_everywhere_keeping(fake, path, 0);
}

#endif
