/* Loops over all cores. */
#ifndef CPU_THREADS_H
#define CPU_THREADS_H

#include <stdint.h>

/* As many as OMP_NUM_THREADS says, else as there are processors for this process; 256 at most. */
int cpu_threads(void);

/*
 * Call body(user, begin, end) on disjoint ranges that cover 0..count-1, on cpu_threads() threads; on fewer where the
 * work is short (an index costs about `cost` nanoseconds) or the system gives no more, and on the calling thread alone
 * in a call from inside such a body.
 */
void cpu_parallel_for(int64_t count, int64_t cost, void (*body)(void *user, int64_t begin, int64_t end), void *user);

#endif
