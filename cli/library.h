/* Where NVIDIA's optional libraries may be: the loader's path, CUDA toolkits, and Python's nvidia packages. */
#ifndef CLI_LIBRARY_H
#define CLI_LIBRARY_H

#include <stdbool.h>

/*
 * The first of `names` (a list that ends with NULL) that loads, from the first place that has it; `package` is the
 * folder of the Python package that brings it ("cuda_cupti"). NULL leaves a sentence in trouble_text().
 */
void *library_open(const char *const *names, const char *package);

/* dlsym into the function pointer at `slot`; false and a sentence when the library lacks it. */
bool library_symbol(void *library, const char *name, void *slot);

#endif
