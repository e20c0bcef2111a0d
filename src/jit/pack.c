#include "jit/pack.h"

#include "core/log.h"
#include "jit/nvrtc.h"
#include "jit/pack_file.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The packs of this process ----------------------------------------------------------------------------------- */

/* A file that DG_PACK has named. Never closed, since callers keep pointers into it; an empty pack if it was refused. */
struct loaded {
    struct loaded *next;
    struct pack pack;
    char refused[96]; /* why; else "" */
    char path[];
};

static struct loaded *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void drop_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* So that no child inherits a list in the middle of a change. */
__attribute__((constructor)) static void prepare_for_forks(void)
{
    pthread_atfork(take_lock, drop_lock, drop_lock);
}

static struct loaded *load(const char *path, size_t length)
{
    struct loaded *new = calloc(1, sizeof *new + length + 1);
    const char *reason;
    if (!new)
        return NULL;
    memcpy(new->path, path, length);
    reason = pack_open(new->path, &new->pack);
    if (reason) {
        snprintf(new->refused, sizeof new->refused, "%s", reason);
        log_line(ENV_JIT_DEBUG, "pack: %s is passed over: %s", new->path, reason);
    }
    new->next = all;
    all = new;
    return new;
}

/* The path is `length` bytes long. NULL when there is no memory. */
static const struct loaded *get(const char *path, size_t length)
{
    struct loaded *at;
    take_lock();
    at = all;
    while (at && (strncmp(at->path, path, length) != 0 || at->path[length]))
        at = at->next;
    if (!at)
        at = load(path, length);
    drop_lock();
    return at;
}

/* The next one that DG_PACK names; NULL after the last. `rest` begins as the variable's value. */
static const struct loaded *get_next(const char **rest)
{
    const struct loaded *found = NULL;
    while (*rest && **rest && !found) {
        const size_t length = strcspn(*rest, ":");
        found = length ? get(*rest, length) : NULL;
        *rest += length + ((*rest)[length] == ':');
    }
    return found;
}

void pack_tell_refused(void)
{
    const char *rest = env_string(ENV_PACK);
    for (const struct loaded *at; (at = get_next(&rest)) != NULL;)
        if (at->refused[0])
            fail_more("; the pack %s cannot be used: %s", at->path, at->refused);
}

static bool find_in(const struct loaded *from, const struct jit_unit *unit, struct cache_entry *entry)
{
    const struct pack_place *place = pack_search(&from->pack, unit->key);
    struct pack_item item;
    if (!place || !pack_item_read(&from->pack, place, from->path, &item))
        return false;
    *entry = (struct cache_entry){item.image, item.header.payload_bytes, item.header.compiler, 0};
    log_line(ENV_JIT_DEBUG, "pack: %s has %s %s", from->path, unit->kernel, unit->key_text);
    return true;
}

static bool is_readable(const struct jit_unit *unit, const struct cache_entry *entry, const char *path)
{
    const bool readable = jit_unit_can_load(unit, entry->compiler);
    if (!readable)
        log_line(ENV_JIT_DEBUG, "pack: %s has %s by NVRTC %d.%d, which is too new for the driver", path, unit->kernel,
                 entry->compiler / 1000, entry->compiler % 1000 / 10);
    return readable;
}

bool pack_find(const struct jit_unit *unit, struct cache_entry *entry)
{
    bool found = false;
    const char *rest = env_string(ENV_PACK);
    for (const struct loaded *from; (from = get_next(&rest)) != NULL;) {
        struct cache_entry other;
        if (!find_in(from, unit, &other) || !is_readable(unit, &other, from->path))
            continue;
        if (!found || other.compiler >= NVRTC_GOOD)
            *entry = other;
        found = true;
        if (entry->compiler >= NVRTC_GOOD)
            break;
    }
    return found;
}

/* ---- Adding ------------------------------------------------------------------------------------------------------ */

/* A file that is there already must be a pack: nobody's other file is overwritten. */
static dg_status open_old(const char *path, struct pack *old)
{
    struct stat info;
    const char *reason;
    memset(old, 0, sizeof *old);
    if (stat(path, &info) != 0 && errno == ENOENT)
        return DG_SUCCESS;
    reason = pack_open(path, old);
    if (reason)
        return fail(DG_ERROR_IO, "%s is in the way of the pack, and no kernel can be added to it: %s", path, reason);
    return DG_SUCCESS;
}

