/* Quantisation, and the layouts of scales. The package's own functions make the outputs and call these. */
#include "arguments.h"
#include "call.h"
#include "functions.h"

/* ---- quantize_fp8 ------------------------------------------------------------------------------------------------ */

enum { X, Q, SF, GRAN_MN, GRAN_K, ROUND_SCALE, QUANTIZE_COUNT };

static const struct signature quantize_signature = {
    "quantize_fp8",
    QUANTIZE_COUNT,
    {
        [X] = {"x", ARGUMENT_OBJECT, true, 0, NULL},
        [Q] = {"q", ARGUMENT_OBJECT, true, 0, NULL},
        [SF] = {"sf", ARGUMENT_OBJECT, true, 0, NULL},
        [GRAN_MN] = {"gran_mn", ARGUMENT_INTEGER, false, 1, NULL},
        [GRAN_K] = {"gran_k", ARGUMENT_INTEGER, false, 128, NULL},
        [ROUND_SCALE] = {"round_scale", ARGUMENT_FLAG, false, 0, NULL},
    },
};

/* 0 is the library's word for a default, which has other words here. */
static bool read_granularity(const union value *values, dg_quantize_args *quantize)
{
    const int64_t mn = values[GRAN_MN].integer, k = values[GRAN_K].integer;
    if (mn < 1 || k < 1) {
        PyErr_Format(PyExc_RuntimeError, "quantize_fp8: gran_mn x gran_k is %lld x %lld; wanted 1 or more",
                     (long long)mn, (long long)k);
        return false;
    }
    quantize->gran_mn = mn > INT32_MAX ? INT32_MAX : (int32_t)mn;
    quantize->gran_k = k > INT32_MAX ? INT32_MAX : (int32_t)k;
    return true;
}

static dg_status run_quantize(struct call *call, const dg_quantize_args *args)
{
    call_mix(call, (uint64_t)args->round_scale); /* the granularity shows in the shape of sf */
    call_work_begin(call, args->q.device);
    const dg_status status = dg_quantize_fp8(NULL, args, call->stream);
    call_work_end(call, args->q.device, status);
    return status;
}

static PyObject *quantize_fp8(PyObject *module, PyObject *const *args, Py_ssize_t positional, PyObject *keywords)
{
    union value values[QUANTIZE_COUNT];
    struct call call = {.function = "quantize_fp8"};
    dg_quantize_args quantize = DG_QUANTIZE_ARGS_INIT;
    PyObject *result = NULL;
    (void)module;
    if (!arguments_parse(&quantize_signature, args, positional, keywords, values) ||
        !read_granularity(values, &quantize))
        return NULL;
    quantize.round_scale = (int32_t)values[ROUND_SCALE].integer;
    if (call_tensor(&call, "x", values[X].object, TENSOR_INPUT, &quantize.x) &&
        call_tensor(&call, "q", values[Q].object, TENSOR_OUTPUT, &quantize.q) &&
        call_tensor(&call, "sf", values[SF].object, TENSOR_OUTPUT, &quantize.sf))
        result = call_result(run_quantize(&call, &quantize));
    call_end(&call);
    return result;
}

/* ---- transform_scale --------------------------------------------------------------------------------------------- */

enum { SRC, DST, TRANSFORM_ROUND, TRANSFORM_COUNT };

static const struct signature transform_signature = {
    "transform_scale",
    TRANSFORM_COUNT,
    {
        [SRC] = {"src", ARGUMENT_OBJECT, true, 0, NULL},
        [DST] = {"dst", ARGUMENT_OBJECT, true, 0, NULL},
        [TRANSFORM_ROUND] = {"round_scale", ARGUMENT_FLAG, false, 0, NULL},
    },
};

static dg_status run_transform(struct call *call, const dg_transform_scale_args *args)
{
    call_mix(call, (uint64_t)args->round_scale);
    call_work_begin(call, args->dst.device);
    const dg_status status = dg_transform_scale(NULL, args, call->stream);
    call_work_end(call, args->dst.device, status);
    return status;
}

/* Words of packed scales are copied as floats are: bit by bit, when nothing is converted. */
static void copy_words(dg_transform_scale_args *args)
{
    if (args->src.dtype == DG_INT32 && args->dst.dtype == DG_INT32)
        args->src.dtype = args->dst.dtype = DG_FLOAT32;
}

