/*
 * `deepgemm bench --chain`: the cases one after the other in a CUDA graph, each with the quantised result of the one
 * before as its A, as a decoder's layers are; without and with programmatic dependent launch, and with
 * DG_GEMM_B_CONSTANT besides. The weights of all cases should be more than the L2 cache holds.
 */
#include "bench.h"

#include "gpu.h"
#include "problem.h"
#include "program.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, LAUNCHES = 20 };

struct chain {
    struct gemm *links;
    int64_t count;
    int32_t device;
    dg_stream stream;
    gpu_event *begin, *end;
    uint8_t *first_bits; /* of the last D, without PDL */
};

struct mode {
    const char *name;
    bool pdl;
    uint32_t flags;
};

static const struct mode modes[] = {
    {"plain launches", false, 0}, {"PDL", true, 0}, {"PDL, B constant", true, DG_GEMM_B_CONSTANT}};
enum { MODES = sizeof modes / sizeof *modes };

/* ---- The chain --------------------------------------------------------------------------------------------------- */

/* The first K columns of a result; check_cases() has seen that they are there. */
static bool quantize_into(const struct gemm *to, const struct gemm *from, dg_stream stream)
{
    dg_quantize_args args = DG_QUANTIZE_ARGS_INIT;
    args.x = from->d.view;
    args.x.shape[1] = to->test.k;
    args.q = to->a.view;
    args.sf = to->sfa.view;
    return ok(dg_quantize_fp8(NULL, &args, stream));
}

static bool run_links(struct chain *c)
{
    for (int64_t i = 0; i < c->count; ++i)
        if ((i > 0 && !quantize_into(&c->links[i], &c->links[i - 1], c->stream)) ||
            !gemm_run(&c->links[i], NULL, c->stream))
            return false;
    return true;
}

/* All cases have one M and plain BF16 results, and rows of D that hold the next K. */
static bool check_cases(const struct case_list *cases)
{
    for (int64_t i = 0; i < cases->count; ++i) {
        const struct test_case *t = &cases->items[i], *next = t + 1;
        if (t->op != CASE_GEMM || t->kind != DG_GEMM_DENSE || t->batch || t->out != DG_BFLOAT16 ||
            t->c != CASE_C_NONE || t->d_layout != CASE_D_ROW)
            return trouble(
                "--chain wants gemm cases with out=bf16 and contiguous rows of D, without groups, batch and C");
        if (i + 1 < cases->count && (next->m != t->m || next->k > t->n + t->ldd))
            return trouble("--chain: case %" PRId64 " has rows of %" PRId64 " elements (n + ldd) and m=%" PRId64
                           "; the next wants k=%" PRId64 " and m=%" PRId64,
                           i + 1, t->n + t->ldd, t->m, next->k, next->m);
    }
    return cases->count > 1 || trouble("--chain wants two cases or more");
}

static bool make_links(struct chain *c, const struct case_list *cases)
{
    for (int64_t i = 0; i < cases->count; ++i) {
        struct gemm *g = &c->links[c->count++];
        *g = (struct gemm){.device = c->device};
        if (!gemm_make(g, &cases->items[i], c->device, RANDOM_PLAIN) ||
            !gpu_fill(g->d.device_memory, 0, g->d.bytes / 4, c->stream)) /* what lies between rows is read, too */
            return false;
    }
    return gpu_stream_wait(c->stream);
}

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

static bool set_mode(struct chain *c, const struct mode *mode)
{
    for (int64_t i = 0; i < c->count; ++i)
        c->links[i].flags = mode->flags;
    return ok(dg_set(NULL, DG_SETTING_PDL, mode->pdl));
}

/* The same bits as without PDL. */
static bool check_bits(struct chain *c)
{
    const struct gemm *last = &c->links[c->count - 1];
    if (!operand_download(&c->links[c->count - 1].d))
        return false;
    if (c->first_bits)
        return memcmp(c->first_bits, last->d.host_memory, last->d.bytes) == 0 ||
               trouble("the chain gives other bits with PDL than without");
    c->first_bits = get_memory(last->d.bytes);
    memcpy(c->first_bits, last->d.host_memory, last->d.bytes);
    return true;
}

static bool capture(struct chain *c, gpu_exec **exec)
{
    if (!gpu_capture_begin(c->stream))
        return false;
    if (run_links(c))
        return gpu_capture_end(c->stream, exec);
    gpu_capture_abandon(c->stream);
    return false;
}

/* Microseconds for each link, of launches without a pause. */
static bool time_launches(struct chain *c, gpu_exec *exec, double *us)
{
    double all;
    if (!gpu_event_record(c->begin, c->stream))
        return false;
    for (int i = 0; i < LAUNCHES; ++i)
        if (!gpu_graph_launch(exec, c->stream))
            return false;
    if (!gpu_event_record(c->end, c->stream) || !gpu_event_elapsed(c->begin, c->end, &all))
        return false;
    *us = fmin(*us, all / LAUNCHES / (double)c->count);
    return true;
}

static bool make_graphs(struct chain *c, gpu_exec *execs[MODES])
{
    for (int i = 0; i < MODES; ++i)
        if (!set_mode(c, &modes[i]) || !run_links(c) || !gpu_stream_wait(c->stream) || !capture(c, &execs[i]) ||
            !gpu_graph_launch(execs[i], c->stream) || !gpu_stream_wait(c->stream) || !check_bits(c))
            return false;
    return true;
}

static bool measure(struct chain *c)
{
    gpu_exec *execs[MODES] = {NULL};
    double us[MODES] = {INFINITY, INFINITY, INFINITY};
    bool done = make_graphs(c, execs);
    for (int round = 0; done && round < ROUNDS; ++round)
        for (int i = 0; done && i < MODES; ++i)
            done = time_launches(c, execs[i], &us[i]);
    done = done && check_bits(c);
    for (int i = 0; done && i < MODES; ++i)
        printf("%-16s %8.2f us %+8.2f\n", modes[i].name, us[i], us[i] - us[0]);
    for (int i = 0; i < MODES; ++i)
        if (execs[i])
            gpu_graph_destroy(execs[i]);
    return set_mode(c, &modes[0]) && done;
}

int bench_chain(const struct case_list *cases, int32_t device)
{
    struct chain c = {.device = device};
    bool done = check_cases(cases) && gpu_begin(device) && gpu_stream_create(&c.stream) && gpu_event_create(&c.begin) &&
                gpu_event_create(&c.end);
    c.links = get_memory((size_t)cases->count * sizeof *c.links);
    done = done && make_links(&c, cases);
    if (done)
        printf("a graph of %" PRId64
               " products and the quantisations between them, per product, best of %d rounds of %d "
               "launches\n",
               cases->count, ROUNDS, LAUNCHES);
    done = done && measure(&c);
    for (int64_t i = 0; i < c.count; ++i)
        gemm_free(&c.links[i]);
    free(c.links);
    free(c.first_bits);
    gpu_event_destroy(c.begin);
    gpu_event_destroy(c.end);
    gpu_stream_destroy(c.stream);
    return done ? EXIT_PASS : fail_check();
}
