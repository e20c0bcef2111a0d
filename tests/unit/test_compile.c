/*
 * Every kernel builds for its architectures with the NVRTC that is found, without a GPU, and the compiler has nothing
 * to object: no spills, no local memory, no wgmma serialised. The kernels of the golden plans build in under a second.
 *
 * The configurations: all tiles with all clusters (of the skinny kernel two numbers of splits; of masked
 * groups no clusters), and for typical
 * tiles of each number of warpgroups all output types, with and without C, packed and FP32 scales both ways of loading
 * them, both stores; of the plain kernels all there are.
 */
#include "ops/gemm_row.h"
#include "ops/scale_kernels.h"
#include "tests/test.h"
#include "tests/unit/golden_shapes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { MAX_JOBS = 2048, WORKERS = 2 };

struct job {
    struct kernel_spec spec;
    int32_t max_registers;
    dg_status status;
    struct jit_report report;
    char error[512];
};

static struct job *jobs;
static int job_count;
static atomic_int next_job;

static struct job *new_job(int32_t arch)
{
    EXPECT(job_count < MAX_JOBS);
    struct job *job = &jobs[job_count++];
    memset(job, 0, sizeof *job);
    job->spec.request.arch = arch;
    job->max_registers = 255;
    return job;
}

/* ---- The list ------------------------------------------------------------------------------------------------ */

struct variant {
    dg_dtype out;
    bool c, sfa_packed, sfb_packed, sfa_columns, odd_d;
    dg_gemm_kind kind; /* DG_GEMM_DENSE, or one with groups of rows: four */
};

static dg_tensor four_of(dg_tensor t)
{
    dg_tensor stack = dg_matrix(t.data, t.dtype, t.device, 1, 1);
    stack.ndim = 3;
    stack.shape[0] = 4;
    stack.stride[0] = t.shape[0] * t.shape[1] * 2; /* rows may have gaps */
    for (int i = 0; i < 2; ++i) {
        stack.shape[i + 1] = t.shape[i];
        stack.stride[i + 1] = t.stride[i];
    }
    return stack;
}

static void make_grouped(dg_gemm_args *args, dg_gemm_kind kind)
{
    args->kind = kind;
    args->layout = (dg_tensor){.dtype = DG_INT32, .ndim = 1, .shape = {4}, .stride = {1}};
    args->b = four_of(args->b);
    args->sfb = four_of(args->sfb);
    if (kind == DG_GEMM_CONTIGUOUS)
        args->layout.shape[0] = args->a.shape[0];
    if (kind == DG_GEMM_MASKED) {
        args->a = four_of(args->a);
        args->sfa = four_of(args->sfa);
        args->d = four_of(args->d);
    }
}

static struct gemm_problem problem_of(int64_t m, int64_t n, int64_t k, struct variant v)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    struct gemm_problem p;
    args.a = dg_matrix(NULL, DG_FLOAT8_E4M3, 0, m, k);
    args.b = dg_matrix(NULL, DG_FLOAT8_E4M3, 0, n, k);
    args.sfa = dg_matrix(NULL, v.sfa_packed ? DG_INT32 : DG_FLOAT32, 0, m, ceil_div(k, v.sfa_packed ? 512 : 128));
    args.sfb = dg_matrix(NULL, v.sfb_packed ? DG_INT32 : DG_FLOAT32, 0, ceil_div(n, 128),
                         ceil_div(k, v.sfb_packed ? 512 : 128));
    args.d = dg_matrix(NULL, v.out, 0, m, n);
    args.d.stride[0] += v.odd_d;
    if (v.sfa_columns) {
        args.sfa.stride[0] = 1;
        args.sfa.stride[1] = ceil_div(m, 4) * 4;
    }
    if (v.kind != DG_GEMM_DENSE)
        make_grouped(&args, v.kind);
    if (v.c)
        args.c = args.d;
    operation_begin("dg_test");
    EXPECT_OK(gemm_problem_make(&args, NULL_DATA_ACCEPTED, &p));
    return p;
}

static struct gemm_problem problem(struct variant v)
{
    return problem_of(1024, 4096, 1024, v);
}

static void add_tile(const struct gemm_problem *p, int32_t block_m, int32_t block_n, int32_t cluster_m,
                     int32_t cluster_n)
{
    dg_device_info device = DG_DEVICE_INFO_INIT;
    struct gemm_plan plan = {.row = &gemm_row_sm90_fp8_gemm_1d2d};
    EXPECT_OK(dg_device_preset("h200", &device));
    if (!gemm_1d2d_plan_tile(p, &device, device.num_sms, block_m, block_n, cluster_m, cluster_n, &plan.sm90))
        return;
    struct job *job = new_job(90);
    plan.row->spec(p, &plan, &job->spec);
    job->spec.request.arch = 90;
    job->spec.request.config = job->spec.config;
    /* What a launch can give each thread; warpgroups trade later. */
    job->max_registers = 65536 / plan.sm90.threads / 8 * 8;
}

