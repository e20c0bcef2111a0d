#ifndef JIT_CLOCK_H
#define JIT_CLOCK_H

#include <time.h>

/* Seconds since some moment, never set back. */
static inline double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
