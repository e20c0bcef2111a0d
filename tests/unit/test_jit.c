/* The JIT without its disk: texts, keys, wgmma wrappers, compiling, threads. NVRTC is needed. */
#include "tests/unit/jit/scene.h"

#include "jit/nvrtc.h"
#include "jit/wgmma_text.h"

#include <pthread.h>

/* ---- Sources ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *file;
} sources[] = {
#define SOURCE(identifier, name, file) {name, file},
#include "jit/sources.def"
#undef SOURCE
};
enum { SOURCES = sizeof sources / sizeof sources[0] };

TEST(every_embedded_source_is_its_file)
{
    for (size_t i = 0; i < SOURCES; ++i) {
        const struct source *source = sources_find(sources[i].name);
        size_t bytes;
        unsigned char *file = scene_read(sources[i].file, &bytes);
        bool same = source && strlen(source->text) == bytes && memcmp(source->text, file, bytes) == 0;
        free(file);
        EXPECT_THAT(same, "%s is not the text of %s", sources[i].name, sources[i].file);
    }
    EXPECT(sources_find("common/nothing.h") == NULL);
}

TEST(every_header_that_a_source_includes_is_embedded)
{
    int found = 0;
    for (size_t i = 0; i < SOURCES; ++i) {
        char name[128];
        for (const char *at = sources_find(sources[i].name)->text; at; at = strchr(at, '\n')) {
            at += *at == '\n';
            if (sscanf(at, " # include \"%127[^\"]\"", name) != 1)
                continue;
            ++found;
            EXPECT_THAT(sources_find(name) || strcmp(name, "config.h") == 0 || strcmp(name, "wgmma.h") == 0,
                        "%s includes %s, which sources.def lacks", sources[i].name, name);
        }
    }
    EXPECT(found > 10);
}

/* ---- Keys -------------------------------------------------------------------------------------------------------- */

static struct hash128 key_of(struct jit_request request)
{
    struct jit_unit unit;
    struct hash128 key;
    EXPECT_OK(jit_unit_make(&request, &unit));
    key = unit.key;
    jit_unit_free(&unit);
    return key;
}

static bool same_key(struct hash128 x, struct hash128 y)
{
    return x.high == y.high && x.low == y.low;
}

static void set_key_sources(const char *kernel, const char *direct, const char *indirect, const char *unused)
{
    sources_replace("test_key", kernel);
    sources_replace("test/direct.h", direct);
    sources_replace("test/indirect.h", indirect);
    sources_replace("test/unused.h", unused);
}

#define KEY_KERNEL "#include \"config.h\"\n  # include\t\"test/direct.h\" // comment\nint kernel;\n"
#define KEY_DIRECT "#ifdef X\n#include <test/indirect.h>\n#endif"

TEST(the_key_has_every_ingredient_and_nothing_else)
{
    struct jit_request base = {.kernel = "test_key", .arch = 90, .config = "#define A 1\n"}, other;
    struct hash128 key;
    scene_begin();
    set_key_sources(KEY_KERNEL, KEY_DIRECT, "int indirect;", "int unused;");
    key = key_of(base);
    EXPECT(same_key(key, key_of(base)));

    set_key_sources(KEY_KERNEL, KEY_DIRECT, "int indirect;", "int changed;");
    EXPECT_THAT(same_key(key, key_of(base)), "a header that is not included changed the key");
    set_key_sources(KEY_KERNEL, KEY_DIRECT, "int changed;", "int unused;");
    EXPECT_THAT(!same_key(key, key_of(base)), "an indirectly included header is not in the key");
    set_key_sources(KEY_KERNEL, KEY_DIRECT " ", "int indirect;", "int unused;");
    EXPECT_THAT(!same_key(key, key_of(base)), "an included header is not in the key");
    set_key_sources(KEY_KERNEL " ", KEY_DIRECT, "int indirect;", "int unused;");
    EXPECT_THAT(!same_key(key, key_of(base)), "the kernel's text is not in the key");
    set_key_sources(KEY_KERNEL, KEY_DIRECT, "int indirect;", "int unused;");
    EXPECT(same_key(key, key_of(base)));

    other = base;
    other.config = "#define A 2\n";
    EXPECT_THAT(!same_key(key, key_of(other)), "the config is not in the key");
    other = base;
    other.arch = 100;
    EXPECT_THAT(!same_key(key, key_of(other)), "the architecture is not in the key");
    other = base;
    other.wgmma_count = 1;
    other.wgmma[0] = (struct jit_wgmma){"e4m3", 128, false};
    EXPECT_THAT(!same_key(key, key_of(other)), "the wgmma shapes are not in the key");
    base = other;
    base.wgmma[0].a_in_registers = true;
    EXPECT_THAT(!same_key(key_of(base), key_of(other)), "where A lies is not in the key");
}