static void add_gemm_tiles(void)
{
    struct gemm_problem p = problem((struct variant){.out = DG_BFLOAT16});
    struct gemm_problem masked = problem((struct variant){.out = DG_BFLOAT16, .kind = DG_GEMM_MASKED});
    for (int32_t m = 64; m <= 256; m += 64)
        for (int32_t n = 16; n <= 192; n += 16) {
            add_tile(&p, m, n, 1, 1);
            add_tile(&p, m, n, 2, 1);
            add_tile(&p, m, n, 1, 2);
            add_tile(&masked, m, n, 1, 1);
        }
}

static void add_skinny(const struct gemm_problem *p, const struct gemm_skinny_tile *tile)
{
    dg_device_info device = DG_DEVICE_INFO_INIT;
    struct gemm_plan plan = {.row = &gemm_row_sm90_fp8_gemm_skinny};
    EXPECT_OK(dg_device_preset("h200", &device));
    if (!gemm_skinny_plan_tile(p, &device, device.num_sms, tile, &plan.skinny))
        return;
    struct job *job = new_job(90);
    plan.row->spec(p, &plan, &job->spec);
    job->spec.request.arch = 90;
    job->spec.request.config = job->spec.config;
    job->max_registers = 65536 / (GEMM_SKINNY_THREADS * tile->blocks_per_sm) / 8 * 8;
}

static void add_skinny_tiles(void)
{
    struct gemm_problem p = problem_of(64, 2112, 7168, (struct variant){.out = DG_BFLOAT16, .sfa_columns = true});
    struct gemm_skinny_tile tile;
    for (int32_t i = 0; gemm_skinny_tile_at(i, &tile); ++i)
        if (tile.splits == 1 || tile.splits == 7) /* they differ in the last sum only */
            add_skinny(&p, &tile);
}

/* Each number picks one of its lists' elements: a loop over 0 .. product of `counts` - 1 sees every combination. */
static int pick(int *number, int count)
{
    const int picked = *number % count;
    *number /= count;
    return picked;
}

static const dg_dtype types[] = {DG_BFLOAT16, DG_FLOAT16, DG_FLOAT32};

static struct variant variant_of(int i)
{
    struct variant v = {.kind = DG_GEMM_DENSE};
    v.out = types[pick(&i, 3)];
    v.c = pick(&i, 2);
    v.sfa_packed = pick(&i, 2);
    v.sfb_packed = pick(&i, 2);
    v.odd_d = pick(&i, 2);
    v.sfa_columns = v.c ^ v.sfa_packed ^ v.sfb_packed ^ v.odd_d; /* each pair of values, in half the kernels */
    return v;
}

static void add_gemm_variants(void)
{
    for (int i = 0; i < 3 * 16; ++i) {
        struct variant v = variant_of(i);
        struct gemm_problem p = problem(v);
        add_tile(&p, 64, 32, 1, 1);
        add_tile(&p, 128, 128, 1, 1);
        add_tile(&p, 128, 192, 2, 1);
        add_tile(&p, 192, 128, 2, 1);
        add_tile(&p, 256, 128, 1, 2);
        v.kind = DG_GEMM_CONTIGUOUS + (dg_gemm_kind)(i % 3);
        p = problem(v);
        add_tile(&p, 64, 128, 1, 1);
        add_tile(&p, 128, v.kind == DG_GEMM_CONTIGUOUS ? 128 : 192, 1, 2);
    }
}

static void add_skinny_variants(void)
{
    for (int i = 0; i < 3 * 16; ++i) {
        struct gemm_problem p = problem_of(64, 2112, 7168, variant_of(i));
        add_skinny(&p, &(struct gemm_skinny_tile){64, 2, 4, 1});
        add_skinny(&p, &(struct gemm_skinny_tile){128, 1, 1, 1});
        add_skinny(&p, &(struct gemm_skinny_tile){8, 4, 3, 2});
    }
}

static bool is_new(const struct kernel_spec *spec, int32_t arch)
{
    for (int i = 0; i < job_count; ++i) {
        const struct jit_request *r = &jobs[i].spec.request;
        if (r->arch == arch && strcmp(r->kernel, spec->request.kernel) == 0 && strcmp(r->config, spec->config) == 0)
            return false;
    }
    return true;
}

static void add_new(const struct kernel_spec *spec, int32_t arch)
{
    if (!is_new(spec, arch))
        return;
    struct job *job = new_job(arch);
    job->spec = *spec;
    job->spec.request.arch = arch;
    job->spec.request.config = job->spec.config;
}

