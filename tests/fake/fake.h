/*
 * For tests: the fake driver, built by the C compiler on first use (CC, else cc), unless FAKE_CUDA_LIBRARY names a
 * ready one. Run tests from the root of the tree.
 */
#ifndef FAKE_H
#define FAKE_H

#include "tests/fake/fake_cuda.h"
#include "tests/test.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static char fake_directory[256]; /* "": not made by this process */

/* A directory that lives as long as the process. */
static inline void fake_remove_directory(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", fake_directory);
    if (system(command) != 0)
        fprintf(stderr, "%s could not be removed\n", fake_directory);
}

static inline const char *fake_make_directory(void)
{
    const char *parent = getenv("TMPDIR");
    if (fake_directory[0])
        return fake_directory;
    snprintf(fake_directory, sizeof fake_directory, "%.200s/fake_cuda.XXXXXX", parent && *parent ? parent : "/tmp");
    if (mkdtemp(fake_directory) == NULL)
        test_fail(__FILE__, __LINE__, "no directory %s", fake_directory);
    atexit(fake_remove_directory);
    return fake_directory;
}

/* Compile `sources` (with options, if any) into a shared library of that name; returns its path. */
static inline const char *fake_compile(const char *name, const char *sources)
{
    static char path[400];
    char command[1200];
    const char *compiler = getenv("CC");
    snprintf(path, sizeof path, "%s/%s", fake_make_directory(), name);
    snprintf(
        command, sizeof command,
        "%s -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -g -O1 -Iinclude -Isrc -I. -shared -o '%s' %s -lpthread",
        compiler && *compiler ? compiler : "cc", path, sources);
    if (system(command) != 0)
        test_fail(__FILE__, __LINE__, "this failed (in the root of the tree?): %s", command);
    return path;
}

/* Builds it if that has not happened yet; processes started later find it through FAKE_CUDA_LIBRARY. */
static inline const char *fake_path(void)
{
    if (getenv("FAKE_CUDA_LIBRARY") == NULL) {
        const char *sources = "tests/fake/fake_cuda.c tests/fake/fake_kernels.c";
        setenv("FAKE_CUDA_LIBRARY", fake_compile("libfake_cuda.so", sources), 1);
    }
    return getenv("FAKE_CUDA_LIBRARY");
}

/* Opens it, makes it the library's driver (DG_CUDA_DRIVER_PATH), and resets it. */
static inline struct fake *fake_open(void)
{
    const char *path = fake_path();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct fake *fake = library ? dlsym(library, "fake") : NULL;
    if (fake == NULL)
        test_fail(__FILE__, __LINE__, "%s is no fake driver: %s", path, dlerror());
    setenv("DG_CUDA_DRIVER_PATH", path, 1);
    fake->reset();
    return fake;
}

/* What a tensor map made by the fake driver says. */
static inline struct fake_tensor_map fake_read_map(const struct tensor_map *map)
{
    struct fake_tensor_map out;
    memcpy(&out, map, sizeof out);
    if (out.magic != FAKE_TENSOR_MAP)
        test_fail(__FILE__, __LINE__, "the tensor map was not made by the fake driver");
    return out;
}

#endif
