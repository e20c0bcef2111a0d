#include "tests/emu/mutate.h"

#include "jit/sources.h"
#include "tests/emu/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct mutant mutants[] = {
#define MUTANT(name, source, old_text, new_text, line) {#name, source, old_text, new_text, line},
#include "tests/emu/mutants.def"
};
const size_t mutant_count = sizeof mutants / sizeof mutants[0];

static void refuse(const struct mutant *m, const char *why)
{
    printf("mutant %s: %s\n", m->name, why);
    exit(CASE_BROKEN);
}

static void apply(const struct mutant *m)
{
    const struct source *source = sources_find(m->source);
    const char *at = source ? strstr(source->text, m->old_text) : NULL;
    if (at == NULL)
        refuse(m, "its text is not in the source");
    if (strstr(at + 1, m->old_text))
        refuse(m, "its text is in the source twice");
    char *text = malloc(strlen(source->text) + strlen(m->new_text) + 1);
    sprintf(text, "%.*s%s%s", (int)(at - source->text), source->text, m->new_text, at + strlen(m->old_text));
    sources_replace(source->name, text);
}

void mutate(const char *name)
{
    for (size_t i = 0; i < mutant_count; ++i)
        if (strcmp(mutants[i].name, name) == 0) {
            apply(&mutants[i]);
            return;
        }
    printf("there is no mutant %s\n", name);
    exit(CASE_BROKEN);
}

/* ---- Launches ------------------------------------------------------------------------------------------------ */

static const char *spoilt = "";

void spoil(const char *what)
{
    spoilt = what;
}

static void spoil_map(struct fake_tensor_map *map)
{
    if (strcmp(spoilt, "swizzle") == 0)
        map->swizzle = (uint8_t)(map->swizzle == 0 ? 3 : map->swizzle - 1);
    else if (strcmp(spoilt, "box") == 0)
        map->box[1] = (uint16_t)(map->box[1] / 2);
    else if (strcmp(spoilt, "stride") == 0)
        map->strides[0] += 16;
    else if (strcmp(spoilt, "size") == 0)
        map->sizes[1] += 1;
}

/* Tensor maps are known by how they begin. */
static void spoil_maps(unsigned char *args)
{
    for (size_t i = 0; i + sizeof(struct fake_tensor_map) <= FAKE_ARGS; i += 64) {
        struct fake_tensor_map map;
        memcpy(&map, args + i, sizeof map);
        if (map.magic == FAKE_TENSOR_MAP) {
            spoil_map(&map);
            memcpy(args + i, &map, sizeof map);
        }
    }
}

void spoil_run(const struct fake_launch *launch, const void *image, size_t image_bytes, const void *args)
{
    static _Alignas(128) unsigned char copy[FAKE_ARGS];
    static struct fake_launch changed;
    changed = *launch;
    memcpy(copy, args, emu_args_bytes(launch, image, image_bytes));
    spoil_maps(copy);
    if (strcmp(spoilt, "threads") == 0)
        changed.block[0] += 128;
    if (strcmp(spoilt, "smem") == 0)
        changed.smem_bytes -= 1024;
    emu_run(&changed, image, image_bytes, copy);
}
