/* Loading the driver: every way in which it can fail, told apart; forks; threads; and the proof of cuda/abi.def. */
#include "cuda/driver.h"
#include "tests/fake/alone.h"

#include <pthread.h>

static const struct symbol {
    const char *name;
    int version;
    bool required;
} symbols[] = {
#define REQUIRED true
#define OPTIONAL false
#define DRIVER(name, version, need, parameters) {#name, version, need},
#include "cuda/driver.def"
#undef DRIVER
#undef REQUIRED
#undef OPTIONAL
};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

static dg_status count_devices(void)
{
    int32_t count = 77;
    dg_status status = dg_device_count(&count);
    EXPECT_INT(count, status == DG_SUCCESS ? 2 : 0);
    return status;
}

/* ---- Libraries that are none --------------------------------------------------------------------------------- */

TEST_ALONE(no_library_is_told_and_tried_again)
{
    struct fake *fake = fake_open();
    char good[400];
    snprintf(good, sizeof good, "%s", getenv("DG_CUDA_DRIVER_PATH"));
    setenv("DG_CUDA_DRIVER_PATH", "/nowhere/libcuda.so", 1);
    EXPECT_REFUSED(count_devices(), DG_ERROR_NO_DRIVER, "/nowhere/libcuda.so could not be loaded");
    EXPECT_TEXT(dg_last_error(), "dg_device_count: ");
    EXPECT_TEXT(dg_last_error(), "DG_CUDA_DRIVER_PATH");
    EXPECT_REFUSED(count_devices(), DG_ERROR_NO_DRIVER, "/nowhere/libcuda.so");
    setenv("DG_CUDA_DRIVER_PATH", good, 1);
    EXPECT_OK(count_devices());
    setenv("DG_CUDA_DRIVER_PATH", "/nowhere/libcuda.so", 1); /* a success is kept */
    EXPECT_OK(count_devices());
    EXPECT_INT(fake->count("cuInit"), 1);
}

TEST_ALONE(a_file_that_is_no_library)
{
    setenv("DG_CUDA_DRIVER_PATH", "tests/test.h", 1);
    EXPECT_REFUSED(count_devices(), DG_ERROR_NO_DRIVER, "tests/test.h could not be loaded");
}

/* A shared library made of one line of C. */
static void use_library(const char *line)
{
    char source[320];
    snprintf(source, sizeof source, "%s/source.c", fake_make_directory());
    FILE *file = fopen(source, "w");
    EXPECT(file != NULL);
    fprintf(file, "%s\n", line);
    fclose(file);
    setenv("DG_CUDA_DRIVER_PATH", fake_compile("libother.so", source), 1);
}

TEST_ALONE(a_library_without_symbols)
{
    use_library("int nothing_of_cuda;");
    EXPECT_REFUSED(count_devices(), DG_ERROR_NO_DRIVER, "is not a CUDA driver: it exports no cuDriverGetVersion");
    EXPECT_TEXT(dg_last_error(), "libother.so");
}

TEST_ALONE(a_library_without_the_look_up)
{
    use_library("__attribute__((visibility(\"default\"))) int cuDriverGetVersion(int *v) { *v = 13000; return 0; }");
    EXPECT_REFUSED(count_devices(), DG_ERROR_NO_DRIVER, "it exports no cuGetProcAddress_v2");
}

TEST_ALONE(the_toolkit_stub)
{
    use_library("__attribute__((visibility(\"default\"))) int cuDriverGetVersion(int *v) { *v = 0; return 34; }");
    EXPECT_REFUSED(count_devices(), DG_ERROR_NO_DRIVER, "cuDriverGetVersion returned the error 34");
    EXPECT_TEXT(dg_last_error(), "stub");
}

/* ---- Drivers that will not do -------------------------------------------------------------------------------- */

TEST_ALONE(a_driver_that_is_too_old)
{
    struct fake *fake = fake_open();
    fake->version = 11080;
    EXPECT_REFUSED(count_devices(), DG_ERROR_DRIVER_TOO_OLD, "is of CUDA 11.8; wanted 12.0 or later");
    EXPECT_TEXT(dg_last_error(), getenv("FAKE_CUDA_LIBRARY"));
    EXPECT_INT(fake->count("cuInit"), 0);
    fake->version = 11990;
    EXPECT_REFUSED(count_devices(), DG_ERROR_DRIVER_TOO_OLD, "CUDA 11.99");
}

