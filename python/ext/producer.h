/* How the objects of a type show their memory. Looked up once for each type. */
#ifndef EXT_PRODUCER_H
#define EXT_PRODUCER_H

#include "dlpack.h"
#include "py.h"

enum producer_kind {
    PRODUCER_NONE,     /* not at all: it is no tensor */
    PRODUCER_EXCHANGE, /* DLPack's table of C functions: no allocation, no reference */
    PRODUCER_ARRAY,    /* NumPy's __array_interface__, with the name of its dtype */
    PRODUCER_TORCH,    /* torch's own methods, before it had the table: its __dlpack__ refuses FP8 and gradients */
    PRODUCER_CAPSULE   /* DLPack's __dlpack__ */
};

struct producer {
    PyTypeObject *type;
    enum producer_kind kind;
    const struct dl_exchange *exchange;
};

/* Sets no exception. */
struct producer producer_of(PyObject *object);

#endif
