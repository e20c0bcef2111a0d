/*
 * Compiled, never run: cli/gpu_abi.h against NVIDIA's own headers. It compiles exactly if our numbers, sizes, offsets
 * and prototypes are NVIDIA's. Each part is proved where its header is found:
 *
 *   cc -std=c11 -fsyntax-only -I. -I"$CUDA_HOME/include" tests/cli/abi_proof.c
 */
#include "cli/gpu_abi.h"

#define VALUE(name, ours) _Static_assert((int)(name) == (ours), "the value of " #name);
#define SIZE(type, ours) _Static_assert(sizeof(type) == sizeof(ours), "the size of " #type);
#define OFFSET(type, field, ours, our_field)                                                                           \
    _Static_assert(offsetof(type, field) == offsetof(ours, our_field), "the offset of " #type "." #field);

#if __has_include(<cuda.h>)
#define PROVED_DRIVER
#include <cuda.h>
SIZE(CUlaunchConfig, struct abi_launch_config)
OFFSET(CUlaunchConfig, gridDimX, struct abi_launch_config, grid_x)
OFFSET(CUlaunchConfig, blockDimX, struct abi_launch_config, block_x)
OFFSET(CUlaunchConfig, sharedMemBytes, struct abi_launch_config, shared_bytes)
OFFSET(CUlaunchConfig, hStream, struct abi_launch_config, stream)
OFFSET(CUlaunchConfig, attrs, struct abi_launch_config, attributes)
OFFSET(CUlaunchConfig, numAttrs, struct abi_launch_config, attribute_count)
VALUE(CU_STREAM_CAPTURE_MODE_GLOBAL, ABI_CAPTURE_GLOBAL)
VALUE(CU_STREAM_NON_BLOCKING, ABI_STREAM_NON_BLOCKING)
#endif

#if __has_include(<cublasLt.h>) && __has_include(<cuda_runtime_api.h>)
#define PROVED_CUBLASLT
#include <cublasLt.h>
SIZE(cublasLtMatmulAlgo_t, struct abi_lt_algo)
SIZE(cublasLtMatmulHeuristicResult_t, struct abi_lt_heuristic)
OFFSET(cublasLtMatmulHeuristicResult_t, workspaceSize, struct abi_lt_heuristic, workspace_bytes)
OFFSET(cublasLtMatmulHeuristicResult_t, state, struct abi_lt_heuristic, state)
OFFSET(cublasLtMatmulHeuristicResult_t, wavesCount, struct abi_lt_heuristic, waves)
VALUE(CUBLAS_COMPUTE_32F, ABI_COMPUTE_32F)
VALUE(CUDA_R_32F, ABI_R_32F)
VALUE(CUDA_R_16F, ABI_R_16F)
VALUE(CUDA_R_16BF, ABI_R_16BF)
VALUE(CUDA_R_8F_E4M3, ABI_R_8F_E4M3)
VALUE(CUBLAS_OP_T, ABI_OP_T)
VALUE(CUBLASLT_MATMUL_DESC_TRANSA, ABI_DESC_TRANSA)
VALUE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, ABI_DESC_A_SCALE_POINTER)
VALUE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, ABI_DESC_B_SCALE_POINTER)
VALUE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, ABI_DESC_FAST_ACCUM)
VALUE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, ABI_PREF_MAX_WORKSPACE_BYTES)
VALUE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, ABI_LAYOUT_BATCH_COUNT)
VALUE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, ABI_LAYOUT_STRIDED_BATCH_OFFSET)
#endif

#if __has_include(<cupti.h>) && __has_include(<cuda.h>)
#define PROVED_CUPTI
#include <cupti.h>
#include <cupti_activity_deprecated.h>
VALUE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, ABI_ACTIVITY_CONCURRENT_KERNEL)
#define KERNEL_RECORD(type)                                                                                            \
    OFFSET(type, kind, struct abi_activity_kernel, kind)                                                               \
    OFFSET(type, start, struct abi_activity_kernel, start_ns)                                                          \
    OFFSET(type, end, struct abi_activity_kernel, end_ns)                                                              \
    OFFSET(type, name, struct abi_activity_kernel, name)
KERNEL_RECORD(CUpti_ActivityKernel4)
KERNEL_RECORD(CUpti_ActivityKernel7)
KERNEL_RECORD(CUpti_ActivityKernel8)
KERNEL_RECORD(CUpti_ActivityKernel9)
#if CUPTI_API_VERSION >= 130000
KERNEL_RECORD(CUpti_ActivityKernel10)
#endif
#endif

#if defined(PROVED_DRIVER) + defined(PROVED_CUBLASLT) + defined(PROVED_CUPTI) < WANTED_PROOFS
#error "headers are missing"
#endif

/* A line that is false: the test compiles this too and wants it refused. */
#ifdef ABI_PROOF_FALSEHOOD
VALUE(CU_STREAM_NON_BLOCKING, 2)
#endif
