/* torch before it had DLPack's table (2.10): data_ptr(), shape, stride(), dtype and device. */
#include "view.h"

#include <string.h>

/* "torch.float32" */
static bool read_type(const struct call *call, const char *name, PyObject *object, dg_dtype *type)
{
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *text = dtype ? PyObject_Str(dtype) : NULL;
    const char *whole = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL, *dot = whole ? strrchr(whole, '.') : NULL;
    const bool ok = view_type_named(call, name, dot ? dot + 1 : whole, type);
    Py_XDECREF(text);
    Py_XDECREF(dtype);
    return ok;
}

static bool read_sizes(const struct call *call, const char *name, PyObject *object, dg_tensor *tensor)
{
    PyObject *shape = PyObject_GetAttrString(object, "shape");
    PyObject *strides = shape ? PyObject_CallMethod(object, "stride", NULL) : NULL;
    const Py_ssize_t ndim = strides ? PyTuple_Size(shape) : -1;
    bool ok = ndim >= 0;
    if (ndim > DG_MAX_DIMS)
        ok = view_refuse_dimensions(call, name, ndim);
    if (ok) {
        tensor->ndim = (int32_t)ndim;
        ok = view_sizes(shape, ndim, tensor->shape) && view_sizes(strides, ndim, tensor->stride);
    }
    Py_XDECREF(strides);
    Py_XDECREF(shape);
    return ok;
}

static bool read_pointer(PyObject *object, dg_tensor *tensor)
{
    PyObject *pointer = PyObject_CallMethod(object, "data_ptr", NULL);
    if (pointer)
        tensor->data = PyLong_AsVoidPtr(pointer);
    Py_XDECREF(pointer);
    return !PyErr_Occurred();
}

/* device.type is "cpu" or "cuda"; device.index is None for the CPU. */
static bool place(const struct call *call, const char *name, PyObject *type, PyObject *index, dg_tensor *tensor)
{
    if (!PyUnicode_Check(type)) {
        PyErr_Format(PyExc_TypeError, "%s() argument '%s' has a device whose type is no str", call->function, name);
        return false;
    }
    if (PyUnicode_CompareWithASCIIString(type, "cpu") == 0)
        tensor->device = DG_CPU;
    else if (PyUnicode_CompareWithASCIIString(type, "cuda") == 0)
        return view_cuda_device(call, name, PyLong_AsLong(index), tensor);
    else
        PyErr_Format(PyExc_RuntimeError, "%s: %s lies on the device %U; wanted cpu or cuda", call->function, name,
                     type);
    return !PyErr_Occurred();
}

static bool read_device(const struct call *call, const char *name, PyObject *object, dg_tensor *tensor)
{
    PyObject *device = PyObject_GetAttrString(object, "device");
    PyObject *type = device ? PyObject_GetAttrString(device, "type") : NULL;
    PyObject *index = type ? PyObject_GetAttrString(device, "index") : NULL;
    const bool ok = index && place(call, name, type, index, tensor);
    Py_XDECREF(index);
    Py_XDECREF(type);
    Py_XDECREF(device);
    return ok;
}

bool view_torch(struct call *call, const char *name, PyObject *object, dg_tensor *tensor)
{
    *tensor = (dg_tensor){.device = DG_CPU};
    return read_type(call, name, object, &tensor->dtype) && read_sizes(call, name, object, tensor) &&
           read_device(call, name, object, tensor) && read_pointer(object, tensor);
}
