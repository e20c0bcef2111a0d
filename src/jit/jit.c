#include "jit/jit.h"

#include "core/log.h"
#include "jit/cache.h"
#include "jit/clock.h"
#include "jit/compile.h"
#include "jit/dump.h"
#include "jit/key.h"
#include "jit/nvrtc.h"
#include "jit/pack.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Cache and compiler ------------------------------------------------------------------------------------------ */

/*
 * An entry is remade when the compiler at hand does better: code that the driver can read, or faster code. The compiler
 * is looked for only when there is such a reason: a warm cache needs none.
 */
static bool is_current(const struct jit_unit *unit, const struct cache_entry *entry, bool may_compile)
{
    const bool readable = jit_unit_can_load(unit, entry->compiler);
    const struct nvrtc *nvrtc = may_compile && (!readable || entry->compiler < NVRTC_GOOD) ? nvrtc_find() : NULL;
    if (nvrtc == NULL || !jit_unit_can_load(unit, nvrtc->version))
        return true;
    return readable && nvrtc->version < NVRTC_GOOD;
}

static bool read_current(const struct jit_unit *unit, const struct cache_place *place, bool may_compile,
                         struct cache_entry *entry)
{
    if (!cache_read(place, entry))
        return false;
    if (is_current(unit, entry, may_compile))
        return true;
    log_line(ENV_JIT_DEBUG, "jit: %s/%s was made by NVRTC %d.%d and is made anew", place->folder_path, place->name,
             entry->compiler / 1000, entry->compiler % 1000 / 10);
    free(entry->image);
    return false;
}

/* A pack's kernel is judged as an entry of the cache is; a better one then comes from the cache or the compiler. */
static bool find_packed(const struct jit_unit *unit, bool may_compile, struct cache_entry *entry)
{
    if (!pack_find(unit, entry))
        return false;
    if (is_current(unit, entry, may_compile))
        return true;
    log_line(ENV_JIT_DEBUG, "jit: %s %s of a pack was made by NVRTC %d.%d and is passed over", unit->kernel,
             unit->key_text, entry->compiler / 1000, entry->compiler % 1000 / 10);
    return false;
}

static dg_status compile_and_store(const struct jit_unit *unit, const struct nvrtc *nvrtc, struct cache_place *place,
                                   struct cache_entry *entry)
{
    struct jit_compilation compilation;
    dg_status status;
    CHECKGOTO(jit_compile(unit, nvrtc, jit_dump_wants_ptx(), &compilation), status, out);
    CHECKGOTO(jit_check_report(unit, &compilation), status, out);
    entry->image = compilation.cubin;
    entry->bytes = compilation.report.cubin_bytes;
    entry->compiler = nvrtc->version;
    entry->unwritten = cache_write(place, entry);
    jit_dump(place, &compilation);
    log_line(ENV_JIT_DEBUG, "jit: compiled %s %s in %.3f s by NVRTC %d.%d", unit->kernel, unit->key_text,
             compilation.report.seconds, nvrtc->version / 1000, nvrtc->version % 1000 / 10);
    compilation.cubin = NULL; /* the entry's now */
out:
    jit_compilation_free(&compilation);
    return status;
}

/* Under the lock between processes: whoever comes second finds the first one's entry. */
static dg_status compile_once(const struct jit_unit *unit, struct cache_place *place, struct cache_entry *entry,
                              enum jit_origin *origin)
{
    const struct nvrtc *nvrtc;
    const dg_status status = nvrtc_get(&nvrtc);
    if (status != DG_SUCCESS && env_string(ENV_PACK)) {
        fail_more("; no pack in DG_PACK has a sound kernel %s of this configuration", unit->kernel);
        pack_tell_refused();
    }
    CHECK(status);
    cache_lock(place);
    *origin = JIT_FROM_DISK;
    if (read_current(unit, place, true, entry))
        return DG_SUCCESS;
    *origin = JIT_COMPILED;
    return compile_and_store(unit, nvrtc, place, entry);
}

static dg_status fail_forbidden(const struct jit_unit *unit, const struct cache_place *place)
{
    const dg_status status =
        fail(DG_ERROR_COMPILE_FORBIDDEN, "kernel %s (%s) is in no %scache and DG_SETTING_COMPILE is 0", unit->kernel,
             place->folder_path[0] ? place->folder_path : "there is none on disk",
             env_string(ENV_PACK) ? "pack of DG_PACK, in no " : "");
    pack_tell_refused();
    return status;
}

