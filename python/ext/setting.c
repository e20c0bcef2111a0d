/* Settings of the process, under the names that upstream has for them. */
#include "arguments.h"
#include "call.h"
#include "functions.h"

static PyObject *get(dg_setting setting)
{
    int64_t value;
    if (dg_get(NULL, setting, &value) != DG_SUCCESS)
        return call_result(DG_ERROR_INTERNAL);
    return PyLong_FromLongLong(value);
}

static PyObject *get_flag(dg_setting setting)
{
    int64_t value;
    if (dg_get(NULL, setting, &value) != DG_SUCCESS)
        return call_result(DG_ERROR_INTERNAL);
    return PyBool_FromLong(value != 0);
}

static dg_status put(dg_setting setting, int64_t value)
{
    int64_t before = 0;
    dg_status status = dg_get(NULL, setting, &before);
    if (status == DG_SUCCESS)
        status = dg_set(NULL, setting, value);
    if (status == DG_SUCCESS)
        call_setting(setting, before, value);
    return status;
}

static bool parse(const char *function, const char *name, enum argument_kind kind, PyObject *const *args,
                  Py_ssize_t positional, PyObject *keywords, int64_t *value)
{
    const struct signature signature = {function, 1, {{name, kind, true, 0, NULL}}};
    union value parsed;
    if (!arguments_parse(&signature, args, positional, keywords, &parsed))
        return false;
    *value = parsed.integer;
    return true;
}

/* ---- SMs --------------------------------------------------------------------------------------------------------- */

/* Of the first GPU; 0 where there is none. */
static int32_t device_sms(void)
{
    dg_device_info info = DG_DEVICE_INFO_INIT;
    return dg_device_query(0, &info) == DG_SUCCESS ? info.num_sms : 0;
}

static PyObject *get_num_sms(PyObject *module, PyObject *unused)
{
    int64_t value = 0;
    (void)module;
    (void)unused;
    if (dg_get(NULL, DG_SETTING_NUM_SMS, &value) == DG_SUCCESS && value == 0)
        value = device_sms();
    return PyLong_FromLongLong(value);
}

static PyObject *set_num_sms(PyObject *module, PyObject *const *args, Py_ssize_t positional, PyObject *keywords)
{
    int64_t value;
    (void)module;
    if (!parse("set_num_sms", "num_sms", ARGUMENT_INTEGER, args, positional, keywords, &value))
        return NULL;
    const int32_t most = value > 0 ? device_sms() : 0;
    if (most > 0 && value > most)
        return PyErr_Format(PyExc_RuntimeError, "set_num_sms: num_sms is %lld; cuda:0 has %d SMs", (long long)value,
                            (int)most);
    return call_result(put(DG_SETTING_NUM_SMS, value));
}

/* ---- The others -------------------------------------------------------------------------------------------------- */

#define SETTING(name, setting, kind, argument, get_as, set_as)                                                         \
    static PyObject *get_##name(PyObject *module, PyObject *unused)                                                    \
    {                                                                                                                  \
        (void)module;                                                                                                  \
        (void)unused;                                                                                                  \
        return get_as(setting);                                                                                        \
    }                                                                                                                  \
    static PyObject *set_##name(PyObject *module, PyObject *const *args, Py_ssize_t positional, PyObject *keywords)    \
    {                                                                                                                  \
        int64_t value;                                                                                                 \
        (void)module;                                                                                                  \
        if (!parse("set_" #name, argument, kind, args, positional, keywords, &value))                                  \
            return NULL;                                                                                               \
        return call_result(set_as(setting, value));                                                                    \
    }

/* Upstream takes 0 too; a kernel needs one SM. */
static dg_status set_percent(dg_setting setting, int64_t value)
{
    return put(setting, value == 0 ? 1 : value);
}

SETTING(pdl, DG_SETTING_PDL, ARGUMENT_FLAG, "enable", get_flag, put)
SETTING(tc_util, DG_SETTING_TC_UTIL, ARGUMENT_INTEGER, "tc_util", get, set_percent)
SETTING(batch_invariant, DG_SETTING_BATCH_INVARIANT, ARGUMENT_FLAG, "enable", get_flag, put)
SETTING(mk_alignment_for_contiguous_layout, DG_SETTING_CONTIGUOUS_ALIGNMENT, ARGUMENT_INTEGER, "alignment", get, put)

#define GET(name, doc)                                                                                                 \
    {                                                                                                                  \
        "get_" #name, get_##name, METH_NOARGS, "get_" #name "()\n--\n\n" doc                                           \
    }
#define SET(name, argument, doc) FAST("set_" #name, set_##name, "set_" #name "(" argument ")\n--\n\n" doc)

PyMethodDef setting_functions[] = {
    GET(num_sms, "SMs that a kernel may use: as set, else all of the first GPU; 0 where there is none."),
    SET(num_sms, "num_sms", "Bounds the SMs that a kernel may use; 0 means all."),
    GET(pdl, "Whether kernels are launched with programmatic dependent launch."),
    SET(pdl, "enable", "Launch kernels with programmatic dependent launch, or not (default)."),
    GET(tc_util, "Percent of the tensor cores to use."),
    SET(tc_util, "tc_util", "Percent of the tensor cores to use, 1 to 100 (default)."),
    GET(batch_invariant, "Whether a row's bits are kept from depending on M."),
    SET(batch_invariant, "enable", "Whether a row's bits must not depend on M (default: they may)."),
    GET(mk_alignment_for_contiguous_layout, "Row alignment of groups in contiguous layouts."),
    SET(mk_alignment_for_contiguous_layout, "alignment",
        "Row alignment of groups in contiguous layouts: 8, 16 or a multiple of 32 up to 256; default 128."),
    {NULL, NULL, 0, NULL},
};
