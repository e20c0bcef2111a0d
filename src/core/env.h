/* Environment variables, read when they are needed (cold paths only), so that setting one late still works. */
#ifndef CORE_ENV_H
#define CORE_ENV_H

#include <stdbool.h>
#include <stdint.h>

enum env {
#define ENV(identifier, name, kind, text) ENV_##identifier,
#include "core/env.def"
#undef ENV
    ENV_COUNT
};

/* The value, or NULL when unset or empty. */
const char *env_string(enum env variable);
bool env_flag(enum env variable);
int64_t env_number(enum env variable, int64_t otherwise);
const char *env_name(enum env variable);

#endif
