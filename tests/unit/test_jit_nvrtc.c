/* Finding NVRTC in all its places, the errors when there is none, and the public questions. */
#include "tests/unit/jit/scene.h"

#include "jit/nvrtc.h"

#include <dlfcn.h>
#include <sys/stat.h>

/* ---- Finding NVRTC ----------------------------------------------------------------------------------------------- */

struct search_job {
    unsigned places;
    void (*prepare)(void);
    dg_status status;
    bool builtins_loaded;
    struct nvrtc found;
    char message[4096];
};

static void search_body(void *argument)
{
    struct search_job *job = argument;
    if (job->prepare)
        job->prepare();
    job->status = nvrtc_search(job->places, &job->found);
    job->builtins_loaded = dlopen("libnvrtc-builtins.so.13.7", RTLD_NOW | RTLD_NOLOAD) != NULL;
    snprintf(job->message, sizeof job->message, "%s", dg_last_error());
}

/* Static storage, overwritten by the next. */
static const struct search_job *search_for(unsigned places, void (*prepare)(void))
{
    static struct search_job *job;
    if (!job)
        job = scene_shared(sizeof *job);
    memset(job, 0, sizeof *job);
    job->places = places;
    job->prepare = prepare;
    scene_wait(scene_fork(search_body, job));
    return job;
}

/* Nothing but the test says where NVRTC is. */
static void begin_search(void)
{
    scene_begin();
    unsetenv("DG_NVRTC_PATH");
    unsetenv("VIRTUAL_ENV");
    unsetenv("CONDA_PREFIX");
}

static void make_folders(const char *path)
{
    char command[SCENE_PATH * 3];
    snprintf(command, sizeof command, "mkdir -p '%s'", path);
    EXPECT(system(command) == 0);
}

static void build_library(const char *source, const char *options, const char *path)
{
    char command[SCENE_PATH * 6], folder[SCENE_PATH * 2];
    const char *cc = getenv("CC");
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    make_folders(folder);
    scene_write(scene_path("library.c"), source, strlen(source));
    snprintf(command, sizeof command, "%s -w -shared -fPIC %s -o '%s' '%s'", cc && *cc ? cc : "cc", options, path,
             scene_path("library.c"));
    EXPECT_THAT(system(command) == 0, "%s", command);
}

/* A library with NVRTC's names that tells a version and does nothing. */
static void build_fake(const char *path, int major, int minor)
{
    static const char source[] =
        "int nvrtcVersion(int *major, int *minor) { *major = MAJOR; *minor = MINOR; return 0; }\n"
        "const char *nvrtcGetErrorString(int r) { return \"a fake\"; }\n"
        "#define F(name) int name(void) { return 1; }\n"
        "F(nvrtcCreateProgram) F(nvrtcCompileProgram) F(nvrtcDestroyProgram)\n"
        "F(nvrtcGetProgramLogSize) F(nvrtcGetProgramLog) F(nvrtcGetCUBINSize)\n"
        "F(nvrtcGetCUBIN) F(nvrtcGetPTXSize) F(nvrtcGetPTX)\n";
    char options[128];
    snprintf(options, sizeof options, "-DMAJOR=%d -DMINOR=%d -Wl,-soname,libnvrtc.so.%d", major, minor, major);
    build_library(source, options, path);
}

#define EXPECT_FOUND(job, wanted_version, wanted_path)                                                                 \
    do {                                                                                                               \
        EXPECT_THAT((job)->status == DG_SUCCESS, "%s", (job)->message);                                                \
        EXPECT_INT((job)->found.version, wanted_version);                                                              \
        EXPECT_TEXT((job)->found.path, wanted_path);                                                                   \
    } while (0)

static void enter_directory(void)
{
    if (chdir(scene_path("a")) != 0)
        _exit(1);
}

TEST(the_given_path_is_a_file_or_a_directory)
{
    begin_search();
    build_fake(scene_path("a/libnvrtc.so.13"), 13, 7);
    build_library("int x;", "-Wl,-soname,libnvrtc-builtins.so.13.7", scene_path("a/libnvrtc-builtins.so.13.7"));
    build_fake(scene_path("a/libnvrtc.so.12"), 12, 8);
    setenv("DG_NVRTC_PATH", scene_path("a/libnvrtc.so.12"), 1);
    EXPECT_FOUND(search_for(NVRTC_ANYWHERE, NULL), 12080, "a/libnvrtc.so.12");
    setenv("DG_NVRTC_PATH", "libnvrtc.so.12", 1);
    EXPECT_FOUND(search_for(NVRTC_ANYWHERE, enter_directory), 12080, "a/libnvrtc.so.12");
    setenv("DG_NVRTC_PATH", scene_path("a"), 1);
    EXPECT_FOUND(search_for(NVRTC_ANYWHERE, NULL), 13070, "a/libnvrtc.so.13");
    EXPECT_THAT(search_for(NVRTC_ANYWHERE, NULL)->builtins_loaded, "the builtins beside NVRTC were not loaded");
}

