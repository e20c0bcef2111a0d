#include "jit/pack_file.h"

#include "core/log.h"
#include "jit/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

struct pack_header {
    char magic[8];
    uint32_t format; /* in the host's byte order, as all numbers */
    uint32_t count;
    uint64_t file_bytes;
    struct hash128 checksum; /* of all that comes before, and of the index */
};
_Static_assert(sizeof(struct pack_header) == 40, "the header's layout is part of the format");

static const char MAGIC[8] = {'d', 'g', 'p', 'a', 'c', 'k', '\0', '\0'};
enum { FORMAT = 1, ALIGNMENT = 64 };

static struct hash128 checksum(const struct pack_header *header, const struct pack_place *index)
{
    struct hash128 hash = hash128_begin();
    hash128_add(&hash, header, offsetof(struct pack_header, checksum));
    hash128_add(&hash, index, header->count * sizeof *index);
    return hash;
}

/* For bsearch and qsort, on everything that begins with its key. */
static int compare_keys(const void *x, const void *y)
{
    struct hash128 a, b;
    memcpy(&a, x, sizeof a);
    memcpy(&b, y, sizeof b);
    return hash128_compare(a, b);
}

static bool is_inside(const struct pack *pack, const struct pack_place *place)
{
    return place->offset % ALIGNMENT == 0 && place->offset <= pack->bytes &&
           place->bytes <= pack->bytes - place->offset;
}

/* What is wrong with a file that was read; NULL if nothing, and then its index is set. */
static const char *find_damage(struct pack *pack)
{
    const struct pack_place *index = (const void *)(pack->file + sizeof(struct pack_header));
    struct pack_header header;
    memcpy(&header, pack->file, sizeof header);
    if (memcmp(header.magic, MAGIC, sizeof MAGIC) != 0)
        return "it is no pack";
    if (header.format != FORMAT)
        return "its format is that of another version";
    if (header.file_bytes != pack->bytes || header.count > (pack->bytes - sizeof header) / sizeof *index)
        return "its length is wrong";
    if (hash128_compare(header.checksum, checksum(&header, index)) != 0)
        return "its checksum is wrong";
    for (size_t i = 0; i < header.count; ++i)
        if (!is_inside(pack, &index[i]) || (i > 0 && compare_keys(&index[i - 1], &index[i]) >= 0))
            return "its index is wrong";
    pack->index = index;
    pack->count = header.count;
    return NULL;
}

void pack_close(struct pack *pack)
{
    free(pack->file);
    memset(pack, 0, sizeof *pack);
}

