/* From a kernel request to a launchable kernel: where jit's bytes meet cuda's modules. */
#ifndef OPS_KERNEL_H
#define OPS_KERNEL_H

#include "core/context.h"
#include "cuda/launch.h"
#include "jit/jit.h"

/* A request, with the text of its configuration that it points to. */
struct kernel_spec {
    struct jit_request request;
    char config[768];
};

/*
 * The kernel of a request, prepared on the scope's device. Kept per process, so that the second time is a look-up that
 * takes no lock; a miss compiles, unless the context's DG_SETTING_COMPILE is 0. The request's arch is filled in here
 * from the scope's device. The code is in the scope's CUDA context afterwards, so that a launch has nothing to load.
 */
dg_status kernel_get(dg_context *context, const struct cuda_scope *scope, struct jit_request *request,
                     int32_t smem_bytes, struct cuda_kernel *kernel);

#endif
