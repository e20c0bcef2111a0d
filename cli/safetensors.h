/*
 * One tensor out of a .safetensors file: 8 bytes of header length, a JSON header {"name": {"dtype", "shape",
 * "data_offsets"}}, the data. Read with cJSON; a build without it says so.
 */
#ifndef CLI_SAFETENSORS_H
#define CLI_SAFETENSORS_H

#include "array.h"

/* The matrix `name`: F32, F16, BF16 or F8_E4M3. */
bool safetensors_read(const char *path, const char *name, struct array *array);

/* The same for bytes in memory, so that damaged files can be tested without a file system. */
bool safetensors_parse(const struct file *file, const char *name, struct array *array);

#endif
