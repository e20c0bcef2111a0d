#include "core/env.h"

#include "core/log.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[ENV_COUNT] = {
#define ENV(identifier, name, kind, text) name,
#include "core/env.def"
#undef ENV
};

const char *env_name(enum env variable)
{
    return names[variable];
}

const char *env_string(enum env variable)
{
    const char *value = getenv(names[variable]);
    return value && *value ? value : NULL;
}

bool env_flag(enum env variable)
{
    const char *value = env_string(variable);
    return value && strcmp(value, "0") != 0;
}

int64_t env_number(enum env variable, int64_t otherwise)
{
    const char *value = env_string(variable);
    char *end;
    if (!value)
        return otherwise;
    long long number = strtoll(value, &end, 10);
    if (*end == '\0' && end != value)
        return number;
    log_line(ENV_JIT_DEBUG, "\"%s\" is no number: %lld is taken", value, (long long)otherwise);
    return otherwise;
}
