/*
 * sweep - time every configuration of the kernels on the GPU, beside cuBLASLt, to fit the cost models and to compare
 * variants of a kernel's text. A tool for whoever tunes; uses the library's inside.
 *
 *   sweep [-k KERNEL]... [-v NAME=FILE]... [-t TILE]... [-r ROUNDS] [-n REPS] M,N,K...
 *
 * -k restricts the kernels: 1d2d, skinny, or choice, which is what the library would take.
 * -v adds a variant: another text for the kernel, which must be the only one; without -v the built-in text is.
 * -t restricts the tiles, BLOCK_MxBLOCK_N[cCLUSTER_MxCLUSTER_N] or sBLOCK_MxSTEPxSPLITSxBLOCKS_PER_SM;
 *    without it all that exist are timed.
 * CSV goes to stdout, one line per configuration. All configurations that sum in the same order, which is all but those
 * that split K differently, must give the same bits; one that does not is reported and fails the run.
 */
#include "cli/cublaslt.h"
#include "cli/problem.h"
#include "cli/timer.h"
#include "core/context.h"
#include "core/hash.h"
#include "ops/gemm_row.h"
#include "jit/sources.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VARIANTS = 32, MAX_TILES = 1024, MAX_CANDIDATES = 4096 };

/* Of one kernel or the other, as `row` says; NULL: the library's choice. */
struct tile {
    const struct gemm_row *row;
    int block_m, block_n, cluster_m, cluster_n;
    struct gemm_skinny_tile skinny;
};

struct candidate {
    int variant;
    struct gemm_plan plan;
    struct kernel_spec spec;
    struct cuda_launch launch;
    union gemm_kernel_args args;
    double us;
    bool usable;
};

static const char *variant_names[MAX_VARIANTS] = {"built-in"};
static char *variant_texts[MAX_VARIANTS];
static int variant_count;
static struct tile tiles[MAX_TILES];
static int tile_count;
static const struct gemm_row *kernels[2] = {&gemm_row_sm90_fp8_gemm_1d2d, &gemm_row_sm90_fp8_gemm_skinny};
static int kernel_count;
static struct candidate *candidates;
static int candidate_count;
static atomic_int next_candidate;
static int rounds = 2, reps = 10, wrong;
static dg_context *context;
static void *notes; /* device memory at args.c, where an instrumented variant leaves NOTES numbers per warpgroup */
enum {
    MAX_ORDERS = 8 * 4 + 4,
    NOTES = 8,
    NOTE_BYTES = 132 * 8 * NOTES * 8 /* two blocks on an SM, four warpgroups each */
};

static void die(const char *what)
{
    fprintf(stderr, "sweep: %s: %s\n", what, dg_last_error());
    exit(1);
}

/* ---- Candidates ---------------------------------------------------------------------------------------------- */

static bool plan_tile(const struct gemm_problem *p, const dg_device_info *device, const struct tile *t,
                      struct gemm_plan *plan)
{
    const int32_t sms = device->num_sms;
    plan->row = t->row;
    if (t->row == &gemm_row_sm90_fp8_gemm_skinny) {
        const bool wide = t->skinny.block_m >= 2 * p->m && t->skinny.block_m > 8; /* half of it would do */
        const bool narrow = t->skinny.block_m * 2 < p->m && t->skinny.block_m < 128;
        if (wide || narrow || !gemm_skinny_plan_tile(p, device, sms, &t->skinny, &plan->skinny))
            return false;
        gemm_skinny_shape(plan);
    } else if (t->row) {
        if (!gemm_1d2d_plan_tile(p, device, sms, t->block_m, t->block_n, t->cluster_m, t->cluster_n, &plan->sm90))
            return false;
        gemm_1d2d_shape(plan);
    } else {
        const struct gemm_terms terms = {device, sms, false};
        if (gemm_select(p, &terms, &plan->row, NULL, 0) != DG_SUCCESS)
            return false;
        plan->row->plan(p, &terms, plan);
    }
    return true;
}

static double predicted(const struct gemm_plan *plan)
{
    return plan->row == &gemm_row_sm90_fp8_gemm_skinny ? plan->skinny.cycles : plan->sm90.cycles;
}

/* A number for each order of summing: shares of K begin at whole steps. */
static int32_t order_of(const struct gemm_plan *plan)
{
    const struct gemm_skinny_config *c = &plan->skinny.config;
    return plan->row == &gemm_row_sm90_fp8_gemm_skinny && c->splits > 1 ? c->splits * 4 + c->step : 1;
}

static void add_candidate(const struct gemm_problem *p, const dg_device_info *device, const struct tile *t)
{
    struct candidate *c = &candidates[candidate_count];
    memset(c, 0, sizeof *c);
    if (candidate_count + MAX_VARIANTS > MAX_CANDIDATES || !plan_tile(p, device, t, &c->plan))
        return;
    for (int v = 1; v < variant_count; ++v) {
        c[v] = *c;
        c[v].variant = v;
    }
    candidate_count += variant_count;
}

