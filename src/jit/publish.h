/* Files that appear whole: written under a private name, then renamed. */
#ifndef JIT_PUBLISH_H
#define JIT_PUBLISH_H

#include <stddef.h>
#include <sys/types.h>

struct piece {
    const void *data;
    size_t bytes;
};

/*
 * Write the pieces, one after the other, to the folder's file `name`; until then they lie in
 * `<name>.<process>.<count>.tmp`. Readers see the old file or the whole new one. Its permissions are `mode`, or for
 * NEW_FILE what the umask leaves of 0644. Returns 0, or the errno that stood in the way, and then nothing is left
 * behind.
 */
enum { NEW_FILE = -1 };
int publish(int folder, const char *name, int mode, const struct piece *pieces, size_t count);

#endif
