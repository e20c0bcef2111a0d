/* The parts of `deepgemm selftest`: the table of cases, and the checks that are no single call. */
#ifndef CLI_SELFTEST_H
#define CLI_SELFTEST_H

#include "problem.h"

enum selftest_level { SELFTEST_QUICK, SELFTEST_NORMAL, SELFTEST_FULL };

/* Every case of the level and the ones below, in order; each begins with `seed`. */
bool selftest_cases(struct case_list *list, enum selftest_level level, int64_t seed);

/* A check of how calls go together: graphs, streams, threads, settings. */
struct system_check {
    const char *name;
    bool needs_gpu;
    bool (*run)(int32_t device, int64_t seed);
};

/* The first is to run before any other call: it wants a kernel that the process has not loaded. Ends with a NULL name.
 */
extern const struct system_check system_checks[];

#endif
