#include "jit/entry.h"

#include <string.h>

static const char MAGIC[8] = {'d', 'g', 'c', 'u', 'b', 'i', 'n', '\0'};
enum { FORMAT = 1 };

static struct hash128 checksum(const struct entry_header *header, const void *payload)
{
    struct hash128 hash = hash128_begin();
    hash128_add(&hash, header, offsetof(struct entry_header, checksum));
    hash128_add(&hash, payload, header->payload_bytes);
    return hash;
}

struct entry_header entry_header_make(struct hash128 key, int32_t arch, int32_t compiler, const void *image,
                                      size_t bytes)
{
    struct entry_header header = {
        .format = FORMAT, .compiler = compiler, .arch = arch, .key = key, .payload_bytes = bytes};
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    header.checksum = checksum(&header, image);
    return header;
}

const char *entry_damage(const unsigned char *entry, size_t bytes, struct hash128 key, struct entry_header *header)
{
    if (bytes <= sizeof *header)
        return "it is too short";
    memcpy(header, entry, sizeof *header);
    if (memcmp(header->magic, MAGIC, sizeof MAGIC) != 0)
        return "it is no entry";
    if (header->format != FORMAT)
        return "its format is another";
    if (hash128_compare(header->key, key) != 0)
        return "it is another kernel's";
    if (header->payload_bytes != bytes - sizeof *header)
        return "its length is wrong";
    if (hash128_compare(header->checksum, checksum(header, entry + sizeof *header)) != 0)
        return "its checksum is wrong";
    return NULL;
}
