/* One kernel launch: geometry, cluster, programmatic dependent launch, one argument struct. */
#ifndef CUDA_LAUNCH_H
#define CUDA_LAUNCH_H

#include "cuda/module.h"

struct cuda_launch {
    struct cuda_kernel kernel;
    uint32_t grid[3];
    uint32_t threads;
    uint32_t cluster; /* blocks per cluster along x; 1: none */
    bool pdl;         /* may start before the stream's previous kernel has ended; the kernel waits where it must */
};

/* `args` is the kernel's only parameter, passed by value. The scope's context is current. */
dg_status cuda_launch(const struct cuda_scope *scope, const struct cuda_launch *launch, const void *args,
                      dg_stream stream);

#endif
