#include "gpu.h"

#include "gpu_abi.h"
#include "program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* X(symbol, parameters): the driver functions used here. Symbols are the versioned names that the library exports. */
#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuGetErrorString, (int error, const char **text))                                                                \
    X(cuDeviceGet, (int *device, int ordinal))                                                                         \
    X(cuDeviceGetPCIBusId, (char *text, int bytes, int device))                                                        \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                                          \
    X(cuCtxSetCurrent, (void *context))                                                                                \
    X(cuStreamCreate, (dg_stream * stream, unsigned flags))                                                            \
    X(cuStreamDestroy_v2, (dg_stream stream))                                                                          \
    X(cuStreamSynchronize, (dg_stream stream))                                                                         \
    X(cuStreamBeginCapture_v2, (dg_stream stream, int mode))                                                           \
    X(cuStreamEndCapture, (dg_stream stream, gpu_graph * *graph))                                                      \
    X(cuGraphInstantiateWithFlags, (gpu_exec * *exec, gpu_graph * graph, unsigned long long flags))                    \
    X(cuGraphLaunch, (gpu_exec * exec, dg_stream stream))                                                              \
    X(cuGraphExecDestroy, (gpu_exec * exec))                                                                           \
    X(cuGraphDestroy, (gpu_graph * graph))                                                                             \
    X(cuEventCreate, (gpu_event * *event, unsigned flags))                                                             \
    X(cuEventDestroy_v2, (gpu_event * event))                                                                          \
    X(cuEventRecord, (gpu_event * event, dg_stream stream))                                                            \
    X(cuEventSynchronize, (gpu_event * event))                                                                         \
    X(cuEventElapsedTime, (float *ms, gpu_event *begin, gpu_event *end))                                               \
    X(cuMemsetD32Async, (uintptr_t data, unsigned value, size_t words, dg_stream stream))                              \
    X(cuModuleLoadData, (void **module, const void *image))                                                            \
    X(cuModuleGetFunction, (gpu_kernel * *kernel, void *module, const char *name))                                     \
    X(cuLaunchKernelEx, (const struct abi_launch_config *config, gpu_kernel *kernel, void **params, void **extra))

static struct {
#define X(name, parameters) int(*name) parameters;
    DRIVER_FUNCTIONS(X)
#undef X
} cu;

static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static char load_problem[256];

/* dlsym's object pointer becomes a function pointer through memory: C has no cast between the two. */
static void load_symbol(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    *(void **)slot = symbol;
    if (symbol == NULL && *load_problem == 0)
        snprintf(load_problem, sizeof(load_problem), "the CUDA driver lacks %s", name);
}

static void load(void)
{
    const char *path = getenv("DG_CUDA_DRIVER_PATH"); /* the library's variable, so that both load the same driver */
    void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(load_problem, sizeof(load_problem), "the CUDA driver cannot be loaded: %s", dlerror());
        return;
    }
#define X(name, parameters) load_symbol(library, #name, (void *)&cu.name);
    DRIVER_FUNCTIONS(X)
#undef X
}

static bool driver_ok(int result, const char *what)
{
    const char *text = NULL;
    if (result == 0)
        return true;
    cu.cuGetErrorString(result, &text);
    return trouble("%s failed with CUDA error %d: %s", what, result, text ? text : "unknown");
}

#define DRIVER(function, ...) driver_ok(cu.function(__VA_ARGS__), #function)

bool gpu_begin(int32_t device)
{
    int handle;
    void *context;
    pthread_once(&loaded, load);
    if (*load_problem)
        return trouble("%s", load_problem);
    return DRIVER(cuInit, 0) && DRIVER(cuDeviceGet, &handle, device) &&
           DRIVER(cuDevicePrimaryCtxRetain, &context, handle) && DRIVER(cuCtxSetCurrent, context);
}

/* ---- Streams and events ------------------------------------------------------------------------------------------ */

bool gpu_stream_create(dg_stream *stream)
{
    return DRIVER(cuStreamCreate, stream, ABI_STREAM_NON_BLOCKING);
}

void gpu_stream_destroy(dg_stream stream)
{
    if (stream)
        cu.cuStreamDestroy_v2(stream);
}

bool gpu_stream_wait(dg_stream stream)
{
    return DRIVER(cuStreamSynchronize, stream);
}

bool gpu_event_create(gpu_event **event)
{
    return DRIVER(cuEventCreate, event, 0);
}

void gpu_event_destroy(gpu_event *event)
{
    if (event)
        cu.cuEventDestroy_v2(event);
}

bool gpu_event_record(gpu_event *event, dg_stream stream)
{
    return DRIVER(cuEventRecord, event, stream);
}

bool gpu_event_elapsed(gpu_event *begin, gpu_event *end, double *us)
{
    float ms;
    if (!DRIVER(cuEventSynchronize, end) || !DRIVER(cuEventElapsedTime, &ms, begin, end))
        return false;
    *us = 1e3 * (double)ms;
    return true;
}

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

/* The strictest mode, and PyTorch's default: calls that would spoil any capture in the process are errors. */
bool gpu_capture_begin(dg_stream stream)
{
    return DRIVER(cuStreamBeginCapture_v2, stream, ABI_CAPTURE_GLOBAL);
}

bool gpu_capture_end(dg_stream stream, gpu_exec **exec)
{
    gpu_graph *graph = NULL;
    if (!DRIVER(cuStreamEndCapture, stream, &graph))
        return false;
    const bool done = DRIVER(cuGraphInstantiateWithFlags, exec, graph, 0);
    cu.cuGraphDestroy(graph);
    return done;
}

void gpu_capture_abandon(dg_stream stream)
{
    gpu_graph *graph = NULL;
    cu.cuStreamEndCapture(stream, &graph);
    if (graph)
        cu.cuGraphDestroy(graph);
}

bool gpu_graph_launch(gpu_exec *exec, dg_stream stream)
{
    return DRIVER(cuGraphLaunch, exec, stream);
}

void gpu_graph_destroy(gpu_exec *exec)
{
    if (exec)
        cu.cuGraphExecDestroy(exec);
}

/* ---- Small things ------------------------------------------------------------------------------------------------ */

bool gpu_fill(void *data, uint32_t value, size_t words, dg_stream stream)
{
    return DRIVER(cuMemsetD32Async, (uintptr_t)data, value, words, stream);
}

bool gpu_empty_kernel(gpu_kernel **kernel)
{
    static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry empty()\n{\nret;\n}\n";
    void *module;
    return DRIVER(cuModuleLoadData, &module, ptx) && DRIVER(cuModuleGetFunction, kernel, module, "empty");
}

bool gpu_launch(gpu_kernel *kernel, dg_stream stream)
{
    const struct abi_launch_config config = {1, 1, 1, 32, 1, 1, 0, stream, NULL, 0};
    return DRIVER(cuLaunchKernelEx, &config, kernel, NULL, NULL);
}

bool gpu_bus_id(int32_t device, char *text, int bytes)
{
    int handle;
    return DRIVER(cuDeviceGet, &handle, device) && DRIVER(cuDeviceGetPCIBusId, text, bytes, handle);
}
