#include "plan/config_text.h"

#include <stdio.h>

void config_header(const struct config_field *fields, size_t count, const int32_t *config, char *out, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < count && used < bytes; ++i)
        used += (size_t)snprintf(out + used, bytes - used, "#define %s %d\n", fields[i].macro, (int)config[i]);
}

void config_line(const struct config_field *fields, size_t count, const int32_t *config, char *out, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < count && used < bytes; ++i)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s=%d", i ? " " : "", fields[i].name, (int)config[i]);
}
