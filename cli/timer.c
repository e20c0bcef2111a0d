#include "timer.h"

#include "cupti.h"
#include "program.h"

#include <stdio.h>
#include <string.h>

enum { FLUSH_BYTES = 256 << 20 }; /* five times the L2 of an H200 */

static const char *const descriptions[] = {
    [TIMER_CUPTI] = "kernel time (CUPTI), L2 flushed before each call",
    [TIMER_GRAPH] = "graph of (flush, call) minus graph of flushes: gaps between kernels included",
    [TIMER_EVENTS] = "events around each call, L2 flushed before: launch gaps included",
    [TIMER_WALL] = "wall clock, caches as they are",
};

bool parse_timer(const char *text, enum timer_kind *kind)
{
    static const char *const names[] = {
        [TIMER_BEST] = "best", [TIMER_CUPTI] = "cupti", [TIMER_GRAPH] = "graph", [TIMER_EVENTS] = "events"};
    for (int i = 0; i < 4; ++i) {
        if (strcmp(text, names[i]) == 0) {
            *kind = (enum timer_kind)i;
            return true;
        }
    }
    return trouble("\"%s\" is no timer: best, cupti, graph or events", text);
}

static bool choose(struct timer *timer, enum timer_kind wanted)
{
    timer->kind = wanted == TIMER_BEST ? TIMER_CUPTI : wanted;
    if (timer->kind != TIMER_CUPTI || cupti_begin())
        return true;
    if (wanted == TIMER_CUPTI)
        return false;
    snprintf(timer->why_not_better, sizeof(timer->why_not_better), "%s", trouble_text());
    timer->kind = TIMER_GRAPH;
    return true;
}

bool timer_make(struct timer *timer, int32_t device, enum timer_kind kind)
{
    *timer = (struct timer){.kind = TIMER_WALL, .device = device};
    timer->description = descriptions[TIMER_WALL];
    if (device == DG_CPU)
        return true;
    if (!choose(timer, kind))
        return false;
    timer->description = descriptions[timer->kind];
    return gpu_stream_create(&timer->stream) && gpu_event_create(&timer->begin) && gpu_event_create(&timer->end) &&
           ok(dg_alloc(device, FLUSH_BYTES, &timer->flush));
}

void timer_free(struct timer *timer)
{
    if (timer->kind == TIMER_CUPTI)
        cupti_end();
    gpu_event_destroy(timer->begin);
    gpu_event_destroy(timer->end);
    gpu_stream_destroy(timer->stream);
    if (timer->flush)
        dg_free(timer->device, timer->flush);
    *timer = (struct timer){0};
}

static bool flush(struct timer *timer, int rep)
{
    return gpu_fill(timer->flush, (uint32_t)rep, FLUSH_BYTES / 4, timer->stream);
}

static bool round_cupti(struct timer *timer, timed_call call, void *user, int reps, double *us)
{
    int64_t kernels;
    if (!gpu_stream_wait(timer->stream) || !cupti_reset())
        return false;
    for (int i = 0; i < reps; ++i)
        if (!flush(timer, i) || !call(user, timer->stream))
            return false;
    if (!gpu_stream_wait(timer->stream) || !cupti_collect(us, &kernels))
        return false;
    *us /= reps;
    return kernels >= reps ||
           trouble("CUPTI delivered %d kernel records for %d calls; try --timer graph", (int)kernels, reps);
}

/* A graph of flushes, each followed by the call (NULL: by nothing); its second launch is timed. */
static bool time_graph(struct timer *timer, timed_call call, void *user, int reps, double *us)
{
    gpu_exec *exec = NULL;
    bool done = gpu_capture_begin(timer->stream);
    if (!done)
        return false;
    for (int i = 0; done && i < reps; ++i)
        done = flush(timer, i) && (call == NULL || call(user, timer->stream));
    if (!done) {
        gpu_capture_abandon(timer->stream);
        return false;
    }
    done = gpu_capture_end(timer->stream, &exec) && gpu_graph_launch(exec, timer->stream) &&
           gpu_stream_wait(timer->stream) && gpu_event_record(timer->begin, timer->stream) &&
           gpu_graph_launch(exec, timer->stream) && gpu_event_record(timer->end, timer->stream) &&
           gpu_event_elapsed(timer->begin, timer->end, us);
    gpu_graph_destroy(exec);
    return done;
}

static bool round_graph(struct timer *timer, timed_call call, void *user, int reps, double *us)
{
    double with, without;
    if (!time_graph(timer, call, user, reps, &with) || !time_graph(timer, NULL, NULL, reps, &without))
        return false;
    *us = (with - without) / reps;
    return true;
}

static bool round_events(struct timer *timer, timed_call call, void *user, int reps, double *us)
{
    double one, sum = 0.0;
    for (int i = 0; i < reps; ++i) {
        if (!flush(timer, i) || !gpu_event_record(timer->begin, timer->stream) || !call(user, timer->stream) ||
            !gpu_event_record(timer->end, timer->stream) || !gpu_event_elapsed(timer->begin, timer->end, &one))
            return false;
        sum += one;
    }
    *us = sum / reps;
    return true;
}

static bool round_wall(timed_call call, void *user, int reps, double *us)
{
    const double begin = now_seconds();
    for (int i = 0; i < reps; ++i)
        if (!call(user, NULL))
            return false;
    *us = 1e6 * (now_seconds() - begin) / reps;
    return true;
}

bool timer_round(struct timer *timer, timed_call call, void *user, int reps, double *us)
{
    switch (timer->kind) {
    case TIMER_CUPTI:
        return round_cupti(timer, call, user, reps, us);
    case TIMER_GRAPH:
        return round_graph(timer, call, user, reps, us);
    case TIMER_EVENTS:
        return round_events(timer, call, user, reps, us);
    default:
        return round_wall(call, user, reps, us);
    }
}

/* Something to do for the host while the device works. */
struct meanwhile {
    void (*body)(void *user);
    void *user;
};

/* `count` calls between two events (or by the clock, on the CPU). */
static bool time_calls(struct timer *timer, timed_call call, void *user, int64_t count, const struct meanwhile *other,
                       double *us)
{
    if (timer->kind == TIMER_WALL) {
        if (!round_wall(call, user, (int)count, us))
            return false;
        *us *= (double)count;
        return true;
    }
    if (!gpu_event_record(timer->begin, timer->stream))
        return false;
    for (int64_t i = 0; i < count; ++i)
        if (!call(user, timer->stream))
            return false;
    if (!gpu_event_record(timer->end, timer->stream))
        return false;
    if (other)
        other->body(other->user);
    return gpu_event_elapsed(timer->begin, timer->end, us);
}

/* In slices of a twentieth of the time, between which the device waits some microseconds for the host. */
bool timer_sustained(struct timer *timer, timed_call call, void *user, double seconds, void (*halfway)(void *user),
                     void *halfway_user, double *us)
{
    const struct meanwhile look = {halfway, halfway_user};
    double first, sum = 0.0;
    int64_t calls = 0;
    if (!time_calls(timer, call, user, 4, NULL, &first))
        return false;
    const double wanted = seconds * 1e6 / 20.0 / (first / 4.0 + 1e-3);
    const int64_t count = wanted < 1.0 ? 1 : wanted > 100000.0 ? 100000 : (int64_t)wanted;
    for (int slice = 0; sum < seconds * 1e6; ++slice) {
        double slice_us;
        if (!time_calls(timer, call, user, count, slice == 10 && halfway ? &look : NULL, &slice_us))
            return false;
        sum += slice_us;
        calls += count;
    }
    *us = sum / (double)calls;
    return true;
}
