/* __dlpack__: a capsule that the consumer empties. Versioned capsules are asked for; older producers know no keywords
   or only `stream`. */
#include "view.h"

#include <string.h>

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

/* The device's type and number. */
static bool read_device(const struct call *call, const char *name, PyObject *object, int64_t device[2])
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    const bool ok = pair && view_integers(call, name, "__dlpack_device__()", pair, 2, device);
    Py_XDECREF(pair);
    return ok;
}

/* What __dlpack__ takes as `stream`: 1 is the default stream, whose handle is NULL. None where there are no streams. */
static bool stream_number(struct call *call, const char *name, PyObject *object, PyObject **number)
{
    int64_t device[2];
    dg_tensor place;
    if (!read_device(call, name, object, device))
        return false;
    if (device[0] != DL_CUDA && device[0] != DL_CUDA_MANAGED) {
        Py_INCREF(Py_None);
        *number = Py_None;
        return true;
    }
    if (!view_cuda_device(call, name, device[1], &place) || !call_stream(call, place.device, object))
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

/* Whether the exception on its way says that a keyword is not known: as Python says it, or pybind11 and nanobind. */
static bool is_about_keywords(void)
{
    PyObject *type, *value, *traceback;
    if (!PyErr_ExceptionMatches(PyExc_TypeError))
        return false;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *sentence = PyObject_Str(value);
    const char *text = sentence ? PyUnicode_AsUTF8AndSize(sentence, NULL) : NULL;
    const bool about = text && (strstr(text, "keyword") || strstr(text, "incompatible function arguments"));
    Py_XDECREF(sentence);
    PyErr_Restore(type, value, traceback); /* and forgets what Str has raised */
    return about;
}

static PyObject *ask(struct call *call, const char *name, PyObject *object)
{
    static const char *const formats[] = {"{sOs(ii)}", "{sO}", "{}"};
    PyObject *method, *stream, *capsule = NULL;
    if (!stream_number(call, name, object, &stream))
        return NULL;
    method = PyObject_GetAttrString(object, "__dlpack__");
    for (size_t i = 0; method && !capsule && i < sizeof formats / sizeof formats[0]; ++i) {
        if (i > 0 && !is_about_keywords())
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
    if (PyCapsule_SetName(capsule, "used_dltensor_versioned") != 0 || !call_hold(call, managed, release_versioned))
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
    if (PyCapsule_SetName(capsule, "used_dltensor") != 0 || !call_hold(call, managed, release_old))
        return NULL;
    return &managed->tensor;
}

bool view_capsule(struct call *call, const char *name, PyObject *object, dg_tensor *tensor, bool *read_only)
{
    PyObject *capsule = ask(call, name, object);
    const struct dl_tensor *from = NULL;
    if (capsule == NULL)
        return false;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        from = take_versioned(call, capsule, read_only);
    else if (PyCapsule_IsValid(capsule, "dltensor"))
        from = take_old(call, capsule);
    else
        view_refuse_part(call, name, "__dlpack__()", capsule, "a capsule of DLPack, not used before");
    const bool ok = from && view_dlpack(call, name, from, tensor);
    Py_DECREF(capsule);
    return ok;
}
