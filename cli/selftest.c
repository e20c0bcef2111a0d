/* `deepgemm selftest`: is the library right on this machine? */
#include "selftest.h"

#include "gpu.h"
#include "judge.h"
#include "program.h"
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help_text[] =
    "Usage: deepgemm selftest [--device DEVICE] [--filter TEXT] [--quick | --full] [--seed N] [--list]\n\n"
    "Runs a table of cases. On a GPU each result is judged by the library's CPU reference, on all of a small problem\n"
    "and on 24 rows x 160 columns of a large one; on the CPU by FP64 products. Beside the error: nothing is written\n"
    "outside D, every element is written, and repeated calls give the same bits. Then graph capture, streams, threads\n"
    "and settings.\n\n"
    "  --device DEVICE  cpu, cuda or cuda:N; otherwise the first GPU, or the CPU where there is none\n"
    "  --filter TEXT    only cases and checks whose name contains TEXT\n"
    "  --quick, --full  a smaller table; a larger one (minutes, and up to 20 GiB of memory)\n"
    "  --seed N         of the random data (default 1)\n"
    "  --list           print the names only\n"
    "  -h, --help       this text\n\n"
    "Columns: case, implementation, time of one call (caches as they are), TFLOPS, GB/s, ratio (of bench), error\n"
    "1 - 2<x,y>/(<x,x>+<y,y>), result. The last line counts. Exit code 1 if anything failed.\n";

struct selftest {
    int32_t device;
    enum selftest_level level;
    int64_t seed;
    const char *filter;
    bool list_only;
    struct report report;
    gpu_event *begin, *end;
};

/* Products that the CPU's reference can do in a moment: whole small problems, and what is tested on the CPU at all. */
static const double judged_whole = 0x1p24, tested_on_cpu = 0x1p25;
enum { SAMPLE_ROWS = 24, SAMPLE_COLS = 160, REPEATS = 2, MANY_REPEATS = 50, MANY_EVERY = 8 };

/* ---- One call ---------------------------------------------------------------------------------------------------- */

struct call {
    enum case_op op;
    union {
        const struct gemm *gemm;
        const struct quantization *quantization;
        const struct transform *transform;
    } of;
};

static bool run_call(const struct call *call)
{
    switch (call->op) {
    case CASE_GEMM:
        return gemm_run(call->of.gemm, NULL, NULL);
    case CASE_QUANTIZE:
        return quantization_run(call->of.quantization, NULL);
    default:
        return transform_run(call->of.transform, NULL);
    }
}

/* The call on the NULL stream, waited for and timed. */
static bool run_timed(struct selftest *s, const struct call *call, double *us)
{
    if (s->device == DG_CPU) {
        const double begin = now_seconds();
        if (!run_call(call))
            return false;
        *us = 1e6 * (now_seconds() - begin);
        return true;
    }
    return gpu_event_record(s->begin, NULL) && run_call(call) && gpu_event_record(s->end, NULL) &&
           gpu_event_elapsed(s->begin, s->end, us) && ok(dg_synchronize(s->device, NULL));
}

static void set_rates(const struct test_case *t, struct report_line *line)
{
    if (line->us <= 0.0)
        return;
    line->gbps = case_bytes(t) / line->us * 1e-3;
    if (t->op == CASE_GEMM)
        line->tflops = case_flops(t) / line->us * 1e-6;
}

/* ---- GEMM -------------------------------------------------------------------------------------------------------- */

static bool judge(struct selftest *s, const struct gemm *g, struct report_line *line)
{
    const struct test_case *t = &g->test;
    const double products = 0.5 * case_flops(t);
    const int64_t rows = products <= judged_whole ? g->groups.room.rows : SAMPLE_ROWS;
    const int64_t cols = products <= judged_whole ? t->n : SAMPLE_COLS;
    struct verdict verdict;
    if (!judge_gemm(g, s->device == DG_CPU ? JUDGE_FP64 : JUDGE_REFERENCE, rows, cols, &verdict))
        return false;
    line->error = verdict_error(&verdict);
    return verdict_accept(&verdict, g->d.host.dtype);
}

static bool report_difference(const struct gemm *g, const uint8_t *first, int run)
{
    const uint8_t *now = g->d.host_memory;
    size_t at = 0;
    while (first[at] == now[at])
        ++at;
    return trouble("run %d of the same call differs from the first at the byte %" PRId64 " from D's first", run,
                   (int64_t)(now + at - (const uint8_t *)g->d.host.data));
}

