/* Matrices on the host that own their memory, and whole files in memory. */
#ifndef CLI_ARRAY_H
#define CLI_ARRAY_H

#include "deepgemm.h"

/* Row-major, contiguous. */
struct array {
    void *data;
    dg_dtype dtype;
    int64_t rows, cols;
};

bool array_make(struct array *array, dg_dtype dtype, int64_t rows, int64_t cols);
void array_free(struct array *array);

/* Whether all numbers are finite; false tells the first that is not. */
bool array_finite(const char *name, const struct array *array);

static inline int64_t array_count(const struct array *array)
{
    return array->rows * array->cols;
}

/* A file mapped for reading. */
struct file {
    const char *path;
    const uint8_t *data;
    size_t bytes;
};

bool file_open(const char *path, struct file *file);
void file_close(struct file *file);

#endif