TEST(only_environment_that_changes_code_changes_the_key)
{
    struct jit_request request = scene_request();
    struct hash128 key;
    scene_begin();
    key = key_of(request);
    setenv("DG_JIT_WITH_LINEINFO", "1", 1);
    EXPECT(!same_key(key, key_of(request)));
    unsetenv("DG_JIT_WITH_LINEINFO");
    setenv("DG_JIT_CACHE_DIR", "/elsewhere", 1);
    setenv("DG_NVRTC_PATH", "/elsewhere", 1);
    setenv("DG_JIT_PTXAS_VERBOSE", "1", 1);
    setenv("DG_JIT_DUMP_PTX", "1", 1);
    setenv("DG_JIT_PTXAS_CHECK", "1", 1);
    EXPECT(same_key(key, key_of(request)));
}

TEST(headers_are_collected_once_and_cycles_end)
{
    struct jit_request request = {.kernel = "test_cycle", .arch = 90};
    struct jit_unit unit;
    scene_begin();
    sources_replace("test_cycle", "#include \"test/a.h\"\n#include \"test/b.h\"\n#include \"test/absent.h\"");
    sources_replace("test/a.h", "#include \"test/b.h\"\n//#include \"test/unused.h\"\n");
    sources_replace("test/b.h", "#include \"test/a.h\"\n");
    sources_replace("test/unused.h", "");
    EXPECT_OK(jit_unit_make(&request, &unit));
    EXPECT_INT(unit.header_count, 4); /* config.h, wgmma.h, a.h, b.h */
    jit_unit_free(&unit);
}

TEST(unknown_kernels_and_shapes_are_refused)
{
    struct jit_request request = scene_request();
    struct jit_unit unit;
    scene_begin();
    request.kernel = "no_such_kernel";
    EXPECT_REFUSED(jit_unit_make(&request, &unit), DG_ERROR_INTERNAL, "test: there is no kernel \"no_such_kernel\"");
    request = scene_request();
    request.wgmma_count = 1;
    request.wgmma[0] = (struct jit_wgmma){"e4m3", 12, false};
    EXPECT_REFUSED(jit_unit_make(&request, &unit), DG_ERROR_INTERNAL, "n=12");
    request.wgmma[0] = (struct jit_wgmma){"e5m3", 16, false};
    EXPECT_REFUSED(jit_unit_make(&request, &unit), DG_ERROR_INTERNAL, "\"e5m3\"");
    request.wgmma[0] = (struct jit_wgmma){NULL, 16, false};
    EXPECT_REFUSED(jit_unit_make(&request, &unit), DG_ERROR_INTERNAL, "type");
}

/* ---- Compiling --------------------------------------------------------------------------------------------------- */

TEST(a_compilation_reports_registers_and_time)
{
    const struct report_job *job;
    scene_begin();
    job = scene_report(scene_request());
    EXPECT_CLEAN(job);
    EXPECT_THAT(job->report.registers > 0 && job->report.registers < 64, "%d registers", job->report.registers);
    EXPECT(job->report.compiler >= NVRTC_OLDEST);
    EXPECT(job->report.cubin_bytes > 1000);
    EXPECT(job->report.seconds > 0);
    EXPECT_TEXT(job->log, "ptxas info");
}

static void time_first(void *argument)
{
    double *seconds = argument;
    struct jit_request request = scene_request();
    struct jit_report report;
    for (int i = 0; i < 2; ++i)
        seconds[i] = jit_compile_report(&request, &report, NULL, 0) == DG_SUCCESS ? report.seconds : 1e9;
}

/* The promise is "under a second" for whole kernels; what the compiler costs by itself must leave room for that. */
TEST(the_first_compilation_of_a_process_is_quick)
{
    double *seconds = scene_shared(2 * sizeof *seconds), best = 1e9;
    scene_begin();
    for (int i = 0; i < 3; ++i) { /* the best of three: the machine may be busy */
        scene_wait(scene_fork(time_first, seconds));
        best = seconds[0] < best ? seconds[0] : best;
    }
    printf("first compilation %.3f s, second %.3f s\n", best, seconds[1]);
    EXPECT_THAT(best < 0.5, "%.3f s", best);
}

