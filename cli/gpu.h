/*
 * What a program needs of the CUDA driver beyond the library's public functions: streams, events, graphs, a device
 * fill, and an empty kernel to compare launches with. Loaded from libcuda.so.1 by its own small table; handles are
 * opaque pointers.
 */
#ifndef CLI_GPU_H
#define CLI_GPU_H

#include "deepgemm.h"

typedef struct gpu_event gpu_event;   /* CUevent */
typedef struct gpu_graph gpu_graph;   /* CUgraph */
typedef struct gpu_exec gpu_exec;     /* CUgraphExec */
typedef struct gpu_kernel gpu_kernel; /* CUfunction */

/* Load the driver and make the device's primary context current in the calling thread (each thread calls this). */
bool gpu_begin(int32_t device);

bool gpu_stream_create(dg_stream *stream);
void gpu_stream_destroy(dg_stream stream);
bool gpu_stream_wait(dg_stream stream);

bool gpu_event_create(gpu_event **event);
void gpu_event_destroy(gpu_event *event);
bool gpu_event_record(gpu_event *event, dg_stream stream);
/* Waits for `end`; microseconds from `begin` to it. */
bool gpu_event_elapsed(gpu_event *begin, gpu_event *end, double *us);

/* Everything queued on the stream between the two calls becomes a graph that can be launched again and again. */
bool gpu_capture_begin(dg_stream stream);
bool gpu_capture_end(dg_stream stream, gpu_exec **exec);
/* After a failure inside a capture: end it and drop what it had. */
void gpu_capture_abandon(dg_stream stream);
bool gpu_graph_launch(gpu_exec *exec, dg_stream stream);
void gpu_graph_destroy(gpu_exec *exec);

/* Write `words` 32-bit words of device memory. */
bool gpu_fill(void *data, uint32_t value, size_t words, dg_stream stream);

/* A kernel that does nothing, and one launch of it through cuLaunchKernelEx. */
bool gpu_empty_kernel(gpu_kernel **kernel);
bool gpu_launch(gpu_kernel *kernel, dg_stream stream);

/* "0000:1b:00.0", by which NVML knows the device. */
bool gpu_bus_id(int32_t device, char *text, int bytes);

#endif
