/* Threads that wait for each other: lanes of a warp, warps of a block, blocks of a cluster; registers. */
#include "tests/emu/machine.h"

#include <stdlib.h>
#include <string.h>

/* ---- Who am I ------------------------------------------------------------------------------------------------ */

uint32_t thread_index(void)
{
    return emu.self->index;
}

uint32_t block_index(void)
{
    return emu.self->warp->block->index;
}

uint32_t grid_size(void)
{
    return emu.launch->grid[0];
}

uint32_t lane_index(void)
{
    return emu.self->index % LANES;
}

uint32_t cluster_rank(void)
{
    return emu.self->warp->block->rank;
}

/* ---- Lanes of a warp ----------------------------------------------------------------------------------------- */

static const char *const meeting_names[] = {
    [MEET_WARP] = "warp_barrier",       [MEET_EXCHANGE] = "an exchange",
    [MEET_BLOCK] = "block_barrier",     [MEET_NAMED] = "named_barrier",
    [MEET_CLUSTER] = "cluster_barrier", [MEET_RELEASE] = "REGISTERS_RELEASE",
    [MEET_TAKE] = "REGISTERS_TAKE",     [MEET_MATRICES] = "store_smem_matrices",
    [MEET_FENCE] = "wgmma_fence",       [MEET_PRODUCT] = "wgmma",
    [MEET_COMMIT] = "wgmma_commit",     [MEET_PRODUCTS] = "WGMMA_WAIT",
    [MEET_ELECT] = "elect_one",         [MEET_VOTE] = "vote_ballot",
};

const char *emu_meeting_name(uint32_t kind)
{
    return meeting_names[kind];
}

void emu_warp_waits(struct warp *warp, enum waits waits, uint32_t detail)
{
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        warp->threads[lane].waits = waits;
        warp->threads[lane].detail = detail;
    }
}

static void check_together(const struct meeting *m, enum meeting_kind kind, uint32_t detail)
{
    if (m->kind != (int)kind)
        emu_wrong("the warp has diverged: this lane is at %s, the lanes %#x wait at %s", meeting_names[kind],
                  m->arrived, meeting_names[m->kind]);
    if (m->detail != detail)
        emu_wrong("the lanes of a warp do not agree at %s: %#x here, %#x in the lanes %#x", meeting_names[kind], detail,
                  m->detail, m->arrived);
}

void emu_meet(enum meeting_kind kind, uint32_t detail, bool (*act)(struct warp *warp))
{
    struct thread *self = emu.self;
    struct warp *warp = self->warp;
    struct meeting *m = &warp->meeting;
    if (m->arrived != 0)
        check_together(m, kind, detail);
    m->kind = (int)kind;
    m->detail = detail;
    m->act = act;
    m->arrived |= 1u << (self->index % LANES);
    if (m->arrived != warp->alive) {
        emu_block(WAITS_LANES, kind);
        return;
    }
    m->arrived = 0;
    emu.meeting = true;
    const bool goes_on = act(warp);
    emu.meeting = false;
    if (goes_on)
        emu_wake_warp(warp);
    else
        emu_block(self->waits, self->detail);
}

static bool lanes_know_each_other(struct warp *warp)
{
    const struct cluster *cluster = warp->block->cluster;
    uint32_t *all = warp->threads[__builtin_ctz(warp->alive)].clock;
    if (all == NULL)
        return true;
    for (uint32_t lane = 0; lane < LANES; ++lane)
        if (warp->alive >> lane & 1)
            emu_clock_join(cluster, all, warp->threads[lane].clock);
    for (uint32_t lane = 0; lane < LANES; ++lane)
        if (warp->alive >> lane & 1) {
            if (warp->threads[lane].clock != all)
                emu_clock_copy(cluster, warp->threads[lane].clock, all);
            emu_clock_tick(&warp->threads[lane]);
        }
    return true;
}

void warp_barrier(void)
{
    ENTER();
    emu_meet(MEET_WARP, 0, lanes_know_each_other);
}