/* Again and again into a fresh D: the same bits each time, guards included. */
static bool repeat(struct selftest *s, struct gemm *g, int repeats, struct report_line *line)
{
    const struct call call = {CASE_GEMM, {.gemm = g}};
    uint8_t *first = get_memory(g->d.bytes);
    bool same = first != NULL;
    if (same)
        memcpy(first, g->d.host_memory, g->d.bytes);
    for (int i = 0; same && i < repeats; ++i) {
        same = gemm_reset(g) && run_timed(s, &call, &line->us) && operand_download(&g->d);
        if (same && memcmp(first, g->d.host_memory, g->d.bytes) != 0)
            same = report_difference(g, first, i + 2);
    }
    free(first);
    return same;
}

/* One case in MANY_EVERY is repeated often; small ones only, since D travels to the host each time. */
static int repeats_of(const struct selftest *s, const struct gemm *g, int64_t index)
{
    const bool small = g->d.bytes < (size_t)4 << 20 && s->device != DG_CPU;
    return small && (index % MANY_EVERY == 0 || s->level == SELFTEST_FULL) ? MANY_REPEATS : REPEATS;
}

static bool check_gemm(struct selftest *s, const struct test_case *t, int64_t index, struct gemm *g,
                       struct report_line *line)
{
    const struct call call = {CASE_GEMM, {.gemm = g}};
    if (!gemm_make(g, t, s->device, RANDOM_GROUPS))
        return false;
    line->row = g->plan.row;
    const dg_gemm_args args = gemm_args(g);
    if (!dg_is_supported(NULL, &args))
        return trouble("dg_is_supported says no: %s", dg_last_error());
    return run_timed(s, &call, &line->us) && operand_download(&g->d) && gemm_check_surroundings(g) &&
           judge(s, g, line) && repeat(s, g, repeats_of(s, g, index), line);
}

/* ---- Quantisation and transforms --------------------------------------------------------------------------------- */

/* The same on the CPU, and both results byte by byte. */
static bool compare_quantization(const struct quantization *z)
{
    struct quantization cpu;
    const bool same = quantization_make(&cpu, &z->test, DG_CPU) && quantization_run(&cpu, NULL) &&
                      same_bytes("q", &z->q, &cpu.q) && same_bytes("sf", &z->sf, &cpu.sf);
    quantization_free(&cpu);
    return same;
}

static bool check_quantization(struct selftest *s, const struct test_case *t, struct report_line *line)
{
    struct quantization z;
    const struct call call = {CASE_QUANTIZE, {.quantization = &z}};
    bool good = quantization_make(&z, t, s->device);
    for (int i = 0; good && i < REPEATS; ++i) /* the second is timed warm */
        good = run_timed(s, &call, &line->us);
    good = good && operand_download(&z.q) && operand_download(&z.sf) && operand_gaps_same(&z.q, "q", NULL) &&
           operand_gaps_same(&z.sf, "sf", NULL) &&
           (s->device == DG_CPU ? judge_quantization(&z) : compare_quantization(&z));
    quantization_free(&z);
    return good;
}

static bool check_transform(struct selftest *s, const struct test_case *t, struct report_line *line)
{
    struct transform f;
    const struct call call = {CASE_TRANSFORM, {.transform = &f}};
    bool good = transform_make(&f, t, s->device);
    for (int i = 0; good && i < REPEATS; ++i)
        good = run_timed(s, &call, &line->us);
    good = good && operand_download(&f.dst) && operand_gaps_same(&f.dst, "dst", NULL) && judge_transform(&f);
    transform_free(&f);
    return good;
}

/* ---- All of them ------------------------------------------------------------------------------------------------- */

static bool wanted(const struct selftest *s, const char *name)
{
    return s->filter == NULL || strstr(name, s->filter) != NULL;
}

static void run_case(struct selftest *s, const struct test_case *t, int64_t index)
{
    char name[CASE_NAME_BYTES];
    struct gemm gemm = {0};
    struct report_line line = REPORT_LINE_INIT;
    bool good;
    case_print(t, name);
    line.name = name;
    if (t->op == CASE_GEMM)
        good = check_gemm(s, t, index, &gemm, &line);
    else
        good = t->op == CASE_QUANTIZE ? check_quantization(s, t, &line) : check_transform(s, t, &line);
    set_rates(t, &line);
    line.result = good ? "PASS" : "FAIL";
    report_line(&s->report, &line, good ? NULL : trouble_text());
    gemm_free(&gemm);
}

static void run_system_check(struct selftest *s, const struct system_check *check)
{
    struct report_line line = REPORT_LINE_INIT;
    line.name = check->name;
    const bool good = check->run(s->device, s->seed);
    line.result = good ? "PASS" : "FAIL";
    report_line(&s->report, &line, good ? NULL : trouble_text());
}

