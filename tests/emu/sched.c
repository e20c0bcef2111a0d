/*
 * Time. A turn of a warp is one unit of it: the warp's lanes run, one after the other, each until it has to wait. Which
 * warp comes next is left to chance; warps have paces that differ by up to 2^6 and change now and then, so that some
 * lag far behind others. Between turns, events that are due happen. When nobody can run, time jumps to the next event;
 * when there is none either, that is a deadlock.
 */
#include "tests/emu/machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct machine emu;
struct emu_settings emu_settings;
uint64_t emu_launches;
static uint64_t launches_before; /* the seed was set */

enum { MAX_READY = 1024, MAX_PACE = 6, TURN_LANES = 256 };
static const uint64_t LAST_MOMENT = (uint64_t)1 << 20, MAX_TURNS = (uint64_t)1 << 27;

static struct warp *ready[MAX_READY];
static int ready_count;
static uint32_t give_way_one_in; /* calls into the emulation that end a turn */
static int turn_lanes_left;

/* ---- Chance ---------------------------------------------------------------------------------------------------- */

static uint64_t random_state;

uint64_t emu_random(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u; /* SplitMix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t emu_below(uint32_t count)
{
    return (uint32_t)((emu_random() >> 32) * count >> 32);
}

/* ---- Events: a heap, the next one first ------------------------------------------------------------------------ */

static struct event **events;
static size_t event_count, event_room;
static uint64_t event_order;

/* How late the work of each kind tends to be: at once, soon, later, or when nothing else is left to do. */
static const uint32_t LATENESS[] = {2, 30, 400, 0};
static uint32_t lateness_of[DELAYS];

/* Calm: how many turns it takes, and how far apart work of a kind is done. */
static const struct usual {
    uint32_t turns, apart;
} USUAL[DELAYS] = {
    [DELAY_LOAD] = {16, 3}, [DELAY_STORE_READ] = {8, 1}, [DELAY_STORE_WRITE] = {24, 1}, [DELAY_COPY] = {12, 0},
    [DELAY_WGMMA] = {4, 0}, [DELAY_REMOTE] = {4, 0},     [DELAY_KERNEL] = {1, 0}};
static uint64_t usual_due[DELAYS]; /* of the latest */

static uint64_t calm_due(enum delay kind)
{
    const uint64_t after_latest = usual_due[kind] + USUAL[kind].apart, alone = emu.now + USUAL[kind].turns;
    usual_due[kind] = after_latest > alone ? after_latest : alone;
    return usual_due[kind];
}

uint64_t emu_due(enum delay kind)
{
    if (emu_settings.calm)
        return calm_due(kind);
    const uint32_t span = emu_below(8) == 0 ? LATENESS[emu_below(4)] : lateness_of[kind];
    return span ? emu.now + 1 + emu_below(span) : emu.now + LAST_MOMENT + emu_below(1 << 20);
}

static bool before(const struct event *a, const struct event *b)
{
    return a->due < b->due || (a->due == b->due && a->order < b->order);
}

static void sift_up(size_t i)
{
    for (; i > 0 && before(events[i], events[(i - 1) / 2]); i = (i - 1) / 2) {
        struct event *event = events[i];
        events[i] = events[(i - 1) / 2];
        events[(i - 1) / 2] = event;
    }
}

static void sift_down(size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < event_count && before(events[child + 1], events[child]))
            ++child;
        if (child >= event_count || !before(events[child], events[i]))
            return;
        struct event *event = events[i];
        events[i] = events[child];
        events[child] = event;
        i = child;
    }
}

void emu_schedule(struct event *event, uint64_t due, void (*act)(struct event *))
{
    if (event_count == event_room) {
        event_room = event_room ? 2 * event_room : 1024;
        events = realloc(events, event_room * sizeof *events);
        if (events == NULL)
            emu_wrong("no memory for %zu events", event_room);
    }
    event->due = due;
    event->order = event_order++;
    event->act = act;
    event->origin = emu_origin();
    events[event_count++] = event;
    sift_up(event_count - 1);
}

static void take_out(size_t i)
{
    events[i] = events[--event_count];
    if (i < event_count) {
        sift_down(i);
        sift_up(i);
    }
}

void emu_cancel(struct event *event)
{
    size_t i = 0;
    while (events[i] != event)
        ++i;
    take_out(i);
}

static void happen(void)
{
    struct event *event = events[0];
    take_out(0);
    emu.acting = event->origin;
    event->act(event);
}

