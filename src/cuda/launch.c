#include "cuda/launch.h"

/* Fills in the attributes that the launch needs, none by default, and returns how many. */
static unsigned int set_attributes(const struct cuda_launch *launch, CUlaunchAttribute attributes[2])
{
    unsigned int count = 0;
    if (launch->cluster > 1) {
        attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[count].value.clusterDim.x = launch->cluster;
        attributes[count].value.clusterDim.y = 1;
        attributes[count++].value.clusterDim.z = 1;
    }
    if (launch->pdl) {
        attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count++].value.programmaticStreamSerializationAllowed = 1;
    }
    return count;
}

static dg_status launch_fail(CUresult result, const struct cuda_launch *launch)
{
    dg_status status = driver_fail(result, "cuLaunchKernelEx");
    fail_more("; grid %u x %u x %u in clusters of %u, %u threads, %d bytes of dynamic shared memory", launch->grid[0],
              launch->grid[1], launch->grid[2], launch->cluster, launch->threads, (int)launch->kernel.smem_bytes);
    return status;
}

dg_status cuda_launch(const struct cuda_scope *scope, const struct cuda_launch *launch, const void *args,
                      dg_stream stream)
{
    CUlaunchAttribute attributes[2] = {{0}};
    void *parameters[] = {(void *)(uintptr_t)args}; /* only read, though the driver's prototype does not say so */
    const CUlaunchConfig config = {
        .gridDimX = launch->grid[0],
        .gridDimY = launch->grid[1],
        .gridDimZ = launch->grid[2],
        .blockDimX = launch->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = (unsigned int)launch->kernel.smem_bytes,
        .hStream = stream,
        .attrs = attributes,
        .numAttrs = set_attributes(launch, attributes),
    };
    /* A CUkernel may stand for the CUfunction: the driver takes its function in the current context. */
    CUresult result =
        scope->driver->cuLaunchKernelEx(&config, (CUfunction)(void *)launch->kernel.handle, parameters, NULL);
    return result == CUDA_SUCCESS ? DG_SUCCESS : launch_fail(result, launch);
}
