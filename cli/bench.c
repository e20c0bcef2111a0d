/* `deepgemm bench`: how fast, beside cuBLASLt in the same run. */
#include "bench.h"

#include "cublaslt.h"
#include "cupti.h"
#include "judge.h"
#include "nvml.h"
#include "program.h"
#include "report.h"
#include "timer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char help_text[] =
    "Usage: deepgemm bench [CASE...] [options]\n\n"
    "Times cases on random data with a cold L2 cache: 256 MB are written before each call; the best of the rounds, "
    "each\n"
    "the mean of its calls. The ratio is the time of cuBLASLt's FP8 product with one scale per matrix (E4M3, D's "
    "type,\n"
    "no fast accumulation, first heuristic), measured in turn in the same run, divided by ours. floor is the share of\n"
    "max(bytes / 4.6 TB/s, operations / 1550 TFLOPS), what an H200 can do in practice, in our time.\n\n"
    "  CASE             a case, quoted or not; without any, eight shapes of DeepSeek-V3, or four\n"
    "                   small ones on the CPU\n"
    "  --shapes FILE    cases from a file, one a line (bench/shapes/dense.txt, grouped.txt)\n"
    "  --baseline B     cublaslt (default) or none\n"
    "  --rounds N       rounds (default 2);  --reps N  calls in each (default 10)\n"
    "  --timer T        best (default), cupti, graph or events: what is not kernel time says so\n"
    "  --sustained      a second of calls without a pause, caches as they are, with the SM clock\n"
    "  --host           what a call costs the calling thread, beside an empty kernel\n"
    "  --chain          all cases in a row in a CUDA graph, each with the quantised result of the one before as its\n"
    "                   A; with and without programmatic dependent launch\n"
    "  --batch-invariant  with that setting of the library\n"
    "  --csv FILE       the numbers as CSV too\n"
    "  --device DEVICE  cuda, cuda:N or cpu; otherwise the first GPU, or the CPU where there is none\n"
    "  -h, --help       this text\n\n"
    "Groups have no such baseline; of a case with beside_ns= that time over ours is told (bench/shapes/grouped.txt "
    "has\n"
    "the original DeepGEMM's). Only rows and K in use count as work: of contiguous groups whole blocks.\n"
    "Before it is timed each result is compared with the CPU reference on a few rows (column error).\n"
    "`deepgemm help cases` tells how a case is written.\n";

/* Logarithms of ratios, for their geometric mean. */
struct mean {
    double log_sum, lowest;
    int64_t count;
};

enum { MOST_KINDS = DG_GEMM_K_GROUPED + 1 };

struct bench {
    struct case_list cases;
    int32_t device;
    int64_t rounds, reps;
    bool baseline, sustained, host, chain;
    unsigned came; /* options */
    enum timer_kind timer_kind;
    const char *csv_path;
    FILE *csv;
    struct timer timer;
    struct report report;
    struct mean ratio[2];           /* of cuBLASLt: small M and large M */
    struct mean beside[MOST_KINDS]; /* of beside_ns, by dg_gemm_kind */
};

/* Practical limits of an H200, measured: reading by all SMs, and FP8 tensor cores with operands in shared memory. */
static const double floor_bytes_per_us = 4.6e6, floor_flops_per_us = 1550e6;

struct result {
    double us, baseline_us, sustained_us, error;
    uint32_t clock_mhz;
    char why_no_baseline[256];
};

static double floor_us(const struct test_case *t)
{
    return fmax(case_bytes(t) / floor_bytes_per_us, case_flops(t) / floor_flops_per_us);
}

/* ---- Timing ------------------------------------------------------------------------------------------------------ */

static bool call_gemm(void *user, dg_stream stream)
{
    return gemm_run(user, NULL, stream);
}

static bool call_quantization(void *user, dg_stream stream)
{
    return quantization_run(user, stream);
}

static bool call_transform(void *user, dg_stream stream)
{
    return transform_run(user, stream);
}

struct contender {
    timed_call call;
    void *user;
    double best_us;
};