/* ---- Threads --------------------------------------------------------------------------------------------------- */

static void queue(struct warp *warp)
{
    warp->queued = ready_count;
    ready[ready_count++] = warp;
}

static void unqueue(struct warp *warp)
{
    ready[warp->queued] = ready[--ready_count];
    ready[warp->queued]->queued = warp->queued;
    warp->queued = -1;
}

void emu_wake(struct thread *thread)
{
    struct warp *warp = thread->warp;
    thread->waits = WAITS_NOT;
    warp->ready |= 1u << (thread->index % LANES);
    if (warp->queued < 0)
        queue(warp);
}

void emu_wake_warp(struct warp *warp)
{
    for (uint32_t lane = 0; lane < LANES; ++lane)
        if (warp->alive >> lane & 1)
            emu_wake(&warp->threads[lane]);
}

/* The next ready lane of self's warp, while its turn lasts; else the scheduler. */
static struct fibre *next_fibre(const struct thread *self)
{
    const uint32_t lanes = self->warp->ready, lane = self->index % LANES;
    const uint32_t above = lane == 31 ? 0 : lanes & ~0u << (lane + 1);
    if (lanes == 0 || --turn_lanes_left <= 0)
        return &emu.host;
    struct thread *next = &self->warp->threads[__builtin_ctz(above ? above : lanes)];
    emu.self = next;
    return &next->fibre;
}

static void switch_to(struct thread *self, struct fibre *to)
{
    if (to == &self->fibre)
        return;
    fibre_switch(&self->fibre, to, 0);
    emu.self = self;
}

void emu_block(enum waits waits, uint32_t detail)
{
    struct thread *self = emu.self;
    self->waits = waits;
    self->detail = detail;
    self->warp->ready &= ~(1u << (self->index % LANES));
    switch_to(self, next_fibre(self));
}

void emu_give_way(void)
{
    switch_to(emu.self, &emu.host);
}

void emu_enter(const void *where)
{
    emu.self->where = where;
    if (emu_below(give_way_one_in) == 0)
        emu_give_way();
}

static void run_thread(void *argument)
{
    struct thread *self = argument;
    emu.self = self;
    emu.kernel(emu.args);
    emu_copies_end(self);
    emu_stores_end(self);
    self->done = true;
    self->warp->alive &= ~(1u << (self->index % LANES));
    self->warp->ready &= ~(1u << (self->index % LANES));
    emu_sync_thread_end(self);
    fibre_switch(&self->fibre, next_fibre(self), 1);
}

/* ---- Clusters begin and end ------------------------------------------------------------------------------------- */

static void begin_block(struct cluster *cluster, uint32_t rank)
{
    struct block *block = &cluster->blocks[rank];
    *block = (struct block){.cluster = cluster, .rank = rank, .index = cluster->place};
    block->alive = emu.threads;
    block->warp_count = (emu.threads + LANES - 1) / LANES;
    block->warps = calloc(block->warp_count, sizeof *block->warps);
    block->threads = calloc((size_t)block->warp_count * LANES, sizeof *block->threads);
    emu_smem_begin(block, emu.launch->smem_bytes);
    for (uint32_t i = 0; i < emu.threads; ++i)
        block->threads[i] =
            (struct thread){.index = i, .slot = rank * emu.threads + i, .warp = &block->warps[i / LANES]};
    for (uint32_t i = 0; i < block->warp_count; ++i) {
        const uint32_t lanes = emu.threads - i * LANES;
        struct warp *warp = &block->warps[i];
        *warp = (struct warp){.block = block, .index = i, .threads = &block->threads[i * LANES], .queued = -1};
        warp->alive = lanes >= LANES ? ~0u : (1u << lanes) - 1;
        warp->pace = (int)emu_below(MAX_PACE + 1);
    }
    emu_sync_block_begin(block);
}

/* `place`: which of the clusters on the machine it is, and so which stacks its threads have. */
static void begin_cluster(struct cluster *cluster, uint32_t place, uint32_t index)
{
    *cluster = (struct cluster){.place = place, .size = emu.cluster_size, .alive = emu.cluster_size};
    cluster->blocks = calloc(cluster->size, sizeof *cluster->blocks);
    if (emu.launch->smem_bytes > 0)
        cluster->clock_words = cluster->size * (emu.threads + MBARRIERS);
    for (uint32_t rank = 0; rank < cluster->size; ++rank) {
        struct block *block = &cluster->blocks[rank];
        begin_block(cluster, rank);
        block->index = index * cluster->size + rank;
        for (uint32_t i = 0; i < emu.threads; ++i) {
            struct thread *thread = &block->threads[i];
            thread->clock = emu_clock_new(cluster);
            emu_clock_tick(thread);
            fibre_make(&thread->fibre, (int)((place * cluster->size + rank) * emu.threads + i), run_thread, thread);
            emu_wake(thread);
        }
    }
    cluster->barrier.clock = emu_clock_new(cluster);
}

