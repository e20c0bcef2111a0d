/*
 * Test module: tensors of any description that show their memory by DLPack's table of C functions or by capsules, and
 * the fake CUDA driver's records. A Tensor owns nothing but its description.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/ext/dlpack.h"
#include "shared/gemm_args.h"
#include "tests/fake/fake_cuda.h"

#include <dlfcn.h>

enum { DIMS = 6 };

struct tensor {
    PyObject_HEAD struct dl_tensor view;
    int64_t shape[DIMS], strides[DIMS];
};

static long handed_out, deleted; /* managed tensors */
static void *current_stream;
static long stream_questions;
static unsigned long long managed_flags; /* of what the tables hand out */

/* ---- The table --------------------------------------------------------------------------------------------------- */

static int tensor_from_object(void *object, struct dl_tensor *out)
{
    const struct tensor *self = object;
    if (self->view.ndim < 0) {
        PyErr_SetString(PyExc_BufferError, "this tensor has no memory");
        return -1;
    }
    *out = self->view;
    return 0;
}

static void delete_versioned(struct dl_managed_versioned *managed)
{
    ++deleted;
    Py_DECREF((PyObject *)managed->manager);
    PyMem_Free(managed);
}

static int managed_from_object(void *object, struct dl_managed_versioned **out)
{
    struct tensor *self = object;
    *out = PyMem_Calloc(1, sizeof **out);
    **out = (struct dl_managed_versioned){
        {DL_MAJOR, DL_MINOR}, Py_NewRef((PyObject *)self), delete_versioned, managed_flags, self->view};
    ++handed_out;
    return 0;
}

static int tell_stream(int32_t type, int32_t device, void **stream)
{
    (void)type;
    (void)device;
    ++stream_questions;
    *stream = current_stream;
    return 0;
}

static struct dl_exchange full = {{{1, 3}, NULL}, NULL, managed_from_object, NULL, tensor_from_object, tell_stream};
static struct dl_exchange managed_only = {{{1, 3}, NULL}, NULL, managed_from_object, NULL, NULL, tell_stream};
static struct dl_exchange_header newer = {{2, 0}, &full.header};
static struct dl_exchange_header foreign = {{2, 0}, NULL};

/* ---- Capsules ---------------------------------------------------------------------------------------------------- */

static void delete_old(struct dl_managed *managed)
{
    ++deleted;
    Py_DECREF((PyObject *)managed->manager);
    PyMem_Free(managed);
}

/* What a producer does with a capsule that nobody emptied. */
static void drop_versioned(PyObject *capsule)
{
    struct dl_managed_versioned *managed = NULL;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed)
        managed->deleter(managed);
}

static void drop_old(PyObject *capsule)
{
    struct dl_managed *managed = NULL;
    if (PyCapsule_IsValid(capsule, "dltensor"))
        managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (managed)
        managed->deleter(managed);
}

/* versioned(tensor, flags, major, byte_offset) */
static PyObject *versioned(PyObject *module, PyObject *args)
{
    PyObject *tensor;
    unsigned long long flags, offset;
    unsigned major;
    struct dl_managed_versioned *managed;
    (void)module;
    if (!PyArg_ParseTuple(args, "OKIK", &tensor, &flags, &major, &offset))
        return NULL;
    managed_from_object(tensor, &managed);
    managed->flags = flags;
    managed->version.major = major;
    managed->tensor.byte_offset = offset;
    return PyCapsule_New(managed, "dltensor_versioned", drop_versioned);
}

/* old(tensor, byte_offset) */
static PyObject *old(PyObject *module, PyObject *args)
{
    PyObject *tensor;
    unsigned long long offset;
    (void)module;
    if (!PyArg_ParseTuple(args, "OK", &tensor, &offset))
        return NULL;
    struct dl_managed *managed = PyMem_Calloc(1, sizeof *managed);
    *managed = (struct dl_managed){((struct tensor *)tensor)->view, Py_NewRef(tensor), delete_old};
    managed->tensor.byte_offset = offset;
    ++handed_out;
    return PyCapsule_New(managed, "dltensor", drop_old);
}

static PyObject *set_flags(PyObject *module, PyObject *flags)
{
    (void)module;
    managed_flags = PyLong_AsUnsignedLongLong(flags);
    Py_RETURN_NONE;
}

/* ---- Types ------------------------------------------------------------------------------------------------------- */

static bool read_sizes(PyObject *tuple, int ndim, int64_t *out)
{
    for (int i = 0; i < ndim; ++i)
        out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    return !PyErr_Occurred();
}

/* Tensor(pointer, shape, strides or None, (code, bits, lanes), (device type, device)); no shape: no memory. */
static int init(PyObject *object, PyObject *args, PyObject *keywords)
{
    struct tensor *self = (struct tensor *)object;
    unsigned long long pointer;
    PyObject *shape, *strides;
    unsigned code, bits, lanes;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "KOO(III)(ii)", &pointer, &shape, &strides, &code, &bits, &lanes,
                          &self->view.device.type, &self->view.device.id))
        return -1;
    self->view.data = (void *)(uintptr_t)pointer;
    self->view.dtype = (struct dl_type){(uint8_t)code, (uint8_t)bits, (uint16_t)lanes};
    self->view.ndim = shape == Py_None ? -1 : (int32_t)PyTuple_Size(shape);
    self->view.shape = self->shape;
    self->view.strides = strides == Py_None ? NULL : self->strides;
    return read_sizes(shape, self->view.ndim, self->shape) &&
                   (strides == Py_None || read_sizes(strides, self->view.ndim, self->strides))
               ? 0
               : -1;
}

