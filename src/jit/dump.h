/* PTX and SASS of compiled kernels, for people to read, beside the cache entry. */
#ifndef JIT_DUMP_H
#define JIT_DUMP_H

#include "jit/cache.h"
#include "jit/compile.h"

/* Whether the environment asks for PTX, which the compiler hands out on request. */
bool jit_dump_wants_ptx(void);

/* Write what the environment asks for: <key>.ptx, <key>.sass. Failures are told under DG_JIT_DEBUG only. */
void jit_dump(struct cache_place *place, const struct jit_compilation *compilation);

#endif
