/* Usage: unload LIBRARY. Load it, compute on its threads, unload it, and do so again. */
#include "deepgemm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 256 };

static int compute(void *library)
{
    static uint8_t a[SIZE * SIZE], b[SIZE * SIZE];
    static float scales[SIZE * SIZE], d[SIZE * SIZE];
    dg_status (*gemm)(dg_context *, const dg_gemm_args *, dg_stream);
    void *symbol = dlsym(library, "dg_gemm");
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    if (symbol == NULL)
        return 1;
    memcpy(&gemm, &symbol, sizeof gemm);
    args.a = dg_matrix(a, DG_FLOAT8_E4M3, DG_CPU, SIZE, SIZE);
    args.b = dg_matrix(b, DG_FLOAT8_E4M3, DG_CPU, SIZE, SIZE);
    args.sfa = dg_matrix(scales, DG_FLOAT32, DG_CPU, SIZE, SIZE / 128);
    args.sfb = dg_matrix(scales, DG_FLOAT32, DG_CPU, SIZE / 128, SIZE / 128);
    args.d = dg_matrix(d, DG_FLOAT32, DG_CPU, SIZE, SIZE);
    return gemm(NULL, &args, NULL) != DG_SUCCESS;
}

int main(int argc, char **argv)
{
    for (int round = 0; round < 3; ++round) {
        void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library == NULL || compute(library) || dlclose(library)) {
            fprintf(stderr, "round %d: %s\n", round, library ? "dg_gemm or dlclose failed" : dlerror());
            return 1;
        }
        usleep(10000); /* a thread without its code would crash now */
    }
    return 0;
}