TEST(a_given_path_is_never_replaced_by_another_library)
{
    const struct search_job *job;
    begin_search();
    setenv("DG_NVRTC_PATH", "/nowhere/at/all", 1);
    job = search_for(NVRTC_ANYWHERE, NULL);
    EXPECT_INT(job->status, DG_ERROR_NO_COMPILER);
    EXPECT_TEXT(job->message, "/nowhere/at/all: No such file");
    EXPECT_TEXT(job->message, "DG_NVRTC_PATH");
    setenv("DG_NVRTC_PATH", scene_root, 1);
    job = search_for(NVRTC_ANYWHERE, NULL);
    EXPECT_INT(job->status, DG_ERROR_NO_COMPILER);
    EXPECT_TEXT(job->message, scene_root);
}

TEST(old_libraries_tell_version_and_path)
{
    const struct search_job *job;
    begin_search();
    build_fake(scene_path("old/libnvrtc.so.12"), 12, 2);
    setenv("DG_NVRTC_PATH", scene_path("old/libnvrtc.so.12"), 1);
    job = search_for(NVRTC_ANYWHERE, NULL);
    EXPECT_INT(job->status, DG_ERROR_COMPILER_TOO_OLD);
    EXPECT_TEXT(job->message, "old/libnvrtc.so.12 is NVRTC 12.2");
    EXPECT_TEXT(job->message, "12.3 or later is needed");
    EXPECT_TEXT(job->message, "DG_NVRTC_PATH");
}

TEST(libraries_that_are_no_nvrtc_are_told_apart)
{
    const struct search_job *job;
    begin_search();
    scene_write(scene_path("garbage.so"), "this is no library", 18);
    setenv("DG_NVRTC_PATH", scene_path("garbage.so"), 1);
    job = search_for(NVRTC_ANYWHERE, NULL);
    EXPECT_INT(job->status, DG_ERROR_NO_COMPILER);
    EXPECT_TEXT(job->message, "garbage.so: ");
    build_library("int unrelated;", "", scene_path("unrelated.so"));
    setenv("DG_NVRTC_PATH", scene_path("unrelated.so"), 1);
    job = search_for(NVRTC_ANYWHERE, NULL);
    EXPECT_INT(job->status, DG_ERROR_NO_COMPILER);
    EXPECT_TEXT(job->message, "it is no NVRTC");
    build_library("int nvrtcVersion(int *x, int *y) { *x = 13; *y = 0; return 0; }", "", scene_path("part.so"));
    setenv("DG_NVRTC_PATH", scene_path("part.so"), 1);
    job = search_for(NVRTC_ANYWHERE, NULL);
    EXPECT_INT(job->status, DG_ERROR_NO_COMPILER);
    EXPECT_TEXT(job->message, "part.so has no function nvrtcGetErrorString");
}

TEST(toolkits_are_searched_in_order_past_old_ones)
{
    begin_search();
    setenv("CUDA_HOME", scene_path("home"), 1);
    setenv("CUDA_PATH", scene_path("path"), 1);
#if defined(__aarch64__)
    build_fake(scene_path("path/targets/sbsa-linux/lib/libnvrtc.so.13"), 13, 7);
#else
    build_fake(scene_path("path/targets/x86_64-linux/lib/libnvrtc.so.13"), 13, 7);
#endif
    EXPECT_FOUND(search_for(NVRTC_IN_TOOLKIT, NULL), 13070, "/path/targets/");
    build_fake(scene_path("home/lib64/libnvrtc.so.12"), 12, 1);
    EXPECT_FOUND(search_for(NVRTC_IN_TOOLKIT, NULL), 13070, "/path/targets/");
    build_fake(scene_path("home/lib64/libnvrtc.so.12"), 12, 6);
    EXPECT_FOUND(search_for(NVRTC_IN_TOOLKIT, NULL), 12060, "/home/lib64/");
}

static void name_folders(void)
{
    char folders[SCENE_PATH * 3];
    snprintf(folders, sizeof folders, "/nowhere::%s", scene_path("target"));
    if (dg_compiler_packages("/other") != DG_SUCCESS || dg_compiler_packages(folders) != DG_SUCCESS)
        _exit(1);
}

static void name_no_folders(void)
{
    name_folders();
    dg_compiler_packages(NULL);
}

