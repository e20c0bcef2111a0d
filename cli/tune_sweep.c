#include "tune.h"

#include "cublaslt.h"
#include "problem.h"
#include "program.h"
#include "report.h"
#include "timer.h"

#include "core/hash.h"
#include "core/status.h"
#include "jit/sources.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { COMPILERS = 16 };

struct candidate {
    int variant;
    struct gemm_plan plan;
    struct kernel_spec spec;
    struct cuda_launch launch;
    union gemm_kernel_args args;
    int32_t device;
    double us;
};

/* Of one case. */
struct field {
    const struct tune_sweep *sweep;
    const struct gemm_problem *problem;
    struct candidate *items;
    int count;
    struct timer timer;
};

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

static bool is_skinny(const struct gemm_plan *plan)
{
    return plan->row == &gemm_row_sm90_fp8_gemm_skinny;
}

double tune_cycles(const struct gemm_plan *plan)
{
    return is_skinny(plan) ? plan->skinny.cycles : plan->sm90.cycles;
}

bool tune_tile_exists(const struct tune_tile *tile)
{
    struct tune_tile other = {.row = tile->row};
    if (tile->row == &gemm_row_sm90_fp8_gemm_skinny) {
        for (int32_t i = 0; gemm_skinny_tile_at(i, &other.skinny); ++i)
            if (memcmp(&other.skinny, &tile->skinny, sizeof other.skinny) == 0)
                return true;
    } else {
        for (int32_t i = 0; gemm_1d2d_tile_at(i, &other.sm90); ++i)
            if (memcmp(&other.sm90, &tile->sm90, sizeof other.sm90) == 0)
                return true;
    }
    return false;
}

static bool plan_skinny(const struct gemm_problem *p, const dg_device_info *device, const struct gemm_skinny_tile *tile,
                        struct gemm_plan *plan)
{
    if (p->groups.kind != GEMM_KIND_DENSE || !gemm_skinny_worth_a_try(p, tile) ||
        !gemm_skinny_plan_tile(p, device, device->num_sms, tile, &plan->skinny))
        return false;
    gemm_skinny_shape(plan);
    return true;
}

static bool plan_1d2d(const struct gemm_problem *p, const dg_device_info *device, const struct gemm_1d2d_tile *tile,
                      struct gemm_plan *plan)
{
    if (!gemm_1d2d_plan_tile(p, device, device->num_sms, tile->block_m, tile->block_n, tile->cluster_m, tile->cluster_n,
                             &plan->sm90))
        return false;
    gemm_1d2d_shape(plan);
    return true;
}

bool tune_plan(const struct gemm_problem *p, const dg_device_info *device, const struct tune_tile *tile,
               struct gemm_plan *plan)
{
    plan->row = tile->row;
    if (tile->row == &gemm_row_sm90_fp8_gemm_skinny)
        return plan_skinny(p, device, &tile->skinny, plan);
    if (tile->row)
        return plan_1d2d(p, device, &tile->sm90, plan);
    const struct gemm_terms terms = {device, device->num_sms, false};
    if (gemm_select(p, &terms, &plan->row, NULL, 0) != DG_SUCCESS)
        return false;
    plan->row->plan(p, &terms, plan);
    return true;
}

/* A number for each order of summing: shares of K begin at whole steps. */
enum { ORDERS = 8 * 4 + 5 };
static int32_t order_of(const struct gemm_plan *plan)
{
    const struct gemm_skinny_config *c = &plan->skinny.config;
    return is_skinny(plan) && c->splits > 1 ? c->splits * 4 + c->step : 1;
}

static void add_candidate(struct field *field, const struct candidate *like)
{
    const int variants = field->sweep->variant_count ? field->sweep->variant_count : 1;
    for (int v = 0; v < variants; ++v) {
        struct candidate *c = &field->items[field->count++];
        *c = *like;
        c->variant = v;
        c->plan.row->spec(field->problem, &c->plan, &c->spec);
        c->spec.request.config = c->spec.config; /* its own copy */
        c->spec.request.arch = 90;
        c->us = 1e30;
    }
}

static void add_candidates(struct field *field, const dg_device_info *device)
{
    const struct gemm_problem *p = field->problem;
    const struct tune_sweep *sweep = field->sweep;
    double least = 1e300;
    struct candidate c;
    memset(&c, 0, sizeof c);
    c.device = p->device;
    for (int i = 0; i < sweep->tile_count; ++i)
        if (tune_plan(p, device, &sweep->tiles[i], &c.plan) && tune_cycles(&c.plan) < least)
            least = tune_cycles(&c.plan);
    field->count = 0;
    for (int i = 0; i < sweep->tile_count; ++i)
        if (tune_plan(p, device, &sweep->tiles[i], &c.plan) && tune_cycles(&c.plan) <= sweep->prune * least)
            add_candidate(field, &c);
}

