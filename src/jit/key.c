#include "jit/key.h"

#include "core/env.h"
#include "jit/sources.h"
#include "jit/wgmma_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        ++p;
    return p;
}

static const char *skip_word(const char *p, const char *word)
{
    size_t length = strlen(word);
    return strncmp(p, word, length) == 0 ? skip_blanks(p + length) : NULL;
}

/* If a line begins with #include "name" or <name>: the name's length, and where it begins. */
static size_t included_name(const char *line, const char **name)
{
    const char *p = skip_word(skip_blanks(line), "#");
    p = p ? skip_word(p, "include") : NULL;
    if (!p || (*p != '"' && *p != '<'))
        return 0;
    *name = p + 1;
    return strcspn(*name, "\">\n");
}

static bool has_header(const struct jit_unit *unit, const char *name)
{
    for (int i = 0; i < unit->header_count; ++i)
        if (strcmp(unit->header_names[i], name) == 0)
            return true;
    return false;
}

static dg_status add_header(struct jit_unit *unit, const char *name, const char *text)
{
    if (unit->header_count == UNIT_HEADERS)
        return fail(DG_ERROR_INTERNAL, "kernel %s includes more than %d headers", unit->kernel, UNIT_HEADERS);
    unit->header_names[unit->header_count] = name;
    unit->header_texts[unit->header_count++] = text;
    return DG_SUCCESS;
}

/* What is not embedded is left to the compiler, whose message about it is the best. */
static dg_status add_included(struct jit_unit *unit, const char *name, size_t length)
{
    char copy[128];
    const struct source *source;
    if (length == 0 || length >= sizeof copy)
        return DG_SUCCESS;
    memcpy(copy, name, length);
    copy[length] = '\0';
    source = sources_find(copy);
    return source && !has_header(unit, copy) ? add_header(unit, source->name, source->text) : DG_SUCCESS;
}

/* Conditions are not evaluated: a header included in one branch only is taken along always, which costs nothing. */
static dg_status add_includes_of(struct jit_unit *unit, const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        const char *name = NULL;
        size_t length;
        line += *line == '\n';
        length = included_name(line, &name);
        CHECK(add_included(unit, name, length));
    }
    return DG_SUCCESS;
}

static dg_status add_headers(struct jit_unit *unit, const struct jit_request *request)
{
    CHECK(add_header(unit, "config.h", request->config ? request->config : ""));
    CHECK(add_header(unit, "wgmma.h", unit->wgmma));
    CHECK(add_includes_of(unit, unit->text));
    for (int i = 0; i < unit->header_count; ++i) /* the list grows as it is walked */
        CHECK(add_includes_of(unit, unit->header_texts[i]));
    return DG_SUCCESS;
}

static void add_option(struct jit_unit *unit, const char *option)
{
    unit->options[unit->option_count++] = option;
}

/* Options that change the code; all of them are in the key. */
static void add_code_options(struct jit_unit *unit)
{
    /* "a": wgmma and setmaxnreg exist on this architecture only, not on later ones. */
    snprintf(unit->arch_option, sizeof unit->arch_option, "--gpu-architecture=sm_%d%s", unit->arch,
             unit->arch == 90 ? "a" : "");
    add_option(unit, unit->arch_option);
    add_option(unit, "--std=c++17");
    add_option(unit, "-default-device");
    if (env_flag(ENV_WITH_LINEINFO))
        add_option(unit, "-lineinfo");
}

static void add_other_options(struct jit_unit *unit)
{
    /* Else the compiler would find missing headers in the directory that the process happens to be in. */
    add_option(unit, "--no-source-include");
    add_option(unit, "--ptxas-options=-v"); /* registers and spills in the log; costs nothing */
}

static void hash_text(struct hash128 *hash, const char *text)
{
    hash128_add(hash, text, strlen(text));
}

static void make_key(struct jit_unit *unit)
{
    unit->key = hash128_begin();
    for (int i = 0; i < unit->option_count; ++i)
        hash_text(&unit->key, unit->options[i]);
    hash_text(&unit->key, unit->text);
    for (int i = 0; i < unit->header_count; ++i) {
        hash_text(&unit->key, unit->header_names[i]);
        hash_text(&unit->key, unit->header_texts[i]);
    }
    snprintf(unit->key_text, sizeof unit->key_text, "%016llx%016llx", (unsigned long long)unit->key.high,
             (unsigned long long)unit->key.low);
}

dg_status jit_unit_make(const struct jit_request *request, struct jit_unit *unit)
{
    const struct source *source = sources_find(request->kernel);
    dg_status status;
    memset(unit, 0, sizeof *unit);
    unit->kernel = request->kernel;
    unit->arch = request->arch;
    unit->driver_major = request->driver_major;
    if (!source)
        return fail(DG_ERROR_INTERNAL, "there is no kernel \"%s\" in this library", request->kernel);
    unit->text = source->text;
    CHECK(wgmma_text(request->wgmma, request->wgmma_count, &unit->wgmma));
    CHECKGOTO(add_headers(unit, request), status, failed);
    add_code_options(unit);
    make_key(unit);
    add_other_options(unit);
    return DG_SUCCESS;
failed:
    jit_unit_free(unit);
    return status;
}

void jit_unit_free(struct jit_unit *unit)
{
    free(unit->wgmma);
    unit->wgmma = NULL;
}
