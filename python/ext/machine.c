/* What is here: devices, the compiler, the cache. */
#include "arguments.h"
#include "call.h"
#include "functions.h"

#include <limits.h>

static PyObject *describe(const dg_device_info *info)
{
    return Py_BuildValue("{ss si si sL sL si si}", "name", info->name, "arch", (int)info->arch, "num_sms",
                         (int)info->num_sms, "memory_bytes", (long long)info->memory_bytes, "l2_bytes",
                         (long long)info->l2_bytes, "smem_bytes_per_block", (int)info->smem_bytes_per_block,
                         "driver_version", (int)info->driver_version);
}

static PyObject *device_count(PyObject *module, PyObject *unused)
{
    int32_t count;
    (void)module;
    (void)unused;
    const dg_status status = dg_device_count(&count);
    return status == DG_SUCCESS ? PyLong_FromLong(count) : call_result(status);
}

static PyObject *device_info(PyObject *module, PyObject *device)
{
    dg_device_info info = DG_DEVICE_INFO_INIT;
    int64_t number;
    (void)module;
    if (!argument_integer("device_info", "device", device, &number))
        return NULL;
    const dg_status status = dg_device_query(number < -1 || number > INT_MAX ? -1 : (int32_t)number, &info);
    return status == DG_SUCCESS ? describe(&info) : call_result(status);
}

static PyObject *compiler(PyObject *module, PyObject *unused)
{
    int32_t version;
    char path[PATH_MAX];
    (void)module;
    (void)unused;
    const dg_status status = dg_compiler_query(&version, path, sizeof path);
    return status == DG_SUCCESS ? Py_BuildValue("iN", (int)version, PyUnicode_DecodeFSDefault(path))
                                : call_result(status);
}

/* No file is looked at before a kernel has to be compiled. */
static PyObject *set_packages(PyObject *module, PyObject *folders)
{
    PyObject *bytes = NULL;
    (void)module;
    if (!PyUnicode_FSConverter(folders, &bytes))
        return NULL;
    PyObject *result = call_result(dg_compiler_packages(PyBytes_AsString(bytes)));
    Py_DECREF(bytes);
    return result;
}

static PyObject *cache_directory(PyObject *module, PyObject *unused)
{
    char path[PATH_MAX];
    (void)module;
    (void)unused;
    const dg_status status = dg_cache_directory(path, sizeof path);
    return status == DG_SUCCESS ? PyUnicode_DecodeFSDefault(path) : call_result(status);
}

static PyObject *last_error(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_DecodeFSDefault(dg_last_error());
}

PyMethodDef machine_functions[] = {
    {"device_count", device_count, METH_NOARGS,
     "device_count()\n--\n\nCUDA devices; RuntimeError tells why there is none."},
    {"device_info", device_info, METH_O, "device_info(device)\n--\n\nA dict about a CUDA device."},
    {"compiler", compiler, METH_NOARGS,
     "compiler()\n--\n\n(version, path) of NVRTC; RuntimeError tells why there is none."},
    {"set_packages", set_packages, METH_O,
     "set_packages(folders)\n--\n\nFolders, ':' between them, in whose nvidia-* packages NVRTC is searched."},
    {"cache_directory", cache_directory, METH_NOARGS,
     "cache_directory()\n--\n\nWhere kernels are kept; '' where they are not, and last_error() tells why."},
    {"last_error", last_error, METH_NOARGS,
     "last_error()\n--\n\nThe library's sentence about this thread's last failure."},
    {NULL, NULL, 0, NULL},
};