/* As Python's PYTHONPATH and `pip install --target` have them. */
TEST(folders_that_are_named_come_first)
{
    begin_search();
    build_fake(scene_path("env/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13"), 13, 7);
    build_fake(scene_path("target/nvidia/cu13/lib/libnvrtc.so.13"), 13, 6);
    setenv("VIRTUAL_ENV", scene_path("env"), 1);
    EXPECT_FOUND(search_for(NVRTC_IN_PYTHON, name_folders), 13060, "/target/");
    EXPECT_FOUND(search_for(NVRTC_IN_PYTHON, name_no_folders), 13070, "/env/");
    EXPECT_FOUND(search_for(NVRTC_IN_PYTHON, NULL), 13070, "/env/");
}

static void call_as_python(void)
{
    program_invocation_name = (char *)(uintptr_t)scene_path("env/bin/python3");
}

static void load_libpython(void)
{
    dlopen(scene_path("conda/lib/libpython3.12.so.1.0"), RTLD_NOW);
}

/* The layouts are those of the packages nvidia-cuda-nvrtc (CUDA 13) and nvidia-cuda-nvrtc-cu12. */
TEST(python_packages_are_found_without_running_python)
{
    begin_search();
    build_fake(scene_path("v[1]/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"), 12, 9);
    setenv("VIRTUAL_ENV", scene_path("v[1]"), 1);
    EXPECT_FOUND(search_for(NVRTC_IN_PYTHON, NULL), 12090, "/v[1]/");
    build_fake(scene_path("v[1]/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13"), 13, 7);
    EXPECT_FOUND(search_for(NVRTC_IN_PYTHON, NULL), 13070, "/v[1]/");
    unsetenv("VIRTUAL_ENV");
    build_fake(scene_path("env/lib64/python3.9/site-packages/nvidia/cu13/lib/libnvrtc.so.13"), 13, 6);
    EXPECT_FOUND(search_for(NVRTC_IN_PYTHON, call_as_python), 13060, "/env/lib64/");
    build_library("int x;", "-Wl,-soname,libpython3.12.so.1.0", scene_path("conda/lib/libpython3.12.so.1.0"));
    build_fake(scene_path("conda/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13"), 13, 5);
    EXPECT_FOUND(search_for(NVRTC_IN_PYTHON, load_libpython), 13050, "/conda/lib/");
}

TEST(environments_are_found_active_or_first_in_path)
{
    char path[SCENE_PATH * 2 + 4096];
    const char *before = getenv("PATH");
    begin_search();
    build_fake(scene_path("c/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13"), 13, 4);
    setenv("CONDA_PREFIX", scene_path("c"), 1);
    EXPECT_FOUND(search_for(NVRTC_IN_PYTHON, NULL), 13040, "/c/lib/");
    unsetenv("CONDA_PREFIX");
    make_folders(scene_path("c/bin"));
    scene_write(scene_path("c/bin/python3"), "#!/bin/sh\n", 10);
    EXPECT(chmod(scene_path("c/bin/python3"), 0755) == 0);
    snprintf(path, sizeof path, "%s:%s", scene_path("c/bin"), before ? before : "/usr/bin:/bin");
    setenv("PATH", path, 1);
    EXPECT_FOUND(search_for(NVRTC_IN_PYTHON, NULL), 13040, "/c/lib/");
}

static void load_fake(void)
{
    dlopen(scene_path("loaded/libnvrtc.so.12"), RTLD_NOW);
}

TEST(a_library_that_the_process_has_comes_first)
{
    begin_search();
    build_fake(scene_path("loaded/libnvrtc.so.12"), 12, 7);
    EXPECT_FOUND(search_for(NVRTC_ANYWHERE, load_fake), 12070, "/loaded/libnvrtc.so.12");
    build_fake(scene_path("loaded/libnvrtc.so.12"), 12, 2); /* too old: the others are asked */
    EXPECT(search_for(NVRTC_IN_PROCESS, load_fake)->status == DG_ERROR_COMPILER_TOO_OLD);
    EXPECT_THAT(search_for(NVRTC_ANYWHERE, load_fake)->status == DG_SUCCESS, "no NVRTC: install nvidia-cuda-nvrtc");
}

TEST(nothing_found_tells_where_was_looked)
{
    const struct search_job *job;
    begin_search();
    setenv("VIRTUAL_ENV", scene_path("empty"), 1);
    job = search_for(0, NULL);
    EXPECT_INT(job->status, DG_ERROR_NO_COMPILER);
    EXPECT_TEXT(job->message, "pip install nvidia-cuda-nvrtc");
    job = search_for(NVRTC_IN_PROCESS, NULL);
    EXPECT_INT(job->status, DG_ERROR_NO_COMPILER);
    EXPECT_TEXT(job->message, "looked in the running process");
}

