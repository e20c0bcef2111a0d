/*
 * One call of a Python function: turns Python's tensors into dg_tensors, keeps what they borrow until the end, and
 * knows the stream to run on.
 *
 * A call begins as `struct call call = {.function = "name"}` and always ends with call_end.
 */
#ifndef EXT_CALL_H
#define EXT_CALL_H

#include "dlpack.h"
#include "py.h"

#include <deepgemm.h>

enum { CALL_HELD = 16 };

struct held {
    void *what;
    void (*release)(void *what);
};

struct call {
    const char *function;
    const struct dl_exchange *exchange; /* of the first GPU tensor whose type has one */
    bool has_stream;
    dg_stream stream;     /* of the caller, once has_stream */
    uint64_t likeness;    /* mixed of what chooses its kernel: what its tensors are like, and call_mix */
    PyThreadState *state; /* while others run */
    int held_count;
    struct held held[CALL_HELD];
};

enum tensor_role { TENSOR_INPUT, TENSOR_OUTPUT };

/* The view of `object`, called `name` in sentences. All return false with a Python exception set. */
bool call_tensor(struct call *call, const char *name, PyObject *object, enum tensor_role role, dg_tensor *tensor);

/* A (tensor, scales) tuple or list. */
bool call_pair(struct call *call, const char *name, const char *scale_name, PyObject *object, dg_tensor *tensor,
               dg_tensor *scales);

/* Keep `what` until the end of the call. */
bool call_hold(struct call *call, void *what, void (*release)(void *what));

/* For call_hold: gives up a reference. */
void call_release_object(void *object);

/* The stream that the caller's framework queues work of `device` on now; `object` is one of its tensors, or NULL. */
bool call_stream(struct call *call, int32_t device, PyObject *object);

void call_end(struct call *call);

/* What else chooses the kernel: a word of the arguments; a setting that has changed. */
void call_mix(struct call *call, uint64_t word);
void call_setting(dg_setting setting, int64_t before, int64_t after);

/* All of that as a number. */
uint64_t call_likeness(const struct call *call);

/*
 * Around the library's work. On the CPU other threads run meanwhile. On a GPU they do when a kernel may have to be
 * compiled; a launch like one before keeps the GIL, whose return takes longer than the launch beside a busy thread.
 */
void call_work_begin(struct call *call, int32_t device);
void call_work_end(struct call *call, int32_t device, dg_status status);

/* The library's sentence as RuntimeError, or None. */
PyObject *call_result(dg_status status);

#endif
