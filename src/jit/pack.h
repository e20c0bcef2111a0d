/*
 * Packs: many compiled kernels in one file, made ahead of time. It is read whole, once per process.
 *
 * The key is the cache's: a hash of kernel texts, options and architecture. So a pack of another version of the library
 * holds no key that this one asks for, where the text differs, and is a miss. The compiler's version is not in the key
 * but in the entry, hence a look-up needs no compiler: what one at hand would do better, jit.c decides as for the
 * cache.
 *
 * What is wrong with a pack makes it, or its one kernel, a miss, and DG_JIT_DEBUG tells about it. What becomes of the
 * file later does not matter.
 */
#ifndef JIT_PACK_H
#define JIT_PACK_H

#include "jit/cache.h"

/*
 * The unit's kernel from the packs in DG_PACK: the first of those made by a good compiler (NVRTC_GOOD) that the driver
 * can read, else the first that it can read. The entry's image stays for the life of the process. Each file is opened
 * once per process. Safe from any number of threads, and across forks.
 */
bool pack_find(const struct jit_unit *unit, struct cache_entry *entry);

/* Add to the sentence of a failure which packs in DG_PACK cannot be used, and why. */
void pack_tell_refused(void);

/*
 * Whether pack_add could do its work, before minutes are spent on compiling; it fails as that would. A pack that is
 * there may lie where nothing can be written: it may have it all.
 */
dg_status pack_check(const char *path);

/*
 * Write the pack anew with these kernels too, in place of those that it has of the same keys; it need not exist, and
 * is left alone if nothing changes. The bytes depend on the kernels only, not on their order. Fails with DG_ERROR_IO
 * where there is something else already.
 */
dg_status pack_add(const char *path, int32_t arch, const struct jit_cubin *cubins, size_t count);

#endif
