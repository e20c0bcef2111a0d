#include "view.h"

#include "arguments.h"

#include <stdio.h>
#include <string.h>

bool view_refuse_type(const struct call *call, const char *name, const char *type)
{
    PyErr_Format(PyExc_RuntimeError, "%s: %s is %s; wanted float32, float16, bfloat16, float8_e4m3fn or int32",
                 call->function, name, type);
    return false;
}

bool view_refuse_dimensions(const struct call *call, const char *name, Py_ssize_t ndim)
{
    PyErr_Format(PyExc_RuntimeError, "%s: %s has %zd dimensions; wanted %d at the most", call->function, name, ndim,
                 DG_MAX_DIMS);
    return false;
}

bool view_refuse_part(const struct call *call, const char *name, const char *part, PyObject *came, const char *wanted)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return false; /* the object's own */
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s() argument '%s': its %s is %.100R; wanted %s", call->function, name, part,
                 came ? came : Py_None, wanted);
    return false;
}

/* ---- What Python objects say ------------------------------------------------------------------------------------- */

bool view_type_named(const struct call *call, const char *name, const char *type, dg_dtype *out)
{
    static const struct {
        const char *name;
        dg_dtype type;
    } types[] = {
        {"float8_e4m3fn", DG_FLOAT8_E4M3}, {"float32", DG_FLOAT32}, {"bfloat16", DG_BFLOAT16},
        {"float16", DG_FLOAT16},           {"int32", DG_INT32},
    };
    if (type == NULL)
        return false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; ++i)
        if (strcmp(type, types[i].name) == 0) {
            *out = types[i].type;
            return true;
        }
    return view_refuse_type(call, name, type);
}

bool view_integers(const struct call *call, const char *name, const char *part, PyObject *tuple, int32_t count,
                   int64_t *out)
{
    char wanted[48];
    bool ok = tuple && PyTuple_Check(tuple) && PyTuple_Size(tuple) == count;
    for (int32_t i = 0; ok && i < count; ++i)
        ok = integer_of(PyTuple_GetItem(tuple, i), &out[i]);
    if (ok)
        return true;
    snprintf(wanted, sizeof wanted, "a tuple of %d integers", (int)count);
    return view_refuse_part(call, name, part, tuple, wanted);
}

bool view_shape(const struct call *call, const char *name, const char *part, PyObject *tuple, dg_tensor *tensor)
{
    if (tuple == NULL || !PyTuple_Check(tuple))
        return view_refuse_part(call, name, part, tuple, "a tuple of integers");
    const Py_ssize_t ndim = PyTuple_Size(tuple);
    if (ndim > DG_MAX_DIMS)
        return view_refuse_dimensions(call, name, ndim);
    tensor->ndim = (int32_t)ndim;
    return view_integers(call, name, part, tuple, tensor->ndim, tensor->shape);
}

bool view_address(const struct call *call, const char *name, const char *part, PyObject *object, dg_tensor *tensor)
{
    int64_t address;
    if (object == NULL || !integer_of(object, &address))
        return view_refuse_part(call, name, part, object, "an address");
    if (address < 0 || address == INT64_MAX) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s lies at %.100R, which is no address", call->function, name, object);
        return false;
    }
    tensor->data = (void *)(uintptr_t)address;
    return true;
}

/* What overflows here lies beyond what can be addressed, which the library sees by the sizes too. */
void view_contiguous(dg_tensor *tensor)
{
    int64_t contiguous = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
        tensor->stride[i] = contiguous;
        (void)__builtin_mul_overflow(contiguous, tensor->shape[i], &contiguous);
    }
}

/* ---- DLPack's types ---------------------------------------------------------------------------------------------- */

static const char *const type_names[] = {
    [DL_INT] = "int",
    [DL_UINT] = "uint",
    [DL_FLOAT] = "float",
    [3] = "opaque",
    [DL_BFLOAT] = "bfloat",
    [DL_COMPLEX] = "complex",
    [DL_BOOL] = "bool",
    [DL_FLOAT8_E3M4] = "float8_e3m4",
    [DL_FLOAT8_E4M3] = "float8_e4m3",
    [DL_FLOAT8_E4M3B11FNUZ] = "float8_e4m3b11fnuz",
    [DL_FLOAT8_E4M3FN] = "float8_e4m3fn",
    [DL_FLOAT8_E4M3FNUZ] = "float8_e4m3fnuz",
    [DL_FLOAT8_E5M2] = "float8_e5m2",
    [DL_FLOAT8_E5M2FNUZ] = "float8_e5m2fnuz",
    [DL_FLOAT8_E8M0FNU] = "float8_e8m0fnu",
    [DL_FLOAT6_E2M3FN] = "float6_e2m3fn",
    [DL_FLOAT6_E3M2FN] = "float6_e3m2fn",
    [DL_FLOAT4_E2M1FN] = "float4_e2m1fn",
};