/* All its threads have ended: nothing may be on its way to it any more. */
static void end_block(struct block *block)
{
    emu.acting = (struct origin){block->index, 0, NULL};
    for (uint32_t i = 0; i < block->warp_count; ++i)
        emu_products_end(&block->warps[i]);
    emu_sync_block_end(block);
    emu_smem_end(block);
    block->left = true;
    --block->cluster->alive;
}

static void free_cluster(struct cluster *cluster)
{
    for (uint32_t rank = 0; rank < cluster->size; ++rank) {
        struct block *block = &cluster->blocks[rank];
        for (uint32_t i = 0; i < emu.threads; ++i)
            free(block->threads[i].clock);
        for (uint32_t i = 0; i < block->warp_count; ++i)
            free(block->warps[i].products);
        free(block->threads);
        free(block->warps);
    }
    free(cluster->blocks);
    free(cluster->barrier.clock);
    *cluster = (struct cluster){0};
}

/* ---- The grid -------------------------------------------------------------------------------------------------- */

enum { MAX_RESIDENT = 32 };
static struct cluster resident[MAX_RESIDENT];
static uint32_t resident_count, *cluster_order;

/* As many clusters at once as chance wants, and as stacks and the scheduler's list allow. */
static void choose_residents(void)
{
    const uint32_t threads = emu.threads * emu.cluster_size;
    uint32_t most = FIBRE_STACKS / threads < MAX_RESIDENT ? FIBRE_STACKS / threads : MAX_RESIDENT;
    while (most * emu.cluster_size * ((emu.threads + LANES - 1) / LANES) > MAX_READY)
        --most;
    resident_count = 1 + emu_below(most < emu.clusters ? most : emu.clusters);
}

/* Blocks begin in any order. */
static void choose_order(void)
{
    cluster_order = realloc(cluster_order, emu.clusters * sizeof *cluster_order);
    for (uint32_t i = 0; i < emu.clusters; ++i) {
        const uint32_t j = emu_below(2) ? emu_below(i + 1) : i;
        cluster_order[i] = cluster_order[j];
        cluster_order[j] = i;
    }
}

void emu_each_block(void (*what)(struct block *block))
{
    for (uint32_t i = 0; i < resident_count; ++i)
        for (uint32_t rank = 0; rank < resident[i].size; ++rank)
            what(&resident[i].blocks[rank]);
}

static void begin_next_cluster(uint32_t place)
{
    if (emu.next_cluster < emu.clusters)
        begin_cluster(&resident[place], place, cluster_order[emu.next_cluster++]);
}

/* After a turn: blocks and clusters that have ended leave the machine. */
static void clear_away(struct block *block)
{
    struct cluster *cluster = block->cluster;
    if (block->alive > 0 || block->left)
        return;
    end_block(block);
    if (cluster->alive == 0) {
        const uint32_t place = cluster->place;
        free_cluster(cluster);
        begin_next_cluster(place);
    }
}

static struct warp *choose_warp(void)
{
    for (int tries = 0; tries < 64; ++tries) {
        struct warp *warp = ready[emu_below((uint32_t)ready_count)];
        if (emu_settings.calm)
            return warp;
        if (emu_below(256) == 0)
            warp->pace = (int)emu_below(MAX_PACE + 1);
        if (emu_below(1u << warp->pace) == 0)
            return warp;
    }
    return ready[emu_below((uint32_t)ready_count)];
}

static void take_turn(struct warp *warp)
{
    struct block *block = warp->block;
    const uint32_t first = emu_below(LANES), above = warp->ready & ~0u << first;
    struct thread *thread = &warp->threads[__builtin_ctz(above ? above : warp->ready)];
    turn_lanes_left = TURN_LANES;
    emu.self = thread;
    fibre_switch(&emu.host, &thread->fibre, 0);
    emu.self = NULL;
    if (warp->ready == 0)
        unqueue(warp);
    clear_away(block);
}

