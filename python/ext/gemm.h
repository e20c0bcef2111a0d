/* What the functions that end in dg_gemm share: gemm.c has the dense ones, gemm_grouped.c the others. */
#ifndef EXT_GEMM_H
#define EXT_GEMM_H

#include "arguments.h"
#include "call.h"

/* The first arguments of all of them. */
enum { GEMM_A, GEMM_B, GEMM_D, GEMM_OPERANDS };

#define GEMM_OPERAND_ARGUMENTS                                                                                         \
    [GEMM_A] = {"a", ARGUMENT_OBJECT, true, 0, "lhs"}, [GEMM_B] = {"b", ARGUMENT_OBJECT, true, 0, "rhs"},              \
    [GEMM_D] = {"d", ARGUMENT_OBJECT, true, 0, "out"}

/* What most of them have, from position `at` on. */
enum { GEMM_RECIPES = 5 };

#define GEMM_RECIPE_ARGUMENTS(at)                                                                                      \
    [at] = {"recipe", ARGUMENT_OBJECT, false, 0, NULL}, [at + 1] = {"recipe_a", ARGUMENT_OBJECT, false, 0, NULL},      \
    [at + 2] = {"recipe_b", ARGUMENT_OBJECT, false, 0, NULL},                                                          \
    [at + 3] = {"compiled_dims", ARGUMENT_UNUSED, false, 0, "compiled_dim"},                                           \
    [at + 4] = {"disable_ue8m0_cast", ARGUMENT_UNUSED, false, 0, NULL}

struct gemm_form {
    struct signature signature;
    bool (*read)(struct call *call, const struct gemm_form *form, const union value *values, dg_gemm_args *args);
    bool a_transposed, b_transposed; /* given as [K,M]; as [K,N] */
};

/* a and b with their scales, as the library wants them, and d. All return false with an exception set. */
bool gemm_operands(struct call *call, const struct gemm_form *form, const union value *values, dg_gemm_args *args);

/* c where it is given. */
bool gemm_addend(struct call *call, PyObject *object, dg_gemm_args *args);

/* (gran_m, gran_n, gran_k), or a pair (gran_mn, gran_k) for each operand; zeros for neither. */
bool gemm_recipe(const struct call *call, PyObject *whole, PyObject *a, PyObject *b, dg_gemm_args *args);

/* The same of GEMM_RECIPE_ARGUMENTS, the first of which is `recipe`. */
bool gemm_recipes(const struct call *call, const union value *recipe, dg_gemm_args *args);

PyObject *gemm_call(const struct gemm_form *form, PyObject *const *args, Py_ssize_t positional, PyObject *keywords);

#define GEMM_FUNCTION(name, form)                                                                                      \
    static PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t positional, PyObject *keywords)          \
    {                                                                                                                  \
        (void)module;                                                                                                  \
        return gemm_call(form, args, positional, keywords);                                                            \
    }

/* By the function's name; NULL for another one. */
const struct gemm_form *gemm_grouped_form(PyObject *name);

#endif
