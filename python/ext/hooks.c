#include "hooks.h"

static PyObject *stream_hook, *workspace_hook;

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

PyObject *hook_workspace(PyObject *tensor, size_t bytes)
{
    if (workspace_hook)
        return PyObject_CallFunction(workspace_hook, "On", tensor, (Py_ssize_t)bytes);
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *set(PyObject **hook, PyObject *function)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError, "deep_gemm keeps its state for one interpreter, the main one");
        return NULL;
    }
    PyObject *previous = *hook;
    *hook = function == Py_None ? NULL : function;
    Py_XINCREF(*hook);
    Py_XDECREF(previous);
    Py_INCREF(Py_None);
    return Py_None;
}

PyObject *hook_set_stream(PyObject *module, PyObject *function)
{
    (void)module;
    return set(&stream_hook, function);
}

PyObject *hook_set_workspace(PyObject *module, PyObject *function)
{
    (void)module;
    return set(&workspace_hook, function);
}
