/* How long a call takes with a cold L2 cache, by the best means that the machine offers. */
#ifndef CLI_TIMER_H
#define CLI_TIMER_H

#include "gpu.h"

/*
 * Best first. TIMER_CUPTI sums the kernels of a call. TIMER_GRAPH takes a graph of (flush, call) pairs minus one of
 * flushes, so it has the gaps between kernels in it; TIMER_EVENTS an event on either side, with the launch in it too.
 * TIMER_WALL is for the CPU.
 */
enum timer_kind { TIMER_BEST, TIMER_CUPTI, TIMER_GRAPH, TIMER_EVENTS, TIMER_WALL };

struct timer {
    enum timer_kind kind;
    int32_t device;
    dg_stream stream; /* its own; NULL on the CPU */
    void *flush;      /* what is written before each call, larger than any L2 */
    gpu_event *begin, *end;
    const char *description;
    char why_not_better[256]; /* for TIMER_BEST that did not get CUPTI */
};

typedef bool (*timed_call)(void *user, dg_stream stream);

/* gpu_begin(device) has been called. */
bool timer_make(struct timer *timer, int32_t device, enum timer_kind kind);
void timer_free(struct timer *timer);

/* The mean of `reps` calls in microseconds, L2 flushed before each. The call has been made before (is warm). */
bool timer_round(struct timer *timer, timed_call call, void *user, int reps, double *us);

/* `seconds` of calls without a pause and without flushes; microseconds per call, launches hidden behind the work.
   `halfway` is called in the middle (NULL: nobody). */
bool timer_sustained(struct timer *timer, timed_call call, void *user, double seconds, void (*halfway)(void *user),
                     void *halfway_user, double *us);

bool parse_timer(const char *text, enum timer_kind *kind);

#endif
