/* __dlpack__: a capsule that the consumer empties. Versioned capsules are asked for; older producers know no keywords
   or only `stream`. */
#include "view.h"

static void release_old(void *managed)
{
    struct dl_managed *self = managed;
    if (self->deleter)
        self->deleter(self);
}

static void release_versioned(void *managed)
{
    struct dl_managed_versioned *self = managed;
    if (self->deleter)
        self->deleter(self);
}

/* ---- Asking for it ----------------------------------------------------------------------------------------------- */

static bool read_device(PyObject *object, struct dl_device *device)
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    int type = 0, id = 0;
    const bool ok = pair && PyArg_ParseTuple(pair, "ii", &type, &id);
    Py_XDECREF(pair);
    *device = (struct dl_device){.type = type, .id = id};
    return ok;
}

/* What __dlpack__ takes as `stream`: 1 is the default stream, whose handle is NULL. None where there are no streams. */
static bool stream_number(struct call *call, PyObject *object, PyObject **number)
{
    struct dl_device device;
    if (!read_device(object, &device))
        return false;
    if (device.type != DL_CUDA && device.type != DL_CUDA_MANAGED) {
        Py_INCREF(Py_None);
        *number = Py_None;
        return true;
    }
    if (!call_stream(call, device.id, object))
        return false;
    *number = call->stream ? PyLong_FromVoidPtr(call->stream) : PyLong_FromLong(1);
    return *number != NULL;
}

static PyObject *ask_with(PyObject *method, const char *format, PyObject *stream)
{
    PyObject *none = PyTuple_New(0);
    PyObject *keywords = Py_BuildValue(format, "stream", stream, "max_version", DL_MAJOR, DL_MINOR);
    PyObject *capsule = none && keywords ? PyObject_Call(method, none, keywords) : NULL;
    Py_XDECREF(none);
    Py_XDECREF(keywords);
    return capsule;
}

static PyObject *ask(struct call *call, PyObject *object)
{
    static const char *const formats[] = {"{sOs(ii)}", "{sO}", "{}"};
    PyObject *method, *stream, *capsule = NULL;
    if (!stream_number(call, object, &stream))
        return NULL;
    method = PyObject_GetAttrString(object, "__dlpack__");
    for (size_t i = 0; method && !capsule && i < sizeof formats / sizeof formats[0]; ++i) {
        if (i > 0 && !PyErr_ExceptionMatches(PyExc_TypeError))
            break;
        PyErr_Clear();
        capsule = ask_with(method, formats[i], stream);
    }
    Py_XDECREF(method);
    Py_DECREF(stream);
    return capsule;
}

/* ---- Taking what is inside --------------------------------------------------------------------------------------- */

static const struct dl_tensor *take_versioned(struct call *call, PyObject *capsule, bool *read_only)
{
    struct dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed == NULL || PyCapsule_SetName(capsule, "used_dltensor_versioned") != 0 ||
        !call_hold(call, managed, release_versioned))
        return NULL;
    if (managed->version.major != DL_MAJOR) {
        PyErr_Format(PyExc_BufferError, "%s: DLPack %d was asked for, and %d came", call->function, DL_MAJOR,
                     (int)managed->version.major);
        return NULL;
    }
    *read_only = (managed->flags & DL_FLAG_READ_ONLY) != 0;
    return &managed->tensor;
}

static const struct dl_tensor *take_old(struct call *call, PyObject *capsule)
{
    struct dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (managed == NULL || PyCapsule_SetName(capsule, "used_dltensor") != 0 || !call_hold(call, managed, release_old))
        return NULL;
    return &managed->tensor;
}

bool view_capsule(struct call *call, const char *name, PyObject *object, dg_tensor *tensor, bool *read_only)
{
    PyObject *capsule = ask(call, object);
    const struct dl_tensor *from = NULL;
    if (capsule == NULL)
        return false;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        from = take_versioned(call, capsule, read_only);
    else
        from = take_old(call, capsule);
    const bool ok = from && view_dlpack(call, name, from, tensor);
    Py_DECREF(capsule);
    return ok;
}