static struct jit_request with_text(const char *text)
{
    struct jit_request request = scene_request();
    sources_replace("test_kernel", text);
    return request;
}

TEST(spills_stack_and_serialised_wgmma_are_seen)
{
    struct jit_request request;
    const struct report_job *job;
    scene_begin();
    request = with_text("extern \"C\" __global__ void __launch_bounds__(1024) test_kernel(float *x, int n) {\n"
                        "    float big[1000];\n"
                        "    for (int i = 0; i < 1000; ++i) big[i] = x[i * n];\n"
                        "    for (int i = 0; i < n; ++i) x[i] = big[(int)x[i]]; }\n");
    job = scene_report(request);
    EXPECT_INT(job->status, DG_SUCCESS);
    EXPECT_THAT(job->report.stack_bytes >= 4000 && !job->report.serialised, "%s", job->log);

    request =
        with_text("extern \"C\" __global__ void __launch_bounds__(1024) test_kernel(float *x) {\n"
                  "    float v[96];\n"
                  "    for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];\n"
                  "    __syncthreads();\n"
                  "    for (int j = 0; j < 9; ++j) for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i * 7 + 1) % 96];\n"
                  "    for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = v[i]; }\n");
    job = scene_report(request);
    EXPECT_INT(job->status, DG_SUCCESS);
    EXPECT_THAT(job->report.spill_bytes > 0, "%s", job->log);

    request = with_text("extern \"C\" __global__ void test_kernel(float *x) {\n"
                        "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 232;\"); x[0] = 1; }\n");
    job = scene_report(request);
    EXPECT_THAT(job->status == DG_SUCCESS && job->report.serialised, "%s", job->log);

    request = with_text("#include \"wgmma.h\"\n"
                        "extern \"C\" __global__ void test_kernel(float *x, uint64_t a, int n) {\n"
                        "    float d[4] = {0, 0, 0, 0};\n"
                        "    for (int i = 0; i < n; ++i) {\n"
                        "        asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
                        "        wgmma_m64n8k32_e4m3(d, a, a, 1);\n"
                        "        d[1] += x[i];\n" /* before the wait */
                        "        asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\"); }\n"
                        "    asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
                        "    x[0] = d[0] + d[1] + d[2] + d[3]; }\n");
    request.wgmma_count = 1;
    request.wgmma[0] = (struct jit_wgmma){"e4m3", 8, false};
    job = scene_report(request);
    EXPECT_THAT(job->status == DG_SUCCESS && job->report.serialised, "%s", job->log);
}

TEST(the_ptxas_check_refuses_what_the_report_finds)
{
    struct outcome outcome;
    struct jit_request request;
    scene_begin();
    request = with_text("extern \"C\" __global__ void test_kernel(float *x) {\n"
                        "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 232;\"); x[0] = 1; }\n");
    setenv("DG_JIT_PTXAS_CHECK", "1", 1);
    outcome = scene_get(request);
    EXPECT_INT(outcome.status, DG_ERROR_COMPILE);
    EXPECT_TEXT(outcome.message, "test_kernel");
    EXPECT_TEXT(outcome.message, "setmaxnreg");
    EXPECT_THAT(!scene_exists(scene_entry(&request, ".cubin")), "a refused kernel was stored");
    unsetenv("DG_JIT_PTXAS_CHECK");
    EXPECT_ORIGIN(scene_get(request), JIT_COMPILED);
    sources_replace("test_kernel", SCENE_KERNEL);
    setenv("DG_JIT_PTXAS_CHECK", "1", 1);
    EXPECT_ORIGIN(scene_get(request), JIT_COMPILED);
}