/* From a pack, else from the disk, else from the compiler. */
static dg_status produce(const struct jit_unit *unit, bool may_compile, struct cache_entry *entry,
                         enum jit_origin *origin)
{
    struct cache_place place;
    dg_status status = DG_SUCCESS;
    *origin = JIT_FROM_PACK;
    if (find_packed(unit, may_compile, entry))
        return DG_SUCCESS;
    cache_open(&place, unit);
    *origin = JIT_FROM_DISK;
    if (!read_current(unit, &place, may_compile, entry))
        status = may_compile ? compile_once(unit, &place, entry, origin) : fail_forbidden(unit, &place);
    if (status == DG_SUCCESS && *origin == JIT_FROM_DISK)
        log_line(ENV_JIT_DEBUG, "jit: read %s/%s.cubin", place.folder_path, place.name);
    cache_close(&place);
    return status;
}

/* ---- This process's table ---------------------------------------------------------------------------------------- */

enum slot_state { SLOT_EMPTY, SLOT_BUSY, SLOT_READY };

/* One kernel. Slots are never freed, and their cubins neither: callers keep pointers to them. */
struct slot {
    struct slot *next;
    struct hash128 key;
    enum slot_state state;
    struct jit_cubin cubin;
    dg_status status; /* of the last attempt, while empty */
    char *sentence;   /* about its failure; NULL if there was no memory for it */
};

static struct slot *slots;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* some slot is busy no more */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* The threads that were compiling or waiting exist in the parent only. */
static void after_fork_in_child(void)
{
    for (struct slot *slot = slots; slot; slot = slot->next)
        if (slot->state == SLOT_BUSY)
            slot->state = SLOT_EMPTY;
    pthread_cond_init(&changed, NULL);
    after_fork_in_parent();
}

__attribute__((constructor)) static void prepare_for_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static struct slot *find_slot(struct hash128 key)
{
    struct slot *slot = slots;
    while (slot && hash128_compare(slot->key, key) != 0)
        slot = slot->next;
    if (!slot && (slot = calloc(1, sizeof *slot))) {
        slot->key = key;
        slot->next = slots;
        slots = slot;
    }
    return slot;
}

/*
 * With the lock held. Either the slot is ready, or it is marked busy and the caller must fill it (*mine), or another
 * thread has just failed at it. A thread that was not allowed to compile does not speak for one that is.
 */
static dg_status claim(struct slot *slot, bool may_compile, bool *mine)
{
    bool waited = false;
    for (; slot->state == SLOT_BUSY; waited = true)
        pthread_cond_wait(&changed, &lock);
    *mine = false;
    if (slot->state == SLOT_READY)
        return DG_SUCCESS;
    if (waited && !(slot->status == DG_ERROR_COMPILE_FORBIDDEN && may_compile))
        return fail(slot->status, "%s", slot->sentence ? slot->sentence : "another thread failed at this kernel");
    slot->state = SLOT_BUSY;
    *mine = true;
    return DG_SUCCESS;
}

/* The sentence without "operation: ", which the waiting threads put before it themselves. */
static char *copy_sentence(void)
{
    return strdup(dg_last_error() + strlen(operation_name()) + strlen(": "));
}

