/*
 * NumPy's .npy files: one array each. Read: versions 1 and 2, little endian, C or Fortran order, two dimensions (one
 * dimension of N is [1, N]), float16, float32, float64 (rounded to float32), and bfloat16 as the ml_dtypes package
 * stores it, which is as 2 opaque bytes ("<V2"). Written: float32 and float16, version 1.
 */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include "array.h"

bool npy_read(const char *path, struct array *array);

/* NumPy has no bfloat16 of its own, so a BFLOAT16 array is written as float32, which holds the same values. */
/* Whether npy_write has a chance, to be asked before the work that is to be written. */
bool npy_writable(const char *path);
bool npy_write(const char *path, const struct array *array);

/* The same for bytes in memory, so that damaged files can be tested without a file system. */
bool npy_parse(const struct file *file, struct array *array);

#endif
