/* The SM clock, where NVML (libnvidia-ml) is installed: TFLOPS mean little without it. */
#ifndef CLI_NVML_H
#define CLI_NVML_H

#include <stdint.h>

/* MHz now, or 0 where it cannot be told. */
uint32_t nvml_sm_clock(int32_t device);

#endif
