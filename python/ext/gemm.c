/* fp8_gemm_{nt,nn,tn,tt}, and what the grouped ones share with them. */
#include "gemm.h"

#include "functions.h"
#include "workspace.h"

#include <string.h>

enum { C = GEMM_OPERANDS, RECIPE, ALPHA = RECIPE + GEMM_RECIPES, EPILOGUE, B_CONSTANT, COUNT };

#define ARGUMENTS                                                                                                      \
    {                                                                                                                  \
        GEMM_OPERAND_ARGUMENTS, [C] = {"c", ARGUMENT_OBJECT, false, 0, NULL},                                          \
                                GEMM_RECIPE_ARGUMENTS(RECIPE), [ALPHA] = {"alpha", ARGUMENT_NONE, false, 0, NULL},     \
                                [EPILOGUE] = {"epilogue", ARGUMENT_NONE, false, 0, NULL},                              \
                                [B_CONSTANT] = {"b_constant", ARGUMENT_FLAG, false, 0, NULL},                          \
    }

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static bool disagree(const struct call *call)
{
    PyErr_Format(PyExc_RuntimeError,
                 "%s: recipe_a and recipe_b are pairs (gran_mn, gran_k), given together, with one gran_k, and without "
                 "another recipe",
                 call->function);
    return false;
}

/* Zeros are the library's word for its default, which is None here. */
static bool check_given(const struct call *call, const int32_t *recipe)
{
    if (recipe[0] || recipe[1] || recipe[2])
        return true;
    PyErr_Format(PyExc_RuntimeError, "%s: recipe is {0, 0, 0}; wanted {1, 128, 128} or {1, 1, 128}", call->function);
    return false;
}

bool gemm_recipe(const struct call *call, PyObject *whole, PyObject *a, PyObject *b, dg_gemm_args *args)
{
    int32_t of_a[2], of_b[2], given[3];
    if (whole && !argument_integers(call->function, "recipe", whole, 3, args->recipe))
        return false;
    if (a == NULL && b == NULL)
        return whole == NULL || check_given(call, args->recipe);
    if (a == NULL || b == NULL)
        return disagree(call);
    if (!argument_integers(call->function, "recipe_a", a, 2, of_a) ||
        !argument_integers(call->function, "recipe_b", b, 2, of_b))
        return false;
    given[0] = of_a[0], given[1] = of_b[0], given[2] = of_a[1];
    if (of_a[1] != of_b[1] || (whole && memcmp(given, args->recipe, sizeof given) != 0))
        return disagree(call);
    memcpy(args->recipe, given, sizeof given);
    return check_given(call, args->recipe);
}

bool gemm_recipes(const struct call *call, const union value *recipe, dg_gemm_args *args)
{
    return gemm_recipe(call, recipe[0].object, recipe[1].object, recipe[2].object, args);
}

static void transpose(dg_tensor *tensor)
{
    if (tensor->ndim >= 2) /* else the library refuses it */
        *tensor = dg_transposed(*tensor);
}

bool gemm_operands(struct call *call, const struct gemm_form *form, const union value *values, dg_gemm_args *args)
{
    if (!call_pair(call, "a", "sfa", values[GEMM_A].object, &args->a, &args->sfa) ||
        !call_pair(call, "b", "sfb", values[GEMM_B].object, &args->b, &args->sfb) ||
        !call_tensor(call, "d", values[GEMM_D].object, TENSOR_OUTPUT, &args->d))
        return false;
    if (form->a_transposed) {
        transpose(&args->a);
        transpose(&args->sfa);
    }
    if (form->b_transposed) {
        transpose(&args->b);
        transpose(&args->sfb);
    }
    return true;
}

bool gemm_addend(struct call *call, PyObject *object, dg_gemm_args *args)
{
    return object == NULL || call_tensor(call, "c", object, TENSOR_INPUT, &args->c);
}

static bool read_dense(struct call *call, const struct gemm_form *form, const union value *values, dg_gemm_args *args)
{
    args->flags = values[B_CONSTANT].integer ? DG_GEMM_B_CONSTANT : 0;
    return gemm_operands(call, form, values, args) && gemm_addend(call, values[C].object, args) &&
           gemm_recipes(call, &values[RECIPE], args);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* All that a call needs before the work. */
static bool prepare(struct call *call, const struct gemm_form *form, const union value *values, dg_gemm_args *args)
{
    if (!form->read(call, form, values, args))
        return false;
    call_mix(call, (uint64_t)args->kind << 56 | (uint64_t)args->flags << 48 | (uint64_t)args->recipe[1] << 32 |
                       (uint64_t)args->expected_m);
    return workspace_take(call, values[GEMM_D].object, args);
}

static dg_status run(struct call *call, const dg_gemm_args *args)
{
    call_work_begin(call, args->d.device);
    const dg_status status = dg_gemm(NULL, args, call->stream);
    call_work_end(call, args->d.device, status);
    return status;
}

PyObject *gemm_call(const struct gemm_form *form, PyObject *const *args, Py_ssize_t positional, PyObject *keywords)
{
    union value values[MAX_ARGUMENTS];
    struct call call = {.function = form->signature.function};
    dg_gemm_args gemm_args = DG_GEMM_ARGS_INIT;
    PyObject *result = NULL;
    if (!arguments_parse(&form->signature, args, positional, keywords, values))
        return NULL;
    if (prepare(&call, form, values, &gemm_args))
        result = call_result(run(&call, &gemm_args));
    call_end(&call);
    return result;
}

static const struct gemm_form forms[] = {
    {{"fp8_gemm_nt", COUNT, ARGUMENTS}, read_dense, false, false},
    {{"fp8_gemm_nn", COUNT, ARGUMENTS}, read_dense, false, true},
    {{"fp8_gemm_tn", COUNT, ARGUMENTS}, read_dense, true, true},
    {{"fp8_gemm_tt", COUNT, ARGUMENTS}, read_dense, true, false},
};
GEMM_FUNCTION(fp8_gemm_nt, &forms[0])
GEMM_FUNCTION(fp8_gemm_nn, &forms[1])
GEMM_FUNCTION(fp8_gemm_tn, &forms[2])
GEMM_FUNCTION(fp8_gemm_tt, &forms[3])

/* ---- The question ------------------------------------------------------------------------------------------------ */

static const struct gemm_form *find_form(PyObject *name)
{
    for (size_t i = 0; PyUnicode_Check(name) && i < sizeof forms / sizeof forms[0]; ++i)
        if (PyUnicode_CompareWithASCIIString(name, forms[i].signature.function) == 0)
            return &forms[i];
    const struct gemm_form *grouped = PyUnicode_Check(name) ? gemm_grouped_form(name) : NULL;
    if (grouped == NULL)
        PyErr_Format(PyExc_RuntimeError, "is_supported: no function %R", name);
    return grouped;
}

/* A refusal of ours is an answer; what is no tensor at all stays the TypeError that the call would raise. */
static PyObject *answer(bool supported)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_RuntimeError))
        return NULL;
    PyErr_Clear();
    return PyBool_FromLong(supported);
}

