/* One compiled kernel as it lies on disk, in the cache and in packs: a header with a checksum, then the cubin. */
#ifndef JIT_ENTRY_H
#define JIT_ENTRY_H

#include "core/hash.h"

/* The host's byte order: a file from another one has the wrong format number. */
struct entry_header {
    char magic[8];
    uint32_t format;
    int32_t compiler; /* the version of NVRTC */
    int32_t arch;
    uint32_t reserved;
    struct hash128 key;
    uint64_t payload_bytes;
    struct hash128 checksum; /* of all that comes before, and of the payload */
};
_Static_assert(sizeof(struct entry_header) == 64, "the header's layout is part of the format");

struct entry_header entry_header_make(struct hash128 key, int32_t arch, int32_t compiler, const void *image,
                                      size_t bytes);

/* What is wrong with these bytes as the entry of a key; NULL if nothing. The header is a copy of theirs. */
const char *entry_damage(const unsigned char *entry, size_t bytes, struct hash128 key, struct entry_header *header);

#endif
