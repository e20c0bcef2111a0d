#include "call.h"

#include "hooks.h"
#include "producer.h"
#include "view.h"

#include <string.h>

bool call_hold(struct call *call, void *what, void (*release)(void *what))
{
    if (call->held_count == CALL_HELD) {
        release(what);
        PyErr_Format(PyExc_SystemError, "%s: more than %d things to hold", call->function, CALL_HELD);
        return false;
    }
    call->held[call->held_count++] = (struct held){.what = what, .release = release};
    return true;
}

void call_release_object(void *object)
{
    Py_DECREF((PyObject *)object);
}

void call_end(struct call *call)
{
    PyObject *type, *value, *traceback; /* of an exception on its way, which others' deleters must not see */
    if (call->held_count == 0)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    while (call->held_count > 0) {
        const struct held *last = &call->held[--call->held_count];
        last->release(last->what);
    }
    PyErr_Restore(type, value, traceback);
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

bool call_stream(struct call *call, int32_t device, PyObject *object)
{
    if (device < 0 || call->has_stream)
        return true;
    if (call->exchange)
        call->has_stream = call->exchange->current_stream(DL_CUDA, device, &call->stream) == 0;
    else
        call->has_stream = hook_stream(object, device, &call->stream);
    return call->has_stream;
}

/* ---- Others' turn ------------------------------------------------------------------------------------------------ */

/* The likenesses of calls that a GPU has done, as many as there is room for. Under the GIL. What is forgotten here or
   mistaken for another costs time only. */
enum { DONE_BITS = 12 };
static uint64_t done[1 << DONE_BITS], settings;

static uint64_t mixed(uint64_t sum, uint64_t word)
{
    return (sum ^ word) * 0x9e3779b97f4a7c15u; /* 2^64 by the golden ratio: the high bits depend on all */
}

void call_mix(struct call *call, uint64_t word)
{
    call->likeness = mixed(call->likeness, word);
}

static void mix_tensor(struct call *call, const dg_tensor *tensor)
{
    const uint64_t alignment = (uintptr_t)tensor->data % 16;
    call_mix(call, alignment << 40 | (uint64_t)tensor->dtype << 32 | (uint32_t)tensor->device);
    for (int32_t i = 0; i < tensor->ndim; ++i)
        call_mix(call, (uint64_t)tensor->stride[i] << 32 ^ (uint64_t)tensor->shape[i]);
}

void call_setting(dg_setting setting, int64_t before, int64_t after)
{
    const uint64_t which = mixed(0, setting);
    settings ^= mixed(which, (uint64_t)before) ^ mixed(which, (uint64_t)after);
}

uint64_t call_likeness(const struct call *call)
{
    return mixed(call->likeness, settings ^ (uintptr_t)call->function);
}

static uint64_t *place_of(uint64_t likeness)
{
    return &done[likeness >> (64 - DONE_BITS)];
}

void call_work_begin(struct call *call, int32_t device)
{
    call->likeness = call_likeness(call);
    if (device < 0 || *place_of(call->likeness) != call->likeness)
        call->state = PyEval_SaveThread();
}

void call_work_end(struct call *call, int32_t device, dg_status status)
{
    if (call->state == NULL)
        return;
    PyEval_RestoreThread(call->state);
    if (device >= 0 && status == DG_SUCCESS)
        *place_of(call->likeness) = call->likeness;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static bool refuse_object(const struct call *call, const char *name, PyObject *object)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    if (type)
        PyErr_Format(PyExc_TypeError, "%s() argument '%s' must be a tensor, not %S", call->function, name, type);
    Py_XDECREF(type);
    return false;
}

static bool view(struct call *call, const char *name, PyObject *object, dg_tensor *tensor, bool *read_only)
{
    const struct producer producer = producer_of(object);
    switch (producer.kind) {
    case PRODUCER_EXCHANGE:
        return view_exchange(call, name, object, producer.exchange, tensor, read_only);
    case PRODUCER_ARRAY:
        return view_array(call, name, object, tensor, read_only);
    case PRODUCER_TORCH:
        return view_torch(call, name, object, tensor);
    case PRODUCER_CAPSULE:
        return view_capsule(call, name, object, tensor, read_only);
    case PRODUCER_NONE:
        break;
    }
    return refuse_object(call, name, object);
}

bool call_tensor(struct call *call, const char *name, PyObject *object, enum tensor_role role, dg_tensor *tensor)
{
    bool read_only = false;
    if (object == NULL)
        return refuse_object(call, name, Py_None);
    if (!view(call, name, object, tensor, &read_only))
        return false;
    if (role == TENSOR_OUTPUT && read_only) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s is read-only", call->function, name);
        return false;
    }
    mix_tensor(call, tensor);
    return call_stream(call, tensor->device, object);
}

/* ---- Pairs ------------------------------------------------------------------------------------------------------- */

/* What a tuple holds stays; a list can lose it while another thread runs. */
static bool list_item(struct call *call, PyObject *list, Py_ssize_t i, PyObject **item)
{
    *item = PyList_GetItem(list, i);
    if (*item == NULL)
        return false;
    Py_INCREF(*item);
    return call_hold(call, *item, call_release_object);
}

static bool refuse_pair(const struct call *call, const char *name)
{
    PyErr_Format(PyExc_TypeError, "%s() argument '%s' must be a pair (tensor, scales)", call->function, name);
    return false;
}

bool call_pair(struct call *call, const char *name, const char *scale_name, PyObject *object, dg_tensor *tensor,
               dg_tensor *scales)
{
    PyObject *first, *second;
    if (object && PyTuple_Check(object) && PyTuple_Size(object) == 2) {
        first = PyTuple_GetItem(object, 0);
        second = PyTuple_GetItem(object, 1);
    } else if (object && PyList_Check(object) && PyList_Size(object) == 2) {
        if (!list_item(call, object, 0, &first) || !list_item(call, object, 1, &second))
            return false;
    } else
        return refuse_pair(call, name);
    return call_tensor(call, name, first, TENSOR_INPUT, tensor) &&
           call_tensor(call, scale_name, second, TENSOR_INPUT, scales);
}

/* Paths in it may be in any encoding, or cut. */
static void call_sentence(void)
{
    const char *sentence = dg_last_error();
    PyObject *text = PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace");
    if (text)
        PyErr_SetObject(PyExc_RuntimeError, text);
    Py_XDECREF(text);
}

PyObject *call_result(dg_status status)
{
    if (status != DG_SUCCESS) {
        call_sentence();
        return NULL;
    }
    Py_INCREF(Py_None);
    return Py_None;
}