static void fill(struct slot *slot, dg_status status, const struct cache_entry *entry)
{
    pthread_mutex_lock(&lock);
    free(slot->sentence);
    slot->sentence = NULL;
    slot->status = status;
    if (status == DG_SUCCESS) {
        slot->cubin = (struct jit_cubin){entry->image, entry->bytes, slot->key, entry->compiler, entry->unwritten};
        slot->state = SLOT_READY;
    } else {
        slot->sentence = copy_sentence();
        slot->state = SLOT_EMPTY;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static dg_status produce_into(struct slot *slot, const struct jit_unit *unit, bool may_compile, enum jit_origin *origin)
{
    const double begin = clock_seconds();
    struct cache_entry entry;
    dg_status status = produce(unit, may_compile, &entry, origin);
    fill(slot, status, &entry);
    if (status == DG_SUCCESS)
        log_line(ENV_PRINT_LOAD_TIME, "%s %s: %s in %.1f ms", unit->kernel, unit->key_text,
                 *origin == JIT_COMPILED ? "compiled" : "read", 1e3 * (clock_seconds() - begin));
    return status;
}

static dg_status get_unit(const struct jit_unit *unit, bool may_compile, struct jit_cubin *cubin,
                          enum jit_origin *origin)
{
    dg_status status = DG_SUCCESS;
    struct slot *slot;
    bool mine = false;
    pthread_mutex_lock(&lock);
    slot = find_slot(unit->key);
    if (slot)
        status = claim(slot, may_compile, &mine);
    pthread_mutex_unlock(&lock);
    if (!slot)
        return fail(DG_ERROR_OUT_OF_MEMORY, "no memory for kernel %s", unit->kernel);
    CHECK(status);
    *origin = JIT_FROM_MEMORY;
    if (mine)
        CHECK(produce_into(slot, unit, may_compile, origin));
    *cubin = slot->cubin; /* a ready slot does not change again */
    return DG_SUCCESS;
}

dg_status jit_get(const struct jit_request *request, bool may_compile, struct jit_cubin *cubin, enum jit_origin *origin)
{
    enum jit_origin unasked;
    struct jit_unit unit;
    dg_status status;
    CHECK(jit_unit_make(request, &unit));
    status = get_unit(&unit, may_compile, cubin, origin ? origin : &unasked);
    jit_unit_free(&unit);
    return status;
}

static int keep(const struct jit_unit *unit, const struct jit_cubin *cubin)
{
    struct cache_place place;
    struct cache_entry there, entry = {(void *)(uintptr_t)cubin->image, cubin->bytes, cubin->compiler, 0};
    int error = 0;
    cache_open(&place, unit);
    if (cache_read(&place, &there))
        free(there.image);
    else
        error = cache_write(&place, &entry);
    cache_close(&place);
    return error;
}

int jit_keep(const struct jit_request *request, const struct jit_cubin *cubin)
{
    struct jit_unit unit;
    if (jit_unit_make(request, &unit) != DG_SUCCESS)
        return ENOMEM;
    const int error = keep(&unit, cubin);
    jit_unit_free(&unit);
    return error;
}

dg_status jit_compile_report(const struct jit_request *request, struct jit_report *report, char *log, size_t log_bytes)
{
    struct jit_compilation compilation = {0};
    const struct nvrtc *nvrtc;
    struct jit_unit unit;
    dg_status status;
    if (log && log_bytes)
        log[0] = '\0';
    CHECK(jit_unit_make(request, &unit));
    CHECKGOTO(nvrtc_get(&nvrtc), status, out);
    status = jit_compile(&unit, nvrtc, false, &compilation);
    if (log && compilation.log)
        snprintf(log, log_bytes, "%s", compilation.log);
    *report = compilation.report;
out:
    jit_compilation_free(&compilation);
    jit_unit_free(&unit);
    return status;
}

/* ---- The public questions ---------------------------------------------------------------------------------------- */

dg_status dg_cache_directory(char *buffer, size_t bytes)
{
    char directory[CACHE_PATH_BYTES];
    const char *reason;
    operation_begin("dg_cache_directory");
    if (!buffer || bytes == 0)
        return fail(DG_ERROR_INVALID_ARGUMENT, "buffer is %s with %zu bytes; at least one is needed",
                    buffer ? "there" : "NULL", bytes);
    if (!cache_directory(directory, sizeof directory, &reason))
        fail_text("there is no cache on disk: %s", reason); /* a success, with the reason for who asks */
    if (strlen(directory) >= bytes)
        return fail(DG_ERROR_INVALID_ARGUMENT, "buffer has %zu bytes; %s needs %zu", bytes, directory,
                    strlen(directory) + 1);
    strcpy(buffer, directory);
    return DG_SUCCESS;
}

dg_status dg_compiler_query(int32_t *version, char *path, size_t bytes)
{
    const struct nvrtc *nvrtc;
    operation_begin("dg_compiler_query");
    if (!version)
        return fail(DG_ERROR_INVALID_ARGUMENT, "version is NULL");
    CHECK(nvrtc_get(&nvrtc));
    if (path && strlen(nvrtc->path) >= bytes)
        return fail(DG_ERROR_INVALID_ARGUMENT, "path has %zu bytes; %s needs %zu", bytes, nvrtc->path,
                    strlen(nvrtc->path) + 1);
    *version = nvrtc->version;
    if (path)
        strcpy(path, nvrtc->path);
    return DG_SUCCESS;
}