static dg_status finish(const char *path, int error)
{
    return error ? fail(DG_ERROR_IO, "the pack %s cannot be written: %s", path, strerror(error)) : DG_SUCCESS;
}

dg_status pack_check(const char *path)
{
    struct pack old;
    if (*path == '\0' || strchr(path, ':'))
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "pack is \"%s\"; wanted a path without ':', which DG_PACK could not name", path);
    CHECK(open_old(path, &old));
    const bool is_there = old.file != NULL;
    pack_close(&old);
    return is_there ? DG_SUCCESS : finish(path, pack_folder_check(path));
}

static bool is_among(struct hash128 key, const struct jit_cubin *cubins, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        if (hash128_compare(cubins[i].key, key) == 0)
            return true;
    return false;
}

/* What is damaged in the old pack stays behind. Returns how many items there are. */
static size_t merge(const struct pack *old, const char *path, int32_t arch, const struct jit_cubin *cubins,
                    size_t count, struct pack_item *items)
{
    for (size_t i = 0; i < count; ++i) {
        const struct jit_cubin *new = &cubins[i];
        items[i].key = new->key;
        items[i].header = entry_header_make(new->key, arch, new->compiler, new->image, new->bytes);
        items[i].image = (void *)(uintptr_t) new->image;
    }
    size_t total = count;
    for (size_t i = 0; i < old->count; ++i)
        if (!is_among(old->index[i].key, cubins, count))
            total += pack_item_read(old, &old->index[i], path, &items[total]);
    return total;
}

/* Whether the old pack has just this kernel; the header's checksum speaks for the image. */
static bool has_item(const struct pack *old, const char *path, const struct pack_item *item)
{
    const struct pack_place *place = pack_search(old, item->key);
    struct pack_item found;
    return place && pack_item_read(old, place, path, &found) &&
           memcmp(&found.header, &item->header, sizeof found.header) == 0;
}

static bool is_same(const struct pack *old, const char *path, const struct pack_item *items, size_t count)
{
    bool same = old->file && old->count == count;
    for (size_t i = 0; same && i < count; ++i)
        same = has_item(old, path, &items[i]);
    return same;
}

/* An old pack that has it all is left as it is. Returns 0 or an errno. */
static int write_changed(const struct pack *old, const char *path, struct pack_item *items, size_t count)
{
    return is_same(old, path, items, count) ? 0 : pack_write(path, items, count);
}

dg_status pack_add(const char *path, int32_t arch, const struct jit_cubin *cubins, size_t count)
{
    struct pack old;
    struct pack_item *items = NULL;
    int error = ENOMEM;
    const int lock_file = pack_lock(path); /* else another's kernels could get lost */
    dg_status status = open_old(path, &old);
    if (status == DG_SUCCESS) {
        items = calloc(count + old.count + 1, sizeof *items);
        if (items)
            error = write_changed(&old, path, items, merge(&old, path, arch, cubins, count, items));
        status = finish(path, error);
    }
    free(items);
    pack_close(&old);
    if (lock_file >= 0)
        close(lock_file);
    return status;
}

/* ---- The public question ----------------------------------------------------------------------------------------- */

static dg_status count_kernels(const struct pack *pack, const char *path, int64_t *kernels, int64_t *bytes)
{
    struct pack_item item;
    size_t sound = 0;
    for (size_t i = 0; i < pack->count; ++i)
        sound += pack_item_read(pack, &pack->index[i], path, &item);
    if (kernels)
        *kernels = (int64_t)sound;
    if (bytes)
        *bytes = (int64_t)pack->bytes;
    const size_t damaged = pack->count - sound;
    return damaged == 0 ? DG_SUCCESS
                        : fail(DG_ERROR_IO, "%zu of the %zu kernels in %s %s damaged", damaged, pack->count, path,
                               damaged == 1 ? "is" : "are");
}

dg_status dg_pack_query(const char *path, int64_t *kernels, int64_t *bytes)
{
    struct pack pack;
    const char *reason;
    operation_begin("dg_pack_query");
    if (!path)
        return fail(DG_ERROR_INVALID_ARGUMENT, "path is NULL; wanted a file's name");
    reason = pack_open(path, &pack);
    if (reason)
        return fail(DG_ERROR_IO, "the pack %s cannot be used: %s", path, reason);
    const dg_status status = count_kernels(&pack, path, kernels, bytes);
    pack_close(&pack);
    return status;
}
