/* {m,k}_grouped_fp8_gemm_*: the grouped kinds of dg_gemm. */
#include "gemm.h"

#include "functions.h"

/* ---- What they share --------------------------------------------------------------------------------------------- */

/* How many groups or rows a tensor of `ndim` dimensions has; unknown of others, which the library refuses. */
enum { UNKNOWN = -1 };
static int64_t first_size(const dg_tensor *tensor, int32_t ndim)
{
    return tensor->ndim == ndim ? tensor->shape[0] : UNKNOWN;
}

/* The library takes any stride; what callers rely on is that an odd one is told to be a mistake. */
static bool read_layout(struct call *call, const char *name, PyObject *object, int64_t count, const char *of_each,
                        dg_gemm_args *args)
{
    const dg_tensor *const layout = &args->layout;
    if (!call_tensor(call, name, object, TENSOR_INPUT, &args->layout))
        return false;
    if (layout->dtype != DG_INT32 || layout->ndim != 1)
        PyErr_Format(PyExc_RuntimeError, "%s: %s is %s of %d dimensions; wanted an int32 vector", call->function, name,
                     dg_dtype_name(layout->dtype), (int)layout->ndim);
    else if (count != UNKNOWN && layout->shape[0] != count)
        PyErr_Format(PyExc_RuntimeError, "%s: %s has %lld numbers; wanted %lld, one for each %s", call->function, name,
                     (long long)layout->shape[0], (long long)count, of_each);
    else if (layout->shape[0] > 1 && layout->stride[0] != 1)
        PyErr_Format(PyExc_RuntimeError, "%s: %s has the stride %lld; wanted a contiguous vector", call->function, name,
                     (long long)layout->stride[0]);
    return !PyErr_Occurred();
}

/* Rows of a typical group; what makes no sense is unknown. */
static int32_t hint(int64_t value)
{
    return value < 0 ? 0 : value > INT32_MAX ? INT32_MAX : (int32_t)value;
}

/* ---- Rows in one matrix ------------------------------------------------------------------------------------------ */

enum { LAYOUT = GEMM_OPERANDS, RECIPE, USE_PSUM_LAYOUT = RECIPE + GEMM_RECIPES, ENSURE_ZERO_PADDING, CONTIGUOUS_COUNT };
enum { NN_ALPHA = CONTIGUOUS_COUNT, NN_COUNT };
enum { EXPECTED_M = CONTIGUOUS_COUNT, NT_ALPHA, NT_COUNT };

#define CONTIGUOUS_ARGUMENTS                                                                                           \
    GEMM_OPERAND_ARGUMENTS, [LAYOUT] = {"grouped_layout", ARGUMENT_OBJECT, true, 0, "m_indices"},                      \
                            GEMM_RECIPE_ARGUMENTS(RECIPE),                                                             \
                            [USE_PSUM_LAYOUT] = {"use_psum_layout", ARGUMENT_FLAG, false, 0, NULL},                    \
                            [ENSURE_ZERO_PADDING] = {"ensure_zero_padding", ARGUMENT_FLAG, false, 1, NULL}

static bool read_expected(const struct call *call, PyObject *object, dg_gemm_args *args)
{
    int64_t value = 0;
    if (object && !argument_integer(call->function, "expected_m_for_psum_layout", object, &value))
        return false;
    args->expected_m = args->kind == DG_GEMM_PSUM ? hint(value) : 0;
    return true;
}

static bool read_contiguous(struct call *call, const struct gemm_form *form, const union value *values,
                            dg_gemm_args *args)
{
    const bool psum = values[USE_PSUM_LAYOUT].integer != 0;
    args->kind = psum ? DG_GEMM_PSUM : DG_GEMM_CONTIGUOUS;
    if (psum && values[ENSURE_ZERO_PADDING].integer)
        args->flags = DG_GEMM_ZERO_PADDING;
    return gemm_operands(call, form, values, args) &&
           read_layout(call, "grouped_layout", values[LAYOUT].object,
                       psum ? first_size(&args->b, 3) : first_size(&args->d, 2), psum ? "group of b" : "row of d",
                       args) &&
           (form->b_transposed || read_expected(call, values[EXPECTED_M].object, args)) &&
           gemm_recipes(call, &values[RECIPE], args);
}

/* ---- Rows in a matrix for each group ----------------------------------------------------------------------------- */