TEST_ALONE(the_oldest_driver_that_will_do)
{
    const struct driver *driver;
    struct fake *fake = fake_open();
    fake->version = DRIVER_MINIMUM;
    EXPECT_OK(driver_get(&driver));
    EXPECT_INT(driver->version, 12000);
    EXPECT(driver->cuFuncLoad == NULL); /* of 12.4 */
    EXPECT(driver->cuLibraryLoadData != NULL);
}

TEST_ALONE(every_entry_point_missing_in_turn)
{
    const struct driver *driver;
    struct fake *fake = fake_open();
    for (int i = 0; i < SYMBOLS; ++i) {
        if (!symbols[i].required)
            continue;
        snprintf(fake->missing, sizeof fake->missing, "%s", symbols[i].name);
        EXPECT_REFUSED(driver_get(&driver), DG_ERROR_CUDA, symbols[i].name);
        EXPECT_TEXT(dg_last_error(), "lacks ");
        EXPECT(driver == NULL);
    }
    snprintf(fake->missing, sizeof fake->missing, "cuFuncLoad");
    EXPECT_OK(driver_get(&driver));
    EXPECT(driver->cuFuncLoad == NULL);
}

TEST_ALONE(entry_points_are_pinned_to_their_versions)
{
    const struct driver *driver;
    struct fake *fake = fake_open();
    EXPECT_OK(driver_get(&driver));
    int at = 0;
    for (int i = 0; i < SYMBOLS; ++i) {
        char wanted[88];
        snprintf(wanted, sizeof wanted, "%s %d", symbols[i].name, symbols[i].version);
        while (at < fake->call_count && strcmp(fake->calls[at].what, wanted) != 0)
            ++at;
        EXPECT_THAT(at < fake->call_count, "%s was not asked for, or out of order", wanted);
        EXPECT_TEXT(fake->calls[at].name, "cuGetProcAddress");
    }
}

TEST_ALONE(no_device)
{
    struct fake *fake = fake_open();
    fake->device_count = 0;
    EXPECT_REFUSED(count_devices(), DG_ERROR_NO_DEVICE, "cuInit returned CUDA_ERROR_NO_DEVICE (100");
    EXPECT_TEXT(dg_last_error(), "CUDA_VISIBLE_DEVICES");
    fake->device_count = 2;
    EXPECT_OK(count_devices());
}

TEST_ALONE(other_failures_of_cuInit)
{
    struct fake *fake = fake_open();
    fake->init = CUDA_ERROR_UNKNOWN;
    EXPECT_REFUSED(count_devices(), DG_ERROR_CUDA, "cuInit returned CUDA_ERROR_UNKNOWN (999: what the driver says");
    fake->init = 803; /* one that the driver has no words for */
    EXPECT_REFUSED(count_devices(), DG_ERROR_CUDA, "cuInit returned the error 803");
    fake->init = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT_REFUSED(count_devices(), DG_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY (2");
    fake->init = CUDA_ERROR_NOT_INITIALIZED;
    EXPECT_REFUSED(count_devices(), DG_ERROR_FORKED, "forked from one that had initialised CUDA");
    fake->init = CUDA_SUCCESS;
    EXPECT_OK(count_devices());
}

/* ---- The steady state ---------------------------------------------------------------------------------------- */

TEST_ALONE(later_calls_ask_the_driver_nothing)
{
    const struct driver *first, *later;
    struct fake *fake = fake_open();
    EXPECT_OK(driver_get(&first));
    const int calls = fake->call_count;
    EXPECT(calls > SYMBOLS);
    for (int i = 0; i < 1000; ++i)
        EXPECT_OK(driver_get(&later));
    EXPECT_INT(fake->call_count, calls);
    EXPECT(first == later && first->version == 13000);
}

static pthread_barrier_t together;

static void *load_together(void *result)
{
    const struct driver *driver;
    pthread_barrier_wait(&together);
    *(bool *)result = driver_get(&driver) == DG_SUCCESS && driver->cuInit != NULL && driver->version == 13000;
    return NULL;
}

TEST_ALONE(many_threads_load_it_once)
{
    enum { THREADS = 16 };
    pthread_t threads[THREADS];
    bool good[THREADS] = {false};
    struct fake *fake = fake_open();
    fake->init_ms = 50; /* so that all of them come before the first is done */
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; ++i)
        EXPECT(pthread_create(&threads[i], NULL, load_together, &good[i]) == 0);
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
        EXPECT_THAT(good[i], "thread %d got no driver", i);
    }
    EXPECT_INT(fake->count("cuInit"), 1);
}

