#include "jit/compile.h"

#include "core/log.h"
#include "jit/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What the assembler said ------------------------------------------------------------------------------------- */

/* The number before `words`, on each line that has them: their sum. */
static int32_t sum_before(const char *log, const char *words)
{
    int32_t sum = 0;
    for (const char *at = strstr(log, words); at; at = strstr(at + 1, words)) {
        const char *digit = at;
        while (digit > log && digit[-1] >= '0' && digit[-1] <= '9')
            --digit;
        sum += (int32_t)strtol(digit, NULL, 10);
    }
    return sum;
}

static int32_t entry_registers(const char *log, const char *kernel)
{
    char heading[256];
    const char *entry, *used;
    snprintf(heading, sizeof heading, "Compiling entry function '%s'", kernel);
    entry = strstr(log, heading);
    used = entry ? strstr(entry, "Used ") : NULL;
    return used ? (int32_t)strtol(used + strlen("Used "), NULL, 10) : 0;
}

/* wgmma instructions that wait for each other, or setmaxnreg without effect; the number differs with the reason. */
static bool says_serialised(const char *log)
{
    static const char *const notices[] = {"(C7508)", "(C7510)", "(C7511)",
                                          "(C7514)", "(C7515)", "Potential Performance Loss"};
    for (size_t i = 0; i < sizeof notices / sizeof notices[0]; ++i)
        if (strstr(log, notices[i]))
            return true;
    return false;
}

static void read_log(const char *log, const char *kernel, struct jit_report *report)
{
    report->registers = entry_registers(log, kernel);
    report->stack_bytes = sum_before(log, " bytes stack frame");
    report->spill_bytes = sum_before(log, " bytes spill stores") + sum_before(log, " bytes spill loads");
    report->serialised = says_serialised(log);
}

static void print_assembler_lines(const struct jit_unit *unit, const char *log)
{
    while (*log) {
        const int length = (int)strcspn(log, "\n");
        if (strncmp(log, "ptxas", 5) == 0)
            log_line(ENV_PTXAS_VERBOSE, "%s: %.*s", unit->kernel, length, log);
        log += length + (log[length] == '\n');
    }
}

/* ---- Running the compiler ---------------------------------------------------------------------------------------- */

static dg_status fail_nvrtc(const struct jit_unit *unit, const struct nvrtc *nvrtc, int result, const char *log)
{
    fail_text("kernel %s does not compile for sm_%d with NVRTC %d.%d (%s): %s", unit->kernel, unit->arch,
              nvrtc->version / 1000, nvrtc->version % 1000 / 10, nvrtc->path, nvrtc->GetErrorString(result));
    if (log && *log)
        fail_more("\n%s", log);
    return DG_ERROR_COMPILE;
}

static void print_command(const struct jit_unit *unit, const struct nvrtc *nvrtc)
{
    char line[512] = "";
    for (int i = 0; i < unit->option_count; ++i)
        snprintf(line + strlen(line), sizeof line - strlen(line), " %s", unit->options[i]);
    log_line(ENV_PRINT_COMPILER_COMMAND, "nvrtc (%s)%s %s.cu", nvrtc->path, line, unit->kernel);
}

typedef int size_fn(void *program, size_t *bytes);
typedef int data_fn(void *program, char *data);

/* One result of a compilation, with a zero after it; NULL if there is none. */
static char *fetch(void *program, size_fn *size, data_fn *data, size_t *bytes)
{
    char *result = NULL;
    if (size(program, bytes) == 0 && *bytes > 0)
        result = calloc(1, *bytes + 1);
    if (result && data(program, result) != 0) {
        free(result);
        result = NULL;
    }
    return result;
}

static dg_status fetch_results(const struct jit_unit *unit, const struct nvrtc *nvrtc, void *program, bool want_ptx,
                               struct jit_compilation *c)
{
    size_t bytes;
    c->cubin = fetch(program, nvrtc->GetCUBINSize, nvrtc->GetCUBIN, &c->report.cubin_bytes);
    if (!c->cubin || !c->log)
        return fail(DG_ERROR_COMPILE, "kernel %s compiled, but NVRTC hands out no cubin or log", unit->kernel);
    if (want_ptx)
        c->ptx = fetch(program, nvrtc->GetPTXSize, nvrtc->GetPTX, &bytes);
    c->report.compiler = nvrtc->version;
    read_log(c->log, unit->kernel, &c->report);
    print_assembler_lines(unit, c->log);
    return DG_SUCCESS;
}

