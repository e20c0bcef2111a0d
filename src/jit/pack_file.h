/*
 * One pack as a file: its format, checked reading and writing. What packs are for is in pack.h.
 *
 *     header    "dgpack", format, count, size of the file, checksum of header and index
 *     index     key, offset and size of every entry; keys ascend, so that one is found by halving
 *     entries   as in the cache (entry.h), each at a multiple of 64, in the index's order
 *
 * A pack is read whole when it is opened, and its header, index and size are checked; an entry's checksum when it is
 * wanted. That finds damage, not malice: a pack is code, to be trusted like a shared library.
 */
#ifndef JIT_PACK_FILE_H
#define JIT_PACK_FILE_H

#include "core/status.h"
#include "jit/entry.h"

struct pack_place {
    struct hash128 key;
    uint64_t offset, bytes; /* of the entry */
};

/* Zeros are an empty pack. */
struct pack {
    unsigned char *file; /* its contents */
    size_t bytes, count;
    const struct pack_place *index;
};

/* A kernel of a pack, or for one. */
struct pack_item {
    struct hash128 key;
    struct entry_header header;
    void *image; /* of header.payload_bytes */
};

/* Read a file. Returns the reason why not (the thread's until its next call), and then the pack is an empty one. */
const char *pack_open(const char *path, struct pack *pack);
void pack_close(struct pack *pack);

const struct pack_place *pack_search(const struct pack *pack, struct hash128 key); /* NULL when it is not there */

/* One kernel, checked; false, and a line under DG_JIT_DEBUG, when it is damaged. `path` is for that. */
bool pack_item_read(const struct pack *pack, const struct pack_place *place, const char *path, struct pack_item *item);

/* Sort the items and publish them as a pack: in the place of what a link leads to, with the permissions of a file that
   was there. Returns 0, or the errno of why not. */
int pack_write(const char *path, struct pack_item *items, size_t count);

/* Wait until nobody else adds to packs in the path's folder. close() ends that; -1 (no folder, no locks) is no error.
 */
int pack_lock(const char *path);

/* 0 if the folder is one that a pack can be written to; else the errno of why not. */
int pack_folder_check(const char *path);

#endif