/* Plain kernels: all for Hopper, and every fifth for older architectures, since five is coprime to the lists. */
static void add_plain(const struct kernel_spec *spec, int i)
{
    add_new(spec, 90);
    if (i % 5 == 0) {
        add_new(spec, 75);
        add_new(spec, 80);
    }
}

static void add_gemm_simple(void)
{
    struct gemm_plan plan = {.row = &gemm_row_gemm_simple};
    struct kernel_spec spec;
    for (int i = 0; i < 3 * 8; ++i) {
        struct gemm_problem p = problem(variant_of(i));
        plan.row->spec(&p, &plan, &spec);
        add_plain(&spec, i);
    }
}

static dg_tensor flipped(dg_tensor t, bool flip)
{
    return flip ? dg_transposed(t) : t;
}

/* X's type, granularities, FP32, rounded or packed scales, vectors or single elements, contiguous rows or columns. */
static struct quantize_problem quantize_of(int i)
{
    static const int32_t grans[][2] = {{1, 128}, {128, 128}, {128, 1}};
    struct quantize_problem p;
    dg_quantize_args args = DG_QUANTIZE_ARGS_INIT;
    const dg_dtype type = types[pick(&i, 3)];
    const int32_t *gran = grans[pick(&i, 3)];
    const int scales = pick(&i, 3);
    const bool packed = scales == 2 && gran[1] == 128, odd = pick(&i, 2), flip = pick(&i, 2);
    const int64_t m = 512 + odd, k = 512 + odd;
    args.x = flipped(dg_matrix(NULL, type, 0, flip ? k : m, flip ? m : k), flip);
    args.q = flipped(dg_matrix(NULL, DG_FLOAT8_E4M3, 0, flip ? k : m, flip ? m : k), flip);
    args.gran_mn = gran[0];
    args.gran_k = gran[1];
    args.round_scale = scales > 0;
    args.sf =
        dg_matrix(NULL, packed ? DG_INT32 : DG_FLOAT32, 0, ceil_div(m, gran[0]), scale_columns(k, gran[1], packed));
    operation_begin("dg_test");
    EXPECT_OK(quantize_problem_make(&args, NULL_DATA_ACCEPTED, &p));
    return p;
}

static void add_quantize(void)
{
    struct kernel_spec spec;
    for (int i = 0; i < 3 * 3 * 3 * 2 * 2; ++i) {
        const struct quantize_problem p = quantize_of(i);
        quantize_spec(&p, &spec);
        add_plain(&spec, i);
    }
}

static void add_transform(void)
{
    struct kernel_spec spec;
    for (int i = 0; i < 4; ++i) { /* copy, pack, pack rounded, unpack */
        struct transform_problem p = {.src_packed = i == 3, .dst_packed = i == 1 || i == 2, .round_scale = i == 2};
        transform_spec(&p, &spec);
        add_plain(&spec, i);
    }
}

/* ---- Compiling ----------------------------------------------------------------------------------------------- */

static void *work(void *unused)
{
    int i;
    (void)unused;
    operation_begin("dg_test");
    while ((i = atomic_fetch_add(&next_job, 1)) < job_count) {
        jobs[i].status = jit_compile_report(&jobs[i].spec.request, &jobs[i].report, NULL, 0);
        if (jobs[i].status != DG_SUCCESS)
            snprintf(jobs[i].error, sizeof jobs[i].error, "%s", dg_last_error());
    }
    return NULL;
}

static void compile_all(void)
{
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; ++i)
        EXPECT(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < WORKERS; ++i)
        pthread_join(threads[i], NULL);
}

static int by_seconds(const void *x, const void *y)
{
    double a = ((const struct job *)x)->report.seconds, b = ((const struct job *)y)->report.seconds;
    return (a > b) - (a < b);
}

static void judge(void)
{
    for (int i = 0; i < job_count; ++i) {
        const struct job *j = &jobs[i];
        const struct jit_report *r = &j->report;
        EXPECT_THAT(j->status == DG_SUCCESS, "%s\n%s%s", j->spec.request.kernel, j->spec.config, j->error);
        EXPECT_THAT(r->spill_bytes == 0 && r->stack_bytes == 0 && !r->serialised && r->registers > 0 &&
                        r->registers <= j->max_registers,
                    "%s for %d: %d registers, %d bytes spilled, %d of stack, serialised %d\n%s", j->spec.request.kernel,
                    (int)j->spec.request.arch, (int)r->registers, (int)r->spill_bytes, (int)r->stack_bytes,
                    r->serialised, j->spec.config);
    }
    qsort(jobs, (size_t)job_count, sizeof *jobs, by_seconds);
    printf("NVRTC %d: %d kernels, %.2f s each at the median, %.2f s at most\n", (int)jobs[0].report.compiler, job_count,
           jobs[job_count / 2].report.seconds, jobs[job_count - 1].report.seconds);
}

