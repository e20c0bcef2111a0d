/*
 * What each thread knows (vector clocks). Every thread of a cluster has a slot, and every mbarrier one for the bytes
 * that land at it. A thread's own entry is its time; entry s says up to which time of slot s it has seen what happened
 * there. Whoever synchronises with others takes over what they know. Time moves on when a thread publishes what it
 * knows, so that later deeds are not covered.
 *
 * The second half of a clock says the same of what a proxy fence has covered: generic writes that are older than a
 * fence which the thread knows of. Only these may be read by TMA and wgmma.
 */
#include "tests/emu/machine.h"

#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const struct cluster *cluster)
{
    return 2 * (size_t)cluster->clock_words * sizeof(uint32_t);
}

uint32_t *emu_clock_new(const struct cluster *cluster)
{
    return cluster->clock_words ? calloc(1, bytes_of(cluster)) : NULL;
}

void emu_clock_join(const struct cluster *cluster, uint32_t *restrict clock, const uint32_t *restrict other)
{
    for (uint32_t i = 0; i < 2 * cluster->clock_words; ++i)
        clock[i] = clock[i] > other[i] ? clock[i] : other[i];
}

void emu_clock_copy(const struct cluster *cluster, uint32_t *clock, const uint32_t *other)
{
    if (clock)
        memcpy(clock, other, bytes_of(cluster));
}

void emu_clock_clear(const struct cluster *cluster, uint32_t *clock)
{
    if (clock)
        memset(clock, 0, bytes_of(cluster));
}

void emu_clock_tick(struct thread *thread)
{
    if (thread->clock)
        ++thread->clock[thread->slot];
}

void emu_clock_fence(struct thread *thread)
{
    const uint32_t words = thread->warp->block->cluster->clock_words;
    if (thread->clock == NULL)
        return;
    memcpy(thread->clock + words, thread->clock, words * sizeof *thread->clock);
    emu_clock_tick(thread);
}

bool emu_knows_fenced(const struct thread *thread, uint32_t slot, uint32_t time)
{
    return thread->clock == NULL || thread->clock[thread->warp->block->cluster->clock_words + slot] >= time;
}
