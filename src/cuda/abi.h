/*
 * The part of NVIDIA's cuda.h that this library uses, declared here so that nothing of CUDA is needed to build it.
 * Names are the driver's. Its enums are plain ints here: their values may be newer than any list of ours. The numbers
 * are in abi.def; a test proves all of them against the real header.
 */
#ifndef CUDA_ABI_H
#define CUDA_ABI_H

#include "shared/base.h"

#include <stddef.h>

enum {
#define VALUE(name, number) name = number,
#define SIZE(type, bytes)
#define OFFSET(type, field, bytes)
#include "cuda/abi.def"
#undef VALUE
#undef SIZE
#undef OFFSET
};

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;

typedef int CUdevice_attribute;
typedef int CUfunction_attribute;
typedef int CUpointer_attribute;
typedef int CUmemorytype;
typedef int CUjit_option;
typedef int CUlibraryOption;
typedef int CUlaunchAttributeID;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef int CUdriverProcAddressQueryResult;
typedef int CUtensorMapDataType;
typedef int CUtensorMapInterleave;
typedef int CUtensorMapSwizzle;
typedef int CUtensorMapL2promotion;
typedef int CUtensorMapFloatOOBfill;

/* The driver asks for 64-byte alignment; cuda.h of CUDA 13 says 128, which is stricter than the driver. */
typedef struct tensor_map CUtensorMap;

typedef union CUlaunchAttributeValue {
    char pad[64];
    struct {
        unsigned int x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
} CUlaunchAttributeValue;

typedef struct CUlaunchAttribute {
    CUlaunchAttributeID id;
    char pad[4];
    CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

#define VALUE(name, number)
#define SIZE(type, bytes) STATIC_CHECK(sizeof(type) == (bytes), "the size of " #type);
#define OFFSET(type, field, bytes) STATIC_CHECK(offsetof(type, field) == (bytes), "the offset of " #type "." #field);
#include "cuda/abi.def"
#undef VALUE
#undef SIZE
#undef OFFSET

#endif
