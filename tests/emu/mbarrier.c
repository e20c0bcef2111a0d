/*
 * mbarriers. A phase ends when its arrivals and bytes have come; whoever waits for its parity then knows what all that
 * arrived knew, and what landed. Arrivals at other blocks' barriers are on their way for a while.
 *
 * The eight bytes in shared memory are only the name of a barrier here; whoever else writes there is found out.
 */
#include "tests/emu/machine.h"

#include <stdlib.h>

static struct block *own_block(void)
{
    return emu.self->warp->block;
}

static const struct cluster *cluster_of(const struct mbarrier *bar)
{
    return bar->block->cluster;
}

static struct emu_text name_of(const struct mbarrier *bar)
{
    return emu_place(bar->offset);
}

/* ---- Beginning and end of its life --------------------------------------------------------------------------- */

static struct mbarrier *new_barrier(struct block *block, uint32_t offset)
{
    struct smem *smem = &block->smem;
    const uint8_t there = smem->barrier_at[offset / 8];
    if (there && smem->barriers[there - 1].live)
        emu_wrong("mbarrier_init(%s): it is initialised already, by %s", emu_place(offset).s,
                  emu_slot_text(block->cluster, smem->barriers[there - 1].init_slot).s);
    if (there)
        return &smem->barriers[there - 1];
    if (smem->barrier_count == MBARRIERS)
        emu_wrong("mbarrier_init(%s): the emulation has %d for a block", emu_place(offset).s, MBARRIERS);
    struct mbarrier *bar = &smem->barriers[smem->barrier_count++];
    smem->barrier_at[offset / 8] = (uint8_t)smem->barrier_count;
    bar->slot = block->cluster->size * emu.threads + block->rank * MBARRIERS + (uint32_t)smem->barrier_count - 1;
    bar->gathered = emu_clock_new(block->cluster);
    bar->completed = emu_clock_new(block->cluster);
    return bar;
}

void mbarrier_init(uint64_t *pointer, uint32_t arrivals)
{
    ENTER();
    struct block *block = own_block();
    const uint32_t offset = emu_offset(block, pointer, 8, 8);
    struct mbarrier *bar = new_barrier(block, offset);
    if (arrivals == 0 || arrivals > 0xfffff)
        emu_wrong("mbarrier_init(%s, %u): 1 to 2^20-1 arrivals are possible", emu_place(offset).s, arrivals);
    bar->block = block;
    bar->offset = offset;
    bar->live = true;
    bar->published = bar->announced = false;
    bar->count = bar->pending = arrivals;
    bar->bytes = 0;
    bar->phase = 0;
    bar->init_slot = emu.self->slot;
    bar->init_clock = emu_clock_now(emu.self);
}

/* What this thread has initialised so far may be used by the asynchronous proxy and by other blocks, who synchronise
   with it. */
void mbarrier_init_fence(void)
{
    ENTER();
    struct smem *smem = &own_block()->smem;
    for (int i = 0; i < smem->barrier_count; ++i)
        if (smem->barriers[i].init_slot == emu.self->slot)
            smem->barriers[i].published = true;
}

void mbarrier_inval(uint64_t *pointer)
{
    ENTER();
    struct mbarrier *bar = emu_mbarrier_at(emu.self, own_block(), pointer);
    if (bar->waiting)
        emu_wrong("mbarrier_inval(%s): %s waits for it", name_of(bar).s,
                  emu_slot_text(cluster_of(bar), bar->waiting->slot).s);
    bar->live = false;
}

struct mbarrier *emu_mbarrier_at(const struct thread *thread, struct block *block, const void *pointer)
{
    const uint32_t offset = emu_offset(own_block(), pointer, 8, 8);
    const uint8_t index = block->smem.barrier_at[offset / 8];
    struct mbarrier *bar = index ? &block->smem.barriers[index - 1] : NULL;
    const bool remote = block != thread->warp->block;
    if (block->left)
        emu_wrong("%s of block %u: that block has ended", emu_place(offset).s, block->index);
    if (bar == NULL || !bar->live)
        emu_wrong("%s of block %u is no initialised mbarrier", emu_place(offset).s, block->index);
    if (!bar->announced && !emu_knows(thread, bar->init_slot, bar->init_clock))
        emu_wrong("%s of block %u was initialised by %s, but no barrier lies between that and this",
                  emu_place(offset).s, block->index, emu_slot_text(block->cluster, bar->init_slot).s);
    if (remote && !bar->published)
        emu_wrong("%s of block %u: mbarrier_init_fence is missing after its initialisation", emu_place(offset).s,
                  block->index);
    return bar;
}

/* ---- Phases -------------------------------------------------------------------------------------------------- */

static bool phase_is_over(const struct mbarrier *bar, uint32_t parity)
{
    return (bar->phase & 1) != (parity & 1);
}

static void wake_waiting(struct mbarrier *bar)
{
    struct thread **link = &bar->waiting;
    while (*link) {
        struct thread *thread = *link;
        if (phase_is_over(bar, thread->detail)) {
            *link = thread->next_waiting;
            thread->barrier = NULL;
            emu_wake(thread);
        } else {
            link = &thread->next_waiting;
        }
    }
}

static void end_phase_if_complete(struct mbarrier *bar)
{
    if (bar->pending > 0 || bar->bytes != 0)
        return;
    emu_trace(bar->block, "%s: phase %u is over", name_of(bar).s, bar->phase);
    ++bar->phase;
    bar->pending = bar->count;
    emu_clock_copy(cluster_of(bar), bar->completed, bar->gathered);
    wake_waiting(bar);
}