static bool exchange(struct warp *warp)
{
    struct meeting *m = &warp->meeting;
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        if (!(warp->alive >> lane & 1))
            emu_wrong("an exchange of 32 lanes, but lane %u has ended", lane);
        m->result[lane] = m->value[m->lane[lane] % LANES];
    }
    return true;
}

static uint32_t exchange_with(uint32_t value, uint32_t lane)
{
    struct meeting *m = &emu.self->warp->meeting;
    const uint32_t own = lane_index();
    m->value[own] = value;
    m->lane[own] = lane;
    emu_meet(MEET_EXCHANGE, 0, exchange);
    return m->result[own];
}

uint32_t exchange_xor(uint32_t value, int mask)
{
    ENTER();
    return exchange_with(value, lane_index() ^ (uint32_t)mask);
}

uint32_t exchange_from(uint32_t value, uint32_t lane)
{
    ENTER();
    return exchange_with(value, lane);
}

/* On the GPU the index comes from lane 0, which all lanes must be there for. */
uint32_t warp_index(void)
{
    ENTER();
    return exchange_with(emu.self->index / LANES, 0);
}

static bool elect(struct warp *warp)
{
    const uint32_t start = emu_below(LANES), above = warp->alive & ~0u << start;
    const int chosen = __builtin_ctz(above ? above : warp->alive);
    for (int lane = 0; lane < LANES; ++lane)
        warp->meeting.result[lane] = lane == chosen;
    return true;
}

int elect_one(void)
{
    ENTER();
    emu_meet(MEET_ELECT, 0, elect);
    return (int)emu.self->warp->meeting.result[lane_index()];
}

static bool vote(struct warp *warp)
{
    uint32_t ballot = 0;
    for (uint32_t lane = 0; lane < LANES; ++lane)
        ballot |= (warp->alive >> lane & warp->meeting.value[lane] & 1) << lane;
    for (uint32_t lane = 0; lane < LANES; ++lane)
        warp->meeting.result[lane] = ballot;
    return true;
}

uint32_t vote_ballot(int predicate)
{
    ENTER();
    emu.self->warp->meeting.value[lane_index()] = predicate != 0;
    emu_meet(MEET_VOTE, 0, vote);
    return emu.self->warp->meeting.result[lane_index()];
}

/* ---- Barriers of warps --------------------------------------------------------------------------------------- */

static void gather(struct gathering *g, struct warp *warp)
{
    struct block *block = warp->block;
    if (g->clock == NULL)
        g->clock = emu_clock_new(block->cluster);
    for (uint32_t lane = 0; lane < LANES; ++lane)
        if (warp->alive >> lane & 1 && g->clock && !g->relaxed)
            emu_clock_join(block->cluster, g->clock, warp->threads[lane].clock);
    g->threads += (uint32_t)__builtin_popcount(warp->alive);
}

/* The warp stays until all have come. */
static void gather_and_wait(struct gathering *g, struct warp *warp, enum waits waits, uint32_t detail)
{
    gather(g, warp);
    g->warps[warp->block->rank] |= 1u << warp->index;
    emu_warp_waits(warp, waits, detail);
}

/* All have come: they know what each of them knew, and go on. */
static void let_go(struct gathering *g, struct cluster *cluster)
{
    for (uint32_t rank = 0; rank < cluster->size; ++rank)
        for (uint32_t warps = g->warps[rank]; warps != 0; warps &= warps - 1) {
            struct warp *warp = &cluster->blocks[rank].warps[__builtin_ctz(warps)];
            for (uint32_t lane = 0; lane < LANES; ++lane)
                if (warp->alive >> lane & 1 && !g->relaxed) {
                    emu_clock_copy(cluster, warp->threads[lane].clock, g->clock);
                    emu_clock_tick(&warp->threads[lane]);
                }
            emu_wake_warp(warp);
        }
    emu_clock_clear(cluster, g->clock);
    g->threads = g->wanted = 0;
    memset(g->warps, 0, sizeof g->warps);
}

