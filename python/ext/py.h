/* Python's C API, the part whose ABI stays the same from 3.10 on. Every file here includes this one first. */
#ifndef EXT_PY_H
#define EXT_PY_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <stdbool.h>

/* A function of the module. Ours take arrays of arguments, for which the type in PyMethodDef is one of many. */
typedef PyObject *(*ext_function)(PyObject *module, PyObject *const *args, Py_ssize_t positional, PyObject *keywords);

#endif
