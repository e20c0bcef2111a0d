/*
 * TMA: boxes of tensors, and plain runs of bytes, between global and shared memory. A load writes its box in pieces at
 * any time until its bytes have been counted at the mbarrier; a store reads shared memory at any time until its group
 * is waited for, and writes global memory later still. Both address tensors by the maps that the host encoded.
 *
 * What lies outside of the tensor is loaded as zeros, which count as bytes too, and not stored; but a store writes
 * whole units of 16 bytes at a row's end, as measured on an H200.
 */
#include "tests/emu/machine.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT = 16, SMEM_ALIGNMENT = 128, PIECES = 4, PIECE_LINES = 8 /* the period of swizzling */ };

/* A box at a place in a tensor: `lines` rows of row_bytes, one after the other in shared memory. */
struct box {
    struct fake_tensor_map map;
    int32_t at[5];
    uint32_t element, row_bytes, lines, span;
};

/* ---- Tensor maps --------------------------------------------------------------------------------------------- */

/* Maps that the kernel has edited: what TMA sees of them until somebody acquires what was released. */
struct edited {
    const struct tensor_map *map;
    struct fake_tensor_map seen, released;
    uint32_t by_slot;
};
static struct edited edited[64];
static int edited_count;

static struct fake_tensor_map read_map(const struct tensor_map *map)
{
    struct fake_tensor_map out;
    if ((uintptr_t)map % 64 != 0)
        emu_wrong("the tensor map at %p is not aligned to 64 bytes", (const void *)map);
    memcpy(&out, map, sizeof out);
    if (out.magic != FAKE_TENSOR_MAP)
        emu_wrong("there is no tensor map at %p", (const void *)map);
    return out;
}

static struct edited *find_edited(const struct tensor_map *map)
{
    for (int i = 0; i < edited_count; ++i)
        if (edited[i].map == map)
            return &edited[i];
    return NULL;
}

void emu_tma_begin(void)
{
    edited_count = 0;
}

static struct edited *edit(const struct tensor_map *map)
{
    struct edited *e = find_edited(map);
    if (e == NULL) {
        if (edited_count == 64)
            emu_wrong("the emulation lets 64 tensor maps be edited");
        e = &edited[edited_count++];
        e->map = map;
        e->seen = e->released = read_map(map);
    }
    e->by_slot = emu.self->slot;
    return e;
}

void tma_map_set_address(struct tensor_map *map, const void *address)
{
    ENTER();
    edit(map);
    struct fake_tensor_map m = read_map(map);
    m.address = (uint64_t)(uintptr_t)address;
    memcpy(map, &m, sizeof m);
}

void tma_map_set_rows(struct tensor_map *map, uint32_t rows)
{
    ENTER();
    edit(map);
    struct fake_tensor_map m = read_map(map);
    m.sizes[1] = rows;
    memcpy(map, &m, sizeof m);
}

void tma_map_release(void)
{
    ENTER();
    for (int i = 0; i < edited_count; ++i)
        if (edited[i].by_slot == emu.self->slot)
            edited[i].released = read_map(edited[i].map);
}

void tma_map_acquire(const struct tensor_map *map)
{
    ENTER();
    struct edited *e = find_edited(map);
    if (e)
        e->seen = e->released;
}

void tma_prefetch_map(const struct tensor_map *map)
{
    ENTER();
    (void)read_map(map);
}

/* ---- Boxes --------------------------------------------------------------------------------------------------- */

static uint32_t element_bytes(uint8_t type)
{
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
        return 1;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return 2;
    default:
        return 4;
    }
}

static struct box box_at(const struct tensor_map *map, int32_t col, int32_t row, int32_t batch)
{
    const struct edited *e = find_edited(map);
    struct box box = {.map = e ? e->seen : read_map(map), .at = {col, row, batch}};
    if (box.map.rank != 3)
        emu_wrong("a box of three dimensions of a tensor map of %u", box.map.rank);
    box.element = element_bytes(box.map.type);
    box.row_bytes = box.map.box[0] * box.element;
    box.lines = (uint32_t)box.map.box[1] * box.map.box[2];
    box.span = 16u << box.map.swizzle;
    return box;
}

/* A run of bytes as a box of one line. */
static struct box run_at(const void *global, uint32_t bytes, uint32_t element)
{
    struct box box = {.element = element, .row_bytes = bytes, .lines = 1, .span = 16};
    if ((uintptr_t)global % UNIT != 0 || bytes % UNIT != 0 || bytes == 0)
        emu_wrong("a bulk copy of %u bytes at %p: multiples of 16 are wanted", bytes, global);
    box.map.address = (uint64_t)(uintptr_t)global;
    box.map.rank = 1;
    box.map.box[0] = 1;
    box.map.sizes[0] = bytes / element;
    return box;
}

