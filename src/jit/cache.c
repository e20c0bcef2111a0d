#include "jit/cache.h"

#include "core/log.h"
#include "jit/clock.h"
#include "jit/entry.h"
#include "jit/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- The directory ----------------------------------------------------------------------------------------------- */

/* A base that is not absolute is ignored, as the XDG Base Directory Specification asks for. */
static bool join(char *directory, size_t bytes, const char *base, const char *rest)
{
    return base && base[0] == '/' && snprintf(directory, bytes, "%s%s", base, rest) < (int)bytes;
}

bool cache_directory(char *directory, size_t bytes, const char **reason)
{
    const char *given = env_string(ENV_CACHE_DIR);
    bool found = given ? snprintf(directory, bytes, "%s", given) < (int)bytes
                       : join(directory, bytes, getenv("XDG_CACHE_HOME"), "/deepgemm") ||
                             join(directory, bytes, getenv("HOME"), "/.cache/deepgemm");
    if (found)
        return true;
    directory[0] = '\0';
    *reason = given ? "the path in DG_JIT_CACHE_DIR is too long"
                    : "neither DG_JIT_CACHE_DIR nor XDG_CACHE_HOME nor HOME tells a directory";
    return false;
}

/* mkdir -p; what exists already is as good. */
static void make_folders(const char *path)
{
    char partial[CACHE_PATH_BYTES];
    snprintf(partial, sizeof partial, "%s", path);
    for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(partial, 0755);
        *slash = '/';
    }
    mkdir(partial, 0755);
}

/* All files are reached through the folder's descriptor: should it be moved meanwhile, they stay together. */
static void open_folder(struct cache_place *place)
{
    place->folder = open(place->folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool ensure_folder(struct cache_place *place)
{
    if (place->folder >= 0)
        return true;
    place->error = ENOENT;
    if (!place->folder_path[0])
        return false;
    make_folders(place->folder_path);
    open_folder(place);
    if (place->folder >= 0)
        return true;
    place->error = errno;
    log_line(ENV_JIT_DEBUG, "cache: %s: %s", place->folder_path, strerror(place->error));
    return false;
}

void cache_open(struct cache_place *place, const struct jit_unit *unit)
{
    char directory[CACHE_PATH_BYTES];
    const char *reason;
    memset(place, 0, sizeof *place);
    place->folder = place->lock = -1;
    place->arch = unit->arch;
    place->key = unit->key;
    memcpy(place->name, unit->key_text, sizeof place->name);
    if (!cache_directory(directory, sizeof directory, &reason)) {
        log_line(ENV_JIT_DEBUG, "cache: none on disk: %s", reason);
        return;
    }
    if (snprintf(place->folder_path, sizeof place->folder_path, "%s/%s", directory, unit->kernel) >=
        (int)sizeof place->folder_path)
        place->folder_path[0] = '\0';
    else
        open_folder(place);
}

/* ---- Entries ----------------------------------------------------------------------------------------------------- */

enum { LARGEST_ENTRY = 256 << 20 }; /* a kernel has some 100 KiB; what is larger is none */

enum { FILE_NAME_BYTES = KEY_TEXT_BYTES + 64 };

static void file_name(const struct cache_place *place, const char *suffix, char name[FILE_NAME_BYTES])
{
    snprintf(name, FILE_NAME_BYTES, "%s%s", place->name, suffix);
}

static bool read_all(int file, unsigned char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t count = read(file, data, bytes);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        data += count;
        bytes -= (size_t)count;
    }
    return true;
}

/* A regular file's whole contents; the caller frees it. Reading, not mapping: a file cut short under a mapping is a
   SIGBUS. */
static unsigned char *read_file(int file, size_t *bytes)
{
    struct stat info;
    unsigned char *data;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > LARGEST_ENTRY)
        return NULL;
    *bytes = (size_t)info.st_size;
    data = malloc(*bytes + 1);
    if (data && !read_all(file, data, *bytes)) {
        free(data);
        data = NULL;
    }
    return data;
}

/* Symbolic links are not followed, and a FIFO does not make us wait: neither is an entry. */
static unsigned char *read_entry_file(const struct cache_place *place, size_t *bytes)
{
    char name[FILE_NAME_BYTES];
    unsigned char *data;
    int file;
    file_name(place, ".cubin", name);
    file = openat(place->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        if (errno != ENOENT)
            log_line(ENV_JIT_DEBUG, "cache: %s/%s is passed over: %s", place->folder_path, name, strerror(errno));
        return NULL;
    }
    data = read_file(file, bytes);
    close(file);
    return data;
}

bool cache_read(const struct cache_place *place, struct cache_entry *entry)
{
    struct entry_header header;
    const char *damage;
    size_t bytes = 0;
    unsigned char *file = place->folder >= 0 ? read_entry_file(place, &bytes) : NULL;
    if (!file)
        return false;
    damage = entry_damage(file, bytes, place->key, &header);
    if (damage) {
        log_line(ENV_JIT_DEBUG, "cache: %s/%s.cubin is damaged: %s", place->folder_path, place->name, damage);
        free(file);
        return false;
    }
    entry->bytes = bytes - sizeof header;
    entry->compiler = header.compiler;
    entry->unwritten = 0;
    entry->image = file;
    memmove(entry->image, file + sizeof header, entry->bytes);
    return true;
}