static bool read_all(int file, unsigned char *data, size_t bytes)
{
    size_t have = 0;
    while (have < bytes) {
        const ssize_t got = read(file, data + have, bytes - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return true;
}

static const char *too_short(off_t bytes)
{
    static _Thread_local char text[64];
    snprintf(text, sizeof text, "it is no pack: it has %lld byte%s", (long long)bytes, bytes == 1 ? "" : "s");
    return text;
}

/* All of it: what was checked is what is used, whatever becomes of the file. */
static const char *read_file(struct pack *pack, int file)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return strerror(errno);
    if (!S_ISREG(info.st_mode))
        return "it is no regular file";
    if (info.st_size < (off_t)sizeof(struct pack_header))
        return too_short(info.st_size);
    pack->bytes = (size_t)info.st_size;
    pack->file = malloc(pack->bytes);
    if (pack->file == NULL)
        return strerror(ENOMEM);
    errno = 0;
    if (!read_all(file, pack->file, pack->bytes))
        return errno ? strerror(errno) : "it became shorter while it was read";
    return find_damage(pack);
}

const char *pack_open(const char *path, struct pack *pack)
{
    const char *reason;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO does not make us wait */
    memset(pack, 0, sizeof *pack);
    if (file < 0)
        return strerror(errno);
    reason = read_file(pack, file);
    close(file);
    if (reason)
        pack_close(pack);
    return reason;
}

const struct pack_place *pack_search(const struct pack *pack, struct hash128 key)
{
    return pack->count ? bsearch(&key, pack->index, pack->count, sizeof *pack->index, compare_keys) : NULL;
}

bool pack_item_read(const struct pack *pack, const struct pack_place *place, const char *path, struct pack_item *item)
{
    unsigned char *entry = pack->file + place->offset;
    const char *damage = entry_damage(entry, place->bytes, place->key, &item->header);
    item->key = place->key;
    item->image = entry + sizeof item->header;
    if (damage)
        log_line(ENV_JIT_DEBUG, "pack: %s: kernel %016llx%016llx is damaged: %s", path,
                 (unsigned long long)place->key.high, (unsigned long long)place->key.low, damage);
    return damage == NULL;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static uint64_t align(uint64_t offset)
{
    return (offset + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Header, index and entries of a pack: 2 + 3 * count pieces. */
static void lay_out(const struct pack_item *items, uint32_t count, struct pack_header *header, struct pack_place *index,
                    struct piece *pieces)
{
    static const unsigned char zeros[ALIGNMENT];
    uint64_t end = sizeof *header + count * sizeof *index;
    *pieces++ = (struct piece){header, sizeof *header};
    *pieces++ = (struct piece){index, count * sizeof *index};
    for (uint32_t i = 0; i < count; ++i) {
        const struct entry_header *head = &items[i].header;
        index[i] = (struct pack_place){items[i].key, align(end), sizeof *head + head->payload_bytes};
        *pieces++ = (struct piece){zeros, index[i].offset - end};
        *pieces++ = (struct piece){head, sizeof *head};
        *pieces++ = (struct piece){items[i].image, head->payload_bytes};
        end = index[i].offset + index[i].bytes;
    }
    *header = (struct pack_header){.format = FORMAT, .count = count, .file_bytes = end};
    memcpy(header->magic, MAGIC, sizeof MAGIC);
    header->checksum = checksum(header, index);
}

/* What a link leads to, though it be nothing yet: where open() would make a file. Returns 0 or an errno. */
static int follow_links(const char *path, char place[PATH_MAX])
{
    enum { MOST_LINKS = 40 }; /* as Linux has it */
    char link[PATH_MAX];
    if (snprintf(place, PATH_MAX, "%s", path) >= PATH_MAX)
        return ENAMETOOLONG;
    for (int i = 0; i < MOST_LINKS; ++i) {
        const ssize_t bytes = readlink(place, link, sizeof link);
        const char *slash = strrchr(place, '/');
        if (bytes < 0)
            return 0; /* no link */
        const size_t kept = slash && link[0] != '/' ? (size_t)(slash + 1 - place) : 0;
        if (kept + (size_t)bytes >= PATH_MAX)
            return ENAMETOOLONG;
        memcpy(place + kept, link, (size_t)bytes);
        place[kept + (size_t)bytes] = '\0';
    }
    return ELOOP;
}

/* The folder of the place that a path leads to, opened; -1 and errno when there is none. `name` is its last part. */
static int open_folder(const char *path, char name[NAME_MAX + 1])
{
    char place[PATH_MAX];
    const char *folder = ".";
    errno = follow_links(path, place);
    if (errno)
        return -1;
    char *slash = strrchr(place, '/');
    const char *last = slash ? slash + 1 : place;
    errno = *last == '\0' ? ENOENT : strlen(last) > NAME_MAX ? ENAMETOOLONG : 0;
    if (errno)
        return -1;
    strcpy(name, last);
    if (slash) {
        slash[1] = '\0';
        folder = place;
    }
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The permissions of the file that will be replaced. */
static int old_mode(int folder, const char *name)
{
    struct stat info;
    return fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 ? (int)(info.st_mode & 0777) : NEW_FILE;
}

int pack_write(const char *path, struct pack_item *items, size_t count)
{
    struct pack_header header;
    struct pack_place *index = calloc(count + 1, sizeof *index);
    struct piece *pieces = calloc(2 + 3 * count, sizeof *pieces);
    char name[NAME_MAX + 1];
    int error = ENOMEM, folder = open_folder(path, name);
    if (folder < 0) {
        error = errno;
    } else if (index && pieces) {
        qsort(items, count, sizeof *items, compare_keys);
        lay_out(items, (uint32_t)count, &header, index, pieces);
        error = publish(folder, name, old_mode(folder, name), pieces, 2 + 3 * count);
    }
    if (folder >= 0)
        close(folder);
    free(index);
    free(pieces);
    return error;
}

int pack_lock(const char *path)
{
    char name[NAME_MAX + 1];
    const int folder = open_folder(path, name);
    while (folder >= 0 && flock(folder, LOCK_EX) != 0 && errno == EINTR) {
    }
    return folder;
}

int pack_folder_check(const char *path)
{
    char name[NAME_MAX + 1];
    int folder = open_folder(path, name);
    int error = folder >= 0 && faccessat(folder, ".", W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
    if (folder >= 0)
        close(folder);
    return error;
}
