/* One run of the compiler: texts and options in, cubin and log out. */
#ifndef JIT_COMPILE_H
#define JIT_COMPILE_H

#include "jit/key.h"
#include "jit/nvrtc.h"

struct jit_compilation {
    void *cubin;
    char *log; /* never NULL after a compilation, failed or not, unless memory ran out */
    char *ptx; /* NULL unless it was asked for */
    struct jit_report report;
};

/* A failure names the kernel and the compiler, and carries the log. Free the compilation in either case. */
dg_status jit_compile(const struct jit_unit *unit, const struct nvrtc *nvrtc, bool want_ptx,
                      struct jit_compilation *compilation);
void jit_compilation_free(struct jit_compilation *compilation);

/* DG_JIT_PTXAS_CHECK: refuse spills, local memory and serialised wgmma. */
dg_status jit_check_report(const struct jit_unit *unit, const struct jit_compilation *compilation);

#endif