TEST(compile_errors_carry_the_log_and_name_the_kernel)
{
    struct jit_request request = scene_request();
    struct outcome outcome;
    scene_begin();
    request.config = "#define VALUE undeclared_thing\n";
    outcome = scene_get(request);
    EXPECT_INT(outcome.status, DG_ERROR_COMPILE);
    EXPECT_TEXT(outcome.message, "test: kernel test_kernel does not compile for sm_90");
    EXPECT_TEXT(outcome.message, "test_kernel.cu(2)");
    EXPECT_TEXT(outcome.message, "undeclared_thing");
    EXPECT(!scene_exists(scene_entry(&request, ".cubin")));
    request = scene_request();
    request.arch = 31;
    outcome = scene_get(request);
    EXPECT_INT(outcome.status, DG_ERROR_COMPILE);
    EXPECT_TEXT(outcome.message, "--gpu-architecture");
    request = with_text("extern \"C\" __global__ void test_kernel() { asm volatile(\"no.such.instruction;\"); }");
    outcome = scene_get(request);
    EXPECT_INT(outcome.status, DG_ERROR_COMPILE);
    EXPECT_TEXT(outcome.message, ".such");
}

static void enter_root(void)
{
    if (chdir(scene_root) != 0)
        _exit(1);
}

TEST(files_in_the_current_directory_are_not_included)
{
    struct jit_request request;
    struct get_job job;
    struct outcome outcome;
    scene_begin();
    request = with_text("#include \"stray.h\"\nextern \"C\" __global__ void test_kernel() {}\n");
    scene_write(scene_path("stray.h"), "\n", 1);
    job = (struct get_job){.request = request, .may_compile = true, .prepare = enter_root};
    outcome = scene_run(job);
    EXPECT_INT(outcome.status, DG_ERROR_COMPILE);
    EXPECT_TEXT(outcome.message, "stray.h");
}

/* ---- wgmma ------------------------------------------------------------------------------------------------------- */

TEST(wgmma_text_is_deterministic_and_lists_a_shape_once)
{
    const struct jit_wgmma shapes[] = {{"e4m3", 16, false}, {"e4m3", 16, false}, {"bf16", 8, true}};
    char *text, *again, *first;
    scene_begin();
    EXPECT_OK(wgmma_text(shapes, 3, &text));
    EXPECT_OK(wgmma_text(shapes, 3, &again));
    EXPECT(strcmp(text, again) == 0);
    EXPECT_TEXT(text, "/* PTX ISA, ");
    EXPECT_TEXT(text, "static __device__ __forceinline__ void wgmma_m64n16k32_e4m3(float *d, uint64_t desc_a, "
                      "uint64_t desc_b, int accumulate)\n");
    EXPECT_TEXT(text, "wgmma_m64n8k16_bf16_rs(float *d, const uint32_t *a, uint64_t desc_b, int accumulate)\n");
    EXPECT_TEXT(text, "%8, %9, p, 1, 1;");                  /* e4m3: eight accumulators, two descriptors */
    EXPECT_TEXT(text, "{%4, %5, %6, %7}, %8, p, 1, 1, 0;"); /* bf16, A in registers: B's transpose only */
    first = strstr(text, "void wgmma_m64n16k32_e4m3");
    EXPECT(strstr(first + 1, "void wgmma_m64n16k32_e4m3") == NULL);
    free(text);
    free(again);
}

/* One kernel per N: fence, two products (overwriting, accumulating), commit, wait, store. */
static char *all_shapes_kernel(const char *type, int k, bool rs, char *header)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    fprintf(out, "%s\n", header);
    for (int n = 8; n <= 256; n += 8) {
        char name[64];
        snprintf(name, sizeof name, "wgmma_m64n%dk%d_%s%s", n, k, type, rs ? "_rs" : "");
        fprintf(out, "extern \"C\" __global__ void __launch_bounds__(128, 1) k%d(float *x, uint64_t b) {\n", n);
        fprintf(out, "    float d[%d]; const uint32_t *u = (const uint32_t *)x + threadIdx.x;\n", n / 2);
        fprintf(out, rs ? "    uint32_t a[4]; for (int i = 0; i < 4; ++i) a[i] = u[i * 128];\n"
                        : "    uint64_t a = b + u[0];\n");
        fprintf(out, "    asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n");
        fprintf(out, "    %s(d, a, b, 0);\n    %s(d, a, b + 2, 1);\n", name, name);
        fprintf(out, "    asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n");
        fprintf(out, "    asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n");
        fprintf(out, "    for (int i = 0; i < %d; ++i) x[i * 128 + threadIdx.x] = d[i];\n}\n", n / 2);
    }
    fclose(out);
    return text;
}