static void arrive(struct mbarrier *bar, const uint32_t *clock)
{
    if (bar->pending == 0)
        emu_wrong("an arrival too many at %s: all %u of phase %u have come, and only %lld bytes are missing",
                  name_of(bar).s, bar->count, bar->phase, (long long)bar->bytes);
    --bar->pending;
    if (clock)
        emu_clock_join(cluster_of(bar), bar->gathered, clock);
    end_phase_if_complete(bar);
}

void mbarrier_arrive(uint64_t *pointer)
{
    ENTER();
    struct mbarrier *bar = emu_mbarrier_at(emu.self, own_block(), pointer);
    emu_trace(bar->block, "arrives at %s", name_of(bar).s);
    arrive(bar, emu.self->clock);
    emu_clock_tick(emu.self);
}

void mbarrier_arrive_expect(uint64_t *pointer, uint32_t bytes)
{
    ENTER();
    struct mbarrier *bar = emu_mbarrier_at(emu.self, own_block(), pointer);
    if (bytes > 0xfffff)
        emu_wrong("mbarrier_arrive_expect(%s, %u): 2^20-1 bytes at most", name_of(bar).s, bytes);
    emu_trace(bar->block, "arrives at %s and expects %u bytes", name_of(bar).s, bytes);
    bar->bytes += bytes;
    arrive(bar, emu.self->clock);
    emu_clock_tick(emu.self);
}

/* Bytes may come before they are expected, from another block of the cluster. */
void emu_mbarrier_bytes_come(struct mbarrier *bar, uint32_t bytes)
{
    if (!bar->live)
        emu_wrong("%u bytes come at %s, which is no mbarrier any more", bytes, name_of(bar).s);
    bar->bytes -= bytes;
    if (bar->bytes < -0xfffff)
        emu_wrong("%lld bytes more than expected have come at %s", (long long)-bar->bytes, name_of(bar).s);
    if (bar->gathered)
        bar->gathered[bar->slot] = bar->landings;
    end_phase_if_complete(bar);
}

/* A thread's copies have landed, and their time is the latest of the barrier's landings. */
void emu_mbarrier_copies_come(struct mbarrier *bar)
{
    if (!bar->live)
        emu_wrong("copies have landed for %s, which is no mbarrier any more", name_of(bar).s);
    if (bar->gathered)
        bar->gathered[bar->slot] = bar->landings;
    emu_trace(bar->block, "copies arrive at %s", name_of(bar).s);
    arrive(bar, NULL);
}

/* ---- Waiting ------------------------------------------------------------------------------------------------- */

static void learn(const struct mbarrier *bar)
{
    if (emu.self->clock)
        emu_clock_join(cluster_of(bar), emu.self->clock, bar->completed);
}

int mbarrier_try_wait(uint64_t *pointer, uint32_t parity)
{
    ENTER();
    const struct mbarrier *bar = emu_mbarrier_at(emu.self, own_block(), pointer);
    if (!phase_is_over(bar, parity) || emu_below(8) == 0) { /* it may fail for no reason */
        emu_give_way();
        return 0;
    }
    learn(bar);
    return 1;
}

void mbarrier_wait(uint64_t *pointer, uint32_t parity)
{
    ENTER();
    struct mbarrier *bar = emu_mbarrier_at(emu.self, own_block(), pointer);
    if (!phase_is_over(bar, parity)) {
        emu_trace(bar->block, "waits for %s, phase %u", name_of(bar).s, bar->phase);
        emu.self->barrier = bar;
        emu.self->next_waiting = bar->waiting;
        bar->waiting = emu.self;
        emu_block(WAITS_MBARRIER, parity);
    }
    learn(bar);
}

/* ---- Arrivals at other blocks' barriers ----------------------------------------------------------------------- */

struct remote {
    struct event event;
    struct remote *next; /* of the same thread */
    struct thread *thread;
    struct mbarrier *barrier;
    uint32_t *clock; /* what the thread knew */
};

static void forget(struct remote *remote)
{
    struct remote **link = &remote->thread->remote;
    while (*link != remote)
        link = &(*link)->next;
    *link = remote->next;
    --remote->barrier->block->landings;
    free(remote->clock);
    free(remote);
}

static void remote_arrives(struct event *event)
{
    struct remote *remote = (struct remote *)(void *)event;
    struct mbarrier *bar = remote->barrier;
    if (!bar->live)
        emu_wrong("an arrival at %s, which is no mbarrier any more", name_of(bar).s);
    emu_trace(bar->block, "an arrival comes at %s", name_of(bar).s);
    arrive(bar, remote->clock);
    forget(remote);
}

void mbarrier_arrive_at(uint64_t *pointer, uint32_t rank)
{
    ENTER();
    struct thread *self = emu.self;
    struct cluster *cluster = own_block()->cluster;
    if (rank >= cluster->size)
        emu_wrong("mbarrier_arrive_at(%s, %u): the cluster has %u blocks",
                  emu_place(emu_offset(own_block(), pointer, 8, 8)).s, rank, cluster->size);
    struct mbarrier *bar = emu_mbarrier_at(self, &cluster->blocks[rank], pointer);
    struct remote *remote = calloc(1, sizeof *remote);
    *remote = (struct remote){.next = self->remote, .thread = self, .barrier = bar, .clock = emu_clock_new(cluster)};
    emu_clock_copy(cluster, remote->clock, self->clock);
    emu_clock_tick(self);
    self->remote = remote;
    ++bar->block->landings;
    emu_trace(own_block(), "arrives at %s of block %u", name_of(bar).s, bar->block->index);
    emu_schedule(&remote->event, emu_due(DELAY_REMOTE), remote_arrives);
}

void emu_remote_flush(struct thread *thread)
{
    while (thread->remote) {
        emu_cancel(&thread->remote->event);
        remote_arrives(&thread->remote->event);
    }
}
