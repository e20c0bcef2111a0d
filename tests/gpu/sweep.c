/*
 * sweep - time every configuration of a kernel on the GPU, beside cuBLASLt, to fit the cost model and to compare
 * variants of the kernel's text. A tool for whoever tunes; uses the library's inside.
 *
 *   sweep [-v NAME=FILE]... [-t BLOCK_MxBLOCK_N[cCLUSTER_MxCLUSTER_N]]... [-r ROUNDS] [-n REPS] M,N,K...
 *
 * -v adds a variant: another text for kernels/sm90/fp8_gemm_1d2d.cu; without -v the built-in text is the only one.
 * -t restricts the tiles; without it all that exist are timed. CSV goes to stdout, one line per configuration.
 * All configurations of a problem must give the same bits; one that does not is reported and fails the run.
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

enum { MAX_VARIANTS = 32, MAX_TILES = 256, MAX_CANDIDATES = 4096 };

struct tile {
    int block_m, block_n, cluster_m, cluster_n;
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
static struct candidate *candidates;
static int candidate_count;
static atomic_int next_candidate;
static int rounds = 2, reps = 10, wrong;
static dg_context *context;
static void *notes; /* device memory at args.c, where an instrumented variant leaves NOTES numbers per warpgroup */
enum { NOTES = 8, NOTE_BYTES = 132 * 3 * NOTES * 8 };

static void die(const char *what)
{
    fprintf(stderr, "sweep: %s: %s\n", what, dg_last_error());
    exit(1);
}

/* ---- Candidates ---------------------------------------------------------------------------------------------- */

static void add_candidate(const struct gemm_problem *p, const dg_device_info *device, const struct tile *t)
{
    struct candidate *c = &candidates[candidate_count];
    memset(c, 0, sizeof *c);
    c->plan.row = &gemm_row_sm90_fp8_gemm_1d2d;
    if (candidate_count + MAX_VARIANTS > MAX_CANDIDATES ||
        !gemm_1d2d_plan_tile(p, device, device->num_sms, t->block_m, t->block_n, t->cluster_m, t->cluster_n,
                             &c->plan.sm90))
        return;
    for (int v = 1; v < variant_count; ++v) {
        c[v] = *c;
        c[v].variant = v;
    }
    candidate_count += variant_count;
}

static void add_all_tiles(void)
{
    static const int clusters[][2] = {{1, 1}, {2, 1}, {1, 2}};
    for (int m = 64; m <= 256; m += 64)
        for (int n = 16; n <= 192; n += 16)
            for (int c = 0; c < 3; ++c)
                tiles[tile_count++] = (struct tile){m, n, clusters[c][0], clusters[c][1]};
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
        sources_replace("sm90_fp8_gemm_1d2d", variant_texts[variant]);
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
            cuda_kernel_load(scope, cubin.image, cubin.bytes, c->spec.request.kernel, c->plan.sm90.config.smem_bytes,
                             &c->launch.kernel) != DG_SUCCESS ||
            c->plan.row->bind(p, &c->plan, scope->driver, &c->args) != DG_SUCCESS)
            die("load");
        c->args.sm90.c.data = (uint64_t)(uintptr_t)notes;
        c->launch.grid[0] = (uint32_t)c->plan.sm90.grid;
        c->launch.grid[1] = c->launch.grid[2] = 1;
        c->launch.threads = (uint32_t)c->plan.sm90.threads;
        c->launch.cluster = (uint32_t)c->plan.sm90.cluster;
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
    struct hash128 first = {0, 0};
    bool have_first = false;
    for (int i = 0; i < candidate_count; ++i) {
        struct candidate *c = &candidates[i];
        if (!c->usable || instrumented(c)) /* whose results may be wrong on purpose */
            continue;
        gpu_fill(args->d.data, 0xffffffffu, bytes / 4, stream);
        if (!run_candidate(c, stream) || dg_synchronize(0, stream) != DG_SUCCESS)
            die("run");
        struct hash128 h = hash_of_d(args, host);
        if (have_first && (h.high != first.high || h.low != first.low)) {
            fprintf(stderr, "sweep: other bits: %s %s\n", variant_names[c->variant], c->spec.config);
            ++wrong;
        }
        first = have_first ? first : h;
        have_first = true;
    }
    free(host);
}

/* The mean over all warpgroups of what an instrumented variant left. */
static void print_notes(const struct candidate *c, dg_stream stream)
{
    static uint64_t host[NOTE_BYTES / 8];
    double sum[NOTES] = {0};
    if (!instrumented(c))
        return;
    gpu_fill(notes, 0, NOTE_BYTES / 4, stream);
    run_candidate(&candidates[c - candidates], stream);
    if (dg_synchronize(0, stream) != DG_SUCCESS || dg_copy(host, DG_CPU, notes, 0, NOTE_BYTES, stream) != DG_SUCCESS)
        die("notes");
    int count = c->plan.sm90.grid * c->plan.sm90.config.warpgroups;
    for (int i = 0; i < count; ++i)
        for (int j = 0; j < NOTES; ++j)
            sum[j] += (double)host[i * NOTES + j] / count;
    fprintf(stderr, "%s %dx%dc%dx%d:", variant_names[c->variant], c->plan.sm90.config.block_m,
            c->plan.sm90.config.block_n, c->plan.sm90.config.cluster_m, c->plan.sm90.config.cluster_n);
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
        const struct gemm_1d2d_plan *s = &c->plan.sm90;
        if (c->usable)
            printf("%s,%lld,%lld,%lld,%d,%d,%d,%d,%d,%d,%.2f,%.2f,%.0f\n", variant_names[c->variant],
                   (long long)args->d.shape[0], (long long)args->d.shape[1], (long long)args->a.shape[1],
                   (int)s->config.block_m, (int)s->config.block_n, (int)s->config.cluster_m, (int)s->config.cluster_n,
                   (int)s->config.stages, (int)s->sched.tiles, c->us, cublas, s->cycles);
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
    for (int i = 0; i < candidate_count; ++i)
        print_notes(&candidates[i], timer->stream);
    double cublas = time_all(timer, compared ? &baseline : NULL);
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

static void add_tile(const char *option)
{
    struct tile t = {0, 0, 1, 1};
    if (sscanf(option, "%dx%dc%dx%d", &t.block_m, &t.block_n, &t.cluster_m, &t.cluster_n) < 2)
        die("-t wants BLOCK_MxBLOCK_N[cCLUSTER_MxCLUSTER_N]");
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
    while ((option = getopt(argc, argv, "v:t:r:n:")) != -1) {
        if (option == 'v')
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
    if (variant_count == 0)
        variant_count = 1;
    if (tile_count == 0)
        add_all_tiles();
    candidates = aligned_alloc(64, MAX_CANDIDATES * sizeof *candidates);
    if (dg_context_create(&context) != DG_SUCCESS || !gpu_begin(0) || !timer_make(&timer, 0, TIMER_BEST))
        die("start");
    if (dg_alloc(0, NOTE_BYTES, &notes) != DG_SUCCESS)
        die("notes");
    cublaslt_begin(0);
    fprintf(stderr, "sweep: %s, cuBLASLt %zu\n", timer.description, cublaslt_version());
    printf("variant,m,n,k,block_m,block_n,cluster_m,cluster_n,stages,tiles,us,cublas_us,predicted\n");
    for (int i = optind; i < argc; ++i)
        sweep_case(argv[i], &timer);
    return wrong ? 1 : 0;
}