static void add_tiles_1d2d(void)
{
    static const int clusters[][2] = {{1, 1}, {2, 1}, {1, 2}};
    for (int m = 64; m <= 256; m += 64)
        for (int n = 16; n <= 192; n += 16)
            for (int c = 0; c < 3; ++c)
                tiles[tile_count++] =
                    (struct tile){&gemm_row_sm90_fp8_gemm_1d2d, m, n, clusters[c][0], clusters[c][1], {0, 0, 0, 0}};
}

static void add_tiles_skinny(void)
{
    struct gemm_skinny_tile skinny;
    for (int32_t i = 0; gemm_skinny_tile_at(i, &skinny); ++i)
        tiles[tile_count++] = (struct tile){&gemm_row_sm90_fp8_gemm_skinny, 0, 0, 0, 0, skinny};
}

static void add_all_tiles(void)
{
    for (int i = 0; i < kernel_count; ++i)
        if (kernels[i] == &gemm_row_sm90_fp8_gemm_1d2d)
            add_tiles_1d2d();
        else if (kernels[i])
            add_tiles_skinny();
        else
            tiles[tile_count++] = (struct tile){NULL, 0, 0, 0, 0, {0, 0, 0, 0}};
}

static void *compile_some(void *variant)
{
    int i;
    operation_begin("sweep");
    while ((i = atomic_fetch_add(&next_candidate, 1)) < candidate_count) {
        struct jit_cubin cubin;
        if (candidates[i].variant == *(int *)variant)
            candidates[i].usable = jit_get(&candidates[i].spec.request, true, &cubin, NULL) == DG_SUCCESS;
        if (candidates[i].variant == *(int *)variant && !candidates[i].usable)
            fprintf(stderr, "sweep: %s\n", dg_last_error());
    }
    return NULL;
}

static void compile_variant(int variant)
{
    pthread_t threads[16];
    if (variant_texts[variant])
        sources_replace(kernels[0]->name, variant_texts[variant]);
    atomic_store(&next_candidate, 0);
    for (int i = 0; i < 16; ++i)
        pthread_create(&threads[i], NULL, compile_some, &variant);
    for (int i = 0; i < 16; ++i)
        pthread_join(threads[i], NULL);
}

static void load_candidates(const struct gemm_problem *p, const struct cuda_scope *scope, int variant)
{
    for (int i = 0; i < candidate_count; ++i) {
        struct candidate *c = &candidates[i];
        struct jit_cubin cubin;
        if (c->variant != variant || !c->usable)
            continue;
        if (jit_get(&c->spec.request, true, &cubin, NULL) != DG_SUCCESS ||
            cuda_kernel_load(scope, cubin.image, cubin.bytes, c->spec.request.kernel, c->plan.smem_bytes,
                             &c->launch.kernel) != DG_SUCCESS ||
            c->plan.row->bind(p, &c->plan, scope->driver, &c->args) != DG_SUCCESS)
            die("load");
        if (c->plan.row == &gemm_row_sm90_fp8_gemm_1d2d)
            c->args.sm90.c.data = (uint64_t)(uintptr_t)notes;
        else
            c->args.skinny.c.data = (uint64_t)(uintptr_t)notes;
        c->launch.grid[0] = c->plan.grid;
        c->launch.grid[1] = c->launch.grid[2] = 1;
        c->launch.threads = c->plan.threads;
        c->launch.cluster = c->plan.cluster;
        c->us = 1e30;
    }
}

/* ---- Timing -------------------------------------------------------------------------------------------------- */

static bool run_candidate(void *user, dg_stream stream)
{
    struct candidate *c = user;
    struct cuda_scope scope;
    if (cuda_enter(0, stream, &scope) != DG_SUCCESS)
        return false;
    dg_status status = cuda_launch(&scope, &c->launch, &c->args, stream);
    cuda_leave(&scope);
    return status == DG_SUCCESS;
}

/* The first megabytes stand for all. */
static size_t bytes_of_d(const dg_gemm_args *args)
{
    size_t bytes = (size_t)(args->d.shape[0] * args->d.stride[0]) * dg_dtype_size(args->d.dtype);
    return bytes < 4 << 20 ? bytes : 4 << 20;
}

static struct hash128 hash_of_d(const dg_gemm_args *args, char *host)
{
    size_t bytes = bytes_of_d(args);
    struct hash128 h = hash128_begin();
    if (dg_copy(host, DG_CPU, args->d.data, 0, bytes, NULL) != DG_SUCCESS)
        die("copy");
    uint64_t words[2] = {hash_words(host, bytes / 8 * 8), bytes};
    hash128_add(&h, words, sizeof words);
    return h;
}

