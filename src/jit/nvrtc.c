#include "jit/nvrtc.h"

#include "core/env.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const LIBRARY_NAMES[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
enum { LIBRARY_NAME_COUNT = sizeof LIBRARY_NAMES / sizeof LIBRARY_NAMES[0] };

#if defined(__aarch64__)
#define TOOLKIT_TARGET "targets/sbsa-linux/lib"
#else
#define TOOLKIT_TARGET "targets/x86_64-linux/lib"
#endif

struct search {
    struct nvrtc *result;
    dg_status status;    /* of the failure, should nothing be found */
    char looked[1024];   /* where was looked, for the sentence */
    char rejected[1024]; /* what was found and cannot be used, and why */
};

__attribute__((format(printf, 3, 4))) static void note(char *list, size_t bytes, const char *format, ...)
{
    size_t used = strlen(list);
    va_list values;
    used += (size_t)snprintf(list + used, bytes - used, "%s", used ? ", " : "");
    if (used >= bytes)
        return;
    va_start(values, format);
    vsnprintf(list + used, bytes - used, format, values);
    va_end(values);
}

#define LOOKED(search, ...) note((search)->looked, sizeof(search)->looked, __VA_ARGS__)
#define REJECT(search, ...) note((search)->rejected, sizeof(search)->rejected, __VA_ARGS__)

/* ---- One library ------------------------------------------------------------------------------------------------- */

/* Where the loader took it from; `name` when it does not say. */
static void path_of(void *handle, const char *name, char *path, size_t bytes)
{
    struct link_map *map = NULL;
    bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0];
    snprintf(path, bytes, "%s", known ? map->l_name : name);
}

/* Function pointers are copied as bytes: ISO C has no conversion from void * to them. POSIX promises equal sizes. */
static bool find_symbol(void *handle, const char *symbol, void *function)
{
    void *address = dlsym(handle, symbol);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static bool find_symbols(struct search *search, void *handle)
{
    struct nvrtc *n = search->result;
#define NVRTC(result, name, arguments)                                                                                 \
    if (!find_symbol(handle, "nvrtc" #name, &n->name)) {                                                               \
        REJECT(search, "%s has no function nvrtc" #name, n->path);                                                     \
        return false;                                                                                                  \
    }
#include "jit/nvrtc.def"
#undef NVRTC
    return true;
}

/* Before the other symbols: a library that is too old lacks some, and its age is the better reason. */
static bool new_enough(struct search *search, void *handle)
{
    struct nvrtc *n = search->result;
    int major = 0, minor = 0;
    if (!find_symbol(handle, "nvrtcVersion", &n->Version) || n->Version(&major, &minor) != 0) {
        REJECT(search, "%s does not tell its version: it is no NVRTC", n->path);
        return false;
    }
    n->version = major * 1000 + minor * 10;
    if (n->version >= NVRTC_OLDEST)
        return true;
    search->status = DG_ERROR_COMPILER_TOO_OLD;
    REJECT(search, "%s is NVRTC %d.%d", n->path, major, minor);
    return false;
}

/*
 * NVRTC opens its builtins library by name on the first compilation, and toolkits outside the loader's path have no
 * RUNPATH that would lead there. A library that is loaded already is found by its name, so it is loaded here from
 * beside NVRTC. Where there is none, NVRTC may know better.
 */
static void load_builtins(const struct nvrtc *n)
{
    const char *slash = strrchr(n->path, '/');
    char path[NVRTC_PATH_BYTES + 64];
    if (!slash)
        return;
    snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - n->path), n->path, n->version / 1000,
             n->version % 1000 / 10);
    dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays for the life of the process, as NVRTC does */
}

static bool try_library(struct search *search, const char *name, int flags)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | flags);
    struct stat info;
    if (!handle) {
        const char *reason = dlerror();
        if (strchr(name, '/') && stat(name, &info) == 0)
            REJECT(search, "%s", reason);
        return false;
    }
    path_of(handle, name, search->result->path, sizeof search->result->path);
    if (new_enough(search, handle) && find_symbols(search, handle)) {
        load_builtins(search->result);
        return true;
    }
    dlclose(handle);
    return false;
}

static bool try_directory(struct search *search, const char *directory)
{
    char path[NVRTC_PATH_BYTES];
    LOOKED(search, "%s", directory);
    for (int i = 0; i < LIBRARY_NAME_COUNT; ++i)
        if (snprintf(path, sizeof path, "%s/%s", directory, LIBRARY_NAMES[i]) < (int)sizeof path &&
            try_library(search, path, 0))
            return true;
    return false;
}

/* ---- Places ------------------------------------------------------------------------------------------------------ */

/* Made absolute: a name without a slash would mean a library of the system to the loader. */
static bool try_given(struct search *search, const char *given)
{
    char path[PATH_MAX];
    struct stat info;
    if (!realpath(given, path) || stat(path, &info) != 0) {
        REJECT(search, "%s: %s", given, strerror(errno));
        return false;
    }
    if (S_ISDIR(info.st_mode))
        return try_directory(search, path);
    LOOKED(search, "%s", path);
    return try_library(search, path, 0);
}