/* Where a line begins in global memory, at the tensor's first column; false: it lies outside. */
static bool find_line(const struct box *box, uint32_t line, uint64_t *address)
{
    *address = box->map.address;
    for (int i = 1; i < box->map.rank; ++i) {
        const int64_t index = box->at[i] + (int64_t)(line % box->map.box[i]);
        if (index < 0 || (uint64_t)index >= box->map.sizes[i])
            return false;
        *address += (uint64_t)index * box->map.strides[i - 1];
        line /= box->map.box[i];
    }
    return true;
}

/* The bytes begin .. end-1 of a box's line that exist, rows being `row_bytes` long. */
static void clip(const struct box *box, uint64_t row_bytes, int64_t *begin, int64_t *end)
{
    const int64_t first = (int64_t)box->at[0] * box->element, left = (int64_t)row_bytes - first;
    *begin = first < 0 ? -first : 0;
    *end = left < box->row_bytes ? left : box->row_bytes;
}

/* One line between a buffer and shared memory. */
static void copy_swizzled(const struct box *box, struct block *block, uint32_t offset, uint32_t line, uint8_t *buffer,
                          bool store)
{
    for (uint32_t byte = 0; byte < box->row_bytes; byte += UNIT) {
        const uint32_t address = SMEM_BASE + offset + line * box->row_bytes + byte;
        uint8_t *there = block->smem.data + emu_swizzled(address, box->span) - SMEM_BASE;
        memcpy(store ? buffer + byte : there, store ? there : buffer + byte, UNIT);
    }
}

static void check_aligned(uint32_t offset, const struct box *box)
{
    const uint32_t alignment = box->map.rank == 1 ? UNIT : SMEM_ALIGNMENT;
    if (offset % alignment != 0)
        emu_wrong("TMA at %s, which is not aligned to %u bytes", emu_place(offset).s, alignment);
}

/* ---- Loads --------------------------------------------------------------------------------------------------- */

/* Some lines of a box on their way to one block. */
struct load {
    struct event event;
    struct box box;
    struct block *block;
    struct mbarrier *barrier;
    uint32_t offset, first, lines;
};

static void load_line(const struct load *load, uint32_t line, uint8_t *buffer)
{
    const struct box *box = &load->box;
    int64_t begin, end;
    uint64_t address;
    memset(buffer, 0, box->row_bytes);
    clip(box, box->map.sizes[0] * box->element, &begin, &end);
    if (!find_line(box, line, &address) || begin >= end)
        return;
    address += (uint64_t)((int64_t)box->at[0] * box->element + begin);
    if (!emu_memory_known(address, (uint64_t)(end - begin), false))
        emu_wrong("TMA loads %lld bytes at %p, which belong to no tensor", (long long)(end - begin),
                  (void *)(uintptr_t)address);
    memcpy(buffer + begin, (const void *)(uintptr_t)address, (size_t)(end - begin));
}

static void load_lands(struct event *event)
{
    struct load *load = (struct load *)(void *)event;
    struct block *block = load->block;
    const uint32_t bytes = load->lines * load->box.row_bytes, offset = load->first * load->box.row_bytes;
    uint8_t *buffer = malloc(load->box.row_bytes);
    for (uint32_t line = load->first; line < load->first + load->lines; ++line) {
        load_line(load, line, buffer);
        copy_swizzled(&load->box, block, load->offset, line, buffer, false);
    }
    free(buffer);
    emu_trace(block, "%u bytes land at %s", bytes, emu_place(load->offset + offset).s);
    ++load->barrier->landings;
    emu_landing_end(block, load->offset + offset, bytes, load->barrier->slot, load->barrier->landings, true);
    --block->landings;
    emu_mbarrier_bytes_come(load->barrier, bytes);
    free(load);
}

static void begin_load(const struct box *box, struct block *block, const void *pointer, const void *bar)
{
    const uint32_t offset = emu_offset(emu.self->warp->block, pointer, box->lines * box->row_bytes, 1);
    struct mbarrier *barrier = emu_mbarrier_at(emu.self, block, bar);
    check_aligned(offset, box);
    if (!barrier->published)
        emu_wrong("TMA counts at %s, but mbarrier_init_fence is missing after its initialisation",
                  emu_place(barrier->offset).s);
    emu_landing_begin(block, offset, box->lines * box->row_bytes, "a TMA load", true);
    for (uint32_t first = 0; first < box->lines;) {
        struct load *load = malloc(sizeof *load);
        const uint32_t left = box->lines - first;
        uint32_t lines = (emu_below(box->lines / PIECES + 1) + 1 + PIECE_LINES - 1) / PIECE_LINES * PIECE_LINES;
        lines = lines < left && !emu_settings.calm ? lines : left;
        *load = (struct load){
            .box = *box, .block = block, .barrier = barrier, .offset = offset, .first = first, .lines = lines};
        ++block->landings;
        emu_schedule(&load->event, emu_due(DELAY_LOAD), load_lands);
        first += lines;
    }
}