/* DG_TEST_NVRTC: libraries or their directories, separated by colons; each must do all that is needed. */
TEST(every_nvrtc_that_was_named_works)
{
    const char *list = getenv("DG_TEST_NVRTC");
    if (!list || !*list)
        test_skip("DG_TEST_NVRTC names no further NVRTC libraries");
    for (const char *at = list; *at; at += strcspn(at, ":"), at += *at == ':') {
        char path[SCENE_PATH];
        const struct report_job *job;
        struct jit_request request = scene_request();
        scene_begin();
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, ":"), at);
        setenv("DG_NVRTC_PATH", path, 1);
        job = scene_report(request);
        EXPECT_CLEAN(job);
        EXPECT(job->report.registers > 0);
        printf("NVRTC %d.%d: %.3f s\n", job->report.compiler / 1000, job->report.compiler % 1000 / 10,
               job->report.seconds);
        EXPECT_ORIGIN(scene_get(request), JIT_COMPILED);
    }
}

/* ---- The public questions ---------------------------------------------------------------------------------------- */

struct query_job {
    dg_status status[3];
    int32_t version;
    char path[4096], message[4096];
};

static void query_body(void *argument)
{
    struct query_job *job = argument;
    job->status[0] = dg_compiler_query(NULL, NULL, 0);
    job->status[1] = dg_compiler_query(&job->version, job->path, 3);
    job->status[2] = dg_compiler_query(&job->version, job->path, sizeof job->path);
    snprintf(job->message, sizeof job->message, "%s", dg_last_error());
}

TEST(the_compiler_can_be_asked_for)
{
    struct query_job *job = scene_shared(sizeof *job);
    scene_begin();
    scene_wait(scene_fork(query_body, job));
    EXPECT_INT(job->status[0], DG_ERROR_INVALID_ARGUMENT);
    EXPECT_INT(job->status[1], DG_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(job->status[2] == DG_SUCCESS, "%s", job->message);
    EXPECT(job->version >= NVRTC_OLDEST);
    EXPECT_TEXT(job->path, "libnvrtc");
    setenv("DG_NVRTC_PATH", "/nowhere", 1);
    scene_wait(scene_fork(query_body, job));
    EXPECT_INT(job->status[2], DG_ERROR_NO_COMPILER);
    EXPECT_TEXT(job->message, "dg_compiler_query: ");
}

/* A failed search is repeated, so that mending the environment mends the process. */
static void retry_body(void *argument)
{
    struct query_job *job = argument;
    setenv("DG_NVRTC_PATH", "/nowhere", 1);
    job->status[0] = dg_compiler_query(&job->version, NULL, 0);
    scene_restore("DG_NVRTC_PATH");
    job->status[1] = dg_compiler_query(&job->version, NULL, 0);
}

TEST(a_failed_search_may_be_repeated)
{
    struct query_job *job = scene_shared(sizeof *job);
    scene_begin();
    scene_wait(scene_fork(retry_body, job));
    EXPECT_INT(job->status[0], DG_ERROR_NO_COMPILER);
    EXPECT_INT(job->status[1], DG_SUCCESS);
}

TEST(the_cache_directory_follows_the_environment)
{
    char buffer[SCENE_PATH];
    scene_begin();
    EXPECT_OK(dg_cache_directory(buffer, sizeof buffer));
    EXPECT(strcmp(buffer, scene_cache) == 0);
    unsetenv("DG_JIT_CACHE_DIR");
    setenv("HOME", "/h", 1);
    EXPECT_OK(dg_cache_directory(buffer, sizeof buffer));
    EXPECT(strcmp(buffer, "/h/.cache/deepgemm") == 0);
    setenv("XDG_CACHE_HOME", "/x", 1);
    EXPECT_OK(dg_cache_directory(buffer, sizeof buffer));
    EXPECT(strcmp(buffer, "/x/deepgemm") == 0);
    setenv("XDG_CACHE_HOME", "relative", 1);
    EXPECT_OK(dg_cache_directory(buffer, sizeof buffer));
    EXPECT(strcmp(buffer, "/h/.cache/deepgemm") == 0);
    EXPECT_REFUSED(dg_cache_directory(buffer, 5), DG_ERROR_INVALID_ARGUMENT, "buffer has 5 bytes");
    EXPECT_REFUSED(dg_cache_directory(NULL, 5), DG_ERROR_INVALID_ARGUMENT, "NULL");
    unsetenv("HOME");
    EXPECT_OK(dg_cache_directory(buffer, sizeof buffer));
    EXPECT(buffer[0] == '\0');
    EXPECT_TEXT(dg_last_error(), "dg_cache_directory: there is no cache on disk: neither");
}