/* ---- Errors in words ----------------------------------------------------------------------------------------- */

TEST_ALONE(what_becomes_of_each_error)
{
    static const CUresult sticky[] = {214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 810};
    const struct driver *driver;
    struct fake *fake = fake_open();
    EXPECT_REFUSED(driver_fail(CUDA_ERROR_UNKNOWN, "cuX"), DG_ERROR_CUDA,
                   "cuX returned the error 999"); /* not loaded */
    EXPECT_OK(driver_get(&driver));
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; ++i) {
        char number[16];
        snprintf(number, sizeof number, "(%d: ", sticky[i]);
        EXPECT_REFUSED(driver_fail(sticky[i], "cuLaunchKernelEx"), DG_ERROR_EARLIER_CUDA,
                       "earlier work on this CUDA context had failed with CUDA_ERROR_");
        EXPECT_TEXT(dg_last_error(), number);
        EXPECT_TEXT(dg_last_error(), "as cuLaunchKernelEx reports; nothing was launched");
    }
    EXPECT_REFUSED(driver_fail(CUDA_ERROR_INVALID_VALUE, "cuX"), DG_ERROR_CUDA,
                   "cuX returned CUDA_ERROR_INVALID_VALUE (1:");
    EXPECT_REFUSED(driver_fail(CUDA_ERROR_OUT_OF_MEMORY, "cuX"), DG_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_REFUSED(driver_fail(CUDA_ERROR_INVALID_DEVICE, "cuX"), DG_ERROR_NO_DEVICE, "CUDA_ERROR_INVALID_DEVICE");
    EXPECT_REFUSED(driver_fail(701, "cuX"), DG_ERROR_CUDA, "cuX returned the error 701"); /* this launch's own fault */
    EXPECT_REFUSED(driver_fail(4711, "cuX"), DG_ERROR_CUDA, "cuX returned the error 4711");
    EXPECT_INT(fake->injected, 0);
}

/* ---- Forks --------------------------------------------------------------------------------------------------- */

/* The status that counting devices has in a child, which says its sentence's first bytes in `words`. */
static dg_status in_child(char *words, size_t bytes)
{
    int ends[2], status = -1;
    int32_t count;
    EXPECT(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        int32_t result[1] = {(int32_t)dg_device_count(&count)};
        bool written = write(ends[1], result, sizeof result) == (ssize_t)sizeof result &&
                       write(ends[1], dg_last_error(), strlen(dg_last_error()) + 1) > 0;
        _exit(written ? 0 : 1);
    }
    close(ends[1]);
    int32_t result = -1;
    EXPECT(read(ends[0], &result, sizeof result) == (ssize_t)sizeof result);
    ssize_t got = read(ends[0], words, bytes - 1);
    words[got > 0 ? got : 0] = '\0';
    close(ends[0]);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    return (dg_status)result;
}

TEST_ALONE(a_fork_before_the_first_use_is_harmless)
{
    char words[1024];
    fake_open();
    EXPECT_INT(in_child(words, sizeof words), DG_SUCCESS);
    EXPECT_INT(in_child(words, sizeof words), DG_SUCCESS);
    EXPECT_OK(count_devices());
}

TEST_ALONE(a_fork_after_the_first_use)
{
    char words[1024];
    fake_open();
    EXPECT_OK(count_devices());
    EXPECT_INT(in_child(words, sizeof words), DG_ERROR_FORKED);
    EXPECT_TEXT(words, "dg_device_count: this process was forked from one that had initialised CUDA");
    EXPECT_TEXT(words, "exec");
    EXPECT_OK(count_devices()); /* the parent goes on */
}

