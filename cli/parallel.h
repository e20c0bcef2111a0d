/* Loops over all cores, for data and judging: the library's own threads are not public. */
#ifndef CLI_PARALLEL_H
#define CLI_PARALLEL_H

#include <stdint.h>

/* Calls body(user, begin, end) on disjoint ranges that cover 0..count-1, each but the last a multiple of `grain`. */
void parallel_for(int64_t count, int64_t grain, void (*body)(void *user, int64_t begin, int64_t end), void *user);

int cpu_count(void);

#endif
