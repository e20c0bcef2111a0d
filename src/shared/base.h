/*
 * base.h - what the host compiler and NVRTC must agree on first. Everything in src/shared is read by both: C11 on the
 * host, and on the device what NVRTC speaks (C++), in the subset that means the same in both languages.
 */
#ifndef SHARED_BASE_H
#define SHARED_BASE_H

#ifdef __CUDACC_RTC__
/* NVRTC has no <stdint.h>; these are the host's types on every 64-bit Linux. */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#define SHARED_FN static __device__ __forceinline__
#define ALIGNED(bytes) __align__(bytes)
#define STATIC_CHECK(condition, text) static_assert(condition, text)
#else
#include <stdint.h>
#define SHARED_FN static inline
#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#ifdef __cplusplus
#define STATIC_CHECK(condition, text) static_assert(condition, text)
#else
#define STATIC_CHECK(condition, text) _Static_assert(condition, text)
#endif
#endif

/* Element types, with the numbers of enum dg_dtype (checked in plan/gemm_problem.c), for #if in kernels. */
#define TYPE_FLOAT32 1
#define TYPE_FLOAT16 2
#define TYPE_BFLOAT16 3
#define TYPE_FLOAT8_E4M3 4
#define TYPE_INT32 10

/* The K extent of a scale group: FP8 products are promoted to FP32 after this many k. Part of the meaning. */
#define SCALE_GROUP 128

/* A CUtensorMap: 128 opaque bytes, 64-byte aligned, that only TMA instructions read. */
struct ALIGNED(64) tensor_map {
    uint64_t opaque[16];
};
STATIC_CHECK(sizeof(struct tensor_map) == 128, "a tensor map has 128 bytes");

/* A strided matrix, strides in elements; what fallback kernels and epilogues take. */
struct strided {
    uint64_t data; /* device address */
    int64_t batch_stride, row_stride, col_stride;
};

#endif