enum {
    MASKED_M = GEMM_OPERANDS,
    MASKED_EXPECTED_M,
    MASKED_RECIPE,
    MASKED_ALPHA = MASKED_RECIPE + GEMM_RECIPES,
    ENABLE_OVERLAP,
    MAX_BLOCK_N,
    SIGNAL,
    MASKED_COUNT
};

/* SGLang's release tells another stream by `signal` which rows are done. */
static bool refuse_overlap(const struct call *call)
{
    PyErr_Format(PyExc_RuntimeError, "%s: enable_overlap is true; this library has no kernel for it", call->function);
    return false;
}

static bool read_masked(struct call *call, const struct gemm_form *form, const union value *values, dg_gemm_args *args)
{
    args->kind = DG_GEMM_MASKED;
    args->expected_m = hint(values[MASKED_EXPECTED_M].integer);
    if (values[ENABLE_OVERLAP].integer)
        return refuse_overlap(call);
    return gemm_operands(call, form, values, args) &&
           read_layout(call, "masked_m", values[MASKED_M].object, first_size(&args->d, 3), "group of d", args) &&
           gemm_recipes(call, &values[MASKED_RECIPE], args);
}

/* ---- Groups along K ---------------------------------------------------------------------------------------------- */

enum { KS_CPU = GEMM_OPERANDS, K_LAYOUT, K_C, K_RECIPE, K_COMPILED_DIMS, K_USE_PSUM_LAYOUT, K_ALPHA, K_COUNT };

#define K_GROUPED_ARGUMENTS                                                                                            \
    {                                                                                                                  \
        GEMM_OPERAND_ARGUMENTS, [KS_CPU] = {"ks_cpu", ARGUMENT_OBJECT, true, 0, "ks"},                                 \
                                [K_LAYOUT] = {"grouped_layout", ARGUMENT_OBJECT, true, 0, "ks_tensor"},                \
                                [K_C] = {"c", ARGUMENT_OBJECT, false, 0, NULL},                                        \
                                [K_RECIPE] = {"recipe", ARGUMENT_OBJECT, false, 0, NULL},                              \
                                [K_COMPILED_DIMS] = {"compiled_dims", ARGUMENT_UNUSED, false, 0, "compiled_dim"},      \
                                [K_USE_PSUM_LAYOUT] = {"use_psum_layout", ARGUMENT_FLAG, false, 0, NULL},              \
                                [K_ALPHA] = {"alpha", ARGUMENT_NONE, false, 0, NULL},                                  \
    }

/* The groups' K as the host knows them, which need not be true: callers put the sum in front and zeros behind. */
static bool check_host_list(const struct call *call, PyObject *list, int64_t groups)
{
    if (list == NULL)
        return true;
    if (!PyTuple_Check(list) && !PyList_Check(list))
        PyErr_Format(PyExc_TypeError, "%s() argument 'ks_cpu' must be a list or tuple of integers, or None",
                     call->function);
    else if (groups != UNKNOWN && PySequence_Size(list) != groups)
        PyErr_Format(PyExc_RuntimeError, "%s: ks_cpu has %zd numbers; wanted %lld, one for each group of d",
                     call->function, PySequence_Size(list), (long long)groups);
    return !PyErr_Occurred();
}

/* A tensor without gaps as the vector of its elements. */
static bool flatten(const struct call *call, const char *name, dg_tensor *tensor)
{
    int64_t count = 1;
    bool whole = true;
    for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
        whole = whole && (tensor->shape[i] <= 1 || tensor->stride[i] == count);
        if (__builtin_mul_overflow(count, tensor->shape[i], &count))
            whole = false;
    }
    tensor->ndim = 1;
    tensor->shape[0] = count;
    tensor->stride[0] = 1;
    if (whole || count == 0)
        return true;
    PyErr_Format(PyExc_RuntimeError,
                 "%s: %s is not contiguous; wanted the groups one behind the other, each with its K contiguous",
                 call->function, name);
    return false;
}

/* [sum of K, M]; what is flat means something else. */
static bool check_matrix(const struct call *call, const char *name, const dg_tensor *tensor)
{
    if (tensor->ndim == 2)
        return true;
    PyErr_Format(PyExc_RuntimeError, "%s: %s has %d dimensions; wanted 2, the first of them the sum of K",
                 call->function, name, (int)tensor->ndim);
    return false;
}

