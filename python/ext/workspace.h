/* Device scratch for the products that want some. */
#ifndef EXT_WORKSPACE_H
#define EXT_WORKSPACE_H

#include "call.h"

/*
 * Gives `args` the workspace that the library tells, from the allocator of the framework of `like`, until the end of
 * the call: allocators that order by stream hand it out again only behind what is queued by then. False with an
 * exception set.
 */
bool workspace_take(struct call *call, PyObject *like, dg_gemm_args *args);

#endif
