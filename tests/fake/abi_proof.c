/*
 * Compiled, never run: every line of cuda/abi.def and cuda/driver.def against NVIDIA's own headers. It compiles exactly
 * if our numbers, sizes, offsets, prototypes and pinned versions are NVIDIA's:
 *
 *   cc -std=c11 -fsyntax-only -Isrc -I"$CUDA_HOME/include" tests/fake/abi_proof.c
 */
#include <cuda.h>
#if CUDA_VERSION < 12040
#error "wants the headers of CUDA 12.4 or later: older ones do not know every entry point of driver.def"
#endif
#include <cudaTypedefs.h>
#include <stddef.h>

#define VALUE(name, number) _Static_assert((int)(name) == (number), "the value of " #name);
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "the size of " #type);
#define OFFSET(type, field, bytes) _Static_assert(offsetof(type, field) == (bytes), "the offset of " #type "." #field);
#include "cuda/abi.def"

/* cudaTypedefs.h names the form that a function got in a CUDA version PFN_<function>_v<version>. */
#define DRIVER(name, version, need, parameters)                                                                        \
    _Static_assert(__builtin_types_compatible_p(CUresult(*) parameters, PFN_##name##_v##version),                      \
                   "the prototype of " #name);
#include "cuda/driver.def"

/* The two that are looked up by their exported names. */
_Static_assert(__builtin_types_compatible_p(CUresult (*)(int *version), PFN_cuDriverGetVersion_v2020),
               "the prototype of cuDriverGetVersion");
_Static_assert(__builtin_types_compatible_p(CUresult (*)(const char *name, void **address, int version,
                                                         cuuint64_t flags, CUdriverProcAddressQueryResult *found),
                                            PFN_cuGetProcAddress_v12000),
               "the prototype of cuGetProcAddress_v2");

/* One line of each kind that is false: the test compiles these too and wants them refused. */
#if ABI_PROOF_FALSEHOOD == 1
VALUE(CUDA_ERROR_UNKNOWN, 998)
#elif ABI_PROOF_FALSEHOOD == 2
OFFSET(CUlaunchConfig, hStream, 28)
#elif ABI_PROOF_FALSEHOOD == 3
DRIVER(cuInit, 2000, REQUIRED, (int *flags))
#endif