/* gemm_is_supported(function, *args, **kwargs): the same arguments as the function's. */
static PyObject *gemm_is_supported(PyObject *module, PyObject *const *args, Py_ssize_t positional, PyObject *keywords)
{
    union value values[MAX_ARGUMENTS];
    dg_gemm_args gemm_args = DG_GEMM_ARGS_INIT;
    (void)module;
    const struct gemm_form *form = positional > 0 ? find_form(args[0]) : find_form(Py_None);
    if (form == NULL || !arguments_parse(&form->signature, args + 1, positional - 1, keywords, values))
        return NULL;
    struct call call = {.function = form->signature.function};
    const bool supported = prepare(&call, form, values, &gemm_args) && dg_is_supported(NULL, &gemm_args);
    call_end(&call);
    return answer(supported);
}

#define SIGNATURE                                                                                                      \
    "(a, b, d, c=None, recipe=None, recipe_a=None, recipe_b=None, compiled_dims='nk', disable_ue8m0_cast=False, "      \
    "alpha=None, epilogue=None, b_constant=False)\n--\n\n"
#define SIGNATURE_T                                                                                                    \
    "(a, b, d, c=None, recipe=None, recipe_a=None, recipe_b=None, compiled_dims='mn', disable_ue8m0_cast=False, "      \
    "alpha=None, epilogue=None, b_constant=False)\n--\n\n"
#define DETAILS                                                                                                        \
    "a and b are pairs (tensor, scales), tuples or lists:\n"                                                           \
    "  a       float8_e4m3fn; scales of 1 x 128: float32 [M, ceil(K/128)], or int32 [M, ceil(K/512)] of four UE8M0\n"  \
    "          bytes each\n"                                                                                           \
    "  b       float8_e4m3fn; scales of 128 x 128: float32 [ceil(N/128), ceil(K/128)], or int32\n"                     \
    "          [ceil(N/128), ceil(K/512)]. With recipe (1, 1, 128), of 1 x 128 as a's: [N, ceil(K/128)]\n"             \
    "  d       [M,N] bfloat16, float16 or float32, written\n"                                                          \
    "  c       None, or of d's shape and type: d itself, or apart from it\n"                                           \
    "  recipe  None, (1, 128, 128) or (1, 1, 128); recipe_a=(1, 128) with recipe_b=(128, 128) or (1, 128) says the\n"  \
    "          same\n"                                                                                                 \
    "  b_constant  true: no kernel that may still run writes b, which are weights. After set_pdl(True) the first of\n" \
    "          them are then loaded while the kernels before still run\n"                                              \
    "Strides of 0 or more; M, N and K may be 0. With a leading dimension everywhere, one product for each batch "      \
    "entry.\n"                                                                                                         \
    "compiled_dims and disable_ue8m0_cast change nothing. On a GPU: queued on the current stream. Refused arguments\n" \
    "raise RuntimeError and leave d as it was."

PyMethodDef gemm_functions[] = {
    FAST("fp8_gemm_nt", fp8_gemm_nt, "fp8_gemm_nt" SIGNATURE "D[M,N] = C + A[M,K] @ B[N,K]^T.\n\n" DETAILS),
    FAST("fp8_gemm_nn", fp8_gemm_nn,
         "fp8_gemm_nn" SIGNATURE "D[M,N] = C + A[M,K] @ B[K,N]; b's scales are transposed too.\n\n" DETAILS),
    FAST("fp8_gemm_tn", fp8_gemm_tn,
         "fp8_gemm_tn" SIGNATURE_T "D[M,N] = C + A[K,M]^T @ B[K,N]; the scales are transposed too.\n\n" DETAILS),
    FAST("fp8_gemm_tt", fp8_gemm_tt,
         "fp8_gemm_tt" SIGNATURE_T "D[M,N] = C + A[K,M]^T @ B[N,K]^T; a's scales are transposed too.\n\n" DETAILS),
    FAST("gemm_is_supported", gemm_is_supported,
         "gemm_is_supported(function, /, *args, **kwargs)\n--\n\nWhether the named function would take these "
         "arguments."),
    {NULL, NULL, 0, NULL},
};
