#include "jit/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* O_EXCL makes the name ours even where process numbers repeat, on a network file system or in containers. */
static int create_private(int folder, const char *name, mode_t mode, char private_name[NAME_MAX + 1])
{
    static atomic_uint counter;
    int file = -1;
    for (int attempt = 0; attempt < 16 && file < 0; ++attempt) {
        snprintf(private_name, NAME_MAX + 1, "%.200s.%ld.%u.tmp", name, (long)getpid(), atomic_fetch_add(&counter, 1));
        file = openat(folder, private_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (file < 0 && errno != EEXIST)
            break;
    }
    return file;
}

static bool write_all(int file, struct piece piece)
{
    const unsigned char *data = piece.data;
    for (size_t left = piece.bytes; left > 0;) {
        ssize_t count = write(file, data, left);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        data += count;
        left -= (size_t)count;
    }
    return true;
}

/* Network file systems tell about a full disk in fsync or close. */
static bool write_pieces(int file, const struct piece *pieces, size_t count)
{
    bool ok = true;
    for (size_t i = 0; i < count && ok; ++i)
        ok = write_all(file, pieces[i]);
    ok = ok && fsync(file) == 0;
    return close(file) == 0 && ok;
}

int publish(int folder, const char *name, int mode, const struct piece *pieces, size_t count)
{
    char private_name[NAME_MAX + 1];
    int error, file = create_private(folder, name, mode == NEW_FILE ? 0644 : (mode_t)mode, private_name);
    if (file >= 0 && mode != NEW_FILE)
        (void)fchmod(file, (mode_t)mode); /* a file system that knows no permissions is no reason to fail */
    if (file >= 0 && write_pieces(file, pieces, count) && renameat(folder, private_name, folder, name) == 0)
        return 0;
    error = errno;
    if (file >= 0)
        unlinkat(folder, private_name, 0);
    return error ? error : EIO;
}