TEST(every_wgmma_shape_compiles_without_notices)
{
    static const struct {
        const char *type;
        int k;
    } types[] = {{"e4m3", 32}, {"bf16", 16}, {"tf32", 8}};
    scene_begin();
    for (int i = 0; i < 6; ++i) {
        struct jit_wgmma shapes[32];
        const struct report_job *job;
        char *header, *text;
        for (int n = 0; n < 32; ++n)
            shapes[n] = (struct jit_wgmma){types[i / 2].type, 8 * (n + 1), i % 2 != 0};
        EXPECT_OK(wgmma_text(shapes, 32, &header));
        text = all_shapes_kernel(types[i / 2].type, types[i / 2].k, i % 2 != 0, header);
        job = scene_report(with_text(text));
        sources_replace("test_kernel", SCENE_KERNEL);
        free(header);
        free(text);
        EXPECT_CLEAN(job);
    }
}

/* ---- Threads and forks ------------------------------------------------------------------------------------------- */

enum { THREADS = 8 };

struct thread_job {
    struct jit_request request;
    struct outcome outcome;
};

static void *thread_get(void *argument)
{
    struct thread_job *job = argument;
    struct jit_cubin cubin = {0};
    enum jit_origin origin = JIT_FROM_MEMORY;
    dg_status status;
    operation_begin("thread");
    status = jit_get(&job->request, true, &cubin, &origin);
    scene_record(&job->outcome, status, origin, &cubin);
    return NULL;
}

static void run_threads(void *argument)
{
    struct thread_job *jobs = argument;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i)
        if (pthread_create(&threads[i], NULL, thread_get, &jobs[i]) != 0)
            _exit(1);
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
}

static int count_origin(const struct thread_job *jobs, enum jit_origin origin)
{
    int count = 0;
    for (int i = 0; i < THREADS; ++i)
        count += jobs[i].outcome.status == DG_SUCCESS && jobs[i].outcome.origin == origin;
    return count;
}

TEST(threads_compile_a_kernel_once)
{
    struct thread_job *jobs = scene_shared(THREADS * sizeof *jobs);
    scene_begin();
    for (int i = 0; i < THREADS; ++i)
        jobs[i].request = scene_request();
    scene_wait(scene_fork(run_threads, jobs));
    EXPECT_INT(count_origin(jobs, JIT_COMPILED), 1);
    EXPECT_INT(count_origin(jobs, JIT_FROM_MEMORY), THREADS - 1);
    for (int i = 1; i < THREADS; ++i)
        EXPECT(same_key(jobs[i].outcome.image, jobs[0].outcome.image));
}

TEST(threads_compile_different_kernels_at_once)
{
    static char configs[THREADS][32];
    struct thread_job *jobs = scene_shared(THREADS * sizeof *jobs);
    scene_begin();
    for (int i = 0; i < THREADS; ++i) {
        snprintf(configs[i], sizeof configs[i], "#define VALUE %d\n", i);
        jobs[i].request = scene_request();
        jobs[i].request.config = configs[i];
    }
    scene_wait(scene_fork(run_threads, jobs));
    EXPECT_INT(count_origin(jobs, JIT_COMPILED), THREADS);
}

static void run_threads_and_catch(void *argument)
{
    scene_catch_stderr();
    run_threads(argument);
}

TEST(threads_that_waited_get_the_same_failure)
{
    struct thread_job *jobs = scene_shared(THREADS * sizeof *jobs);
    int compilations = 0;
    size_t bytes;
    char *printed;
    scene_begin();
    setenv("DG_JIT_PRINT_COMPILER_COMMAND", "1", 1);
    for (int i = 0; i < THREADS; ++i) {
        jobs[i].request = scene_request();
        jobs[i].request.config = "#define VALUE nonsense\n";
    }
    scene_wait(scene_fork(run_threads_and_catch, jobs));
    for (int i = 0; i < THREADS; ++i) {
        EXPECT_INT(jobs[i].outcome.status, DG_ERROR_COMPILE);
        EXPECT_TEXT(jobs[i].outcome.message, "thread: kernel test_kernel does not compile");
        EXPECT_TEXT(jobs[i].outcome.message, "nonsense");
        EXPECT(strcmp(jobs[i].outcome.message, jobs[0].outcome.message) == 0);
    }
    printed = (char *)scene_read(scene_path("stderr"), &bytes);
    for (const char *at = printed; (at = strstr(at, "deepgemm: nvrtc")); ++at)
        ++compilations;
    free(printed);
    /* A thread that comes late, after the failure, tries again. */
    EXPECT_THAT(compilations >= 1 && compilations <= THREADS / 2, "%d compilations", compilations);
}

