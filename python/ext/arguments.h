/* The arguments of a Python function by a table: names, kinds, defaults. */
#ifndef EXT_ARGUMENTS_H
#define EXT_ARGUMENTS_H

#include "py.h"

#include <stdint.h>

enum { MAX_ARGUMENTS = 14 };

enum argument_kind {
    ARGUMENT_OBJECT,  /* value.object, borrowed; NULL for None and when left out */
    ARGUMENT_INTEGER, /* value.integer */
    ARGUMENT_FLAG,    /* value.integer is 0 or 1 by the object's truth */
    ARGUMENT_UNUSED,  /* anything, not looked at: what other implementations use and this one has no need of */
    ARGUMENT_NONE     /* None only: what this library has not */
};

struct argument {
    const char *name;
    enum argument_kind kind;
    bool required;
    int32_t otherwise;   /* of integers and flags that are left out */
    const char *synonym; /* another keyword for it, or NULL */
};

union value {
    PyObject *object;
    int64_t integer;
};

struct signature {
    const char *function;
    int count;
    struct argument arguments[MAX_ARGUMENTS];
};

/* False with TypeError set for a wrong number, unknown or doubled keywords and wrong kinds; RuntimeError for an
   ARGUMENT_NONE that is given. */
bool arguments_parse(const struct signature *signature, PyObject *const *args, Py_ssize_t positional,
                     PyObject *keywords, union value *values);

/* An int, or what has __index__; beyond int64_t, where nothing is taken, the nearest of it. False with an exception. */
bool integer_of(PyObject *object, int64_t *out);

/* The same, and a TypeError about this argument. */
bool argument_integer(const char *function, const char *name, PyObject *object, int64_t *out);

/* `count` integers of a tuple or list; false with an exception set. */
bool argument_integers(const char *function, const char *name, PyObject *object, Py_ssize_t count, int32_t *out);

#endif