static bool block_complete(struct block *block)
{
    if (block->barrier.threads == 0 || block->barrier.threads != block->alive)
        return false;
    let_go(&block->barrier, block->cluster);
    return true;
}

static bool arrive_at_block(struct warp *warp)
{
    gather_and_wait(&warp->block->barrier, warp, WAITS_BLOCK, 0);
    return block_complete(warp->block);
}

void block_barrier(void)
{
    ENTER();
    emu_meet(MEET_BLOCK, 0, arrive_at_block);
}

static bool arrive_at_named(struct warp *warp)
{
    const uint32_t id = warp->meeting.detail >> 16 & 0xff, wanted = warp->meeting.detail & 0xffff;
    const bool waits = warp->meeting.detail >> 24 == 0;
    struct gathering *g = &warp->block->named[id];
    if (g->threads > 0 && g->wanted != wanted)
        emu_wrong("named_barrier(%u, %u): those who are there already want %u threads", id, wanted, g->wanted);
    g->wanted = wanted;
    if (waits)
        gather_and_wait(g, warp, WAITS_NAMED, id);
    else
        gather(g, warp);
    if (g->threads > wanted)
        emu_wrong("named_barrier(%u, %u): %u threads have come", id, wanted, g->threads);
    if (g->threads < wanted)
        return !waits;
    emu_trace(warp->block, "all %u threads are at the named barrier %u", wanted, id);
    let_go(g, warp->block->cluster);
    return true;
}

static void check_named(uint32_t id, uint32_t threads)
{
    if (id == 0 || id >= HARDWARE_BARRIERS)
        emu_wrong("named_barrier(%u, %u): there are barriers 1 to 15, and block_barrier's", id, threads);
    if (threads == 0 || threads % LANES != 0 || threads > emu.threads)
        emu_wrong("named_barrier(%u, %u): whole warps of a block of %u threads are wanted", id, threads, emu.threads);
}

void named_barrier(uint32_t id, uint32_t threads)
{
    ENTER();
    check_named(id, threads);
    emu_meet(MEET_NAMED, id << 16 | threads, arrive_at_named);
}

void named_barrier_arrive(uint32_t id, uint32_t threads)
{
    ENTER();
    check_named(id, threads);
    emu_meet(MEET_NAMED, 1u << 24 | id << 16 | threads, arrive_at_named);
}

/* A relaxed barrier orders no memory accesses, but the fence after an initialisation makes do with one. */
static void announce_barriers(struct cluster *cluster)
{
    for (uint32_t rank = 0; rank < cluster->size; ++rank) {
        struct smem *smem = &cluster->blocks[rank].smem;
        for (int i = 0; i < smem->barrier_count; ++i)
            smem->barriers[i].announced = smem->barriers[i].published;
    }
}

static bool cluster_complete(struct cluster *cluster)
{
    uint32_t alive = 0;
    for (uint32_t rank = 0; rank < cluster->size; ++rank)
        alive += cluster->blocks[rank].alive;
    if (cluster->barrier.threads == 0 || cluster->barrier.threads != alive)
        return false;
    let_go(&cluster->barrier, cluster);
    announce_barriers(cluster);
    return true;
}

/* The barrier releases, unless it is relaxed: what its threads have sent to other blocks arrives before they do. */
static bool arrive_at_cluster(struct warp *warp)
{
    struct gathering *g = &warp->block->cluster->barrier;
    const bool relaxed = warp->meeting.detail != 0;
    if (g->threads > 0 && g->relaxed != relaxed)
        emu_wrong("cluster_barrier and cluster_barrier_relaxed meet");
    g->relaxed = relaxed;
    for (uint32_t lane = 0; lane < LANES && !relaxed; ++lane)
        emu_remote_flush(&warp->threads[lane]);
    gather_and_wait(g, warp, WAITS_CLUSTER, 0);
    return cluster_complete(warp->block->cluster);
}

void cluster_barrier(void)
{
    ENTER();
    emu_meet(MEET_CLUSTER, 0, arrive_at_cluster);
}

