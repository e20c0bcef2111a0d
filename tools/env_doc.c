/* Prints docs/env.md from the list of environment variables that the library reads. */
#include <stdio.h>

int main(void)
{
    printf("# Environment variables\n\n"
           "Read when they are needed, not when the library is loaded. A flag is on with any value but the empty one "
           "and `0`.\nThis page is made by `make docs` from `src/core/env.def`.\n\n"
           "| variable | kind | meaning |\n| --- | --- | --- |\n");
#define ENV(identifier, name, kind, text) printf("| `%s` | %s | %s |\n", name, kind, text);
#include "core/env.def"
#undef ENV
    printf(
        "\nAlso looked at: `XDG_CACHE_HOME` and `HOME` for the cache; `VIRTUAL_ENV`, `CONDA_PREFIX`, `PATH`, `HOME`,\n"
        "`CUDA_HOME` and `CUDA_PATH` to find NVRTC; `CUDA_HOME`, `PATH` and `TMPDIR` to disassemble; `OMP_NUM_THREADS` "
        "for the\nnumber of threads on the CPU, which is otherwise that of the processors that the process may use.\n\n"
        "What other implementations read and this one has no use for, such as `DG_JIT_USE_NVRTC` or "
        "`DG_JIT_NVCC_COMPILER`,\nis ignored: kernels are always compiled by NVRTC.\n");
    return 0;
}