/* Drop what the filter and, on the CPU, the size leave out; returns how many were too large. */
static int64_t select_cases(const struct selftest *s, struct case_list *list, int *name_width)
{
    int64_t kept = 0, too_large = 0;
    char name[CASE_NAME_BYTES];
    *name_width = 44; /* the checks' names */
    for (int64_t i = 0; i < list->count; ++i) {
        const struct test_case *t = &list->items[i];
        const double work = t->op == CASE_GEMM ? 0.5 * case_flops(t) : (double)t->m * (double)t->k;
        case_print(t, name);
        if (!wanted(s, name))
            continue;
        if (s->device == DG_CPU && work > tested_on_cpu) {
            ++too_large;
            continue;
        }
        const int width = (int)strlen(name);
        *name_width = width > *name_width ? width : *name_width;
        list->items[kept++] = *t;
    }
    list->count = kept;
    return too_large;
}

static bool skipped(const struct selftest *s, const struct system_check *check)
{
    return !wanted(s, check->name) || (check->needs_gpu && s->device == DG_CPU);
}

/* How many checks are wanted and yet skipped. */
static int64_t left_out(const struct selftest *s)
{
    int64_t count = 0;
    for (const struct system_check *check = system_checks; check->name; ++check)
        count += wanted(s, check->name) && skipped(s, check);
    return count;
}

static void print_names(const struct selftest *s, const struct case_list *list)
{
    char name[CASE_NAME_BYTES];
    for (const struct system_check *check = system_checks; check->name; ++check)
        if (!skipped(s, check))
            puts(check->name);
    for (int64_t i = 0; i < list->count; ++i) {
        case_print(&list->items[i], name);
        puts(name);
    }
}

static int run_all(struct selftest *s, struct case_list *list)
{
    int width;
    const int64_t too_large = select_cases(s, list, &width);
    if (s->list_only) {
        print_names(s, list);
        return EXIT_PASS;
    }
    printf("deepgemm %s on %s, seed %" PRId64 "\n", dg_version(), device_name(s->device), s->seed);
    if (too_large)
        printf("%" PRId64 " cases are too large for the CPU and left out\n", too_large);
    report_begin(&s->report, width);
    for (const struct system_check *check = system_checks; check->name; ++check) {
        progress("%s", check->name);
        if (!skipped(s, check))
            run_system_check(s, check);
    }
    for (int64_t i = 0; i < list->count; ++i) {
        progress("%" PRId64 "/%" PRId64 ", %" PRId64 " failed", i + 1, list->count, s->report.failed);
        run_case(s, &list->items[i], i);
    }
    report_end(&s->report);
    if (s->report.passed + s->report.failed == 0) {
        store_trouble(left_out(s) + too_large ? "what has \"%s\" in its name needs a GPU or is too large for the CPU"
                                              : "no case and no check has \"%s\" in its name",
                      s->filter ? s->filter : "");
        return fail_check();
    }
    return s->report.failed ? EXIT_CHECK_FAILED : EXIT_PASS;
}

enum { DEVICE = OPTION_LONG, FILTER, QUICK, FULL, SEED, LIST };

static bool take_option(struct selftest *s, int option)
{
    switch (option) {
    case DEVICE:
        return parse_device(optarg, &s->device);
    case FILTER:
        s->filter = optarg;
        return true;
    case QUICK:
    case FULL:
        s->level = option == QUICK ? SELFTEST_QUICK : SELFTEST_FULL;
        return true;
    case LIST:
        s->list_only = true;
        return true;
    default:
        return parse_number(optarg, 0, INT64_MAX / 4, &s->seed);
    }
}

static int run(int argc, char **argv)
{
    static const struct option options[] = {HELP_OPTION,
                                            {"device", required_argument, NULL, DEVICE},
                                            {"filter", required_argument, NULL, FILTER},
                                            {"quick", no_argument, NULL, QUICK},
                                            {"full", no_argument, NULL, FULL},
                                            {"seed", required_argument, NULL, SEED},
                                            {"list", no_argument, NULL, LIST},
                                            {0}};
    struct selftest s = {.device = -2, .level = SELFTEST_NORMAL, .seed = 1};
    struct case_list list = {0};
    int code = EXIT_PASS;
    for (int option; (option = next_option(argc, argv, options, &code)) != -1;) {
        if (option == OPTION_DONE)
            return code;
        if (!take_option(&s, option))
            return fail_usage("%s", trouble_text());
    }
    if (optind < argc)
        return fail_usage("selftest takes no argument \"%s\"; use --filter", argv[optind]);
    if (s.device == -2) /* not given */
        parse_device("auto", &s.device);
    const bool ready = selftest_cases(&list, s.level, s.seed) &&
                       (s.device == DG_CPU || s.list_only ||
                        (gpu_begin(s.device) && gpu_event_create(&s.begin) && gpu_event_create(&s.end)));
    code = ready ? run_all(&s, &list) : fail_check();
    gpu_event_destroy(s.begin);
    gpu_event_destroy(s.end);
    case_list_free(&list);
    return code;
}

const struct command command_selftest = {"selftest", "is the library right on this machine?", help_text, run};