static void *thread_forbidden(void *argument)
{
    struct thread_job *job = argument;
    struct jit_cubin cubin = {0};
    enum jit_origin origin = JIT_FROM_MEMORY;
    dg_status status = jit_get(&job->request, false, &cubin, &origin);
    scene_record(&job->outcome, status, origin, &cubin);
    return NULL;
}

/* Every other thread may not compile; the first is one of those, and still reading when the others come. */
static void run_mixed(void *argument)
{
    struct thread_job *jobs = argument;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i)
        if (pthread_create(&threads[i], NULL, i % 2 ? thread_get : thread_forbidden, &jobs[i]) != 0 || usleep(1000))
            _exit(1);
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
}

TEST(threads_that_may_not_compile_do_not_stop_those_that_may)
{
    struct thread_job *jobs = scene_shared(THREADS * sizeof *jobs);
    const struct jit_request request = scene_request();
    scene_begin();
    EXPECT(mkdir(scene_cache, 0755) == 0 && mkdir(scene_path("cache/test_kernel"), 0755) == 0);
    scene_write(scene_entry(&request, ".cubin"), "", 0);
    EXPECT(truncate(scene_entry(&request, ".cubin"), 200 << 20) == 0); /* damaged, and long to read */
    for (int i = 0; i < THREADS; ++i)
        jobs[i].request = request;
    scene_wait(scene_fork(run_mixed, jobs));
    EXPECT_INT(count_origin(jobs, JIT_COMPILED), 1);
    for (int i = 1; i < THREADS; i += 2)
        EXPECT_THAT(jobs[i].outcome.status == DG_SUCCESS, "%s", jobs[i].outcome.message);
}

struct memory_job {
    struct outcome first, second, forbidden;
};

static void memory_body(void *argument)
{
    struct memory_job *job = argument;
    struct jit_request request = scene_request();
    struct jit_cubin first, second;
    enum jit_origin origin;
    dg_status status = jit_get(&request, false, &first, &origin);
    scene_record(&job->forbidden, status, origin, &first);
    status = jit_get(&request, true, &first, &origin);
    scene_record(&job->first, status, origin, &first);
    status = jit_get(&request, true, &second, &origin);
    scene_record(&job->second, status, origin, &second);
    if (first.image != second.image || jit_get(&request, false, &second, NULL) != DG_SUCCESS)
        _exit(1);
}

TEST(a_second_request_is_served_from_memory)
{
    struct memory_job *job = scene_shared(sizeof *job);
    scene_begin();
    scene_wait(scene_fork(memory_body, job));
    EXPECT_INT(job->forbidden.status, DG_ERROR_COMPILE_FORBIDDEN);
    EXPECT_TEXT(job->forbidden.message, "test: kernel test_kernel");
    EXPECT_ORIGIN(job->first, JIT_COMPILED);
    EXPECT_ORIGIN(job->second, JIT_FROM_MEMORY);
}

/* Fork again and again while another thread compiles: the child must neither wait for it nor lack its kernel. */
static void fork_body(void *argument)
{
    struct thread_job *jobs = argument;
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_get, &jobs[0]) != 0)
        _exit(1);
    for (int i = 1; i < THREADS; ++i) {
        pid_t child;
        int state;
        usleep(5000);
        child = fork();
        if (child == 0) {
            alarm(SCENE_SECONDS);
            setenv("DG_JIT_CACHE_DIR", scene_path("other"), 1); /* not by waiting for the parent's lock */
            thread_get(&jobs[i]);
            _exit(0);
        }
        if (waitpid(child, &state, 0) != child || state != 0)
            _exit(2);
    }
    pthread_join(thread, NULL);
}

TEST(a_child_forked_during_a_compilation_can_use_the_jit)
{
    struct thread_job *jobs = scene_shared(THREADS * sizeof *jobs);
    scene_begin();
    for (int i = 0; i < THREADS; ++i)
        jobs[i].request = scene_request();
    scene_wait(scene_fork(fork_body, jobs));
    for (int i = 0; i < THREADS; ++i)
        EXPECT_THAT(jobs[i].outcome.status == DG_SUCCESS, "%d: %s", i, jobs[i].outcome.message);
}
