/*
 * `deepgemm bench --host`: nanoseconds that the calling thread spends in a warm dg_gemm, beside an empty kernel's
 * launch in the same run. With the same pointers each time, and with pointers never seen before.
 */
#include "bench.h"

#include "gpu.h"
#include "problem.h"
#include "program.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Calls are made in bursts that a stream's queue (1,024 entries) holds, so that none waits for room. */
enum { CALLS = 4000, BURST = 200, POINTER_STEP = 256 };

struct host_bench {
    struct gemm gemm;
    dg_gemm_args args;
    dg_stream stream;
    gpu_kernel *empty;
    char *a, *d; /* enough memory that each call can have a place of its own */
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool call_empty(struct host_bench *b, int64_t i)
{
    (void)i;
    return gpu_launch(b->empty, b->stream);
}

static bool call_same(struct host_bench *b, int64_t i)
{
    (void)i;
    return dg_gemm(NULL, &b->args, b->stream) == DG_SUCCESS || ok(dg_gemm(NULL, &b->args, b->stream));
}

static bool call_rotating(struct host_bench *b, int64_t i)
{
    b->args.a.data = b->a + i * POINTER_STEP;
    b->args.d.data = b->d + i * POINTER_STEP;
    return dg_gemm(NULL, &b->args, b->stream) == DG_SUCCESS || ok(dg_gemm(NULL, &b->args, b->stream));
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The median of CALLS calls. */
static bool median_ns(struct host_bench *b, bool (*call)(struct host_bench *, int64_t), int64_t *median)
{
    int64_t *times = get_memory(CALLS * sizeof(*times));
    bool done = times != NULL && call(b, 0); /* warm */
    for (int64_t i = 0; done && i < CALLS; ++i) {
        if (i % BURST == 0)
            done = gpu_stream_wait(b->stream);
        const int64_t begin = now_ns();
        done = done && call(b, i);
        times[done ? i : 0] = now_ns() - begin;
    }
    if (done) {
        qsort(times, CALLS, sizeof(*times), by_size);
        *median = times[CALLS / 2];
    }
    free(times);
    return done && gpu_stream_wait(b->stream);
}

static bool prepare(struct host_bench *b, const struct test_case *t, int32_t device)
{
    void *a = NULL, *d = NULL;
    if (!gemm_make(&b->gemm, t, device, RANDOM_PLAIN))
        return false;
    const size_t room = (size_t)CALLS * POINTER_STEP;
    const bool done =
        ok(dg_alloc(device, b->gemm.a.bytes + room, &a)) && ok(dg_alloc(device, b->gemm.d.bytes + room, &d));
    b->a = a;
    b->d = d;
    b->args = gemm_args(&b->gemm);
    return done && gemm_run(&b->gemm, NULL, b->stream) && gpu_stream_wait(b->stream);
}

static void release(struct host_bench *b, int32_t device)
{
    if (b->a)
        dg_free(device, b->a);
    if (b->d)
        dg_free(device, b->d);
    b->a = b->d = NULL;
    gemm_free(&b->gemm);
}

static bool bench_case(struct host_bench *b, const struct test_case *t, int32_t device)
{
    char name[CASE_NAME_BYTES];
    int64_t empty, same, rotating;
    case_print(t, name);
    if (!prepare(b, t, device) || !median_ns(b, call_empty, &empty) || !median_ns(b, call_same, &same) ||
        !median_ns(b, call_rotating, &rotating))
        return false;
    printf("%-60s %-20s %8" PRId64 " %8" PRId64 " %8" PRId64 " %7.2f %7.2f\n", name, b->gemm.plan.row, empty, same,
           rotating, (double)same / (double)empty, (double)rotating / (double)empty);
    fflush(stdout);
    return true;
}

int bench_host(const struct case_list *cases, int32_t device)
{
    struct host_bench b = {.stream = NULL};
    bool done = gpu_begin(device) && gpu_stream_create(&b.stream) && gpu_empty_kernel(&b.empty);
    if (done) {
        printf("host time of one call, median of %d, ns: an empty kernel (cuLaunchKernelEx), dg_gemm with the same "
               "pointers, with new ones\n",
               CALLS);
        printf("%-60s %-20s %8s %8s %8s %7s %7s\n", "case", "row", "empty", "same", "new", "same/e", "new/e");
    }
    for (int64_t i = 0; done && i < cases->count; ++i) {
        if (cases->items[i].op == CASE_GEMM)
            done = bench_case(&b, &cases->items[i], device);
        release(&b, device);
    }
    gpu_stream_destroy(b.stream);
    return done ? EXIT_PASS : fail_check();
}
