#include "cuda/driver.h"

#include "core/env.h"
#include "core/tensor.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct driver table; /* complete before `ready` points to it, constant afterwards */
static _Atomic(const struct driver *) ready;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/* ---- Errors in words ----------------------------------------------------------------------------------------- */

/* "CUDA_ERROR_UNKNOWN (999: unknown error)"; the number alone where the driver has no words for it. */
static struct text result_text(const struct driver *driver, CUresult result)
{
    struct text out;
    const char *name = NULL, *words = NULL;
    if (driver && driver->cuGetErrorName && driver->cuGetErrorString &&
        driver->cuGetErrorName(result, &name) == CUDA_SUCCESS &&
        driver->cuGetErrorString(result, &words) == CUDA_SUCCESS && name && words)
        snprintf(out.s, sizeof out.s, "%s (%d: %s)", name, result, words);
    else
        snprintf(out.s, sizeof out.s, "the error %d", result);
    return out;
}

/* Errors that stay with a context once a kernel, or the hardware under it, has caused them: every later call gets the
   same one. (MPS: a client's fault ends the other clients of the server too.) */
static bool from_earlier_work(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
        return true;
    default:
        return false;
    }
}

static dg_status status_of(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return DG_ERROR_OUT_OF_MEMORY;
    case CUDA_ERROR_NOT_INITIALIZED: /* what a driver initialised before a fork says in the child */
        return DG_ERROR_FORKED;
    case CUDA_ERROR_STUB_LIBRARY:
        return DG_ERROR_NO_DRIVER;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
        return DG_ERROR_NO_DEVICE;
    default:
        return from_earlier_work(result) ? DG_ERROR_EARLIER_CUDA : DG_ERROR_CUDA;
    }
}

static dg_status fail_with(const struct driver *driver, CUresult result, const char *what)
{
    const dg_status status = status_of(result);
    const struct text text = result_text(driver, result);
    if (status == DG_ERROR_EARLIER_CUDA)
        return fail(status, "earlier work on this CUDA context had failed with %s, as %s reports; nothing was launched",
                    text.s, what);
    fail(status, "%s returned %s", what, text.s);
    if (status == DG_ERROR_FORKED)
        fail_more("; this process was most likely forked from one that had initialised CUDA: start it by exec instead");
    if (status == DG_ERROR_NO_DRIVER)
        fail_more("; the library loaded is the toolkit's stub for linking, not a driver");
    return status;
}

dg_status driver_fail(CUresult result, const char *what)
{
    return fail_with(atomic_load_explicit(&ready, memory_order_acquire), result, what);
}

/* ---- Fork ---------------------------------------------------------------------------------------------------- */

/*
 * CUDA does not survive a fork: the child has neither the driver's threads nor its mappings. `users` counts the threads
 * inside the loader, plus one for good after a success, so that a child knows whether its parent had begun with CUDA
 * (a failed attempt leaves no trace). Nothing here takes `loading`: the driver may fork a helper inside cuInit.
 */
static _Atomic int users;
static _Atomic bool forked;
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int watch_error;

static void in_child(void)
{
    if (atomic_load(&users) == 0)
        return;
    atomic_store(&forked, true);
    atomic_store(&ready, NULL);
}

static void watch_forks(void)
{
    watch_error = pthread_atfork(NULL, NULL, in_child);
}

/* ---- Loading ------------------------------------------------------------------------------------------------- */

typedef CUresult (*get_version_fn)(int *version);
typedef CUresult (*get_address_fn)(const char *name, void **address, int version, uint64_t flags,
                                   CUdriverProcAddressQueryResult *found);

enum need { OPTIONAL, REQUIRED };

static const struct entry {
    const char *name;
    int version;
    enum need need;
    size_t offset; /* in struct driver */
} entries[] = {
#define DRIVER(name, version, need, parameters) {#name, version, need, offsetof(struct driver, name)},
#include "cuda/driver.def"
#undef DRIVER
};

static const char *library_path(void)
{
    const char *path = env_string(ENV_DRIVER_PATH);
    return path ? path : "libcuda.so.1";
}

static dg_status open_library(void **library)
{
    const char *path = library_path();
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*library)
        return DG_SUCCESS;
    const char *why = dlerror();
    return fail(DG_ERROR_NO_DRIVER, "the CUDA driver library %s could not be loaded (%s); %s", path,
                why ? why : "no reason given",
                env_string(ENV_DRIVER_PATH) ? "DG_CUDA_DRIVER_PATH names it"
                                            : "install NVIDIA's driver, or name the file in DG_CUDA_DRIVER_PATH");
}