static bool instrumented(const struct candidate *c)
{
    return strncmp(variant_names[c->variant], "prof", 4) == 0;
}

/* Each candidate once, with D poisoned before: a launch that fails or other bits than the first one's are reported. */
static void check_candidates(const dg_gemm_args *args, dg_stream stream)
{
    size_t bytes = bytes_of_d(args);
    char *host = malloc(bytes);
    struct hash128 first[MAX_ORDERS + 1] = {{0, 0}};
    bool have_first[MAX_ORDERS + 1] = {false};
    for (int i = 0; i < candidate_count; ++i) {
        struct candidate *c = &candidates[i];
        if (!c->usable || instrumented(c)) /* whose results may be wrong on purpose */
            continue;
        gpu_fill(args->d.data, 0xffffffffu, bytes / 4, stream);
        if (!run_candidate(c, stream) || dg_synchronize(0, stream) != DG_SUCCESS)
            die("run");
        struct hash128 h = hash_of_d(args, host);
        const int32_t order = order_of(&c->plan);
        if (have_first[order] && (h.high != first[order].high || h.low != first[order].low)) {
            fprintf(stderr, "sweep: other bits: %s %s\n", variant_names[c->variant], c->spec.config);
            ++wrong;
        }
        first[order] = have_first[order] ? first[order] : h;
        have_first[order] = true;
    }
    free(host);
}

/* The mean over all warpgroups of what an instrumented variant left. */
static void print_notes(struct candidate *c, struct timer *timer)
{
    static uint64_t host[NOTE_BYTES / 8];
    double sum[NOTES] = {0};
    if (!instrumented(c))
        return;
    double us; /* of some runs with a cold cache, the last of which leaves the notes */
    gpu_fill(notes, 0, NOTE_BYTES / 4, timer->stream);
    if (!timer_round(timer, run_candidate, c, reps, &us) ||
        dg_copy(host, DG_CPU, notes, 0, NOTE_BYTES, timer->stream) != DG_SUCCESS)
        die("notes");
    const int warpgroups = c->plan.row == &gemm_row_sm90_fp8_gemm_1d2d ? c->plan.sm90.config.warpgroups : 1;
    int count = (int)c->plan.grid * warpgroups;
    for (int i = 0; i < count; ++i)
        for (int j = 0; j < NOTES; ++j)
            sum[j] += (double)host[i * NOTES + j] / count;
    char line[512];
    c->plan.row->line(&c->plan, line, sizeof line);
    fprintf(stderr, "%s %.60s:", variant_names[c->variant], line);
    for (int j = 0; j < NOTES; ++j)
        fprintf(stderr, " %.0f", sum[j]);
    fprintf(stderr, "\n");
}

static double time_all(struct timer *timer, struct cublaslt_plan *baseline)
{
    double cublas = 1e30, us;
    for (int round = 0; round < rounds; ++round) {
        if (baseline && timer_round(timer, cublaslt_run, baseline, reps, &us) && us < cublas)
            cublas = us;
        for (int i = 0; i < candidate_count; ++i)
            if (candidates[i].usable) {
                if (!timer_round(timer, run_candidate, &candidates[i], reps, &us))
                    die("time");
                if (us < candidates[i].us)
                    candidates[i].us = us;
            }
    }
    return cublas;
}

static void print_all(const dg_gemm_args *args, double cublas)
{
    for (int i = 0; i < candidate_count; ++i) {
        const struct candidate *c = &candidates[i];
        char line[512];
        if (!c->usable)
            continue;
        c->plan.row->line(&c->plan, line, sizeof line);
        printf("%s,%s,%lld,%lld,%lld,%.2f,%.2f,%.0f,%s\n", variant_names[c->variant], c->plan.row->name,
               (long long)args->d.shape[0], (long long)args->d.shape[1], (long long)args->a.shape[1], c->us, cublas,
               predicted(&c->plan), line);
    }
    fflush(stdout);
}

/* `args` are of a problem with M rows or more; the first m are multiplied. */
static void sweep_problem(dg_gemm_args args, int64_t m, struct timer *timer)
{
    struct gemm_problem p;
    struct cuda_scope scope;
    struct cublaslt_plan baseline;
    operation_begin("sweep");
    args.a.shape[0] = args.sfa.shape[0] = args.d.shape[0] = m;
    if (gemm_problem_make(&args, NULL_DATA_REFUSED, &p) != DG_SUCCESS ||
        cuda_enter(0, timer->stream, &scope) != DG_SUCCESS)
        die("problem");
    candidate_count = 0;
    for (int i = 0; i < tile_count; ++i)
        add_candidate(&p, &scope.device->info, &tiles[i]);
    for (int i = 0; i < candidate_count; ++i) {
        candidates[i].plan.row->spec(&p, &candidates[i].plan, &candidates[i].spec);
        candidates[i].spec.request.config = candidates[i].spec.config;
        candidates[i].spec.request.arch = 90;
    }
    for (int v = 0; v < variant_count; ++v) {
        compile_variant(v);
        load_candidates(&p, &scope, v);
    }
    check_candidates(&args, timer->stream);
    bool compared = cublaslt_plan_make(&baseline, &args);
    double cublas = time_all(timer, compared ? &baseline : NULL);
    for (int i = 0; i < candidate_count; ++i)
        print_notes(&candidates[i], timer);
    if (compared)
        cublaslt_plan_free(&baseline);
    print_all(&args, cublas);
    cuda_leave(&scope);
}