static void run_grid(void)
{
    uint64_t turns = 0;
    for (uint32_t i = 0; i < resident_count; ++i)
        begin_next_cluster(i);
    for (;; ++emu.now) {
        if (ready_count == 0 && event_count > 0 && events[0]->due > emu.now)
            emu.now = events[0]->due;
        while (event_count > 0 && events[0]->due <= emu.now)
            happen();
        if (ready_count > 0)
            take_turn(choose_warp());
        else if (event_count == 0)
            break;
        if (++turns > MAX_TURNS)
            emu_wrong("no end in sight after %llu turns of warps", (unsigned long long)turns);
    }
    for (uint32_t i = 0; i < resident_count; ++i)
        if (resident[i].alive > 0)
            emu_deadlock();
}

/* ---- A launch -------------------------------------------------------------------------------------------------- */

/* From a file without a name, which debuggers and addr2line find by its path in /proc. */
static void *load_image(const struct fake_launch *launch, const void *image, size_t bytes)
{
    static char path[64];
    const int file = memfd_create(launch->kernel, 0);
    if (file < 0 || write(file, image, bytes) != (ssize_t)bytes)
        emu_wrong("%s does not go into a file", launch->kernel);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        emu_wrong("%s: %s", launch->kernel, dlerror());
    emu.kernel_file = strdup(path);
    return library;
}

static void *symbol(void *library, const char *kernel, const char *suffix)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", kernel, suffix);
    void *found = dlsym(library, name);
    if (found == NULL)
        emu_wrong("the image of %s has no %s", kernel, name);
    return found;
}

struct loaded {
    const void *image;
    void *library;
    const char *file;
};

static void *library_of(const struct fake_launch *launch, const void *image, size_t bytes)
{
    static struct loaded loaded[256];
    static size_t count;
    for (size_t i = 0; i < count; ++i)
        if (loaded[i].image == image) {
            emu.kernel_file = loaded[i].file;
            return loaded[i].library;
        }
    void *library = load_image(launch, image, bytes);
    if (count < sizeof loaded / sizeof *loaded)
        loaded[count++] = (struct loaded){image, library, emu.kernel_file};
    return library;
}

static void find_kernel(const struct fake_launch *launch, void *library, uint32_t *args_bytes)
{
    Dl_info info;
    void *kernel = symbol(library, launch->kernel, "");
    const uint32_t most = *(const uint32_t *)symbol(library, launch->kernel, "_threads");
    *args_bytes = *(const uint32_t *)symbol(library, launch->kernel, "_args_bytes");
    memcpy(&emu.kernel, &kernel, sizeof kernel);
    if (dladdr(kernel, &info))
        emu.kernel_base = info.dli_fbase;
    emu.fields = dlsym(library, "emu_fields");
    if (launch->block[0] > most)
        emu_wrong("%u threads are launched; the kernel was compiled for up to %u", launch->block[0], most);
}

static void choose_chances(void)
{
    random_state = emu_settings.seed * 0x9e3779b97f4a7c15u + emu_launches - launches_before;
    give_way_one_in = emu_settings.calm ? ~0u : 1u << (1 + emu_below(10));
    for (int i = 0; i < DELAYS; ++i)
        lateness_of[i] = LATENESS[emu_below(4)];
    memset(usual_due, 0, sizeof usual_due);
    choose_residents();
    choose_order();
}

size_t emu_args_bytes(const struct fake_launch *launch, const void *image, size_t image_bytes)
{
    const uint32_t *bytes = symbol(library_of(launch, image, image_bytes), launch->kernel, "_args_bytes");
    return *bytes;
}

void emu_begin(uint64_t seed)
{
    emu_settings.seed = seed;
    launches_before = emu_launches;
}

void emu_run(const struct fake_launch *launch, const void *image, size_t image_bytes, const void *args)
{
    static _Alignas(128) unsigned char copy[FAKE_ARGS];
    uint32_t args_bytes;
    emu = (struct machine){.launch = launch, .args = copy, .threads = launch->block[0]};
    emu.cluster_size = launch->cluster[0] ? launch->cluster[0] : 1;
    emu.clusters = launch->grid[0] / emu.cluster_size;
    ++emu_launches;
    emu_watch_faults();
    find_kernel(launch, library_of(launch, image, image_bytes), &args_bytes);
    memcpy(copy, args, args_bytes);
    choose_chances();
    emu_tma_begin();
    emu_kernel_before_begin();
    run_grid();
    emu.over = true;
}
