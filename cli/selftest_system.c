/* The checks of `deepgemm selftest` that are no single call: graphs, streams, threads, settings. */
#include "selftest.h"

#include "gpu.h"
#include "judge.h"
#include "number.h"
#include "program.h"

#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 20 };

/* ---- Helpers ----------------------------------------------------------------------------------------------------- */

static bool make(struct gemm *g, const char *text, int32_t device, int64_t seed)
{
    struct test_case test;
    *g = (struct gemm){0};
    if (!case_parse(text, &test))
        return false;
    test.seed = seed;
    return gemm_make(g, &test, device, RANDOM_GROUPS);
}

static bool judge_result(const struct gemm *g)
{
    struct verdict verdict;
    return gemm_check_surroundings(g) && judge_gemm(g, JUDGE_REFERENCE, 64, 160, &verdict) &&
           verdict_accept(&verdict, g->d.host.dtype);
}

/* D computed by a plain call, waited for, and judged; its buffer's bytes go to *copy (to be freed). */
static bool plain_result(struct gemm *g, uint8_t **copy)
{
    *copy = get_memory(g->d.bytes);
    if (*copy == NULL || !gemm_reset(g) || !gemm_run(g, NULL, NULL) || !ok(dg_synchronize(g->device, NULL)) ||
        !operand_download(&g->d) || !judge_result(g))
        return false;
    memcpy(*copy, g->d.host_memory, g->d.bytes);
    return true;
}

/* Fetch D and compare with the bytes of plain_result. */
static bool same_result(struct gemm *g, const uint8_t *copy, const char *what)
{
    return operand_download(&g->d) &&
           (memcmp(copy, g->d.host_memory, g->d.bytes) == 0 || trouble("%s gives other bits than a plain call", what));
}

static bool capture(const struct gemm *g, dg_stream stream, gpu_exec **exec)
{
    if (!gpu_capture_begin(stream))
        return false;
    if (gemm_run(g, NULL, stream))
        return gpu_capture_end(stream, exec);
    gpu_capture_abandon(stream);
    return false;
}

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

/* Another seed's inputs in the same memory: the replay and a plain call must agree. */
static bool replay(struct gemm *g, gpu_exec *exec, dg_stream stream, int64_t seed)
{
    uint8_t *copy = NULL;
    const bool same = gemm_refill(g, RANDOM_GROUPS, (uint64_t)seed) && plain_result(g, &copy) && gemm_reset(g) &&
                      gpu_graph_launch(exec, stream) && gpu_stream_wait(stream) &&
                      same_result(g, copy, "the graph's replay");
    free(copy);
    return same;
}

/* Captured once, launched with other inputs. */
static bool replays(const char *text, int32_t device, int64_t seed)
{
    struct gemm g;
    dg_stream stream = NULL;
    gpu_exec *exec = NULL;
    bool good = make(&g, text, device, seed) && gemm_run(&g, NULL, NULL) && gpu_stream_create(&stream) &&
                capture(&g, stream, &exec);
    for (int64_t i = 1; good && i <= 3; ++i)
        good = replay(&g, exec, stream, seed + i);
    gpu_graph_destroy(exec);
    gpu_stream_destroy(stream);
    gemm_free(&g);
    return good || trouble("%s: %s", text, strdupa(trouble_text()));
}

static bool graph_warm(int32_t device, int64_t seed)
{
    return replays("gemm fp8 m=192 n=512 k=1024", device, seed);
}

/* Cases whose groups are drawn anew with each seed. */
static const char *const drawn_groups[] = {"gemm fp8 m=150 n=512 k=640 kind=contiguous groups=6 tail=128",
                                           "gemm fp8 m=40 n=512 k=640 kind=contiguous groups=9 alignment=32",
                                           "gemm fp8 m=150 n=512 k=640 kind=psum groups=6 zero_padding=1 tail=64",
                                           "gemm fp8 m=192 n=512 k=640 kind=masked groups=8",
                                           "gemm fp8 m=128 n=192 k=512 kind=k_grouped groups=5 out=fp32 c=d",
                                           "gemm fp8 m=128 n=192 k=512 kind=k_grouped groups=5 out=fp32 flat=1",
                                           NULL};

