/* torch before it had DLPack's table (2.10): data_ptr(), shape, stride(), dtype and device. */
#include "arguments.h"
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
    const bool ok = strides && view_shape(call, name, "shape", shape, tensor) &&
                    view_integers(call, name, "stride()", strides, tensor->ndim, tensor->stride);
    Py_XDECREF(strides);
    Py_XDECREF(shape);
    return ok;
}

static bool read_pointer(const struct call *call, const char *name, PyObject *object, dg_tensor *tensor)
{
    PyObject *pointer = PyObject_CallMethod(object, "data_ptr", NULL);
    const bool ok = pointer && view_address(call, name, "data_ptr()", pointer, tensor);
    Py_XDECREF(pointer);
    return ok;
}

/* device.type is "cpu" or "cuda"; device.index is None for the CPU. */
static bool place(const struct call *call, const char *name, PyObject *type, PyObject *index, dg_tensor *tensor)
{
    int64_t number;
    if (!PyUnicode_Check(type))
        return view_refuse_part(call, name, "device.type", type, "a str");
    tensor->device = DG_CPU;
    if (PyUnicode_CompareWithASCIIString(type, "cpu") == 0)
        return true;
    if (PyUnicode_CompareWithASCIIString(type, "cuda") == 0)
        return integer_of(index, &number) ? view_cuda_device(call, name, number, tensor)
                                          : view_refuse_part(call, name, "device.index", index, "an integer");
    PyErr_Format(PyExc_RuntimeError, "%s: %s lies on the device %U; wanted cpu or cuda", call->function, name, type);
    return false;
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
           read_device(call, name, object, tensor) && read_pointer(call, name, object, tensor);
}