static dg_status compile(const struct jit_unit *unit, const struct nvrtc *nvrtc, bool want_ptx,
                         struct jit_compilation *compilation)
{
    const double begin = clock_seconds();
    char file[128];
    void *program = NULL;
    size_t log_bytes;
    dg_status status;
    int result;
    snprintf(file, sizeof file, "%s.cu", unit->kernel);
    result =
        nvrtc->CreateProgram(&program, unit->text, file, unit->header_count, unit->header_texts, unit->header_names);
    if (result != 0)
        return fail_nvrtc(unit, nvrtc, result, NULL);
    result = nvrtc->CompileProgram(program, unit->option_count, unit->options);
    compilation->report.seconds = clock_seconds() - begin;
    compilation->log = fetch(program, nvrtc->GetProgramLogSize, nvrtc->GetProgramLog, &log_bytes);
    if (result != 0)
        status = fail_nvrtc(unit, nvrtc, result, compilation->log);
    else
        status = fetch_results(unit, nvrtc, program, want_ptx, compilation);
    nvrtc->DestroyProgram(&program);
    return status;
}

/* ---- Compilations and forks -------------------------------------------------------------------------------------- */

/*
 * NVRTC holds mutexes of its own while it works, and a child forked meanwhile would wait for them for ever. So a fork
 * waits for the compilations that are running, and none begins until it is done.
 */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static int running, forks;

static void before_fork(void)
{
    pthread_mutex_lock(&gate);
    ++forks;
    while (running > 0)
        pthread_cond_wait(&gate_changed, &gate);
}

static void after_fork_in_parent(void)
{
    --forks;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate);
}

static void after_fork_in_child(void)
{
    forks = 0; /* those of other threads are the parent's */
    pthread_cond_init(&gate_changed, NULL);
    pthread_mutex_unlock(&gate);
}

/* When the library is loaded: a fork that has begun in another thread would pass handlers registered later by. */
__attribute__((constructor)) static void prepare_for_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void begin_compilation(void)
{
    pthread_mutex_lock(&gate);
    while (forks > 0)
        pthread_cond_wait(&gate_changed, &gate);
    ++running;
    pthread_mutex_unlock(&gate);
}

static void end_compilation(void)
{
    pthread_mutex_lock(&gate);
    --running;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate);
}

/* NVRTC may be called from several threads at once, as long as no two use one program (NVRTC, "Thread Safety"). */
dg_status jit_compile(const struct jit_unit *unit, const struct nvrtc *nvrtc, bool want_ptx,
                      struct jit_compilation *compilation)
{
    dg_status status;
    memset(compilation, 0, sizeof *compilation);
    print_command(unit, nvrtc);
    begin_compilation();
    status = compile(unit, nvrtc, want_ptx, compilation);
    end_compilation();
    return status;
}

void jit_compilation_free(struct jit_compilation *compilation)
{
    free(compilation->cubin);
    free(compilation->log);
    free(compilation->ptx);
    memset(compilation, 0, sizeof *compilation);
}

dg_status jit_check_report(const struct jit_unit *unit, const struct jit_compilation *compilation)
{
    const struct jit_report *r = &compilation->report;
    if (!env_flag(ENV_PTXAS_CHECK) || (r->spill_bytes == 0 && r->stack_bytes == 0 && !r->serialised))
        return DG_SUCCESS;
    fail_text("kernel %s: %d bytes of spills, %d of stack%s; DG_JIT_PTXAS_CHECK allows none\n%s", unit->kernel,
              r->spill_bytes, r->stack_bytes, r->serialised ? ", wgmma serialised or setmaxnreg ignored" : "",
              compilation->log);
    return DG_ERROR_COMPILE;
}