void cluster_barrier_relaxed(void)
{
    ENTER();
    emu_meet(MEET_CLUSTER, 1, arrive_at_cluster);
}

/* ---- Registers ----------------------------------------------------------------------------------------------- */

enum { REGISTER_FILE = 65536 };

static bool try_take(struct warp *warp)
{
    const int64_t more = (int64_t)LANES * (warp->registers_wanted - warp->registers);
    if (warp->block->free_registers < more)
        return false;
    warp->block->free_registers -= more;
    warp->registers = warp->registers_wanted;
    warp->registers_wanted = 0;
    return true;
}

static bool take_registers(struct warp *warp)
{
    ++warp->register_changes;
    if (warp->meeting.detail < warp->registers)
        emu_wrong("REGISTERS_TAKE(%u): a thread has %u already", warp->meeting.detail, warp->registers);
    warp->registers_wanted = warp->meeting.detail;
    emu_warp_waits(warp, WAITS_REGISTERS, warp->registers_wanted);
    return try_take(warp);
}

static bool release_registers(struct warp *warp)
{
    struct block *block = warp->block;
    ++warp->register_changes;
    if (warp->meeting.detail > warp->registers)
        emu_wrong("REGISTERS_RELEASE(%u): a thread has only %u", warp->meeting.detail, warp->registers);
    block->free_registers += (int64_t)LANES * (warp->registers - warp->meeting.detail);
    warp->registers = warp->meeting.detail;
    for (uint32_t i = 0; i < block->warp_count; ++i)
        if (block->warps[i].registers_wanted > 0 && try_take(&block->warps[i]))
            emu_wake_warp(&block->warps[i]);
    return true;
}

static void check_register_count(const char *name, uint32_t count)
{
    if (count < 24 || count > 256 || count % 8 != 0)
        emu_wrong("%s(%u): multiples of 8 from 24 to 256 are possible", name, count);
}

void registers_release(uint32_t count)
{
    ENTER();
    check_register_count("REGISTERS_RELEASE", count);
    emu_meet(MEET_RELEASE, count, release_registers);
}

void registers_take(uint32_t count)
{
    ENTER();
    check_register_count("REGISTERS_TAKE", count);
    emu_meet(MEET_TAKE, count, take_registers);
}

/* setmaxnreg is for whole warpgroups. */
static void check_register_balance(const struct block *block)
{
    for (uint32_t i = 0; i < block->warp_count; ++i) {
        const struct warp *warp = &block->warps[i], *first = &block->warps[i / 4 * 4];
        if (warp->register_changes != first->register_changes || warp->registers != first->registers)
            emu_wrong(
                "warp %u has changed its registers %u times, to %u, and warp %u of the same warpgroup %u times, to %u",
                warp->index, warp->register_changes, warp->registers, first->index, first->register_changes,
                first->registers);
    }
}

/* ---- Threads begin and end ----------------------------------------------------------------------------------- */

void emu_sync_block_begin(struct block *block)
{
    const uint32_t each = REGISTER_FILE / emu.threads / 8 * 8;
    for (uint32_t i = 0; i < block->warp_count; ++i)
        block->warps[i].registers = each > 248 ? 248 : each;
}

/* Whoever waits for all threads that are alive may have waited for this one only. */
void emu_sync_thread_end(struct thread *thread)
{
    struct warp *warp = thread->warp;
    struct meeting *m = &warp->meeting;
    --warp->block->alive;
    if (m->arrived != 0 && m->arrived == warp->alive) {
        m->arrived = 0;
        if (m->act(warp))
            emu_wake_warp(warp);
    }
    block_complete(warp->block);
    cluster_complete(warp->block->cluster);
}

void emu_sync_block_end(struct block *block)
{
    check_register_balance(block);
    free(block->barrier.clock);
    for (int i = 0; i < HARDWARE_BARRIERS; ++i) {
        if (block->named[i].threads > 0)
            emu_wrong("the block ends while %u threads are at the named barrier %d", block->named[i].threads, i);
        free(block->named[i].clock);
    }
}
