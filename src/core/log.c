#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(enum env flag, const char *format, ...)
{
    char line[2048];
    va_list values;
    if (!env_flag(flag))
        return;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    fprintf(stderr, "deepgemm: %s\n", line); /* one call, so that lines of several threads stay whole */
}
