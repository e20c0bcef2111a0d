/* NVRTC, found at run time. It is opened once per process; the search and its rules are in nvrtc.c. */
#ifndef JIT_NVRTC_H
#define JIT_NVRTC_H

#include "core/status.h"

/* Compilers before NVRTC_GOOD make slower code of the FP8 kernels: it is remade when a newer one is at hand. */
enum { NVRTC_OLDEST = 12030, NVRTC_GOOD = 12090, NVRTC_PATH_BYTES = 4096 };

struct nvrtc {
    int32_t version; /* 13000 for 13.0 */
    char path[NVRTC_PATH_BYTES];
#define NVRTC(result, name, arguments) result(*name) arguments;
#include "jit/nvrtc.def"
#undef NVRTC
};

/* The compiler, or a failure that tells where was looked and what was wrong there. A failure is not remembered. */
dg_status nvrtc_get(const struct nvrtc **nvrtc);

/* The same for those who can do without: NULL when there is none, and dg_last_error() stays as it is. */
const struct nvrtc *nvrtc_find(void);

/* Where to look, in this order. DG_NVRTC_PATH, when set, stands instead of all. */
enum nvrtc_place {
    NVRTC_IN_PROCESS = 1, /* what the program has loaded already */
    NVRTC_IN_SYSTEM = 2,  /* what the loader finds by name */
    NVRTC_IN_TOOLKIT = 4, /* CUDA_HOME, CUDA_PATH, /usr/local/cuda */
    NVRTC_IN_PYTHON = 8,  /* the nvidia-cuda-nvrtc packages, CUDA 12 and 13 */
    NVRTC_ANYWHERE = 15
};

/* One search, not remembered: the first library in these places that can be used. */
dg_status nvrtc_search(unsigned places, struct nvrtc *nvrtc);

#endif
