#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 4096 };

static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local const char *operation = "";

void operation_begin(const char *name)
{
    operation = name;
}

const char *operation_name(void)
{
    return operation;
}

static void append(const char *format, va_list values)
{
    size_t used = strlen(message);
    vsnprintf(message + used, sizeof message - used, format, values);
}

void fail_text(const char *format, ...)
{
    va_list values;
    snprintf(message, sizeof message, "%s: ", operation);
    va_start(values, format);
    append(format, values);
    va_end(values);
}

void fail_more(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    append(format, values);
    va_end(values);
}

const char *dg_last_error(void)
{
    return message;
}

const char *dg_status_name(dg_status status)
{
    switch (status) {
#define DG_X(name, number, text)                                                                                       \
    case name:                                                                                                         \
        return #name;
        DG_STATUS_LIST(DG_X)
#undef DG_X
    }
    return "unknown dg_status";
}

const char *dg_status_text(dg_status status)
{
    switch (status) {
#define DG_X(name, number, text)                                                                                       \
    case name:                                                                                                         \
        return text;
        DG_STATUS_LIST(DG_X)
#undef DG_X
    }
    return "unknown dg_status";
}

#define DG_STRING_(x) #x
#define DG_STRING(x) DG_STRING_(x)

const char *dg_version(void)
{
    return DG_STRING(DG_VERSION_MAJOR) "." DG_STRING(DG_VERSION_MINOR) "." DG_STRING(DG_VERSION_PATCH);
}