/* In turn, so that both meet the same clocks. */
static bool time_in_turn(struct bench *b, struct contender *contenders, int count)
{
    for (int i = 0; i < count; ++i)
        contenders[i].best_us = INFINITY;
    for (int64_t round = 0; round < b->rounds; ++round) {
        for (int i = 0; i < count; ++i) {
            double us;
            if (!timer_round(&b->timer, contenders[i].call, contenders[i].user, (int)b->reps, &us))
                return false;
            contenders[i].best_us = fmin(contenders[i].best_us, us);
        }
    }
    return true;
}

struct clock_look {
    int32_t device;
    uint32_t mhz;
};

static void look_at_clock(void *user)
{
    struct clock_look *look = user;
    look->mhz = nvml_sm_clock(look->device);
}

static bool time_sustained(struct bench *b, timed_call call, void *user, struct result *r)
{
    struct clock_look look = {b->device, 0};
    if (!timer_sustained(&b->timer, call, user, 1.0, look_at_clock, &look, &r->sustained_us))
        return false;
    r->clock_mhz = look.mhz;
    return true;
}

static bool wait_for(struct bench *b)
{
    return b->device == DG_CPU || ok(dg_synchronize(b->device, b->timer.stream));
}

static bool time_contenders(struct bench *b, struct contender *contenders, int count, struct result *r)
{
    for (int i = 0; i < count; ++i) /* warm: kernels are compiled and loaded */
        if (!contenders[i].call(contenders[i].user, b->timer.stream) || !wait_for(b))
            return false;
    if (b->sustained)
        return time_sustained(b, contenders[0].call, contenders[0].user, r);
    if (!time_in_turn(b, contenders, count))
        return false;
    r->us = contenders[0].best_us;
    r->baseline_us = count > 1 ? contenders[1].best_us : -1.0;
    return true;
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

static bool measure_error(struct bench *b, struct gemm *g, struct result *r)
{
    struct verdict verdict;
    if (!gemm_run(g, NULL, b->timer.stream) || !wait_for(b) || !operand_download(&g->d) ||
        !judge_gemm(g, JUDGE_REFERENCE, 8, 64, &verdict))
        return false;
    r->error = verdict_error(&verdict);
    return verdict_accept(&verdict, g->d.host.dtype);
}

static bool bench_gemm(struct bench *b, struct gemm *g, const struct test_case *t, struct result *r)
{
    struct cublaslt_plan plan;
    if (!gemm_make(g, t, b->device, RANDOM_PLAIN) || !measure_error(b, g, r))
        return false;
    const dg_gemm_args args = gemm_args(g);
    struct contender contenders[2] = {{call_gemm, g, 0.0}, {cublaslt_run, &plan, 0.0}};
    if (!b->baseline || t->kind != DG_GEMM_DENSE)
        return time_contenders(b, contenders, 1, r);
    const bool compared = cublaslt_plan_make(&plan, &args);
    if (!compared)
        snprintf(r->why_no_baseline, sizeof(r->why_no_baseline), "no baseline: %.230s", trouble_text());
    const bool done = time_contenders(b, contenders, compared ? 2 : 1, r);
    cublaslt_plan_free(&plan);
    return done;
}

static bool bench_other(struct bench *b, const struct test_case *t, struct result *r)
{
    struct quantization z = {.test = *t};
    struct transform f = {.test = *t};
    struct contender contender = {call_transform, &f, 0.0};
    bool done;
    if (t->op == CASE_QUANTIZE) {
        contender = (struct contender){call_quantization, &z, 0.0};
        done = quantization_make(&z, t, b->device) && time_contenders(b, &contender, 1, r);
        quantization_free(&z);
    } else {
        done = transform_make(&f, t, b->device) && time_contenders(b, &contender, 1, r);
        transform_free(&f);
    }
    return done;
}

static void count_ratio(struct mean *mean, double ratio)
{
    if (ratio <= 0.0)
        return;
    mean->log_sum += log(ratio);
    mean->lowest = mean->count++ ? fmin(mean->lowest, ratio) : ratio;
}

/* What stands in the case, over our time. */
static double beside_ratio(const struct test_case *t, double us)
{
    return (double)t->beside_ns * 1e-3 / us;
}

static void write_csv(const struct bench *b, const char *name, const struct test_case *t, const struct gemm *g,
                      const struct result *r, double ratio)
{
    const double us = b->sustained ? r->sustained_us : r->us;
    csv_field(b->csv, name, ',');
    fprintf(b->csv, "%" PRId64 ",%" PRId64 ",%" PRId64 ",", t->m, t->n, t->k);
    csv_field(b->csv, g->plan.row, ',');
    csv_field(b->csv, g->plan.config, ',');
    fprintf(b->csv, "%.3f,%.1f,%.1f,", us, case_flops(t) / us * 1e-6, case_bytes(t) / us * 1e-3);
    if (r->baseline_us > 0.0)
        fprintf(b->csv, "%.3f,%.4f,", r->baseline_us, ratio);
    else
        fputs(",,", b->csv);
    fprintf(b->csv, "%.3f,%.4f,", floor_us(t), floor_us(t) / us);
    if (r->error >= 0.0)
        fprintf(b->csv, "%.3e", r->error);
    fprintf(b->csv, ",%u,", r->clock_mhz);
    if (t->beside_ns > 0)
        fprintf(b->csv, "%.3f,%.4f\n", (double)t->beside_ns * 1e-3, beside_ratio(t, us));
    else
        fputs(",\n", b->csv);
}

/* The line under a case: its configuration, its share of the floor, the clock, why there is no baseline. */
static void print_details(const struct bench *b, const struct test_case *t, const struct gemm *g,
                          const struct result *r, double us)
{
    if (b->device == DG_CPU)
        return;
    printf("    floor %.0f %%", 100.0 * floor_us(t) / us);
    if (r->baseline_us > 0.0)
        printf(", cuBLASLt %.2f us", r->baseline_us);
    if (t->beside_ns > 0)
        printf(", beside_ns / ours %.3f", beside_ratio(t, us));
    if (b->sustained && r->clock_mhz)
        printf(", SM clock %u MHz", r->clock_mhz);
    if (*g->plan.config)
        printf("; %s", g->plan.config);
    if (*r->why_no_baseline)
        printf("; %s", r->why_no_baseline);
    printf("\n");
}

static void bench_case(struct bench *b, const struct test_case *t)
{
    char name[CASE_NAME_BYTES];
    struct gemm gemm = {.device = b->device};
    struct result r = {-1.0, -1.0, -1.0, -1.0, 0, ""};
    struct report_line line = REPORT_LINE_INIT;
    case_print(t, name);
    const bool done = t->op == CASE_GEMM ? bench_gemm(b, &gemm, t, &r) : bench_other(b, t, &r);
    line.name = name;
    line.row = *gemm.plan.row ? gemm.plan.row : "-";
    line.error = r.error;
    line.result = done ? "PASS" : "FAIL";
    line.us = b->sustained ? r.sustained_us : r.us;
    if (done && line.us > 0.0) {
        line.gbps = case_bytes(t) / line.us * 1e-3;
        line.tflops = t->op == CASE_GEMM ? case_flops(t) / line.us * 1e-6 : -1.0;
        line.ratio = r.baseline_us > 0.0 ? r.baseline_us / line.us : -1.0;
    }
    count_ratio(&b->ratio[t->m > 256], line.ratio);
    if (done && line.us > 0.0 && t->op == CASE_GEMM)
        count_ratio(&b->beside[t->kind], beside_ratio(t, line.us));
    report_line(&b->report, &line, done ? NULL : trouble_text());
    if (done && line.us > 0.0) {
        print_details(b, t, &gemm, &r, line.us);
        if (b->csv)
            write_csv(b, name, t, &gemm, &r, line.ratio);
    }
    gemm_free(&gemm);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static void print_head(const struct bench *b)
{
    const size_t version = cublaslt_version();
    printf("deepgemm %s on %s; %s", dg_version(), device_name(b->device),
           b->sustained ? "one second without a pause, caches as they are" : b->timer.description);
    if (b->timer.kind == TIMER_CUPTI && !b->sustained)
        printf(" %u", cupti_version());
    printf("\n");
    if (*b->timer.why_not_better)
        printf("not kernel time, since CUPTI cannot be used: %s\n", b->timer.why_not_better);
    if (b->baseline)
        printf("ratio: time of cuBLASLt %zu.%zu.%zu tensor-wise FP8 / ours\n", version / 10000, version / 100 % 100,
               version % 100);
}

static void print_mean(const char *what, const char *of, const struct mean *mean)
{
    if (mean->count)
        printf("geometric mean of %s, %s: %.3f over %" PRId64 ", lowest %.3f\n", what, of,
               exp(mean->log_sum / (double)mean->count), mean->count, mean->lowest);
}

static void print_ratios(const struct bench *b)
{
    static const char *const sizes[] = {"m <= 256", "m > 256"};
    for (int i = 0; i < 2; ++i)
        print_mean("the ratio", sizes[i], &b->ratio[i]);
    for (int64_t kind = 0; kind < MOST_KINDS; ++kind)
        print_mean("beside_ns / ours", case_kind_name(kind), &b->beside[kind]);
}

static bool open_csv(struct bench *b)
{
    if (b->csv_path == NULL)
        return true;
    b->csv = fopen(b->csv_path, "w");
    if (b->csv == NULL)
        return trouble("%s cannot be written: %s", b->csv_path, strerror(errno));
    fputs("case,m,n,k,row,config,us,tflops,gbps,cublaslt_us,ratio,floor_us,floor_share,error,sm_mhz,"
          "beside_us,beside_ratio\n",
          b->csv);
    return true;
}

static bool begin(struct bench *b)
{
    if (b->device != DG_CPU && !gpu_begin(b->device))
        return false;
    if (b->sustained) /* CUPTI would slow down the launches that must keep ahead */
        b->timer_kind = TIMER_EVENTS;
    if (b->device == DG_CPU || b->sustained)
        b->baseline = false;
    if (!timer_make(&b->timer, b->device, b->timer_kind) || !open_csv(b))
        return false;
    if (b->baseline && !cublaslt_begin(b->device)) {
        print_note("without the baseline: %s", trouble_text());
        b->baseline = false;
    }
    return true;
}

static int name_width(const struct case_list *cases)
{
    char name[CASE_NAME_BYTES];
    int width = 20;
    for (int64_t i = 0; i < cases->count; ++i) {
        case_print(&cases->items[i], name);
        width = (int)strlen(name) > width ? (int)strlen(name) : width;
    }
    return width;
}

static int work(struct bench *b)
{
    if ((b->host || b->chain) && b->device == DG_CPU) {
        store_trouble("%s measures GPU calls, and there is no GPU", b->host ? "--host" : "--chain");
        return fail_check();
    }
    if (b->host)
        return bench_host(&b->cases, b->device);
    if (b->chain)
        return bench_chain(&b->cases, b->device);
    if (!begin(b))
        return fail_check();
    print_head(b);
    report_begin(&b->report, name_width(&b->cases));
    for (int64_t i = 0; i < b->cases.count; ++i) {
        progress("%" PRId64 "/%" PRId64, i + 1, b->cases.count);
        bench_case(b, &b->cases.items[i]);
    }
    print_ratios(b);
    report_end(&b->report);
    return b->report.failed ? EXIT_CHECK_FAILED : EXIT_PASS;
}

/* What the CPU's reference needs seconds for, or else a GPU. */
static bool default_cases(struct case_list *cases, int32_t device)
{
    if (device == DG_CPU)
        return case_list_pattern(cases, "gemm fp8 m={1|16} {n=2112 k=7168|n=576 k=7168}");
    return case_list_pattern(cases, "gemm fp8 m={64|4096} {n=2112 k=7168|n=24576 k=1536|n=7168 k=16384|n=7168 k=2048}");
}

enum { SHAPES = OPTION_LONG, CSV, BASELINE, ROUNDS, REPS, TIMER, SUSTAINED, HOST, CHAIN, INVARIANT, DEVICE };

static bool take_option(struct bench *b, int option)
{
    b->came |= OPTION_BIT(option);
    switch (option) {
    case SHAPES:
        return case_list_file(&b->cases, optarg);
    case CSV:
        b->csv_path = optarg;
        return true;
    case BASELINE:
        b->baseline = strcmp(optarg, "cublaslt") == 0;
        return b->baseline || strcmp(optarg, "none") == 0 ||
               trouble("--baseline %s: wanted is cublaslt or none", optarg);
    case ROUNDS:
        return parse_number(optarg, 1, 1000, &b->rounds);
    case REPS:
        return parse_number(optarg, 1, 1000, &b->reps);
    case TIMER:
        return parse_timer(optarg, &b->timer_kind);
    case SUSTAINED:
        b->sustained = true;
        return true;
    case HOST:
        b->host = true;
        return true;
    case CHAIN:
        b->chain = true;
        return true;
    case INVARIANT:
        return ok(dg_set(NULL, DG_SETTING_BATCH_INVARIANT, 1));
    default:
        return parse_device(optarg, &b->device);
    }
}

static const struct option options[] = {HELP_OPTION,
                                        {"shapes", required_argument, NULL, SHAPES},
                                        {"csv", required_argument, NULL, CSV},
                                        {"baseline", required_argument, NULL, BASELINE},
                                        {"rounds", required_argument, NULL, ROUNDS},
                                        {"reps", required_argument, NULL, REPS},
                                        {"timer", required_argument, NULL, TIMER},
                                        {"sustained", no_argument, NULL, SUSTAINED},
                                        {"host", no_argument, NULL, HOST},
                                        {"chain", no_argument, NULL, CHAIN},
                                        {"batch-invariant", no_argument, NULL, INVARIANT},
                                        {"device", required_argument, NULL, DEVICE},
                                        {0}};

static bool check_options(const struct bench *b)
{
    const unsigned of_rounds = OPTION_BIT(ROUNDS) | OPTION_BIT(REPS), of_gpu = OPTION_BIT(BASELINE) | OPTION_BIT(TIMER);
    const unsigned of_all = OPTION_BIT(SHAPES) | OPTION_BIT(INVARIANT) | OPTION_BIT(DEVICE);
    if (b->host)
        return check_no_effect(options, b->came, ~(of_all | OPTION_BIT(HOST)), "with --host");
    if (b->chain)
        return check_no_effect(options, b->came, ~(of_all | OPTION_BIT(CHAIN)), "with --chain");
    return (!b->sustained || check_no_effect(options, b->came, of_rounds | of_gpu, "with --sustained")) &&
           (b->device != DG_CPU || check_no_effect(options, b->came, of_gpu, "on the CPU"));
}

static bool close_csv(struct bench *b)
{
    errno = 0;
    const bool written = b->csv == NULL || !ferror(b->csv);
    const bool closed = b->csv == NULL || fclose(b->csv) == 0;
    b->csv = NULL;
    return (written && closed) ||
           trouble("%s could not be written: %s", b->csv_path, errno ? strerror(errno) : "short write");
}

static void release(struct bench *b)
{
    cublaslt_end();
    timer_free(&b->timer);
    case_list_free(&b->cases);
}

static int run(int argc, char **argv)
{
    struct bench b = {.device = -2, .rounds = 2, .reps = 10, .baseline = true};
    int code = EXIT_PASS;
    for (int option; (option = next_option(argc, argv, options, &code)) != -1;) {
        if (option != OPTION_DONE && take_option(&b, option))
            continue;
        if (option != OPTION_DONE)
            code = fail_usage("%s", trouble_text());
        case_list_free(&b.cases);
        return code;
    }
    if (b.device == -2) /* not given */
        parse_device("auto", &b.device);
    if (!check_options(&b) || !case_list_arguments(&b.cases, argc - optind, argv + optind) ||
        (b.cases.count == 0 && !default_cases(&b.cases, b.device)))
        code = fail_usage("%s", trouble_text());
    else
        code = work(&b);
    if (!close_csv(&b))
        code = fail_check();
    release(&b);
    return code;
}

const struct command command_bench = {"bench", "how fast, beside cuBLASLt in the same run", help_text, run};