static PyObject *transform_scale(PyObject *module, PyObject *const *args, Py_ssize_t positional, PyObject *keywords)
{
    union value values[TRANSFORM_COUNT];
    struct call call = {.function = "transform_scale"};
    dg_transform_scale_args transform = DG_TRANSFORM_SCALE_ARGS_INIT;
    PyObject *result = NULL;
    (void)module;
    if (!arguments_parse(&transform_signature, args, positional, keywords, values))
        return NULL;
    transform.round_scale = (int32_t)values[TRANSFORM_ROUND].integer;
    if (call_tensor(&call, "src", values[SRC].object, TENSOR_INPUT, &transform.src) &&
        call_tensor(&call, "dst", values[DST].object, TENSOR_OUTPUT, &transform.dst)) {
        copy_words(&transform);
        result = call_result(run_transform(&call, &transform));
    }
    call_end(&call);
    return result;
}

/* ---- is_mn_major_aligned ----------------------------------------------------------------------------------------- */

enum { ALIGNMENT = 16 }; /* bytes: what TMA wants of pointers */

static const struct signature aligned_signature = {
    "is_mn_major_aligned",
    1,
    {{"sf", ARGUMENT_OBJECT, true, 0, NULL}},
};

/* The fastest layout of as many scales; words of packed ones lie as floats do. */
static dg_status fastest(const dg_tensor *sf, dg_tensor *layout)
{
    const int i = sf->ndim - 2;
    return dg_scale_layout(sf->shape[i], sf->shape[i + 1], 1, 1, DG_FLOAT32, i ? sf->shape[0] : 0, layout, NULL);
}

/* Strides of dimensions of size 1 are free, and all of them where there is nothing. */
static bool lies_as(const dg_tensor *sf, const dg_tensor *layout)
{
    bool same = (uintptr_t)sf->data % ALIGNMENT == 0;
    for (int i = 0; i < sf->ndim; ++i) {
        if (sf->shape[i] == 0)
            return true;
        same = same && (sf->shape[i] == 1 || sf->stride[i] == layout->stride[i]);
    }
    return same;
}

static PyObject *answer_aligned(const struct call *call, const dg_tensor *sf)
{
    dg_tensor layout;
    if (sf->ndim != 2 && sf->ndim != 3)
        return PyErr_Format(PyExc_RuntimeError, "%s: sf has %d dimensions; wanted [mn, k] or [batch, mn, k]",
                            call->function, (int)sf->ndim);
    if (sf->dtype != DG_FLOAT32 && sf->dtype != DG_INT32)
        return PyErr_Format(PyExc_RuntimeError, "%s: sf is %s; wanted float32, or int32 of four UE8M0 bytes each",
                            call->function, dg_dtype_name(sf->dtype));
    const dg_status status = fastest(sf, &layout);
    return status == DG_SUCCESS ? PyBool_FromLong(lies_as(sf, &layout)) : call_result(status);
}

static PyObject *is_mn_major_aligned(PyObject *module, PyObject *const *args, Py_ssize_t positional, PyObject *keywords)
{
    union value value;
    struct call call = {.function = "is_mn_major_aligned"};
    dg_tensor sf;
    PyObject *result = NULL;
    (void)module;
    if (!arguments_parse(&aligned_signature, args, positional, keywords, &value))
        return NULL;
    if (call_tensor(&call, "sf", value.object, TENSOR_INPUT, &sf))
        result = answer_aligned(&call, &sf);
    call_end(&call);
    return result;
}

PyMethodDef scale_functions[] = {
    FAST("quantize_fp8", quantize_fp8,
         "quantize_fp8(x, q, sf, gran_mn=1, gran_k=128, round_scale=False)\n--\n\n"
         "Writes float8_e4m3fn codes of x to q, and a scale for every gran_mn x gran_k group to sf: float32, or int32\n"
         "of four UE8M0 bytes each."),
    FAST("transform_scale", transform_scale,
         "transform_scale(src, dst, round_scale=False)\n--\n\n"
         "Copies scales between layouts, and packs float32 ones into int32 or unpacks them."),
    FAST("is_mn_major_aligned", is_mn_major_aligned,
         "is_mn_major_aligned(sf)\n--\n\n"
         "Whether scales lie as a GPU reads them fastest: MN-major, with columns of 16 bytes or multiples."),
    {NULL, NULL, 0, NULL},
};