/* There is no cache here. */
enum { EVICT_FIRST = 1 };

uint64_t l2_evict_first(void)
{
    return EVICT_FIRST;
}

static void load_box(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row, int32_t batch)
{
    const struct box box = box_at(map, col, row, batch);
    struct block *block = emu.self->warp->block;
    emu_trace(block, "loads %s from column %d, row %d", emu_place(emu_offset(block, smem, 0, 1)).s, col, row);
    begin_load(&box, block, smem, bar);
}

void tma_load_hinted(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row, int32_t batch,
                     uint64_t policy)
{
    ENTER();
    if (policy != EVICT_FIRST)
        emu_wrong("a cache policy of %#llx, which nothing has made", (unsigned long long)policy);
    load_box(map, bar, smem, col, row, batch);
}

void tma_load(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row, int32_t batch)
{
    ENTER();
    load_box(map, bar, smem, col, row, batch);
}

void tma_load_multicast(const struct tensor_map *map, uint64_t *bar, void *smem, int32_t col, int32_t row,
                        int32_t batch, uint16_t blocks)
{
    ENTER();
    const struct box box = box_at(map, col, row, batch);
    struct block *block = emu.self->warp->block;
    struct cluster *cluster = block->cluster;
    if (blocks == 0 || blocks >> cluster->size != 0)
        emu_wrong("tma_load_multicast to the blocks %#x of a cluster of %u", blocks, cluster->size);
    emu_trace(block, "loads %s of the blocks %#x from column %d, row %d", emu_place(emu_offset(block, smem, 0, 1)).s,
              blocks, col, row);
    for (uint32_t rank = 0; rank < cluster->size; ++rank)
        if (blocks >> rank & 1)
            begin_load(&box, &cluster->blocks[rank], smem, bar);
}

void bulk_load(void *smem, const void *global, uint32_t bytes, uint64_t *bar)
{
    ENTER();
    const struct box box = run_at(global, bytes, 1);
    begin_load(&box, emu.self->warp->block, smem, bar);
}

/* ---- Stores -------------------------------------------------------------------------------------------------- */

struct store_group {
    struct store_group *next; /* an older one */
    struct thread *thread;    /* NULL: it has ended */
    uint32_t unread, unwritten;
};

struct store_groups {
    struct store_group *open;   /* not committed yet, or NULL */
    struct store_group *newest; /* of the committed ones */
};

struct store {
    struct event event;
    struct box box;
    struct block *block;
    struct store_group *group;
    struct reading reading;
    bool add; /* to the FP32 numbers that are there */
    uint8_t data[];
};

static bool done(const struct store_groups *groups, uint32_t pending, bool written)
{
    for (const struct store_group *g = groups->newest; g; g = g->next)
        if (pending > 0)
            --pending;
        else if ((written ? g->unwritten : g->unread) > 0)
            return false;
    return true;
}

static void wake_if_done(struct thread *thread)
{
    if (thread && (thread->waits == WAITS_READ || thread->waits == WAITS_STORED) &&
        done(thread->stores, thread->detail, thread->waits == WAITS_STORED))
        emu_wake(thread);
}

static void write_bytes(const struct store *store, uint64_t address, const uint8_t *data, int64_t bytes)
{
    uint8_t *there = (uint8_t *)(uintptr_t)address;
    if (!emu_memory_known(address, (uint64_t)bytes, true))
        emu_wrong("TMA stores %lld bytes at %p, which belong to no tensor that may be written", (long long)bytes,
                  (void *)there);
    if (!store->add) {
        memcpy(there, data, (size_t)bytes);
        return;
    }
    for (int64_t i = 0; i < bytes; i += 4) {
        float sum, value;
        memcpy(&sum, there + i, 4);
        memcpy(&value, data + i, 4);
        sum += value;
        memcpy(there + i, &sum, 4);
    }
}

static void store_writes(struct event *event)
{
    struct store *store = (struct store *)(void *)event;
    const struct box *box = &store->box;
    const uint64_t row_bytes = (box->map.sizes[0] * box->element + UNIT - 1) / UNIT * UNIT;
    int64_t begin, end;
    uint64_t address;
    clip(box, store->add ? box->map.sizes[0] * box->element : row_bytes, &begin, &end);
    for (uint32_t line = 0; line < box->lines && begin < end; ++line)
        if (find_line(box, line, &address))
            write_bytes(store, address + (uint64_t)((int64_t)box->at[0] * box->element + begin),
                        store->data + line * box->row_bytes + begin, end - begin);
    struct store_group *group = store->group;
    free(store);
    --group->unwritten;
    wake_if_done(group->thread);
    if (group->thread == NULL && group->unwritten == 0)
        free(group);
}

