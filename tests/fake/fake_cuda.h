/*
 * A CUDA driver without a GPU: a libcuda.so for DG_CUDA_DRIVER_PATH whose "device memory" is host memory, whose copies
 * are memmove, and whose launches are only written down. It keeps the real one's rules about contexts, streams,
 * capture, pointers and tensor maps, so that breaking one is an error here too. With `execute` set, launches run.
 *
 * The library exports one variable, `fake`: settings, records, and functions that play the application's part (making
 * contexts and streams, say). Tests open it with fake_open() of fake.h.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include "cuda/abi.h"

#include <stdbool.h>
#include <stdint.h>

enum { FAKE_DEVICES = 8, FAKE_CALLS = 4096, FAKE_LAUNCHES = 256, FAKE_ARGS = 4096 };

/* One driver call: "cuDeviceGetAttribute" with "75 of device 0". */
struct fake_call {
    char name[40];
    char what[88];
    CUresult result; /* CUDA_SUCCESS, or the failure that was injected */
};

struct fake_launch {
    char kernel[64];
    int device;
    CUcontext context; /* current at the launch */
    CUstream stream;
    uint32_t grid[3], block[3], smem_bytes;
    uint32_t cluster[3]; /* zeros: no cluster attribute */
    uint32_t attributes;
    bool pdl;
    bool captured;    /* the stream was being captured */
    bool loaded_late; /* the code was not in the context yet: a real launch would have had to load it */
    size_t args_bytes;
    _Alignas(128) unsigned char args[FAKE_ARGS];
};

/* What cuTensorMapEncodeTiled leaves in the 128 bytes of a map. Unused dimensions are zeros. */
struct fake_tensor_map {
    uint32_t magic;                                           /* FAKE_TENSOR_MAP */
    uint8_t type, rank, interleave, swizzle, promotion, fill; /* the driver's enums */
    uint16_t box[5];
    uint8_t element_strides[5];
    uint8_t zero[7];
    uint64_t address;
    uint64_t strides[4]; /* bytes, from dimension 1 on */
    uint64_t sizes[5];
};
enum { FAKE_TENSOR_MAP = 0x70616d74 };
_Static_assert(sizeof(struct fake_tensor_map) == 112, "fits into a CUtensorMap");

struct fake_device {
    char name[64];
    int major, minor, sms, l2_bytes, smem_bytes;
    size_t memory_bytes;
};

struct fake {
    /* ---- Settings; reset() gives them these values ---- */
    int version;                              /* 13000 */
    int device_count;                         /* 2 */
    CUresult init;                            /* CUDA_SUCCESS: what cuInit returns */
    int init_ms;                              /* 0: how long cuInit takes */
    char missing[40];                         /* "": an entry point that cuGetProcAddress does not find */
    char no_kernel[64];                       /* "": a kernel that cuLibraryGetKernel does not find */
    struct fake_device devices[FAKE_DEVICES]; /* H200s */
    /*
     * Injected failures. Either the call number `fail_call` (from 1) of the function `fail_function`, or of all
     * functions if that is "", counted since reset(), fails with `fail_result`; or, with fail_each_once, every call
     * that has not failed since that was switched on: the same call with other arguments is another one. So a caller
     * that tries again and again meets every failure there is, once, and then succeeds. What only puts back an earlier
     * state (popping a context, restoring the capture mode, unloading) is spared from fail_each_once.
     */
    char fail_function[40];
    int fail_call;
    bool fail_each_once;
    CUresult fail_result; /* CUDA_ERROR_UNKNOWN */
    size_t args_bytes;    /* 0: how much of a kernel's argument a launch copies into its record */
    /* NULL: launches are only written down. Else this carries them out, at once: tests/emu has one. */
    void (*execute)(const struct fake_launch *launch, const void *image, size_t image_bytes, const void *args);

    /* ---- Records since reset() ---- */
    int call_count; /* all calls; the first FAKE_CALLS are kept */
    struct fake_call calls[FAKE_CALLS];
    int launch_count; /* number i is launches[i % FAKE_LAUNCHES] */
    struct fake_launch launches[FAKE_LAUNCHES];
    int injected; /* failures */

    /* ---- What is alive; reset() leaves it ---- */
    int64_t allocations, allocated_bytes; /* of cuMemAlloc */
    int64_t libraries;
    int64_t primaries; /* retain counts of all primary contexts */

    /* ---- The application's part ---- */
    void (*reset)(void);
    int (*count)(const char *function); /* calls of it since reset() */
    CUcontext (*context_create)(int device);
    CUcontext (*primary)(int device); /* as an application that uses it itself has it: active */
    CUstream (*stream_create)(CUcontext context);
    void (*capture)(CUstream stream, bool on); /* in the mode "global" */
    bool (*capture_spoilt)(CUstream stream);
    /* Memory that cuPointerGetAttributes knows: bit i of `reach` says that kernels on device i can use it. */
    void (*pointer_add)(const void *pointer, size_t bytes, CUmemorytype type, int device, unsigned reach);
    void (*pointer_remove)(const void *pointer);
    /* Registered host memory that devices reach at another address. */
    void (*pointer_alias)(const void *pointer, size_t bytes, const void *device_address);
    /* The calling thread's context stack and capture mode. */
    CUcontext (*current)(void);
    int (*depth)(void);
    CUstreamCaptureMode (*capture_mode)(void);
    void (*set_capture_mode)(CUstreamCaptureMode mode);
    void (*push)(CUcontext context);
    void (*pop)(void);
};

#endif