static dg_status not_a_driver(const char *symbol)
{
    return fail(DG_ERROR_NO_DRIVER, "%s is not a CUDA driver: it exports no %s", library_path(), symbol);
}

static dg_status check_version(void *library, struct driver *driver)
{
    get_version_fn get_version;
    void *symbol = dlsym(library, "cuDriverGetVersion");
    if (symbol == NULL)
        return not_a_driver("cuDriverGetVersion");
    memcpy(&get_version, &symbol, sizeof symbol); /* ISO C has no cast from an object to a function pointer */
    CUresult result = get_version(&driver->version);
    if (result != CUDA_SUCCESS)
        return fail_with(driver, result, "cuDriverGetVersion");
    if (driver->version < DRIVER_MINIMUM)
        return fail(DG_ERROR_DRIVER_TOO_OLD, "the CUDA driver %s is of CUDA %d.%d; wanted %d.%d or later",
                    library_path(), driver->version / 1000, driver->version % 1000 / 10, DRIVER_MINIMUM / 1000,
                    DRIVER_MINIMUM % 1000 / 10);
    return DG_SUCCESS;
}

static dg_status find_entries(void *library, struct driver *driver)
{
    get_address_fn get_address;
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    if (symbol == NULL)
        return not_a_driver("cuGetProcAddress_v2");
    memcpy(&get_address, &symbol, sizeof symbol);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; ++i) {
        const struct entry *e = &entries[i];
        CUdriverProcAddressQueryResult found;
        void *address = NULL;
        if (get_address(e->name, &address, e->version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found) != CUDA_SUCCESS)
            address = NULL; /* a version later than the driver's own, say */
        if (address == NULL && e->need == REQUIRED)
            return fail(DG_ERROR_CUDA, "the CUDA driver %s, of CUDA %d.%d, lacks %s (of CUDA %d.%d)", library_path(),
                        driver->version / 1000, driver->version % 1000 / 10, e->name, e->version / 1000,
                        e->version % 1000 / 10);
        memcpy((char *)driver + e->offset, &address, sizeof address);
    }
    return DG_SUCCESS;
}

static dg_status initialise(const struct driver *driver)
{
    CUresult result = driver->cuInit(0);
    if (result == CUDA_SUCCESS)
        return DG_SUCCESS;
    dg_status status = fail_with(driver, result, "cuInit");
    if (status == DG_ERROR_NO_DEVICE)
        fail_more("; the driver %s (CUDA %d.%d) finds no GPU, or CUDA_VISIBLE_DEVICES hides them all", library_path(),
                  driver->version / 1000, driver->version % 1000 / 10);
    return status;
}

static dg_status load(struct driver *driver)
{
    void *library;
    dg_status status;
    CHECK(open_library(&library));
    CHECKGOTO(check_version(library, driver), status, close);
    CHECKGOTO(find_entries(library, driver), status, close);
    return initialise(driver); /* the library stays open even if this fails: threads of it may be running */
close:
    dlclose(library);
    return status;
}

static dg_status load_once(void)
{
    struct driver fresh = {0};
    dg_status status = DG_SUCCESS;
    pthread_mutex_lock(&loading);
    if (atomic_load(&ready) == NULL) { /* another thread may have been first */
        status = load(&fresh);
        if (status == DG_SUCCESS) {
            table = fresh;
            atomic_fetch_add(&users, 1);
            atomic_store(&ready, &table);
        }
    }
    pthread_mutex_unlock(&loading);
    return status;
}

static dg_status first_get(const struct driver **driver)
{
    pthread_once(&watch_once, watch_forks);
    if (watch_error)
        return fail(DG_ERROR_OUT_OF_MEMORY, "pthread_atfork failed with %d (%s)", watch_error, strerror(watch_error));
    if (atomic_load(&forked))
        return fail(DG_ERROR_FORKED,
                    "this process was forked from one that had initialised CUDA, which does not survive a fork; fork "
                    "before the first use of CUDA, or start the process by exec (Python: the \"spawn\" method)");
    atomic_fetch_add(&users, 1);
    dg_status status = load_once();
    atomic_fetch_sub(&users, 1);
    *driver = atomic_load(&ready);
    return status;
}

dg_status driver_get(const struct driver **driver)
{
    *driver = atomic_load_explicit(&ready, memory_order_acquire);
    return *driver ? DG_SUCCESS : first_get(driver);
}
