/*
 * Compiled kernels on disk. Nothing here can fail a call: what cannot be read is a miss, what cannot be written is not
 * kept, and DG_JIT_DEBUG tells about both.
 *
 *     <dir>/<kernel>/<key>.cubin   an entry: a header with checksum, then the cubin; appears whole, by rename
 *     <dir>/<kernel>/<key>.lock    held by the process that compiles the kernel
 *     <dir>/<kernel>/<key>.cubin.<process>.<count>.tmp   being written; swept after an hour
 *
 * No file holds a path, so that a directory may be moved, copied, or filled on another machine.
 */
#ifndef JIT_CACHE_H
#define JIT_CACHE_H

#include "jit/key.h"

enum { CACHE_PATH_BYTES = 4096 };

/* The directory that the environment asks for now. False, and the reason, when there is none. */
bool cache_directory(char *directory, size_t bytes, const char **reason);

/* One kernel's place in the cache, while a request is served. */
struct cache_place {
    char folder_path[CACHE_PATH_BYTES]; /* empty when there is no cache */
    int folder;                         /* descriptor, -1 when it does not exist (yet) */
    int lock;                           /* descriptor, -1 when not held */
    int error;                          /* errno of why there is no folder, once that was tried */
    int32_t arch;
    struct hash128 key;
    char name[KEY_TEXT_BYTES];
};

struct cache_entry {
    void *image; /* the reader frees it; a pack's is never freed */
    size_t bytes;
    int32_t compiler; /* the version of NVRTC that made it */
    int unwritten;    /* 0: the disk has it; else the errno of why not */
};

void cache_open(struct cache_place *place, const struct jit_unit *unit);
void cache_close(struct cache_place *place);

bool cache_read(const struct cache_place *place, struct cache_entry *entry);
int cache_write(struct cache_place *place, const struct cache_entry *entry); /* 0, or why not: an errno */

/*
 * Wait until no other process compiles this kernel, DG_JIT_LOCK_TIMEOUT seconds at most, and keep others from it until
 * cache_close. Where files cannot be locked this does nothing: then two may compile, and either's entry is good.
 */
void cache_lock(struct cache_place *place);

/* Store a file beside the entry, <key><suffix>, for people to look at. */
bool cache_write_beside(struct cache_place *place, const char *suffix, const void *data, size_t bytes);

#endif
