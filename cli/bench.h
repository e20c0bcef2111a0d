/* The two ways of `deepgemm bench` to measure. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cases.h"

/* What the host pays for a warm dg_gemm (bench --host); returns an exit code. */
int bench_host(const struct case_list *cases, int32_t device);

#endif