static void make_room(void)
{
    jobs = calloc(MAX_JOBS, sizeof *jobs);
    EXPECT(jobs != NULL);
    job_count = 0;
    next_job = 0;
}

TEST(every_kernel_compiles_cleanly)
{
    make_room();
    if (!getenv("QUICK"))
        add_gemm_tiles();
    add_gemm_variants();
    add_skinny_tiles();
    add_skinny_variants();
    add_gemm_simple();
    if (!getenv("QUICK"))
        add_quantize();
    add_transform();
    compile_all();
    judge();
    free(jobs);
}

/* ---- The golden plans ------------------------------------------------------------------------------------------ */

static void add_golden(int64_t m, int64_t n, int64_t k)
{
    dg_device_info device = DG_DEVICE_INFO_INIT;
    struct gemm_plan plan = {.row = &gemm_row_sm90_fp8_gemm_1d2d};
    struct kernel_spec spec;
    struct gemm_problem p = problem_of(m, n, k, (struct variant){.out = DG_BFLOAT16, .sfa_columns = true});
    EXPECT_OK(dg_device_preset("h200", &device));
    const struct gemm_terms terms = {&device, device.num_sms, false};
    EXPECT_OK(gemm_select(&p, &terms, &plan.row, NULL, 0));
    plan.row->plan(&p, &terms, &plan);
    plan.row->spec(&p, &plan, &spec);
    add_new(&spec, 90);
}

/* Of the process, which waits for nothing while it compiles: what else the machine does is left out. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

TEST(a_cold_kernel_of_the_golden_plans_takes_less_than_a_second)
{
    make_room();
    for (size_t i = 0; i < sizeof golden_nk / sizeof *golden_nk; ++i)
        for (size_t j = 0; j < sizeof golden_m / sizeof *golden_m; ++j)
            add_golden(golden_m[j], golden_nk[i][0], golden_nk[i][1]);
    operation_begin("dg_test");
    for (int i = 0; i < job_count; ++i) {
        const double begin = cpu_seconds();
        EXPECT_OK(jit_compile_report(&jobs[i].spec.request, &jobs[i].report, NULL, 0));
        jobs[i].report.seconds = cpu_seconds() - begin;
    }
    qsort(jobs, (size_t)job_count, sizeof *jobs, by_seconds);
    const double median = jobs[job_count / 2].report.seconds, most = jobs[job_count - 1].report.seconds;
    printf("%d kernels of golden plans: %.2f s at the median, %.2f s at most\n", job_count, median, most);
    EXPECT_THAT(job_count >= 5 && median < 1.0 && most < 1.5, "%d kernels, %.2f s, %.2f s", job_count, median, most);
    free(jobs);
}

/* ---- Incomplete configurations --------------------------------------------------------------------------------- */

/* The config without its line `index`; false when it has no such line. */
static bool without_line(const char *config, int index, char *out, size_t bytes)
{
    const char *line = config, *next;
    while (index-- > 0 && *line)
        line = strchr(line, '\n') + 1;
    if (*line == '\0')
        return false;
    next = strchr(line, '\n') + 1;
    snprintf(out, bytes, "%.*s%s", (int)(line - config), config, next);
    return true;
}

static void expect_every_line_wanted(const struct kernel_spec *spec)
{
    struct kernel_spec less = *spec;
    int line = 0;
    less.request.arch = 90;
    less.request.config = less.config;
    for (; without_line(spec->config, line, less.config, sizeof less.config); ++line) {
        operation_begin("dg_test");
        EXPECT_INT(jit_compile_report(&less.request, &(struct jit_report){0}, NULL, 0), DG_ERROR_COMPILE);
        EXPECT_TEXT(dg_last_error(), "config.h is incomplete");
    }
    EXPECT(line > 0);
}

TEST(a_config_that_lacks_a_macro_is_refused)
{
    const struct quantize_problem quantize = quantize_of(0);
    const struct transform_problem transform = {.dst_packed = true};
    struct kernel_spec spec;
    make_room();
    add_golden(1024, 4096, 7168);
    add_golden(1, 4096, 7168);
    EXPECT(job_count == 2 && strcmp(jobs[0].spec.request.kernel, jobs[1].spec.request.kernel) != 0);
    expect_every_line_wanted(&jobs[0].spec);
    expect_every_line_wanted(&jobs[1].spec);
    free(jobs);
    struct gemm_problem p = problem((struct variant){.out = DG_BFLOAT16});
    struct gemm_plan plan = {.row = &gemm_row_gemm_simple};
    plan.row->spec(&p, &plan, &spec);
    expect_every_line_wanted(&spec);
    quantize_spec(&quantize, &spec);
    expect_every_line_wanted(&spec);
    transform_spec(&transform, &spec);
    expect_every_line_wanted(&spec);
}
