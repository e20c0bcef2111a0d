/* NumPy arrays: __array_interface__ tells where they lie, the name of their dtype what they hold. NumPy exports neither
   BF16 nor FP8 by DLPack before 2.5. */
#include "view.h"

static bool read_type(const struct call *call, const char *name, PyObject *object, dg_dtype *type)
{
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *type_name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
    bool ok = type_name && PyUnicode_Check(type_name);
    Py_XDECREF(dtype);
    if (ok)
        ok = view_type_named(call, name, PyUnicode_AsUTF8AndSize(type_name, NULL), type);
    else if (type_name)
        PyErr_Format(PyExc_TypeError, "%s() argument '%s': its dtype has no name", call->function, name);
    Py_XDECREF(type_name);
    return ok;
}

/* Of "<f4": the order of bytes must be the machine's, or not matter. */
static bool check_order(const struct call *call, const char *name, PyObject *interface)
{
    PyObject *text = PyDict_GetItemString(interface, "typestr");
    const char *typestr = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    return typestr == NULL || *typestr != '>' || view_refuse_type(call, name, "of swapped bytes");
}

/* NumPy counts bytes. */
static bool set_strides(const struct call *call, const char *name, PyObject *strides, dg_tensor *tensor)
{
    int64_t size = (int64_t)dg_dtype_size(tensor->dtype), contiguous = 1;
    for (int i = tensor->ndim - 1; i >= 0; --i) {
        tensor->stride[i] = contiguous;
        contiguous *= tensor->shape[i];
    }
    if (strides == NULL || strides == Py_None)
        return true;
    if (!view_sizes(strides, tensor->ndim, tensor->stride))
        return false;
    for (int i = 0; i < tensor->ndim; ++i) {
        if (tensor->shape[i] > 1 && tensor->stride[i] % size != 0) {
            PyErr_Format(PyExc_RuntimeError, "%s: %s has a stride of %lld bytes; wanted a multiple of its element's %d",
                         call->function, name, (long long)tensor->stride[i], (int)size);
            return false;
        }
        tensor->stride[i] /= size;
    }
    return true;
}

static bool read_memory(const struct call *call, const char *name, PyObject *data, dg_tensor *tensor, bool *read_only)
{
    if (data == NULL || !PyTuple_Check(data) || PyTuple_Size(data) != 2) {
        PyErr_Format(PyExc_TypeError, "%s() argument '%s': its __array_interface__ has no pointer", call->function,
                     name);
        return false;
    }
    tensor->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    *read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1)) != 0;
    return !PyErr_Occurred();
}

static bool read_interface(struct call *call, const char *name, PyObject *interface, dg_tensor *tensor, bool *read_only)
{
    PyObject *shape = PyDict_GetItemString(interface, "shape");
    const Py_ssize_t ndim = shape ? PyTuple_Size(shape) : 0;
    if (ndim < 0 || !check_order(call, name, interface))
        return false;
    if (ndim > DG_MAX_DIMS)
        return view_refuse_dimensions(call, name, ndim);
    tensor->ndim = (int32_t)ndim;
    return (shape == NULL || view_sizes(shape, ndim, tensor->shape)) &&
           set_strides(call, name, PyDict_GetItemString(interface, "strides"), tensor) &&
           read_memory(call, name, PyDict_GetItemString(interface, "data"), tensor, read_only);
}

bool view_array(struct call *call, const char *name, PyObject *object, dg_tensor *tensor, bool *read_only)
{
    PyObject *interface = PyObject_GetAttrString(object, "__array_interface__");
    /* Until the end of the call: what it holds may be all that keeps the memory. */
    if (interface == NULL || !call_hold(call, interface, call_release_object))
        return false;
    *tensor = (dg_tensor){.device = DG_CPU};
    return read_type(call, name, object, &tensor->dtype) && read_interface(call, name, interface, tensor, read_only);
}