/* ---- Arguments ----------------------------------------------------------------------------------------------- */

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    if (file == NULL || getdelim(&text, &room, '\0', file) < 0)
        die(path);
    fclose(file);
    return text;
}

static void add_variant(char *option)
{
    char *path = strchr(option, '=');
    if (path == NULL)
        die("-v wants NAME=FILE");
    *path++ = '\0';
    variant_names[variant_count] = option;
    variant_texts[variant_count++] = read_text(path);
}

static void add_kernel(const char *name)
{
    if (kernel_count == 2)
        die("-k is given more than twice");
    if (strcmp(name, "1d2d") == 0)
        kernels[kernel_count++] = &gemm_row_sm90_fp8_gemm_1d2d;
    else if (strcmp(name, "skinny") == 0)
        kernels[kernel_count++] = &gemm_row_sm90_fp8_gemm_skinny;
    else if (strcmp(name, "choice") == 0)
        kernels[kernel_count++] = NULL;
    else
        die("-k wants 1d2d, skinny or choice");
}

static void add_tile(const char *option)
{
    struct tile t = {&gemm_row_sm90_fp8_gemm_1d2d, 0, 0, 1, 1, {0, 0, 0, 0}};
    struct gemm_skinny_tile *s = &t.skinny;
    if (sscanf(option, "s%dx%dx%dx%d", &s->block_m, &s->step, &s->splits, &s->blocks_per_sm) == 4)
        t.row = &gemm_row_sm90_fp8_gemm_skinny;
    else if (sscanf(option, "%dx%dc%dx%d", &t.block_m, &t.block_n, &t.cluster_m, &t.cluster_n) < 2)
        die("-t wants BLOCK_MxBLOCK_N[cCLUSTER_MxCLUSTER_N] or sBLOCK_MxSTEPxSPLITSxBLOCKS_PER_SM");
    tiles[tile_count++] = t;
}

static void sweep_case(const char *text, struct timer *timer)
{
    struct gemm gemm;
    struct test_case test;
    long long m, n, k;
    char line[128];
    if (sscanf(text, "%lld,%lld,%lld", &m, &n, &k) != 3)
        die("wanted M,N,K");
    snprintf(line, sizeof line, "gemm fp8 m=%lld n=%lld k=%lld", m, n, k);
    if (!case_parse(line, &test) || !gemm_make(&gemm, &test, 0, RANDOM_PLAIN))
        die(line);
    dg_gemm_args args = gemm_args(&gemm);
    sweep_problem(args, m, timer);
    gemm_free(&gemm);
}

int main(int argc, char **argv)
{
    struct timer timer;
    int option;
    while ((option = getopt(argc, argv, "k:v:t:r:n:")) != -1) {
        if (option == 'k')
            add_kernel(optarg);
        else if (option == 'v')
            add_variant(optarg);
        else if (option == 't')
            add_tile(optarg);
        else if (option == 'r')
            rounds = atoi(optarg);
        else if (option == 'n')
            reps = atoi(optarg);
        else
            return 2;
    }
    if (variant_count > 0 && (kernel_count != 1 || kernels[0] == NULL))
        die("-v wants one -k, 1d2d or skinny");
    if (variant_count == 0)
        variant_count = 1;
    if (kernel_count == 0)
        kernel_count = 2;
    if (tile_count == 0)
        add_all_tiles();
    candidates = aligned_alloc(64, MAX_CANDIDATES * sizeof *candidates);
    if (dg_context_create(&context) != DG_SUCCESS || !gpu_begin(0) || !timer_make(&timer, 0, TIMER_BEST))
        die("start");
    if (dg_alloc(0, NOTE_BYTES, &notes) != DG_SUCCESS)
        die("notes");
    cublaslt_begin(0);
    fprintf(stderr, "sweep: %s, cuBLASLt %zu\n", timer.description, cublaslt_version());
    printf("variant,kernel,m,n,k,us,cublas_us,predicted,config\n");
    for (int i = optind; i < argc; ++i)
        sweep_case(argv[i], &timer);
    return wrong ? 1 : 0;
}