/* ---- Compiling and loading --------------------------------------------------------------------------------------- */

struct compiling {
    struct field *field;
    int variant;
    atomic_int next, failed;
    char why[256];
    pthread_mutex_t mutex; /* of `why` */
};

static void *compile_some(void *user)
{
    struct compiling *work = user;
    int i;
    operation_begin("tune");
    while ((i = atomic_fetch_add(&work->next, 1)) < work->field->count) {
        struct candidate *c = &work->field->items[i];
        struct jit_cubin cubin;
        if (c->variant == work->variant && jit_get(&c->spec.request, true, &cubin, NULL) != DG_SUCCESS) {
            pthread_mutex_lock(&work->mutex);
            snprintf(work->why, sizeof work->why, "%.255s", dg_last_error());
            pthread_mutex_unlock(&work->mutex);
            atomic_store(&work->failed, 1);
        }
    }
    return NULL;
}

static bool compile_variant(struct field *field, int variant)
{
    struct compiling work = {.field = field, .variant = variant, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[COMPILERS];
    int count = 0;
    if (field->sweep->variant_count && field->sweep->variants[variant].text)
        sources_replace(field->items[0].plan.row->name, field->sweep->variants[variant].text);
    while (count < COMPILERS && pthread_create(&threads[count], NULL, compile_some, &work) == 0)
        ++count;
    for (int i = 0; i < count; ++i)
        pthread_join(threads[i], NULL);
    return count == 0 ? trouble("no thread could be made") : !work.failed || trouble("%s", work.why);
}

static bool load(struct candidate *c, const struct gemm_problem *p, const struct cuda_scope *scope)
{
    struct jit_cubin cubin;
    c->launch.grid[0] = c->plan.grid;
    c->launch.grid[1] = c->launch.grid[2] = 1;
    c->launch.threads = c->plan.threads;
    c->launch.cluster = c->plan.cluster;
    return ok(jit_get(&c->spec.request, true, &cubin, NULL)) &&
           ok(cuda_kernel_load(scope, cubin.image, cubin.bytes, c->spec.request.kernel, c->plan.smem_bytes,
                               &c->launch.kernel)) &&
           ok(c->plan.row->bind(p, &c->plan, scope->driver, &c->args));
}

static bool load_all(struct field *field, const struct cuda_scope *scope)
{
    const int variants = field->sweep->variant_count ? field->sweep->variant_count : 1;
    for (int v = 0; v < variants; ++v) {
        if (!compile_variant(field, v))
            return false;
        for (int i = 0; i < field->count; ++i)
            if (field->items[i].variant == v && !load(&field->items[i], field->problem, scope))
                return false;
    }
    return true;
}

/* ---- Checking and timing ----------------------------------------------------------------------------------------- */

static bool run_candidate(void *user, dg_stream stream)
{
    struct candidate *c = user;
    struct cuda_scope scope;
    if (!ok(cuda_enter(c->device, stream, &scope)))
        return false;
    const bool done = ok(cuda_launch(&scope, &c->launch, &c->args, stream));
    cuda_leave(&scope);
    return done;
}

static const char *variant_name(const struct tune_sweep *sweep, int variant)
{
    return sweep->variant_count ? sweep->variants[variant].name : "built-in";
}

/* Each candidate once, with D poisoned before: all with the same order of summing must give the same bits. */
static bool check_all(struct field *field, const dg_gemm_args *args)
{
    /* The first megabytes stand for all. */
    const size_t all = (size_t)(args->d.shape[0] * args->d.stride[0]) * dg_dtype_size(args->d.dtype) / 8 * 8;
    const size_t bytes = all < 4 << 20 ? all : 4 << 20;
    uint64_t first[ORDERS] = {0};
    char *host = get_memory(bytes);
    bool good = true;
    for (int i = 0; good && i < field->count; ++i) {
        struct candidate *c = &field->items[i];
        const int32_t order = order_of(&c->plan);
        good = gpu_fill(args->d.data, 0xffffffffu, bytes / 4, field->timer.stream) &&
               run_candidate(c, field->timer.stream) &&
               ok(dg_copy(host, DG_CPU, args->d.data, c->device, bytes, field->timer.stream));
        const uint64_t bits = good ? hash_words(host, bytes) : 0;
        if (good && first[order] && first[order] != bits)
            good = trouble("other bits than another configuration's: %s %s", variant_name(field->sweep, c->variant),
                           c->spec.config);
        first[order] = bits;
    }
    free(host);
    return good;
}

/* Another order in each round: what follows a slow candidate finds the clock higher than what follows a fast one. */
static void shuffle(int *order, int count)
{
    static uint32_t state = 1;
    for (int i = 0; i < count; ++i)
        order[i] = i;
    for (int i = count - 1; i > 0; --i) {
        state = state * 1664525u + 1013904223u;
        const int j = (int)(state >> 8) % (i + 1), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}

static bool time_all(struct field *field, struct cublaslt_plan *baseline, double *baseline_us)
{
    int order[TUNE_MAX_CANDIDATES] = {0};
    double us;
    const int reps = (int)field->sweep->reps;
    for (int64_t round = 0; round < field->sweep->rounds; ++round) {
        if (baseline) {
            if (!timer_round(&field->timer, cublaslt_run, baseline, reps, &us))
                return false;
            *baseline_us = us < *baseline_us || round == 0 ? us : *baseline_us;
        }
        shuffle(order, field->count);
        for (int i = 0; i < field->count; ++i) {
            struct candidate *c = &field->items[order[i]];
            if (!timer_round(&field->timer, run_candidate, c, reps, &us))
                return false;
            c->us = us < c->us ? us : c->us;
        }
    }
    return true;
}

static void write_all(const struct field *field, const struct test_case *test, double baseline_us)
{
    char name[CASE_NAME_BYTES];
    case_print(test, name);
    for (int i = 0; i < field->count; ++i) {
        const struct candidate *c = &field->items[i];
        char line[512];
        c->plan.row->line(&c->plan, line, sizeof line);
        fprintf(field->sweep->csv, "%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%.2f,%.2f,%.0f,%s,",
                variant_name(field->sweep, c->variant), c->plan.row->name, test->m, test->n, test->k, c->us,
                baseline_us, tune_cycles(&c->plan), line);
        csv_field(field->sweep->csv, name, '\n');
    }
    fflush(field->sweep->csv);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

static bool sweep_gemm(struct field *field, const struct test_case *test, const dg_gemm_args *args)
{
    struct gemm_problem p;
    struct cuda_scope scope;
    struct cublaslt_plan baseline = {0};
    double baseline_us = 0.0;
    operation_begin("tune");
    if (!ok(gemm_problem_make(args, NULL_DATA_REFUSED, &p)) || !ok(cuda_enter(p.device, field->timer.stream, &scope)))
        return false;
    field->problem = &p;
    add_candidates(field, &scope.device->info);
    bool done = field->count == 0 || load_all(field, &scope);
    field->problem = NULL;
    cuda_leave(&scope);
    if (!done || field->count == 0) /* no tile exists, as the skinny kernel has none for many rows */
        return done;
    if (!check_all(field, args))
        return false;
    const bool compared = test->kind == DG_GEMM_DENSE && cublaslt_plan_make(&baseline, args);
    done = time_all(field, compared ? &baseline : NULL, &baseline_us);
    cublaslt_plan_free(&baseline);
    if (done)
        write_all(field, test, baseline_us);
    return done;
}

static bool sweep_case(struct field *field, const struct test_case *test)
{
    struct gemm gemm = {.device = field->sweep->device};
    if (test->op != CASE_GEMM || test->kind == DG_GEMM_K_GROUPED)
        return trouble("only gemm cases without groups along K can be tuned");
    bool done = gemm_make(&gemm, test, field->sweep->device, RANDOM_PLAIN);
    if (done) {
        const dg_gemm_args args = gemm_args(&gemm);
        done = sweep_gemm(field, test, &args);
    }
    gemm_free(&gemm);
    return done;
}

bool tune_sweep(struct tune_sweep *sweep)
{
    struct field field = {.sweep = sweep};
    if (!gpu_begin(sweep->device) || !timer_make(&field.timer, sweep->device, TIMER_BEST))
        return false;
    cublaslt_begin(sweep->device);
    field.items = aligned_alloc(64, TUNE_MAX_CANDIDATES * sizeof *field.items);
    bool done = field.items != NULL || trouble("no memory for %d candidates", TUNE_MAX_CANDIDATES);
    fprintf(sweep->csv, "variant,kernel,m,n,k,us,cublas_us,predicted,config,case\n");
    for (int64_t i = 0; done && i < sweep->cases.count; ++i) {
        progress("%" PRId64 "/%" PRId64, i + 1, sweep->cases.count);
        done = sweep_case(&field, &sweep->cases.items[i]);
    }
    progress_clear();
    free(field.items);
    cublaslt_end();
    timer_free(&field.timer);
    return done;
}
