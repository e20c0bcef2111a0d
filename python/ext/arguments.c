#include "arguments.h"

static bool is_missing(const struct argument *argument, PyObject *object)
{
    return argument->required && object == NULL;
}

static int find(const struct signature *s, PyObject *keyword)
{
    for (int i = 0; i < s->count; ++i) {
        const struct argument *a = &s->arguments[i];
        if (PyUnicode_CompareWithASCIIString(keyword, a->name) == 0 ||
            (a->synonym && PyUnicode_CompareWithASCIIString(keyword, a->synonym) == 0))
            return i;
    }
    return -1;
}

static bool place_keywords(const struct signature *s, PyObject *const *args, Py_ssize_t positional, PyObject *keywords,
                           PyObject **objects)
{
    const Py_ssize_t count = keywords ? PyTuple_Size(keywords) : 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *keyword = PyTuple_GetItem(keywords, i);
        const int at = find(s, keyword);
        if (at < 0)
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", s->function, keyword);
        else if (objects[at])
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", s->function,
                         s->arguments[at].name);
        else
            objects[at] = args[positional + i];
        if (PyErr_Occurred())
            return false;
    }
    return true;
}

bool integer_of(PyObject *object, int64_t *out)
{
    int beyond;
    *out = PyLong_AsLongLongAndOverflow(object, &beyond);
    if (beyond)
        *out = beyond < 0 ? INT64_MIN : INT64_MAX;
    return beyond || *out != -1 || !PyErr_Occurred();
}

bool argument_integer(const char *function, const char *name, PyObject *object, int64_t *out)
{
    if (integer_of(object, out))
        return true;
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "%s() argument '%s' must be an integer", function, name);
    return false;
}

static bool convert(const struct signature *s, const struct argument *a, PyObject *object, union value *value)
{
    switch (a->kind) {
    case ARGUMENT_OBJECT:
        value->object = object == Py_None ? NULL : object;
        return true;
    case ARGUMENT_INTEGER:
        value->integer = a->otherwise;
        return object == NULL || argument_integer(s->function, a->name, object, &value->integer);
    case ARGUMENT_FLAG:
        value->integer = object ? PyObject_IsTrue(object) : a->otherwise;
        return value->integer >= 0;
    case ARGUMENT_NONE:
        if (object == NULL || object == Py_None)
            return true;
        PyErr_Format(PyExc_RuntimeError, "%s: %s is given; this library has no kernel for it", s->function, a->name);
        return false;
    case ARGUMENT_UNUSED:
        break;
    }
    return true;
}

bool arguments_parse(const struct signature *s, PyObject *const *args, Py_ssize_t positional, PyObject *keywords,
                     union value *values)
{
    PyObject *objects[MAX_ARGUMENTS] = {0};
    if (positional > s->count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)", s->function, s->count, positional);
        return false;
    }
    for (Py_ssize_t i = 0; i < positional; ++i)
        objects[i] = args[i];
    if (!place_keywords(s, args, positional, keywords, objects))
        return false;
    for (int i = 0; i < s->count; ++i) {
        if (is_missing(&s->arguments[i], objects[i])) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s' (pos %d)", s->function,
                         s->arguments[i].name, i + 1);
            return false;
        }
        if (!convert(s, &s->arguments[i], objects[i], &values[i]))
            return false;
    }
    return true;
}

static bool next_integer(PyObject *sequence, Py_ssize_t i, int32_t *out)
{
    PyObject *item = PySequence_GetItem(sequence, i);
    int64_t value;
    const bool ok = item && integer_of(item, &value);
    Py_XDECREF(item);
    if (ok)
        *out = value < INT32_MIN || value > INT32_MAX ? INT32_MAX : (int32_t)value; /* no recipe is that large */
    return ok;
}

static bool refuse_integers(const char *function, const char *name, Py_ssize_t count)
{
    if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "%s() argument '%s' must be a tuple of %zd integers or None", function, name,
                     count);
    return false;
}

bool argument_integers(const char *function, const char *name, PyObject *object, Py_ssize_t count, int32_t *out)
{
    if (!PyTuple_Check(object) && !PyList_Check(object))
        return refuse_integers(function, name, count);
    if (PySequence_Size(object) != count) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s has %zd numbers; wanted %zd", function, name, PySequence_Size(object),
                     count);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; ++i)
        if (!next_integer(object, i, &out[i]))
            return refuse_integers(function, name, count);
    return true;
}
