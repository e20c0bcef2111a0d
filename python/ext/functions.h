/* The functions of the module, by file. */
#ifndef EXT_FUNCTIONS_H
#define EXT_FUNCTIONS_H

#include "py.h"

extern PyMethodDef gemm_functions[];
extern PyMethodDef gemm_grouped_functions[];
extern PyMethodDef scale_functions[];
extern PyMethodDef setting_functions[];
extern PyMethodDef machine_functions[];

/* An entry of the table: `function` is an ext_function. The type in PyMethodDef stands for all kinds of functions. */
#define FAST(name, function, doc)                                                                                      \
    {                                                                                                                  \
        name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, doc                                \
    }

#endif
