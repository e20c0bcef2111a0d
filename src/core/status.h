/* Status codes with a sentence: every failing return goes through fail(), so that it always names the operation. */
#ifndef CORE_STATUS_H
#define CORE_STATUS_H

#include "deepgemm.h"

/* Return at once what is not a success. */
#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        dg_status check_status_ = (call);                                                                              \
        if (check_status_ != DG_SUCCESS)                                                                               \
            return check_status_;                                                                                      \
    } while (0)

/* The same for functions that have something to release: store the status and leave by the one exit. */
#define CHECKGOTO(call, status, label)                                                                                 \
    do {                                                                                                               \
        (status) = (call);                                                                                             \
        if ((status) != DG_SUCCESS)                                                                                    \
            goto label;                                                                                                \
    } while (0)

/* Every public function names itself first; the name starts the sentence of whatever fails below it. */
void operation_begin(const char *name);
const char *operation_name(void);

/* Store "operation: sentence" for dg_last_error(); the value is `status`. A macro, so that compilers and analysers see
   that what returns it has not succeeded. */
#define fail(status, ...) (fail_text(__VA_ARGS__), (dg_status)(status))
void fail_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Append to the sentence of the failure in hand (a compiler's log, say). */
void fail_more(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
