#include "hooks.h"

static PyObject *stream_hook;

bool hook_stream(PyObject *object, int32_t device, void **stream)
{
    *stream = NULL;
    if (stream_hook == NULL)
        return true;
    PyObject *handle = PyObject_CallFunction(stream_hook, "Oi", object ? object : Py_None, (int)device);
    if (handle)
        *stream = PyLong_AsVoidPtr(handle);
    Py_XDECREF(handle);
    return !PyErr_Occurred();
}

PyObject *hook_set_stream(PyObject *module, PyObject *function)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError, "deep_gemm keeps its state for one interpreter, the main one");
        return NULL;
    }
    PyObject *previous = stream_hook;
    (void)module;
    stream_hook = function == Py_None ? NULL : function;
    Py_XINCREF(stream_hook);
    Py_XDECREF(previous);
    Py_INCREF(Py_None);
    return Py_None;
}
