#include "producer.h"

/* Under the GIL. An entry holds a reference to its type, whose address can so not become another type's. */
enum { ENTRIES = 64 };
static struct producer known[ENTRIES];

static PyObject *attribute(PyTypeObject *type, const char *name)
{
    PyObject *value = PyObject_GetAttrString((PyObject *)type, name);
    if (value == NULL)
        PyErr_Clear();
    return value;
}

static bool has(PyTypeObject *type, const char *name)
{
    PyObject *value = attribute(type, name);
    Py_XDECREF(value);
    return value != NULL;
}

/* The table of our major version, in the chain of older ones. Tables live as long as the process. */
static const struct dl_exchange *find_exchange(PyTypeObject *type)
{
    PyObject *capsule = attribute(type, "__dlpack_c_exchange_api__");
    const struct dl_exchange_header *header = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_XDECREF(capsule);
    while (header && header->version.major != DL_MAJOR)
        header = header->previous;
    return (const struct dl_exchange *)(const void *)header;
}

static struct producer look_up(PyTypeObject *type)
{
    struct producer found = {.type = type, .exchange = find_exchange(type)};
    if (found.exchange)
        found.kind = PRODUCER_EXCHANGE;
    else if (has(type, "__array_interface__")) /* NumPy's masked arrays say nothing there of their masks */
        found.kind = has(type, "mask") ? PRODUCER_NONE : PRODUCER_ARRAY;
    else if (has(type, "data_ptr") && has(type, "stride"))
        found.kind = PRODUCER_TORCH;
    else if (has(type, "__dlpack__") && has(type, "__dlpack_device__"))
        found.kind = PRODUCER_CAPSULE;
    return found;
}

struct producer producer_of(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    struct producer *entry = &known[((uintptr_t)type >> 6) % ENTRIES]; /* types are larger than 64 bytes */
    if (entry->type == type)
        return *entry;
    struct producer found = look_up(type);
    if (found.kind == PRODUCER_NONE)
        return found;
    PyTypeObject *previous = entry->type;
    Py_INCREF((PyObject *)type);
    *entry = found;
    Py_XDECREF((PyObject *)previous);
    return found;
}