TEST_ALONE(a_fork_after_a_failed_use)
{
    char words[1024], good[400];
    fake_open();
    snprintf(good, sizeof good, "%s", getenv("DG_CUDA_DRIVER_PATH"));
    setenv("DG_CUDA_DRIVER_PATH", "/nowhere/libcuda.so", 1);
    EXPECT_REFUSED(count_devices(), DG_ERROR_NO_DRIVER, "/nowhere");
    EXPECT_INT(in_child(words, sizeof words), DG_ERROR_NO_DRIVER);
    setenv("DG_CUDA_DRIVER_PATH", good, 1);
    EXPECT_INT(in_child(words, sizeof words), DG_SUCCESS);
}

TEST_ALONE(a_fork_of_a_process_where_others_use_cuda)
{
    char words[1024];
    CUresult (*init)(unsigned int) = NULL;
    CUresult (*look_up)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *) = NULL;
    CUdriverProcAddressQueryResult found;
    fake_open();
    void *library = dlopen(getenv("FAKE_CUDA_LIBRARY"), RTLD_NOW);
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&look_up, &symbol, sizeof symbol);
    EXPECT_INT(look_up("cuInit", &symbol, 2000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found), CUDA_SUCCESS);
    memcpy(&init, &symbol, sizeof symbol);
    EXPECT_INT(init(0), CUDA_SUCCESS);
    EXPECT_INT(in_child(words, sizeof words), DG_ERROR_FORKED);
    EXPECT_TEXT(words, "cuInit returned CUDA_ERROR_NOT_INITIALIZED (3");
}

/* A helper thread is inside the loader, and a fork happens: the child must neither hang nor use half a driver. */
static void *load_slowly(void *unused)
{
    const struct driver *driver;
    pthread_barrier_wait(&together);
    driver_get(&driver);
    return unused;
}

TEST_ALONE(forks_while_another_thread_loads)
{
    char words[1024];
    pthread_t thread;
    fake_open()->init_ms = 50;
    pthread_barrier_init(&together, NULL, 2);
    EXPECT(pthread_create(&thread, NULL, load_slowly, NULL) == 0);
    pthread_barrier_wait(&together);
    for (int i = 0; i < 50; ++i) {
        dg_status status = in_child(words, sizeof words);
        EXPECT_THAT(status == DG_SUCCESS || status == DG_ERROR_FORKED, "%s: %s", dg_status_name(status), words);
    }
    pthread_join(thread, NULL);
    EXPECT_INT(in_child(words, sizeof words), DG_ERROR_FORKED);
}

/* ---- NVIDIA's headers ---------------------------------------------------------------------------------------- */

static const char *toolkit_include(void)
{
    static char path[512];
    const char *places[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda", "/usr"};
    for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
        if (places[i] == NULL)
            continue;
        snprintf(path, sizeof path, "%.480s/include/cudaTypedefs.h", places[i]);
        if (access(path, R_OK) != 0)
            continue;
        *strrchr(path, '/') = '\0';
        return path;
    }
    return NULL;
}

static int prove(const char *options)
{
    char command[1024];
    const char *include = toolkit_include(), *compiler = getenv("CC");
    if (include == NULL)
        test_skip("no cuda.h and cudaTypedefs.h here; CUDA_HOME can name a directory whose include/ has them");
    snprintf(command, sizeof command, "%s -std=c11 -fsyntax-only -Isrc -I'%s' %s tests/fake/abi_proof.c",
             compiler && *compiler ? compiler : "cc", include, options);
    return system(command);
}

TEST(our_declarations_are_those_of_nvidia)
{
    EXPECT_INT(prove(""), 0);
}

TEST(the_proof_can_fail)
{
    EXPECT(prove("-DABI_PROOF_FALSEHOOD=1 2>/dev/null") != 0);
    EXPECT(prove("-DABI_PROOF_FALSEHOOD=2 2>/dev/null") != 0);
    EXPECT(prove("-DABI_PROOF_FALSEHOOD=3 2>/dev/null") != 0);
}