static bool try_process(struct search *search)
{
    LOOKED(search, "the running process");
    for (int i = 0; i < LIBRARY_NAME_COUNT; ++i)
        if (try_library(search, LIBRARY_NAMES[i], RTLD_NOLOAD))
            return true;
    return false;
}

static bool try_system(struct search *search)
{
    LOOKED(search, "the system's libraries");
    for (int i = 0; i < LIBRARY_NAME_COUNT; ++i)
        if (try_library(search, LIBRARY_NAMES[i], 0))
            return true;
    return false;
}

static bool try_toolkits(struct search *search)
{
    const char *const roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    static const char *const folders[] = {"lib64", TOOLKIT_TARGET};
    char directory[NVRTC_PATH_BYTES];
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; ++i)
        for (size_t j = 0; roots[i] && *roots[i] && j < sizeof folders / sizeof folders[0]; ++j)
            if (snprintf(directory, sizeof directory, "%s/%s", roots[i], folders[j]) < (int)sizeof directory &&
                try_directory(search, directory))
                return true;
    return false;
}

/* ---- The packages of the running Python, found without running anything ------------------------------------------ */

/* Appends `path` to a glob pattern so that it stands for itself. */
static bool append_quoted(char *pattern, size_t bytes, const char *path)
{
    size_t used = strlen(pattern);
    for (; *path && used + 2 < bytes; ++path) {
        if (strchr("*?[\\", *path))
            pattern[used++] = '\\';
        pattern[used++] = *path;
    }
    pattern[used] = '\0';
    return *path == '\0';
}

/* Libraries under root/rest; CUDA 13's package (nvidia/cu13) sorts before CUDA 12's (nvidia/cuda_nvrtc). */
static bool try_pattern(struct search *search, const char *root, const char *rest)
{
    char pattern[NVRTC_PATH_BYTES] = "";
    glob_t matches;
    bool found = false;
    if (!append_quoted(pattern, sizeof pattern, root) || strlen(pattern) + strlen(rest) >= sizeof pattern)
        return false;
    strcat(pattern, rest);
    LOOKED(search, "the Python packages of %s", root);
    if (glob(pattern, 0, NULL, &matches) == 0)
        for (size_t i = 0; i < matches.gl_pathc && !found; ++i)
            found = try_library(search, matches.gl_pathv[i], 0);
    globfree(&matches);
    return found;
}

#define PACKAGE_LIBRARY "/nvidia/*/lib/libnvrtc.so.1[0-9]"

/* A prefix as in sys.prefix. lib*: some distributions have lib64; python3*: Debian's own packages are in python3. */
static bool try_prefix(struct search *search, const char *prefix)
{
    return try_pattern(search, prefix, "/lib*/python3*/*-packages" PACKAGE_LIBRARY);
}

/* The prefix of prefix/bin/python3 or prefix/lib/libpython3.so: two levels up. */
static bool try_prefix_of(struct search *search, const char *file)
{
    char prefix[NVRTC_PATH_BYTES];
    snprintf(prefix, sizeof prefix, "%s", file);
    for (int level = 0; level < 2; ++level) {
        char *slash = strrchr(prefix, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    return try_prefix(search, prefix);
}

static int find_libpython(struct dl_phdr_info *info, size_t bytes, void *path)
{
    (void)bytes;
    if (!strstr(info->dlpi_name, "/libpython3"))
        return 0;
    snprintf(path, NVRTC_PATH_BYTES, "%s", info->dlpi_name);
    return 1;
}

/* The program as it was called (a virtual environment's python is a symbolic link), as it is, and its libpython. */
static bool try_interpreter(struct search *search)
{
    char path[NVRTC_PATH_BYTES] = "";
    if (strchr(program_invocation_name, '/') && try_prefix_of(search, program_invocation_name))
        return true;
    if (realpath("/proc/self/exe", path) && try_prefix_of(search, path))
        return true;
    return dl_iterate_phdr(find_libpython, path) && try_prefix_of(search, path);
}

/* When this library was itself installed as a Python package, the others lie beside it. */
static bool try_own_packages(struct search *search)
{
    static const char anchor;
    static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
    char packages[NVRTC_PATH_BYTES];
    Dl_info info;
    if (!dladdr(&anchor, &info) || !info.dli_fname)
        return false;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; ++i) {
        const char *end = strstr(info.dli_fname, folders[i]);
        if (!end)
            continue;
        snprintf(packages, sizeof packages, "%.*s", (int)(end - info.dli_fname + (long)strlen(folders[i]) - 1),
                 info.dli_fname);
        return try_pattern(search, packages, PACKAGE_LIBRARY);
    }
    return false;
}

/* pip install --user */
static bool try_user_packages(struct search *search)
{
    char prefix[NVRTC_PATH_BYTES];
    const char *home = getenv("HOME");
    return home && *home && snprintf(prefix, sizeof prefix, "%s/.local", home) < (int)sizeof prefix &&
           try_prefix(search, prefix);
}

/* ---- The folders that dg_compiler_packages names ----------------------------------------------------------------- */

/* Never freed: a search may be reading it. */
struct folders {
    struct folders *previous;
    char text[];
};

static _Atomic(struct folders *) named;

dg_status dg_compiler_packages(const char *folders)
{
    operation_begin("dg_compiler_packages");
    const size_t bytes = folders ? strlen(folders) + 1 : 1;
    struct folders *latest = malloc(sizeof *latest + bytes);
    if (latest == NULL)
        return fail(DG_ERROR_OUT_OF_MEMORY, "%zu bytes for the names of folders could not be allocated", bytes);
    memcpy(latest->text, folders ? folders : "", bytes);
    latest->previous = atomic_load(&named);
    while (!atomic_compare_exchange_weak(&named, &latest->previous, latest))
        ;
    return DG_SUCCESS;
}

static bool try_named(struct search *search)
{
    const struct folders *latest = atomic_load(&named);
    const char *rest = latest ? latest->text : "";
    while (*rest) {
        const size_t length = strcspn(rest, ":");
        char folder[NVRTC_PATH_BYTES];
        if (length > 0 && snprintf(folder, sizeof folder, "%.*s", (int)length, rest) < (int)sizeof folder &&
            try_pattern(search, folder, PACKAGE_LIBRARY))
            return true;
        rest += length + (rest[length] == ':');
    }
    return false;
}

/* ---- Other Pythons ----------------------------------------------------------------------------------------------- */

/* An active environment of venv or conda. */
static bool try_environments(struct search *search)
{
    const char *const prefixes[] = {getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX")};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; ++i)
        if (prefixes[i] && *prefixes[i] && try_prefix(search, prefixes[i]))
            return true;
    return false;
}

/* The python3 that a shell would run: of an environment that is not activated, but first in PATH. */
static bool try_path(struct search *search)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        const size_t length = strcspn(path, ":");
        char python[NVRTC_PATH_BYTES];
        if (length > 0 && snprintf(python, sizeof python, "%.*s/python3", (int)length, path) < (int)sizeof python &&
            access(python, X_OK) == 0)
            return try_prefix_of(search, python);
        path += length + (path[length] == ':');
    }
    return false;
}