static void store_reads(struct event *event)
{
    struct store *store = (struct store *)(void *)event;
    const struct box *box = &store->box;
    for (uint32_t line = 0; line < box->lines; ++line)
        copy_swizzled(box, store->block, store->reading.begin, line, store->data + line * box->row_bytes, true);
    emu_trace(store->block, "%s has been read for a store", emu_place(store->reading.begin).s);
    emu_reading_end(store->block, &store->reading);
    --store->group->unread;
    wake_if_done(store->group->thread);
    emu_schedule(&store->event, emu_due(DELAY_STORE_WRITE), store_writes);
}

static struct store_groups *groups_of(struct thread *thread)
{
    if (thread->stores == NULL)
        thread->stores = calloc(1, sizeof *thread->stores);
    return thread->stores;
}

static void begin_store(const struct box *box, const void *smem, bool add)
{
    struct thread *self = emu.self;
    struct block *block = self->warp->block;
    struct store_groups *groups = groups_of(self);
    const uint32_t bytes = box->lines * box->row_bytes, offset = emu_offset(block, smem, bytes, 1);
    check_aligned(offset, box);
    struct check check = {.thread = self, .block = block, .what = "a TMA store's read", .async = true};
    emu_check_read(&check, offset, bytes);
    if (groups->open == NULL) {
        groups->open = calloc(1, sizeof *groups->open);
        groups->open->thread = self;
    }
    struct store *store = malloc(sizeof *store + bytes);
    *store = (struct store){.box = *box, .block = block, .group = groups->open, .add = add};
    store->reading = (struct reading){.begin = offset, .end = offset + bytes, .what = "a TMA store"};
    emu_reading_begin(block, &store->reading);
    ++groups->open->unread;
    ++groups->open->unwritten;
    emu_schedule(&store->event, emu_due(DELAY_STORE_READ), store_reads);
}

void tma_store(const struct tensor_map *map, const void *smem, int32_t col, int32_t row, int32_t batch)
{
    ENTER();
    const struct box box = box_at(map, col, row, batch);
    struct block *block = emu.self->warp->block;
    emu_trace(block, "stores %s to column %d, row %d", emu_place(emu_offset(block, smem, 0, 1)).s, col, row);
    begin_store(&box, smem, false);
}

void tma_reduce_add(const struct tensor_map *map, const void *smem, int32_t col, int32_t row, int32_t batch)
{
    ENTER();
    const struct box box = box_at(map, col, row, batch);
    if (box.map.type != CU_TENSOR_MAP_DATA_TYPE_FLOAT32)
        emu_wrong("the emulation reduces FP32 only");
    begin_store(&box, smem, true);
}

void bulk_store(void *global, const void *smem, uint32_t bytes)
{
    ENTER();
    const struct box box = run_at(global, bytes, 1);
    begin_store(&box, smem, false);
}

void bulk_reduce_add_f32(float *global, const float *smem, uint32_t bytes)
{
    ENTER();
    const struct box box = run_at(global, bytes, 4);
    begin_store(&box, smem, true);
}

/* ---- Groups of stores ---------------------------------------------------------------------------------------- */

/* A group may be empty. */
void tma_store_commit(void)
{
    ENTER();
    struct store_groups *groups = groups_of(emu.self);
    struct store_group *group = groups->open ? groups->open : calloc(1, sizeof *group);
    group->thread = emu.self;
    group->next = groups->newest;
    groups->newest = group;
    groups->open = NULL;
}

/* Forget old groups of which nothing is left to do. */
static void sweep(struct store_groups *groups, uint32_t keep)
{
    struct store_group **link = &groups->newest;
    while (*link) {
        struct store_group *group = *link;
        if (keep > 0) {
            --keep;
            link = &group->next;
        } else if (group->unwritten == 0) {
            *link = group->next;
            free(group);
        } else {
            link = &group->next;
        }
    }
}

static void wait_for_stores(uint32_t pending, enum waits waits)
{
    struct store_groups *groups = groups_of(emu.self);
    if (!done(groups, pending, waits == WAITS_STORED))
        emu_block(waits, pending);
    sweep(groups, pending);
}

void tma_store_wait_read(uint32_t pending)
{
    ENTER();
    wait_for_stores(pending, WAITS_READ);
}

void tma_store_wait(uint32_t pending)
{
    ENTER();
    wait_for_stores(pending, WAITS_STORED);
}

void emu_stores_end(struct thread *thread)
{
    struct store_groups *groups = thread->stores;
    if (groups == NULL)
        return;
    if (groups->open)
        emu_wrong("the thread ends with stores that it has not committed");
    sweep(groups, 0);
    for (struct store_group *group = groups->newest; group; group = group->next)
        group->thread = NULL; /* freed when all is written */
    free(groups);
    thread->stores = NULL;
}
