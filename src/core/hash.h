/* Two hashes: FNV-1a with 128 bits for names and checksums on disk, and a fast one for tables in memory. */
#ifndef CORE_HASH_H
#define CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t high, low;
};

struct hash128 hash128_begin(void);
/* Order and lengths matter: each piece is hashed with its length, so that pieces cannot run into each other. */
void hash128_add(struct hash128 *hash, const void *data, size_t bytes);
/* Below, equal to or above 0, for sorting. */
static inline int hash128_compare(struct hash128 x, struct hash128 y)
{
    return x.high != y.high ? (x.high < y.high ? -1 : 1) : (x.low > y.low) - (x.low < y.low);
}

/* For in-memory tables: `bytes` must be a multiple of 8. Never stored. */
uint64_t hash_words(const void *data, size_t bytes);

#endif
