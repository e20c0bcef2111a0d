/* Loops over all cores. */
#ifndef CPU_THREADS_H
#define CPU_THREADS_H

#include <stdint.h>

/*
 * Call body(user, begin, end) on disjoint ranges that cover 0..count-1, on OpenMP's threads. On the calling thread
 * alone in a call from inside such a body, in a process forked from one that had several threads (they do not exist
 * there), and in builds without OpenMP; on fewer threads where the system gives no more.
 */
void cpu_parallel_for(int64_t count, void (*body)(void *user, int64_t begin, int64_t end), void *user);

#endif
