/* One line to stderr, for what the user asked to see through an environment variable; nothing else prints. */
#ifndef CORE_LOG_H
#define CORE_LOG_H

#include "core/env.h"

/* Prints "deepgemm: ..." when the flag is on. */
void log_line(enum env flag, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
