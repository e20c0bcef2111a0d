/* The texts of kernels and headers, embedded in the library. */
#ifndef JIT_SOURCES_H
#define JIT_SOURCES_H

struct source {
    const char *name; /* as in sources.def */
    const char *text;
};

/* A kernel or header by its name; NULL when there is none. Lives as long as the library. */
const struct source *sources_find(const char *name);

/*
 * For tests: from now on `name` has this text, whether sources.def knows it or not. Keeps both pointers. Call it before
 * other threads use the JIT.
 */
void sources_replace(const char *name, const char *text);

#endif
