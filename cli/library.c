#include "library.h"

#include "program.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

/* dlopen the first match of a pattern that loads. */
static void *open_match(const char *pattern)
{
    glob_t found;
    void *library = NULL;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !library; ++i)
            library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

static void *open_in_toolkit(const char *name)
{
    const char *roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    const char *folders[] = {"lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib", "lib"};
    char pattern[1024];
    void *library = NULL;
    for (int i = 0; i < 3 && !library; ++i) {
        for (int j = 0; j < 4 && roots[i] && *roots[i] && !library; ++j) {
            snprintf(pattern, sizeof(pattern), "%s/%s/%s", roots[i], folders[j], name);
            library = open_match(pattern);
        }
    }
    return library;
}

static void *open_in_python(const char *name, const char *package)
{
    const char *roots[] = {getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), "/usr/local", "/usr",
                           "/opt/conda",          getenv("HOME")};
    char pattern[1024];
    void *library = NULL;
    for (int i = 0; i < 6 && !library; ++i) {
        for (int j = 0; j < 2 && roots[i] && *roots[i] && !library; ++j) {
            snprintf(pattern, sizeof(pattern), "%s/%slib/python3*/*-packages/nvidia/%s/lib/%s", roots[i],
                     i == 5 ? ".local/" : "", j ? package : "cu1[0-9]", name);
            library = open_match(pattern);
        }
    }
    return library;
}

void *library_open(const char *const *names, const char *package)
{
    for (int i = 0; names[i]; ++i) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            library = open_in_toolkit(names[i]);
        if (library == NULL)
            library = open_in_python(names[i], package);
        if (library)
            return library;
    }
    store_trouble(
        "%s was not found by the loader, in CUDA_HOME, CUDA_PATH and /usr/local/cuda, or in Python's nvidia packages",
        names[0]);
    return NULL;
}

/* dlsym's object pointer becomes a function pointer through memory: C has no cast between the two. */
bool library_symbol(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    *(void **)slot = symbol;
    return symbol != NULL || trouble("the library lacks %s", name);
}
