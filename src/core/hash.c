#include "core/hash.h"

#include <string.h>

__extension__ typedef unsigned __int128 u128;

/* FNV-1a, 128 bits: offset basis and prime as in the FNV specification (Fowler, Noll, Vo; IETF draft-eastlake-fnv). */
static const uint64_t BASIS_HIGH = 0x6c62272e07bb0142u, BASIS_LOW = 0x62b821756295c58du;
static const uint64_t PRIME_HIGH = 0x0000000001000000u, PRIME_LOW = 0x000000000000013bu;

struct hash128 hash128_begin(void)
{
    return (struct hash128){BASIS_HIGH, BASIS_LOW};
}

static u128 fnv(u128 state, const unsigned char *data, size_t bytes)
{
    const u128 prime = (u128)PRIME_HIGH << 64 | PRIME_LOW;
    for (size_t i = 0; i < bytes; ++i)
        state = (state ^ data[i]) * prime;
    return state;
}

void hash128_add(struct hash128 *hash, const void *data, size_t bytes)
{
    u128 state = (u128)hash->high << 64 | hash->low;
    unsigned char length[8];
    for (int i = 0; i < 8; ++i)
        length[i] = (unsigned char)((uint64_t)bytes >> (8 * i));
    state = fnv(state, length, sizeof length);
    state = fnv(state, data, bytes);
    hash->high = (uint64_t)(state >> 64);
    hash->low = (uint64_t)state;
}

uint64_t hash_words(const void *data, size_t bytes)
{
    /* Multiply-xorshift over words; the odd constant is 2^64 / golden ratio. */
    const unsigned char *p = data;
    uint64_t h = bytes;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}
