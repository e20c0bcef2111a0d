/*
 * Every kernel in every configuration builds for its architectures with the NVRTC that is found, without a GPU, and
 * the compiler has nothing to object: no spills, no local memory, no wgmma serialised, and in under a second.
 *
 * The configurations: all tiles with all clusters, and for three typical tiles all output types, with and without C,
 * packed and FP32 scales, both stores.
 */
#include "ops/gemm_row.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdatomic.h>

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

static struct gemm_problem problem(dg_dtype out, bool c, bool sfa_packed, bool sfb_packed, bool odd_d)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    struct gemm_problem p;
    int64_t m = 1024, n = 4096, k = 1024;
    args.a = dg_matrix(NULL, DG_FLOAT8_E4M3, 0, m, k);
    args.b = dg_matrix(NULL, DG_FLOAT8_E4M3, 0, n, k);
    args.sfa = dg_matrix(NULL, sfa_packed ? DG_INT32 : DG_FLOAT32, 0, m, sfa_packed ? 2 : 8);
    args.sfb = dg_matrix(NULL, sfb_packed ? DG_INT32 : DG_FLOAT32, 0, n / 128, sfb_packed ? 2 : 8);
    args.d = dg_matrix(NULL, out, 0, m, n);
    args.d.stride[0] += odd_d;
    if (c)
        args.c = args.d;
    operation_begin("dg_test");
    EXPECT_OK(gemm_problem_make(&args, NULL_DATA_ACCEPTED, &p));
    return p;
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
    struct gemm_problem p = problem(DG_BFLOAT16, false, false, false, false);
    for (int32_t m = 64; m <= 256; m += 64)
        for (int32_t n = 16; n <= 192; n += 16) {
            add_tile(&p, m, n, 1, 1);
            add_tile(&p, m, n, 2, 1);
            add_tile(&p, m, n, 1, 2);
        }
}

static void add_gemm_variants(void)
{
    static const dg_dtype types[] = {DG_BFLOAT16, DG_FLOAT16, DG_FLOAT32};
    for (int i = 0; i < 48; ++i) {
        struct gemm_problem p = problem(types[i % 3], i / 3 % 2, i / 6 % 2, i / 12 % 2, i / 24 % 2);
        add_tile(&p, 64, 32, 1, 1);
        add_tile(&p, 128, 192, 2, 1);
        add_tile(&p, 256, 128, 1, 2);
    }
}

static void add_gemm_simple(void)
{
    static const int32_t archs[] = {75, 80, 90};
    static const dg_dtype types[] = {DG_BFLOAT16, DG_FLOAT16, DG_FLOAT32};
    struct gemm_plan plan = {.row = &gemm_row_gemm_simple};
    for (int i = 0; i < 24 * 3; ++i) {
        struct gemm_problem p = problem(types[i % 3], i / 3 % 2, i / 6 % 2, i / 12 % 2, false);
        struct job *job = new_job(archs[i / 24]);
        plan.row->spec(&p, &plan, &job->spec);
        job->spec.request.arch = archs[i / 24];
        job->spec.request.config = job->spec.config;
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

TEST(every_kernel_compiles_cleanly)
{
    jobs = calloc(MAX_JOBS, sizeof *jobs);
    EXPECT(jobs != NULL);
    add_gemm_tiles();
    add_gemm_variants();
    add_gemm_simple();
    compile_all();
    judge();
    free(jobs);
}
