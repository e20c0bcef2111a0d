/* The other ways of `deepgemm bench` to measure; each returns an exit code. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cases.h"

/* What the host pays for a warm dg_gemm (bench --host). */
int bench_host(const struct case_list *cases, int32_t device);

/* All cases in a row, with and without programmatic dependent launch (bench --chain). */
int bench_chain(const struct case_list *cases, int32_t device);

#endif
