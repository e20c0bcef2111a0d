#include "jit/sources.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define SOURCE(identifier, name, file) extern const char source_##identifier[] __attribute__((visibility("hidden")));
#include "jit/sources.def"
#undef SOURCE

static const struct source embedded[] = {
#define SOURCE(identifier, name, file) {name, source_##identifier},
#include "jit/sources.def"
#undef SOURCE
};

enum { EMBEDDED = sizeof embedded / sizeof embedded[0], REPLACEMENTS = 32 };

static struct source replacements[REPLACEMENTS];
static size_t replacement_count;

static const struct source *find(const struct source *sources, size_t count, const char *name)
{
    for (size_t i = 0; i < count; ++i)
        if (strcmp(sources[i].name, name) == 0)
            return &sources[i];
    return NULL;
}

const struct source *sources_find(const char *name)
{
    const struct source *source = find(replacements, replacement_count, name);
    return source ? source : find(embedded, EMBEDDED, name);
}

void sources_replace(const char *name, const char *text)
{
    size_t i = 0;
    while (i < replacement_count && strcmp(replacements[i].name, name) != 0)
        ++i;
    assert(i < REPLACEMENTS);
    replacements[i] = (struct source){name, text};
    if (i == replacement_count)
        ++replacement_count;
}