/* "int64", "float8_e5m2", "float4_e2m1fn x2" */
static void name_type(struct dl_type type, char *out, size_t bytes)
{
    const bool known = type.code < sizeof type_names / sizeof type_names[0];
    const int sized = type.code < DL_BOOL;
    int n = snprintf(out, bytes, "%s", known ? type_names[type.code] : "of an unknown type");
    if (sized)
        n += snprintf(out + n, bytes - (size_t)n, "%d", type.bits);
    if (type.lanes != 1)
        snprintf(out + n, bytes - (size_t)n, " x%d", type.lanes);
}

static dg_dtype type_of(struct dl_type type)
{
    static const struct {
        struct dl_type from;
        dg_dtype to;
    } pairs[] = {
        {{DL_FLOAT8_E4M3FN, 8, 1}, DG_FLOAT8_E4M3},
        {{DL_FLOAT, 32, 1}, DG_FLOAT32},
        {{DL_BFLOAT, 16, 1}, DG_BFLOAT16},
        {{DL_FLOAT, 16, 1}, DG_FLOAT16},
        {{DL_INT, 32, 1}, DG_INT32},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; ++i)
        if (memcmp(&pairs[i].from, &type, sizeof type) == 0)
            return pairs[i].to;
    return DG_DTYPE_NONE;
}

/* ---- DLPack's tensors -------------------------------------------------------------------------------------------- */

bool view_cuda_device(const struct call *call, const char *name, int64_t number, dg_tensor *tensor)
{
    tensor->device = (int32_t)number;
    if (number >= 0 && number <= INT32_MAX)
        return true;
    PyErr_Format(PyExc_RuntimeError, "%s: %s lies on CUDA device %lld, which is none", call->function, name,
                 (long long)number);
    return false;
}

static bool place(const struct call *call, const char *name, struct dl_device device, dg_tensor *tensor)
{
    if (device.type == DL_CUDA || device.type == DL_CUDA_MANAGED)
        return view_cuda_device(call, name, device.id, tensor);
    tensor->device = DG_CPU;
    if (device.type == DL_CPU || device.type == DL_CUDA_HOST)
        return true;
    PyErr_Format(PyExc_RuntimeError, "%s: %s lies on a device of DLPack's type %d; wanted the CPU or a CUDA device",
                 call->function, name, (int)device.type);
    return false;
}

bool view_dlpack(const struct call *call, const char *name, const struct dl_tensor *from, dg_tensor *tensor)
{
    if (from->ndim > DG_MAX_DIMS)
        return view_refuse_dimensions(call, name, from->ndim);
    *tensor = (dg_tensor){.dtype = type_of(from->dtype), .ndim = from->ndim};
    if (tensor->dtype == DG_DTYPE_NONE) {
        char type[64];
        name_type(from->dtype, type, sizeof type);
        return view_refuse_type(call, name, type);
    }
    for (int i = 0; i < from->ndim; ++i)
        tensor->shape[i] = from->shape[i];
    if (from->strides == NULL)
        view_contiguous(tensor);
    for (int i = 0; from->strides && i < from->ndim; ++i)
        tensor->stride[i] = from->strides[i];
    if (from->data)
        tensor->data = (char *)from->data + from->byte_offset;
    return place(call, name, from->device, tensor);
}

/* ---- The table of C functions ------------------------------------------------------------------------------------ */

static void release_managed(void *managed)
{
    struct dl_managed_versioned *self = managed;
    if (self->deleter)
        self->deleter(self);
}

/* For tables without the function that fills a tensor of the caller's. */
static bool take_managed(struct call *call, PyObject *object, const struct dl_exchange *exchange,
                         struct dl_tensor *tensor, bool *read_only)
{
    struct dl_managed_versioned *managed = NULL;
    if (exchange->managed_from_object(object, &managed) != 0)
        return false;
    *tensor = managed->tensor;
    *read_only = (managed->flags & DL_FLAG_READ_ONLY) != 0;
    return call_hold(call, managed, release_managed);
}

bool view_exchange(struct call *call, const char *name, PyObject *object, const struct dl_exchange *exchange,
                   dg_tensor *tensor, bool *read_only)
{
    struct dl_tensor from;
    if (exchange->tensor_from_object == NULL) {
        if (!take_managed(call, object, exchange, &from, read_only))
            return false;
    } else if (exchange->tensor_from_object(object, &from) != 0)
        return false;
    if (!view_dlpack(call, name, &from, tensor))
        return false;
    if (tensor->device >= 0 && call->exchange == NULL)
        call->exchange = exchange;
    return true;
}