/* ---- Publishing -------------------------------------------------------------------------------------------------- */

enum { STALE_SECONDS = 3600 };

static bool is_stale(const struct cache_place *place, const char *name, time_t now)
{
    const size_t length = strlen(name);
    struct stat info;
    return length > 4 && strcmp(name + length - 4, ".tmp") == 0 &&
           fstatat(place->folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && now - info.st_mtime > STALE_SECONDS;
}

/* Files whose writers died. Age alone decides: process numbers mean nothing to other machines and containers. */
static void sweep(const struct cache_place *place)
{
    const time_t now = time(NULL);
    const struct dirent *file;
    int folder = openat(place->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    if (!list) {
        if (folder >= 0)
            close(folder);
        return;
    }
    while ((file = readdir(list)))
        if (is_stale(place, file->d_name, now))
            unlinkat(place->folder, file->d_name, 0);
    closedir(list);
}

/* Returns 0, or the errno that stood in the way. */
static int store(struct cache_place *place, const char *suffix, const struct piece *pieces, size_t count)
{
    char name[FILE_NAME_BYTES];
    int error;
    if (!ensure_folder(place))
        return place->error;
    sweep(place);
    file_name(place, suffix, name);
    error = publish(place->folder, name, NEW_FILE, pieces, count);
    /* A directory in the entry's place: it goes if it is empty. */
    if (error == EISDIR && unlinkat(place->folder, name, AT_REMOVEDIR) == 0)
        error = publish(place->folder, name, NEW_FILE, pieces, count);
    if (error)
        log_line(ENV_JIT_DEBUG, "cache: %s/%s cannot be written: %s", place->folder_path, name, strerror(error));
    return error;
}

int cache_write(struct cache_place *place, const struct cache_entry *entry)
{
    const struct entry_header header =
        entry_header_make(place->key, place->arch, entry->compiler, entry->image, entry->bytes);
    const struct piece pieces[] = {{&header, sizeof header}, {entry->image, entry->bytes}};
    return store(place, ".cubin", pieces, 2);
}

bool cache_write_beside(struct cache_place *place, const char *suffix, const void *data, size_t bytes)
{
    const struct piece piece = {data, bytes};
    return store(place, suffix, &piece, 1) == 0;
}

/* ---- One compiler at a time -------------------------------------------------------------------------------------- */

/*
 * A holder removes the lock file while it still holds it, so a lock on a file that the name no longer leads to is
 * worthless: somebody else may hold the lock of a new file. Only who finds its file under the name has the lock.
 */
static bool is_named(const struct cache_place *place, int file, const char *name)
{
    struct stat held, named;
    return fstat(file, &held) == 0 && fstatat(place->folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

enum lock_result { LOCK_TAKEN, LOCK_BUSY, LOCK_IMPOSSIBLE };

/*
 * Record locks (fcntl), since a forked child does not inherit them: with flock, a child that lives on would hold its
 * parent's lock. They belong to the process; among its threads jit.c lets one at a time come here for a key. The kernel
 * drops them when the holder dies, however it dies.
 */
static enum lock_result try_lock(struct cache_place *place, const char *name)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    enum lock_result result = LOCK_IMPOSSIBLE;
    int file = openat(place->folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (file < 0)
        return LOCK_IMPOSSIBLE;
    if (fcntl(file, F_SETLK, &whole) == 0)
        result = is_named(place, file, name) ? LOCK_TAKEN : LOCK_BUSY;
    else if (errno == EACCES || errno == EAGAIN || errno == EINTR)
        result = LOCK_BUSY;
    if (result == LOCK_TAKEN)
        place->lock = file;
    else
        close(file);
    return result;
}

void cache_lock(struct cache_place *place)
{
    const double deadline = clock_seconds() + (double)env_number(ENV_LOCK_TIMEOUT, 60);
    struct timespec pause = {0, 1000000}; /* 1 ms, growing to 32 */
    char name[FILE_NAME_BYTES];
    enum lock_result result;
    if (!ensure_folder(place))
        return;
    file_name(place, ".lock", name);
    while ((result = try_lock(place, name)) == LOCK_BUSY && clock_seconds() < deadline) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 32000000)
            pause.tv_nsec *= 2;
    }
    if (result != LOCK_TAKEN)
        log_line(ENV_JIT_DEBUG, "cache: %s/%s %s; compiling without it", place->folder_path, name,
                 result == LOCK_BUSY ? "stays locked" : "cannot be locked");
}

void cache_close(struct cache_place *place)
{
    char name[FILE_NAME_BYTES];
    if (place->lock >= 0) {
        file_name(place, ".lock", name);
        unlinkat(place->folder, name, 0); /* before the lock is let go, see is_named */
        close(place->lock);
    }
    if (place->folder >= 0)
        close(place->folder);
}
