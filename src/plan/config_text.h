/*
 * One field list of a kernel's configuration makes everything: the C struct, the "config.h" that the kernel includes,
 * the line that users see, and (its text being hashed) the cache key. A list is a macro
 *
 *     #define SOME_CONFIG(X) X(block_m, BLOCK_M) X(block_n, BLOCK_N) ...
 *
 * of int32_t fields. Kernels refuse a config.h that lacks one of theirs (#error).
 */
#ifndef PLAN_CONFIG_TEXT_H
#define PLAN_CONFIG_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct config_field {
    const char *name, *macro;
};

#define CONFIG_FIELD(field, macro) int32_t field;
#define CONFIG_NAMES(field, macro) {#field, #macro},

/* The struct is read as an array: `config` points to its `count` int32_t fields, in the order of `fields`. */
void config_header(const struct config_field *fields, size_t count, const int32_t *config, char *out, size_t bytes);
void config_line(const struct config_field *fields, size_t count, const int32_t *config, char *out, size_t bytes);

#endif
