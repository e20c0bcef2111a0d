/* Python functions of the package that the extension asks: what only a framework's own module knows. */
#ifndef EXT_HOOKS_H
#define EXT_HOOKS_H

#include "py.h"

#include <stdint.h>

/* The stream on which the framework of `object` queues work of a CUDA device now; the default one if nobody knows. */
bool hook_stream(PyObject *object, int32_t device, void **stream);

/* A tensor of at least `bytes` on the device of `tensor`, from its framework's allocator; None where that cannot be
   asked, NULL with an exception set. */
PyObject *hook_workspace(PyObject *tensor, size_t bytes);

/* _C.set_stream_hook(function): function(tensor, device) -> the handle as int, 0 for the default stream. */
PyObject *hook_set_stream(PyObject *module, PyObject *function);

/* _C.set_workspace_hook(function): function(tensor, bytes) -> another tensor, or None. */
PyObject *hook_set_workspace(PyObject *module, PyObject *function);

#endif