static bool try_python(struct search *search)
{
    /* Debian's Python lives in /usr and installs into /usr/local. */
    return try_named(search) || try_environments(search) || try_own_packages(search) || try_interpreter(search) ||
           try_path(search) || try_user_packages(search) || try_prefix(search, "/usr/local");
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

static bool search_places(struct search *search, unsigned places)
{
    static bool (*const tries[])(struct search *) = {try_process, try_system, try_toolkits, try_python};
    const char *given = env_string(ENV_NVRTC_PATH);
    if (given)
        return try_given(search, given);
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; ++i)
        if (places & 1u << i && tries[i](search))
            return true;
    return false;
}

static dg_status fail_search(const struct search *search)
{
    const bool given = env_string(ENV_NVRTC_PATH) != NULL;
    if (search->status == DG_ERROR_COMPILER_TOO_OLD)
        fail_text("the NVRTC found is too old, %d.%d or later is needed: %s", NVRTC_OLDEST / 1000,
                  NVRTC_OLDEST % 1000 / 10, search->rejected);
    else if (search->rejected[0])
        fail_text("no NVRTC library could be used: %s", search->rejected);
    else
        fail_text("no NVRTC library (%s or %s) was found", LIBRARY_NAMES[0], LIBRARY_NAMES[1]);
    if (search->looked[0])
        fail_more("; looked in %s", search->looked);
    fail_more("; %s %s to the library or its directory", given ? "DG_NVRTC_PATH is set; point" : "set",
              given ? "it" : env_name(ENV_NVRTC_PATH));
    if (!given)
        fail_more(", or install it (python3 -m venv .venv && . .venv/bin/activate && pip install nvidia-cuda-nvrtc)");
    return search->status;
}

static bool run_search(struct search *search, unsigned places, struct nvrtc *result)
{
    memset(search, 0, sizeof *search);
    memset(result, 0, sizeof *result);
    search->result = result;
    search->status = DG_ERROR_NO_COMPILER;
    return search_places(search, places);
}

dg_status nvrtc_search(unsigned places, struct nvrtc *nvrtc)
{
    struct search search;
    return run_search(&search, places, nvrtc) ? DG_SUCCESS : fail_search(&search);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvrtc found; /* once version is set, never written again */

static void take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void drop_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* So that no child inherits a search in the middle. */
__attribute__((constructor)) static void prepare_for_forks(void)
{
    pthread_atfork(take_lock, drop_lock, drop_lock);
}

static bool find_once(struct search *search)
{
    bool ok;
    take_lock();
    ok = found.version != 0;
    if (!ok) {
        ok = run_search(search, NVRTC_ANYWHERE, &found);
        if (!ok)
            found.version = 0;
    }
    drop_lock();
    return ok;
}

dg_status nvrtc_get(const struct nvrtc **nvrtc)
{
    struct search search;
    if (!find_once(&search))
        return fail_search(&search);
    *nvrtc = &found;
    return DG_SUCCESS;
}

const struct nvrtc *nvrtc_find(void)
{
    struct search search;
    return find_once(&search) ? &found : NULL;
}
