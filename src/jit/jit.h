/* Text in, cubin out. Never calls the driver, so kernels can be compiled on a machine without a GPU. */
#ifndef JIT_JIT_H
#define JIT_JIT_H

#include "core/hash.h"
#include "core/status.h"

/* One wgmma shape that a kernel wants a wrapper for: m64 n<n> with FP32 accumulators. */
struct jit_wgmma {
    const char *type; /* of the operands: "e4m3", "bf16", "tf32" */
    int32_t n;        /* multiple of 8, up to 256 */
    bool a_in_registers;
};

/*
 * `kernel` is the one name of a kernel: "sm90_fp8_gemm_1d2d" is kernels/sm90/fp8_gemm_1d2d.cu, its entry symbol and
 * its folder in the cache. The text compiled is that file, with the embedded headers of kernels/common and src/shared,
 * and two generated ones: "config.h" (`config`) and "wgmma.h" (the wrappers).
 */
struct jit_request {
    const char *kernel;
    int32_t arch;       /* compute capability; 90 compiles for sm_90a, others for sm_<arch> */
    const char *config; /* "#define BLOCK_M 128\n..." */
    struct jit_wgmma wgmma[4];
    int32_t wgmma_count;
    /* CUDA's major version in the driver that is to load the cubin, which reads none of a later one; 0: any driver. */
    int32_t driver_major;
};

struct jit_cubin {
    const void *image; /* stays valid for the life of the process */
    size_t bytes;
    struct hash128 key; /* the name that the cache and packs know it by, see key.h */
    int32_t compiler;   /* the version of NVRTC that made it */
    int unwritten;      /* 0: the disk has it; else the errno of why not */
};

enum jit_origin { JIT_FROM_MEMORY, JIT_FROM_PACK, JIT_FROM_DISK, JIT_COMPILED };

/*
 * The cubin of a request: from this process's table, else from a pack (pack.h), else from the disk, else compiled, and
 * then kept in table and disk. Safe from any number of threads and processes; one of them compiles. With may_compile
 * false a miss is DG_ERROR_COMPILE_FORBIDDEN. `origin` may be NULL.
 */
dg_status jit_get(const struct jit_request *request, bool may_compile, struct jit_cubin *cubin,
                  enum jit_origin *origin);

/* See to it that the cache on disk, as the environment names it now, has the cubin. Returns 0, or the errno of why not.
 */
int jit_keep(const struct jit_request *request, const struct jit_cubin *cubin);

/* What the compiler said about one kernel, for tests that insist on the absence of spills. */
struct jit_report {
    double seconds;
    int32_t registers;                /* of the entry function */
    int32_t spill_bytes, stack_bytes; /* of all functions; spills: stores and loads */
    bool serialised;                  /* wgmma serialised (C7510, C7511, C7514, C7515), or setmaxnreg ignored (C7508) */
    int32_t compiler;                 /* 13000 for NVRTC 13.0 */
    size_t cubin_bytes;
};

/* Compile without any cache and report; the compiler's log goes to `log` (may be NULL). */
dg_status jit_compile_report(const struct jit_request *request, struct jit_report *report, char *log, size_t log_bytes);

#endif
