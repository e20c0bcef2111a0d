/* NumPy arrays: __array_interface__ tells where they lie, the name of their dtype what they hold. NumPy exports neither
   BF16 nor FP8 by DLPack before 2.5. */
#include "view.h"

static bool read_type(const struct call *call, const char *name, PyObject *object, dg_dtype *type)
{
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *type_name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
    const bool ok = type_name && PyUnicode_Check(type_name)
                        ? view_type_named(call, name, PyUnicode_AsUTF8AndSize(type_name, NULL), type)
                        : view_refuse_part(call, name, "dtype", dtype, "one with a name");
    Py_XDECREF(type_name);
    Py_XDECREF(dtype);
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
    const int64_t size = (int64_t)dg_dtype_size(tensor->dtype);
    view_contiguous(tensor);
    if (strides == NULL || strides == Py_None)
        return true;
    if (!view_integers(call, name, "__array_interface__['strides']", strides, tensor->ndim, tensor->stride))
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

/* A mask says which elements count; here all do. */
static bool check_mask(const struct call *call, const char *name, PyObject *interface)
{
    PyObject *mask = PyDict_GetItemString(interface, "mask");
    if (mask == NULL || mask == Py_None)
        return true;
    PyErr_Format(PyExc_RuntimeError, "%s: %s has a mask; this library has no kernel for it", call->function, name);
    return false;
}

static bool read_memory(const struct call *call, const char *name, PyObject *data, dg_tensor *tensor, bool *read_only)
{
    const char *const part = "__array_interface__['data']";
    if (data == NULL || !PyTuple_Check(data) || PyTuple_Size(data) != 2)
        return view_refuse_part(call, name, part, data, "a tuple (address, read-only)");
    *read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1)) != 0;
    return !PyErr_Occurred() && view_address(call, name, part, PyTuple_GetItem(data, 0), tensor);
}

static bool read_interface(struct call *call, const char *name, PyObject *interface, dg_tensor *tensor, bool *read_only)
{
    if (!PyDict_Check(interface))
        return view_refuse_part(call, name, "__array_interface__", interface, "a dict");
    return check_order(call, name, interface) && check_mask(call, name, interface) &&
           view_shape(call, name, "__array_interface__['shape']", PyDict_GetItemString(interface, "shape"), tensor) &&
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