static bool check_k_operands(const struct call *call, const struct gemm_form *form, dg_gemm_args *args)
{
    if (form->a_transposed)
        return check_matrix(call, "a", &args->a) && check_matrix(call, "b", &args->b);
    return flatten(call, "a", &args->a) && flatten(call, "b", &args->b);
}

static bool refuse_psum(const struct call *call)
{
    PyErr_Format(PyExc_RuntimeError, "%s: use_psum_layout is true; wanted grouped_layout to be the K of each group",
                 call->function);
    return false;
}

static bool read_k_grouped(struct call *call, const struct gemm_form *form, const union value *values,
                           dg_gemm_args *args)
{
    args->kind = DG_GEMM_K_GROUPED;
    if (values[K_USE_PSUM_LAYOUT].integer)
        return refuse_psum(call);
    return gemm_operands(call, form, values, args) && check_k_operands(call, form, args) &&
           check_host_list(call, values[KS_CPU].object, first_size(&args->d, 3)) &&
           read_layout(call, "grouped_layout", values[K_LAYOUT].object, first_size(&args->d, 3), "group of d", args) &&
           gemm_addend(call, values[K_C].object, args) && gemm_recipe(call, values[K_RECIPE].object, NULL, NULL, args);
}

/* ---- The functions ----------------------------------------------------------------------------------------------- */

static const struct gemm_form forms[] = {
    {{"m_grouped_fp8_gemm_nt_contiguous",
      NT_COUNT,
      {CONTIGUOUS_ARGUMENTS, [EXPECTED_M] = {"expected_m_for_psum_layout", ARGUMENT_OBJECT, false, 0, NULL},
       [NT_ALPHA] = {"alpha", ARGUMENT_NONE, false, 0, NULL}}},
     read_contiguous,
     false,
     false},
    {{"m_grouped_fp8_gemm_nn_contiguous",
      NN_COUNT,
      {CONTIGUOUS_ARGUMENTS, [NN_ALPHA] = {"alpha", ARGUMENT_NONE, false, 0, NULL}}},
     read_contiguous,
     false,
     true},
    {{"m_grouped_fp8_gemm_nt_masked",
      MASKED_COUNT,
      {GEMM_OPERAND_ARGUMENTS, [MASKED_M] = {"masked_m", ARGUMENT_OBJECT, true, 0, NULL},
       [MASKED_EXPECTED_M] = {"expected_m", ARGUMENT_INTEGER, true, 0, NULL},
       GEMM_RECIPE_ARGUMENTS(MASKED_RECIPE), [MASKED_ALPHA] = {"alpha", ARGUMENT_NONE, false, 0, NULL},
       [ENABLE_OVERLAP] = {"enable_overlap", ARGUMENT_FLAG, false, 0, NULL},
       [MAX_BLOCK_N] = {"max_block_n", ARGUMENT_UNUSED, false, 0, NULL},
       [SIGNAL] = {"signal", ARGUMENT_NONE, false, 0, NULL}}},
     read_masked,
     false,
     false},
    {{"k_grouped_fp8_gemm_nt_contiguous", K_COUNT, K_GROUPED_ARGUMENTS}, read_k_grouped, false, false},
    {{"k_grouped_fp8_gemm_tn_contiguous", K_COUNT, K_GROUPED_ARGUMENTS}, read_k_grouped, true, true},
};
/* In the order of the table. */
GEMM_FUNCTION(m_grouped_nt_contiguous, &forms[0])
GEMM_FUNCTION(m_grouped_nn_contiguous, &forms[1])
GEMM_FUNCTION(m_grouped_nt_masked, &forms[2])
GEMM_FUNCTION(k_grouped_nt_contiguous, &forms[3])
GEMM_FUNCTION(k_grouped_tn_contiguous, &forms[4])

const struct gemm_form *gemm_grouped_form(PyObject *name)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i)
        if (PyUnicode_CompareWithASCIIString(name, forms[i].signature.function) == 0)
            return &forms[i];
    return NULL;
}

#define RECIPES "recipe=None, recipe_a=None, recipe_b=None, compiled_dims='nk', disable_ue8m0_cast=False, "
#define K_SIGNATURE                                                                                                    \
    "(a, b, d, ks_cpu, grouped_layout, c=None, recipe=(1, 1, 128), compiled_dims='mn', use_psum_layout=False, "        \
    "alpha=None)\n--\n\n"
