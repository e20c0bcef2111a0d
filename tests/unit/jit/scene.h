/*
 * What the JIT's tests share: each works in a fresh directory and environment, and asks the JIT in child processes
 * only, which so begin with an empty table and no compiler loaded. Children record what happened; the parent expects.
 */
#ifndef TESTS_SCENE_H
#define TESTS_SCENE_H

#include "core/hash.h"
#include "core/status.h"
#include "jit/jit.h"
#include "jit/key.h"
#include "jit/sources.h"
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SCENE_PATH = 256, SCENE_SECONDS = 120 };

static char scene_root[SCENE_PATH];      /* the test's directory */
static char scene_cache[SCENE_PATH + 8]; /* DG_JIT_CACHE_DIR at first: root/cache */

static const char SCENE_KERNEL[] = "#include \"config.h\"\n"
                                   "extern \"C\" __global__ void test_kernel(float *x) { x[threadIdx.x] = VALUE; }\n";

static inline struct jit_request scene_request(void)
{
    struct jit_request request = {.kernel = "test_kernel", .arch = 90, .config = "#define VALUE 1\n"};
    return request;
}

static inline int scene_remove(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
    (void)info, (void)kind, (void)ftw;
    return remove(path);
}

static inline void scene_end(void)
{
    if (scene_root[0])
        nftw(scene_root, scene_remove, 16, FTW_DEPTH | FTW_PHYS);
    scene_root[0] = '\0';
}

/* `rest` below the test's directory. Static storage, a few in turn. */
static inline const char *scene_path(const char *rest)
{
    static char paths[8][SCENE_PATH * 2];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scene_root, rest);
    return path;
}

/* A variable as the program was called with it; NULL when unset. */
static inline const char *scene_original(const char *variable)
{
    extern char **environ;
    static char **copy;
    const size_t length = strlen(variable);
    size_t count = 0;
    if (!copy) {
        while (environ[count])
            ++count;
        copy = calloc(count + 1, sizeof *copy);
        for (size_t i = 0; i < count; ++i)
            copy[i] = strdup(environ[i]);
    }
    for (char **entry = copy; *entry; ++entry)
        if (strncmp(*entry, variable, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

static inline void scene_restore(const char *variable)
{
    const char *value = scene_original(variable);
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}

/* What tells where NVRTC is stays as the caller has it; all other settings of the library begin unset. */
static inline void scene_environment(void)
{
    static const char *const cleared[] = {
#define ENV(identifier, name, kind, text) name,
#include "core/env.def"
#undef ENV
        "XDG_CACHE_HOME"};
    static const char *const restored[] = {"DG_NVRTC_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME",
                                           "CUDA_PATH",     "HOME",        "PATH"};
    scene_original(""); /* before anything changes */
    for (size_t i = 0; i < sizeof cleared / sizeof cleared[0]; ++i)
        unsetenv(cleared[i]);
    for (size_t i = 0; i < sizeof restored / sizeof restored[0]; ++i)
        scene_restore(restored[i]);
    setenv("DG_JIT_CACHE_DIR", scene_cache, 1);
}

static inline void scene_begin(void)
{
    static bool registered;
    const char *tmp = getenv("TMPDIR");
    if (!registered)
        atexit(scene_end);
    registered = true;
    scene_end();
    snprintf(scene_root, sizeof scene_root, "%s/deepgemm-test-XXXXXX", tmp ? tmp : "/tmp");
    EXPECT(mkdtemp(scene_root) != NULL);
    EXPECT(chmod(scene_root, 0755) == 0);
    snprintf(scene_cache, sizeof scene_cache, "%s/cache", scene_root);
    scene_environment();
    sources_replace("test_kernel", SCENE_KERNEL);
    operation_begin("test");
}

/* ---- Child processes --------------------------------------------------------------------------------------------- */

struct outcome {
    bool done;
    dg_status status;
    enum jit_origin origin;
    size_t bytes;
    struct hash128 image;
    double seconds;
    char message[4096];
};

static inline void *scene_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED);
    return memory;
}

/* A child that hangs is killed by its alarm, so a deadlock is a failed test. */
static inline pid_t scene_fork(void (*body)(void *), void *argument)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(SCENE_SECONDS);
        body(argument);
        fflush(NULL);
        _exit(0);
    }
    EXPECT(child > 0);
    return child;
}

static inline void scene_wait(pid_t child)
{
    int state = 0;
    EXPECT(waitpid(child, &state, 0) == child);
    EXPECT_THAT(WIFEXITED(state) && WEXITSTATUS(state) == 0, "a child ended with state 0x%x", (unsigned)state);
}

/* For a child: somebody whom file modes bind, as they do not bind root. */
static inline void scene_become_nobody(void)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        _exit(1);
}