static PyType_Slot slots[] = {{Py_tp_init, (void *)init}, {Py_tp_new, (void *)PyType_GenericNew}, {0, NULL}};

static bool add_type(PyObject *module, const char *name, const char *full_name, void *table)
{
    PyType_Spec spec = {full_name, sizeof(struct tensor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *type = PyType_FromSpec(&spec),
             *capsule = table ? PyCapsule_New(table, "dlpack_exchange_api", NULL) : NULL;
    return type && (capsule == NULL || PyObject_SetAttrString(type, "__dlpack_c_exchange_api__", capsule) == 0) &&
           PyModule_AddObject(module, name, type) == 0;
}

/* ---- The fake driver --------------------------------------------------------------------------------------------- */

static struct fake *driver;

/* open_driver(path) */
static PyObject *open_driver(PyObject *module, PyObject *path)
{
    void *library = dlopen(PyUnicode_AsUTF8(path), RTLD_NOW | RTLD_LOCAL);
    (void)module;
    driver = library ? dlsym(library, "fake") : NULL;
    if (driver == NULL)
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    driver->reset();
    Py_RETURN_NONE;
}

/* own(pointer, bytes, device): device memory from now on */
static PyObject *own(PyObject *module, PyObject *args)
{
    unsigned long long pointer, bytes;
    int device;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKi", &pointer, &bytes, &device))
        return NULL;
    driver->pointer_add((void *)(uintptr_t)pointer, bytes, CU_MEMORYTYPE_DEVICE, device, 1u << device);
    Py_RETURN_NONE;
}

static PyObject *new_stream(PyObject *module, PyObject *device)
{
    (void)module;
    return PyLong_FromVoidPtr(driver->stream_create(driver->primary((int)PyLong_AsLong(device))));
}

static PyObject *set_stream(PyObject *module, PyObject *stream)
{
    (void)module;
    current_stream = PyLong_AsVoidPtr(stream);
    Py_RETURN_NONE;
}

static PyObject *launch_count(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromLong(driver->launch_count);
}

/* launches(since) -> [(kernel, device, stream)]: those after the first `since` */
static PyObject *launches(PyObject *module, PyObject *since)
{
    PyObject *list = PyList_New(0);
    (void)module;
    for (long i = PyLong_AsLong(since); list && i < driver->launch_count; ++i) {
        const struct fake_launch *l = &driver->launches[i % FAKE_LAUNCHES];
        PyObject *item = Py_BuildValue("siN", l->kernel, l->device, PyLong_FromVoidPtr(l->stream));
        if (item == NULL || PyList_Append(list, item) != 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

/* keep_arguments(whether): of launches from now on, which are all of sm90_fp8_gemm_skinny */
static PyObject *keep_arguments(PyObject *module, PyObject *whether)
{
    (void)module;
    driver->args_bytes = PyObject_IsTrue(whether) ? sizeof(struct gemm_skinny_args) : 0;
    Py_RETURN_NONE;
}

/* loads_b_early() -> bool: the last launch, whose arguments were kept */
static PyObject *loads_b_early(PyObject *module, PyObject *unused)
{
    const struct fake_launch *last = &driver->launches[(driver->launch_count - 1) % FAKE_LAUNCHES];
    struct gemm_skinny_args args;
    (void)module;
    (void)unused;
    memcpy(&args, last->args, sizeof args);
    return PyBool_FromLong(args.b_early);
}

static PyObject *counts(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return Py_BuildValue("lll", handed_out, deleted, stream_questions);
}

static PyMethodDef functions[] = {
    {"versioned", versioned, METH_VARARGS, NULL},
    {"old", old, METH_VARARGS, NULL},
    {"counts", counts, METH_NOARGS, NULL},
    {"open_driver", open_driver, METH_O, NULL},
    {"own", own, METH_VARARGS, NULL},
    {"new_stream", new_stream, METH_O, NULL},
    {"set_stream", set_stream, METH_O, NULL},
    {"set_flags", set_flags, METH_O, NULL},
    {"launches", launches, METH_O, NULL},
    {"keep_arguments", keep_arguments, METH_O, NULL},
    {"loads_b_early", loads_b_early, METH_NOARGS, NULL},
    {"launch_count", launch_count, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fake_tensor", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_fake_tensor(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || !add_type(module, "Tensor", "fake_tensor.Tensor", &full) ||
        !add_type(module, "ManagedOnly", "fake_tensor.ManagedOnly", &managed_only) ||
        !add_type(module, "Newer", "fake_tensor.Newer", &newer) ||
        !add_type(module, "Foreign", "fake_tensor.Foreign", &foreign) ||
        !add_type(module, "Plain", "fake_tensor.Plain", NULL))
        return NULL;
    return module;
}
