/* deep_gemm._C: the library for Python. */
#include "functions.h"
#include "hooks.h"

#include <deepgemm.h>

static PyMethodDef module_functions[] = {
    {"set_stream_hook", hook_set_stream, METH_O,
     "set_stream_hook(function)\n--\n\nfunction(tensor, device) tells the current stream where DLPack does not."},
    {"set_workspace_hook", hook_set_workspace, METH_O,
     "set_workspace_hook(function)\n--\n\nfunction(tensor, bytes) gives memory beside a tensor, or None."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "deep_gemm._C",
    "FP8 matrix multiplication with fine-grained scales: the C library.",
    -1,
    module_functions,
    NULL,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__C(void);

PyMODINIT_FUNC PyInit__C(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddFunctions(module, gemm_functions) != 0 ||
        PyModule_AddFunctions(module, gemm_grouped_functions) != 0 ||
        PyModule_AddFunctions(module, scale_functions) != 0 || PyModule_AddFunctions(module, setting_functions) != 0 ||
        PyModule_AddFunctions(module, machine_functions) != 0 ||
        PyModule_AddStringConstant(module, "version", dg_version()) != 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
