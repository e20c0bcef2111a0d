/* Kernel time from CUPTI's activity records: what the GPU itself noted, without launch gaps. */
#ifndef CLI_CUPTI_H
#define CLI_CUPTI_H

#include <stdbool.h>
#include <stdint.h>

/* Load the library and switch kernel records on; false leaves the reason in trouble_text(). Once per process. */
bool cupti_begin(void);
void cupti_end(void);

/* Forget what has been recorded. The device is idle. */
bool cupti_reset(void);

/* The sum and the number of all kernels since the reset. The device is idle. */
bool cupti_collect(double *us, int64_t *kernels);

/* 130001 for CUDA 13.0's; 0 before cupti_begin. */
uint32_t cupti_version(void);

#endif
