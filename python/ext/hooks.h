/* Python functions of the package that the extension asks: what only a framework's own module knows. */
#ifndef EXT_HOOKS_H
#define EXT_HOOKS_H

#include "py.h"

#include <stdint.h>

/* The stream on which the framework of `object` queues work of a CUDA device now; the default one if nobody knows. */
bool hook_stream(PyObject *object, int32_t device, void **stream);

/* _C.set_stream_hook(function): function(tensor, device) -> the handle as int, 0 for the default stream. */
PyObject *hook_set_stream(PyObject *module, PyObject *function);

#endif
