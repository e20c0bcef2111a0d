/*
 * gpu_abi.h - the parts of NVIDIA's C interfaces that the program calls, declared by us so that it builds without
 * their headers. tests/unit/test_cli.c proves numbers, sizes and offsets where a CUDA toolkit is installed.
 */
#ifndef CLI_GPU_ABI_H
#define CLI_GPU_ABI_H

#include <stddef.h>
#include <stdint.h>

/* ---- Driver (cuda.h) --------------------------------------------------------------------------------------------- */

struct abi_launch_config { /* CUlaunchConfig */
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void *stream, *attributes;
    unsigned attribute_count;
};

enum { ABI_CAPTURE_GLOBAL = 0, ABI_STREAM_NON_BLOCKING = 1 };

/* ---- cuBLASLt (cublasLt.h, library_types.h) ---------------------------------------------------------------------- */

enum {
    ABI_COMPUTE_32F = 68,
    ABI_R_32F = 0,
    ABI_R_16F = 2,
    ABI_R_16BF = 14,
    ABI_R_8F_E4M3 = 28,
    ABI_OP_T = 1,
    ABI_DESC_TRANSA = 3,
    ABI_DESC_A_SCALE_POINTER = 17,
    ABI_DESC_B_SCALE_POINTER = 18,
    ABI_DESC_FAST_ACCUM = 25,
    ABI_PREF_MAX_WORKSPACE_BYTES = 1,
    ABI_LAYOUT_BATCH_COUNT = 5,
    ABI_LAYOUT_STRIDED_BATCH_OFFSET = 6
};

struct abi_lt_algo { /* cublasLtMatmulAlgo_t */
    uint64_t data[8];
};

struct abi_lt_heuristic { /* cublasLtMatmulHeuristicResult_t */
    struct abi_lt_algo algo;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

/* ---- CUPTI activity records (cupti_activity.h) ------------------------------------------------------------------- */

enum { ABI_ACTIVITY_CONCURRENT_KERNEL = 10 };

/* What CUpti_ActivityKernel4 (CUDA 9) to CUpti_ActivityKernel10 (CUDA 13) have in common; 8-byte aligned. */
struct abi_activity_kernel {
    uint32_t kind;
    uint8_t configuration[12];
    uint64_t start_ns, end_ns;
    uint8_t launch[72];
    const char *name;
};

#endif