static bool graph_groups(int32_t device, int64_t seed)
{
    for (const char *const *text = drawn_groups; *text; ++text)
        if (!replays(*text, device, seed))
            return false;
    return true;
}

/* Without a graph: one problem's memory, other groups in it each time. */
static bool changed_groups(int32_t device, int64_t seed)
{
    for (const char *const *text = drawn_groups; *text; ++text) {
        struct gemm g;
        uint8_t *copy = NULL;
        bool good = make(&g, *text, device, seed) && plain_result(&g, &copy);
        for (int64_t i = 1; good && i <= 3; ++i) {
            free(copy);
            copy = NULL;
            good = gemm_refill(&g, RANDOM_GROUPS, (uint64_t)(seed + i)) && plain_result(&g, &copy);
        }
        free(copy);
        gemm_free(&g);
        if (!good)
            return trouble("%s: %s", *text, strdupa(trouble_text()));
    }
    return true;
}

static int64_t files_seen;

static int count_file(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)path;
    (void)about;
    (void)where;
    files_seen += type == FTW_F;
    return 0;
}

static int64_t count_files(const char *directory)
{
    files_seen = 0;
    nftw(directory, count_file, 16, FTW_PHYS);
    return files_seen;
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

/* A kernel that neither this process nor the cache has, captured by its first call. */
static bool capture_cold(int32_t device, int64_t seed, const char *directory)
{
    struct gemm g;
    dg_stream stream = NULL;
    gpu_exec *exec = NULL;
    bool good = make(&g, "gemm fp8 m=77 n=328 k=1152 out=fp16 c=separate", device, seed) && gpu_stream_create(&stream);
    const int64_t before = count_files(directory);
    good = good && capture(&g, stream, &exec);
    if (good && count_files(directory) <= before)
        good = trouble("the kernel was not compiled inside the capture, so nothing has been shown");
    good =
        good && gpu_graph_launch(exec, stream) && gpu_stream_wait(stream) && operand_download(&g.d) && judge_result(&g);
    gpu_graph_destroy(exec);
    gpu_stream_destroy(stream);
    gemm_free(&g);
    return good;
}

static bool graph_cold(int32_t device, int64_t seed)
{
    static const char variable[] = "DG_JIT_CACHE_DIR";
    char directory[512], before[4096];
    const char *temporary = getenv("TMPDIR"), *old = getenv(variable);
    snprintf(directory, sizeof(directory), "%.400s/deepgemm-selftest-XXXXXX", temporary ? temporary : "/tmp");
    if (mkdtemp(directory) == NULL)
        return trouble("%s cannot be made", directory);
    if (old)
        snprintf(before, sizeof(before), "%s", old);
    setenv(variable, directory, 1);
    const bool good = capture_cold(device, seed, directory);
    if (old)
        setenv(variable, before, 1);
    else
        unsetenv(variable);
    nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return good;
}

/* ---- Streams and threads ----------------------------------------------------------------------------------------- */

/* Both queues are filled in turn before either is waited for. */
static bool run_both(struct gemm *g, const dg_stream *streams, uint8_t *const *copies)
{
    for (int i = 0; i < 2; ++i)
        if (!gemm_reset(&g[i]))
            return false;
    for (int call = 0; call < 10; ++call)
        if (!gemm_run(&g[call % 2], NULL, streams[call % 2]))
            return false;
    for (int i = 0; i < 2; ++i)
        if (!gpu_stream_wait(streams[i]) || !same_result(&g[i], copies[i], "two streams at once"))
            return false;
    return true;
}

static bool two_streams(int32_t device, int64_t seed)
{
    struct gemm g[2] = {{.device = device}, {.device = device}};
    dg_stream streams[2] = {NULL, NULL};
    uint8_t *copies[2] = {NULL, NULL};
    bool good = make(&g[0], "gemm fp8 m=256 n=2112 k=1024", device, seed) &&
                make(&g[1], "gemm fp8 m=100 n=1024 k=2048 out=fp32", device, seed + 1) &&
                plain_result(&g[0], &copies[0]) && plain_result(&g[1], &copies[1]) && gpu_stream_create(&streams[0]) &&
                gpu_stream_create(&streams[1]);
    for (int i = 0; good && i < ROUNDS; ++i)
        good = run_both(g, streams, copies);
    for (int i = 0; i < 2; ++i) {
        gpu_stream_destroy(streams[i]);
        gemm_free(&g[i]);
        free(copies[i]);
    }
    return good;
}

struct thread_work {
    struct gemm g;
    bool good;
    char why[512];
};

static bool thread_rounds(struct thread_work *w, dg_stream stream)
{
    for (int i = 0; i < ROUNDS; ++i)
        if (!gemm_reset(&w->g) || !gemm_run(&w->g, NULL, stream) || !ok(dg_synchronize(w->g.device, stream)))
            return false;
    return true;
}

static void *thread_body(void *argument)
{
    struct thread_work *w = argument;
    dg_stream stream = NULL;
    const bool ready = w->g.device == DG_CPU || (gpu_begin(w->g.device) && gpu_stream_create(&stream));
    w->good = ready && thread_rounds(w, stream);
    if (!w->good)
        snprintf(w->why, sizeof(w->why), "%s", trouble_text());
    gpu_stream_destroy(stream);
    return NULL;
}

/* Both threads make the first call of one configuration at the same time, then go on. */
static bool run_threads(struct thread_work *work)
{
    pthread_t threads[2];
    int made = 0;
    while (made < 2 && pthread_create(&threads[made], NULL, thread_body, &work[made]) == 0)
        ++made;
    for (int i = 0; i < made; ++i)
        pthread_join(threads[i], NULL);
    if (made < 2)
        return trouble("only %d of two threads could be made", made);
    for (int i = 0; i < 2; ++i)
        if (!work[i].good)
            return trouble("thread %d: %s", i, work[i].why);
    return true;
}

static bool two_threads(int32_t device, int64_t seed)
{
    struct thread_work work[2] = {{.good = false}, {.good = false}};
    bool good = make(&work[0].g, "gemm fp8 m=90 n=264 k=384 out=fp16 c=d", device, seed) &&
                make(&work[1].g, "gemm fp8 m=90 n=264 k=384 out=fp16 c=d", device, seed + 1) && run_threads(work);
    for (int i = 0; i < 2; ++i) {
        uint8_t *copy = NULL, *from_thread = get_memory(work[i].g.d.bytes);
        good = good && from_thread && operand_download(&work[i].g.d);
        if (good)
            memcpy(from_thread, work[i].g.d.host_memory, work[i].g.d.bytes);
        good = good && plain_result(&work[i].g, &copy) &&
               (memcmp(copy, from_thread, work[i].g.d.bytes) == 0 || trouble("thread %d got other bits", i));
        free(copy);
        free(from_thread);
        gemm_free(&work[i].g);
    }
    return good;
}

/* ---- Settings: PDL ----------------------------------------------------------------------------------------------- */

/* D1 = A B^T, quantised in place of the second product's A, or of its B: each kernel needs the one before. */
struct chain {
    struct gemm first, second;
    struct operand *q, *sf; /* of the second */
};

/* Once through the chain, from NaNs wherever a kernel writes, with nothing waited for in between. */
static bool run_chain(struct chain *c, dg_context *context, dg_stream stream)
{
    dg_quantize_args args = DG_QUANTIZE_ARGS_INIT;
    args.x = c->first.d.view;
    args.q = c->q->view;
    args.sf = c->sf->view;
    args.gran_mn = c->q == &c->second.b ? 128 : 1;
    args.gran_k = 128;
    operand_fill(c->q, 0x7f);
    operand_fill(c->sf, 0xff);
    return gemm_reset(&c->first) && gemm_reset(&c->second) && operand_upload(c->q) && operand_upload(c->sf) &&
           gemm_run(&c->first, context, stream) && ok(dg_quantize_fp8(context, &args, stream)) &&
           gemm_run(&c->second, context, stream) && ok(dg_synchronize(c->first.device, stream)) &&
           operand_download(c->q) && operand_download(c->sf) && operand_download(&c->second.d);
}

static bool pdl_rounds(struct chain *c, dg_context *context, dg_stream stream)
{
    const size_t bytes = c->second.d.bytes;
    uint8_t *copy = get_memory(bytes);
    bool good = copy && run_chain(c, NULL, stream) && judge_result(&c->second);
    if (good)
        memcpy(copy, c->second.d.host_memory, bytes);
    for (int i = 0; good && i < ROUNDS; ++i)
        good = run_chain(c, context, stream) && (memcmp(copy, c->second.d.host_memory, bytes) == 0 ||
                                                 trouble("a chain with PDL gives other bits than without"));
    free(copy);
    return good;
}

/* The first product's rows are the second's A, or, if `late_b`, its B. */
static bool pdl_chain(int32_t device, const char *first, const char *second, bool late_b, uint32_t flags, int64_t seed)
{
    struct chain c = {.second = {.device = device}};
    dg_context *context = NULL;
    dg_stream stream = NULL;
    bool good = make(&c.first, first, device, seed) && make(&c.second, second, device, seed + 1) &&
                gpu_stream_create(&stream) && ok(dg_context_create(&context)) && ok(dg_set(context, DG_SETTING_PDL, 1));
    c.first.flags = c.second.flags = flags;
    c.q = late_b ? &c.second.b : &c.second.a;
    c.sf = late_b ? &c.second.sfb : &c.second.sfa;
    good = good && pdl_rounds(&c, context, stream);
    dg_context_destroy(context);
    gpu_stream_destroy(stream);
    gemm_free(&c.first);
    gemm_free(&c.second);
    return good;
}

static bool pdl_late_a(int32_t device, int64_t seed)
{
    for (uint32_t flags = 0; flags <= DG_GEMM_B_CONSTANT; ++flags)
        if (!pdl_chain(device, "gemm fp8 m=256 n=1024 k=512", "gemm fp8 m=256 n=640 k=1024", false, flags, seed) ||
            !pdl_chain(device, "gemm fp8 m=16 n=1024 k=7168", "gemm fp8 m=16 n=640 k=1024", false, flags, seed))
            return false;
    return true;
}

static bool pdl_late_b(int32_t device, int64_t seed)
{
    return pdl_chain(device, "gemm fp8 m=640 n=1024 k=512", "gemm fp8 m=256 n=640 k=1024", true, 0, seed) &&
           pdl_chain(device, "gemm fp8 m=640 n=1024 k=512", "gemm fp8 m=16 n=640 k=1024", true, 0, seed);
}

/* ---- Settings: groups -------------------------------------------------------------------------------------------- */

/* A layout that a kernel writes: one that packs scales, of powers of two whose exponents are the layout's numbers. */
struct late_layout {
    struct gemm before, grouped; /* the first delays the kernel that writes */
    struct operand scales;
};

static bool make_late_layout(struct late_layout *l, const char *text, int32_t device, int64_t seed)
{
    *l = (struct late_layout){.grouped = {.device = device}};
    if (!make(&l->before, "gemm fp8 m=256 n=1024 k=7168", device, seed) || !make(&l->grouped, text, device, seed))
        return false;
    const int64_t count = l->grouped.groups.room.layout;
    const struct layout layout = {.dtype = DG_FLOAT32, .rows = count, .cols = 1, .step = 1};
    operand_describe(&l->scales, &layout, device);
    if (!operand_allocate(&l->scales, 0))
        return false;
    for (int64_t i = 0; i < count; ++i)
        number_write(DG_FLOAT32, operand_element(&l->scales, 0, i, 0), 0,
                     ldexpf(1.0f, l->grouped.groups.layout[i] - 127));
    return operand_upload(&l->scales);
}

/* Until the layout has been written its numbers are far too large. */
static bool run_late_layout(struct late_layout *l, dg_context *context, dg_stream stream)
{
    struct gemm *g = &l->grouped;
    dg_transform_scale_args args = DG_TRANSFORM_SCALE_ARGS_INIT;
    args.src = l->scales.view;
    args.dst = g->layout.view;
    operand_fill(&g->layout, 0x7f);
    return gemm_reset(g) && operand_upload(&g->layout) && gemm_run(&l->before, context, stream) &&
           ok(dg_transform_scale(context, &args, stream)) && gemm_run(g, context, stream) &&
           ok(dg_synchronize(g->device, stream));
}

static bool pdl_groups(const char *text, int32_t device, int64_t seed)
{
    struct late_layout l;
    dg_context *context = NULL;
    dg_stream stream = NULL;
    uint8_t *copy = NULL;
    bool good = make_late_layout(&l, text, device, seed) && plain_result(&l.grouped, &copy) &&
                gpu_stream_create(&stream) && ok(dg_context_create(&context)) && ok(dg_set(context, DG_SETTING_PDL, 1));
    for (int i = 0; good && i < ROUNDS; ++i)
        good = run_late_layout(&l, context, stream) && same_result(&l.grouped, copy, "a layout that comes late");
    free(copy);
    dg_context_destroy(context);
    gpu_stream_destroy(stream);
    operand_free(&l.scales);
    gemm_free(&l.before);
    gemm_free(&l.grouped);
    return good || trouble("%s: %s", text, strdupa(trouble_text()));
}

static bool pdl_late_layout(int32_t device, int64_t seed)
{
    static const char *const cases[] = {"gemm fp8 n=640 k=1024 kind=contiguous groups=5 sizes=64 alignment=64",
                                        "gemm fp8 n=640 k=1024 kind=psum groups=3 sizes=60,70,50 alignment=16",
                                        "gemm fp8 m=192 n=640 k=1024 kind=masked groups=8",
                                        "gemm fp8 m=128 n=192 kind=k_grouped groups=3 sizes=128,0,240 out=fp32", NULL};
    for (const char *const *text = cases; *text; ++text)
        if (!pdl_groups(*text, device, seed))
            return false;
    return true;
}

/* ---- Settings: a row's bits -------------------------------------------------------------------------------------- */

static bool same_rows(const struct gemm *few, const struct gemm *many)
{
    const size_t bytes = (size_t)few->test.n * dg_dtype_size(few->d.host.dtype);
    for (int64_t row = 0; row < few->test.m; ++row)
        if (memcmp(operand_element(&few->d, 0, row, 0), operand_element(&many->d, 0, row, 0), bytes) != 0)
            return trouble("row %d has other bits with M=%d than with M=%d", (int)row, (int)few->test.m,
                           (int)many->test.m);
    return true;
}

static bool run_plain(struct gemm *g)
{
    return gemm_run(g, NULL, NULL) && ok(dg_synchronize(g->device, NULL)) && operand_download(&g->d) &&
           gemm_check_surroundings(g);
}

static bool run_with(struct gemm *g, dg_context *context)
{
    return gemm_run(g, context, NULL) && ok(dg_synchronize(g->device, NULL)) && operand_download(&g->d) &&
           judge_result(g);
}

/* Equal seeds give equal first rows of A, whatever M is. */
static bool make_rows(struct gemm *g, int m, int32_t device, int64_t seed)
{
    char text[CASE_NAME_BYTES];
    const bool small = device == DG_CPU;
    snprintf(text, sizeof(text), "gemm fp8 m=%d n=%d k=%d", m, small ? 72 : 576, small ? 300 : 7168);
    return make(g, text, device, seed);
}

static bool batch_invariant(int32_t device, int64_t seed)
{
    static const int sizes[] = {1, 20, 200};
    struct gemm few, many = {.device = device};
    dg_context *context = NULL;
    bool good = ok(dg_context_create(&context)) && ok(dg_set(context, DG_SETTING_BATCH_INVARIANT, 1)) &&
                make_rows(&many, 900, device, seed) && run_with(&many, context);
    for (int i = 0; good && i < 3; ++i) {
        good = make_rows(&few, sizes[i], device, seed) && run_with(&few, context) && same_rows(&few, &many);
        gemm_free(&few);
    }
    dg_context_destroy(context);
    gemm_free(&many);
    return good;
}

/* ---- Full size --------------------------------------------------------------------------------------------------- */

/* The same numbers one element off, which TMA cannot address: the plain kernel computes them, in the same order of k as
   the CPU's reference, and so judges every element of results that would take the reference minutes. */
static bool shifted_agrees(const char *text, int32_t device, int64_t seed)
{
    char shifted_text[CASE_NAME_BYTES];
    struct gemm g, shifted = {.device = device};
    struct verdict verdict = {0};
    snprintf(shifted_text, sizeof(shifted_text), "%s shift=+1", text);
    bool good = make(&g, text, device, seed) && make(&shifted, shifted_text, device, seed) && run_plain(&g) &&
                run_plain(&shifted);
    if (good && strcmp(shifted.plan.row, "gemm_simple") != 0)
        good = trouble("\"%s\" runs on %s, not on gemm_simple", shifted_text, shifted.plan.row);
    good = good && judge_whole(&g, &shifted, &verdict) && verdict_accept(&verdict, g.d.host.dtype);
    gemm_free(&g);
    gemm_free(&shifted);
    return good || trouble("%s: %s", text, strdupa(trouble_text()));
}

static bool full_size(int32_t device, int64_t seed)
{
    static const char *const big[] = {"gemm fp8 m=4096 n=4096 k=7168",
                                      "gemm fp8 m=8192 n=2112 k=7168 out=fp32 sfa=ue8m0 sfb=ue8m0",
                                      "gemm fp8 m=1111 n=24576 k=1536 out=fp16 c=d",
                                      "gemm fp8 m=64 n=7168 k=16384",
                                      "gemm fp8 m=500 n=4096 k=7168 kind=contiguous groups=8",
                                      "gemm fp8 m=200 n=7168 k=2048 kind=psum groups=16 alignment=64 zero_padding=1",
                                      "gemm fp8 m=512 n=4096 k=7168 kind=masked groups=8 sfa=ue8m0 sfb=ue8m0",
                                      "gemm fp8 m=4096 n=7168 k=1024 kind=k_grouped groups=4 out=fp32 c=d",
                                      NULL};
    for (const char *const *text = big; *text; ++text)
        if (!shifted_agrees(*text, device, seed))
            return false;
    return true;
}

const struct system_check system_checks[] = {
    {"check graph capture, cold: compiled inside", true, graph_cold},
    {"check graph capture, warm: inputs changed", true, graph_warm},
    {"check graph capture: sizes of groups changed", true, graph_groups},
    {"check other sizes of groups in one memory", false, changed_groups},
    {"check two streams at once", true, two_streams},
    {"check two threads at once", false, two_threads},
    {"check PDL: A comes from the kernel before", true, pdl_late_a},
    {"check PDL: B comes from the kernel before", true, pdl_late_b},
    {"check PDL: a layout from the kernel before", true, pdl_late_layout},
    {"check batch_invariant: a row's bits", false, batch_invariant},
    {"check at full size: all of D against gemm_simple", true, full_size},
    {NULL, false, NULL},
};