#define CONTIGUOUS_DETAILS                                                                                             \
    "Scales, types and recipes are those of fp8_gemm_nt; what holds for a group of b holds for its scales.\n"          \
    "  grouped_layout  int32 [M]: rows come in blocks of get_mk_alignment_for_contiguous_layout(), and the first "     \
    "row\n"                                                                                                            \
    "          of a block names the group g of all its rows; with -1 there they are skipped and stay as they were\n"   \
    "  use_psum_layout  grouped_layout is int32 [G]: where the rows of each group end; they begin at the end of the\n" \
    "          group before, rounded up to the alignment\n"                                                            \
    "  ensure_zero_padding  with use_psum_layout: the rows of d from a group's end to the next aligned one become 0\n" \
    "What grouped_layout holds is read on the device, each time. Rows that belong to no group stay as they were."
#define K_DETAILS                                                                                                      \
    "  d       [G,M,N] float32, bfloat16 or float16\n"                                                                 \
    "  ks_cpu  a list of G numbers or None: not looked at, since it may disagree with grouped_layout\n"                \
    "  grouped_layout  int32 [G]: the K of each group, read on the device; a group of 0 gives c, or zeros\n"           \
    "  c       None, or of d's shape and type: d itself, or apart from it"

PyMethodDef gemm_grouped_functions[] = {
    FAST("m_grouped_fp8_gemm_nt_contiguous", m_grouped_nt_contiguous,
         "m_grouped_fp8_gemm_nt_contiguous(a, b, d, grouped_layout, " RECIPES
         "use_psum_layout=False, ensure_zero_padding=True, expected_m_for_psum_layout=None, alpha=None)\n--\n\n"
         "D[m,:] = A[m,:] @ B[g,:,:]^T for a [M,K], b [G,N,K], and the group g of each row m.\n\n" CONTIGUOUS_DETAILS),
    FAST("m_grouped_fp8_gemm_nn_contiguous", m_grouped_nn_contiguous,
         "m_grouped_fp8_gemm_nn_contiguous(a, b, d, grouped_layout, " RECIPES
         "use_psum_layout=False, ensure_zero_padding=True, alpha=None)\n--\n\n"
         "D[m,:] = A[m,:] @ B[g,:,:] for a [M,K], b [G,K,N], and the group g of each row m; b's scales are transposed "
         "too.\n\n" CONTIGUOUS_DETAILS),
    FAST("m_grouped_fp8_gemm_nt_masked", m_grouped_nt_masked,
         "m_grouped_fp8_gemm_nt_masked(a, b, d, masked_m, expected_m, " RECIPES
         "alpha=None, enable_overlap=False, max_block_n=256, signal=None)\n--\n\n"
         "D[g,m,:] = A[g,m,:] @ B[g,:,:]^T for a [G,M,K], b [G,N,K], d [G,M,N] and the rows m < masked_m[g].\n\n"
         "Scales, types and recipes are those of fp8_gemm_nt with a leading dimension.\n"
         "  masked_m    int32 [G], read on the device, each time; the other rows of d stay as they were\n"
         "  expected_m  a hint: rows of a typical group; 0 or less: unknown"),
    FAST(
        "k_grouped_fp8_gemm_nt_contiguous", k_grouped_nt_contiguous,
        "k_grouped_fp8_gemm_nt_contiguous" K_SIGNATURE
        "D[g] = C[g] + A_g @ B_g^T, where a and b are flat: the matrices [M,K_g] and [N,K_g] of each group, row-major, "
        "one behind the other.\n\n"
        "Scales are float32, one for every row and 128 of K: [M, sum of ceil(K_g/128)] and [N, the same].\n" K_DETAILS),
    FAST("k_grouped_fp8_gemm_tn_contiguous", k_grouped_tn_contiguous,
         "k_grouped_fp8_gemm_tn_contiguous" K_SIGNATURE
         "D[g] = C[g] + A_g^T @ B_g, where A_g [K_g,M] and B_g [K_g,N] are rows of a [sum of K, M] and b [sum of K, "
         "N].\n\n"
         "Scales are float32, one for every 128 of K and column: [sum of ceil(K_g/128), M] and [the same, "
         "N].\n" K_DETAILS),
    {NULL, NULL, 0, NULL},
};