static inline void scene_record(struct outcome *outcome, dg_status status, enum jit_origin origin,
                                const struct jit_cubin *cubin)
{
    outcome->status = status;
    outcome->origin = origin;
    if (status == DG_SUCCESS) {
        outcome->bytes = cubin->bytes;
        outcome->image = hash128_begin();
        hash128_add(&outcome->image, cubin->image, cubin->bytes);
    }
    snprintf(outcome->message, sizeof outcome->message, "%s", dg_last_error());
    outcome->done = true;
}

struct get_job {
    struct jit_request request;
    bool may_compile;
    struct outcome *outcome;
    void (*prepare)(void); /* in the child, before the JIT is asked */
};

static inline void scene_get_body(void *argument)
{
    const struct get_job *job = argument;
    struct jit_cubin cubin = {0};
    enum jit_origin origin = JIT_FROM_MEMORY;
    dg_status status;
    if (job->prepare)
        job->prepare();
    status = jit_get(&job->request, job->may_compile, &cubin, &origin);
    scene_record(job->outcome, status, origin, &cubin);
}

static inline struct outcome scene_run(struct get_job job)
{
    struct outcome result;
    job.outcome = scene_shared(sizeof *job.outcome);
    scene_wait(scene_fork(scene_get_body, &job));
    result = *job.outcome;
    munmap(job.outcome, sizeof *job.outcome);
    EXPECT(result.done);
    return result;
}

/* jit_get in a new process. */
static inline struct outcome scene_get(struct jit_request request)
{
    return scene_run((struct get_job){.request = request, .may_compile = true});
}

#define EXPECT_ORIGIN(call, wanted)                                                                                    \
    do {                                                                                                               \
        struct outcome got_outcome_ = (call);                                                                          \
        EXPECT_THAT(got_outcome_.status == DG_SUCCESS, "%s: %s", dg_status_name(got_outcome_.status),                  \
                    got_outcome_.message);                                                                             \
        EXPECT_THAT(got_outcome_.origin == (wanted), "origin is %d, wanted %s", (int)got_outcome_.origin, #wanted);    \
    } while (0)

/* ---- Compilations without a cache -------------------------------------------------------------------------------- */

struct report_job {
    struct jit_request request;
    dg_status status;
    struct jit_report report;
    char log[16384], message[4096];
};

static inline void scene_report_body(void *argument)
{
    struct report_job *job = argument;
    job->status = jit_compile_report(&job->request, &job->report, job->log, sizeof job->log);
    snprintf(job->message, sizeof job->message, "%s", dg_last_error());
}

/* Static storage, overwritten by the next. */
static inline const struct report_job *scene_report(struct jit_request request)
{
    static struct report_job *job;
    if (!job)
        job = scene_shared(sizeof *job);
    memset(job, 0, sizeof *job);
    job->request = request;
    scene_wait(scene_fork(scene_report_body, job));
    return job;
}

#define EXPECT_CLEAN(job)                                                                                              \
    do {                                                                                                               \
        EXPECT_THAT((job)->status == DG_SUCCESS, "%s", (job)->message);                                                \
        EXPECT_THAT(!(job)->report.serialised && (job)->report.spill_bytes == 0 && (job)->report.stack_bytes == 0,     \
                    "%s", (job)->log);                                                                                 \
    } while (0)

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* The path of the request's cache entry, or of another file with its key. */
static inline const char *scene_entry(const struct jit_request *request, const char *suffix)
{
    struct jit_unit unit;
    char rest[SCENE_PATH];
    EXPECT_OK(jit_unit_make(request, &unit));
    snprintf(rest, sizeof rest, "cache/%s/%s%s", request->kernel, unit.key_text, suffix);
    jit_unit_free(&unit);
    return scene_path(rest);
}

static inline bool scene_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static inline void scene_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    EXPECT_THAT(file != NULL, "%s: %s", path, strerror(errno));
    EXPECT(fwrite(data, 1, bytes, file) == bytes);
    EXPECT(fclose(file) == 0);
}

/* The caller frees what it returns. */
static inline unsigned char *scene_read(const char *path, size_t *bytes)
{
    struct stat info;
    unsigned char *data;
    FILE *file = fopen(path, "rb");
    EXPECT_THAT(file != NULL, "%s: %s", path, strerror(errno));
    EXPECT(fstat(fileno(file), &info) == 0);
    data = calloc(1, (size_t)info.st_size + 1);
    *bytes = fread(data, 1, (size_t)info.st_size, file);
    fclose(file);
    return data;
}

/* In a child: what it prints goes to the test's file "stderr". */
static inline void scene_catch_stderr(void)
{
    int file = open(scene_path("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (dup2(file, STDERR_FILENO) < 0)
        _exit(1);
}

#endif
