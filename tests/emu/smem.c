/*
 * Shared memory. The kernel holds addresses of a range without access and hands them to these functions; what is there
 * lies elsewhere. For every four bytes is known who wrote them last and whether an asynchronous write is on its way;
 * and there is a list of what asynchronous work will still read. So each access can be judged:
 *
 *   any access   not where an asynchronous write is on its way
 *   a write      not where asynchronous work still reads; not onto a live mbarrier
 *   a read       of what the reader knows to have been written (clock.c); by TMA and wgmma also fenced, if the writer
 *                was a thread
 *
 * Bytes that nobody has written are NaN as FP8 and as FP32. Reading them is no mistake by itself: rows beyond M are not
 * loaded, and what is computed from them is not stored.
 */
#include "tests/emu/machine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NOBODY_WROTE = 0xff, GUARD = 64 };

/* ---- Beginning and end --------------------------------------------------------------------------------------- */

void emu_smem_begin(struct block *block, uint32_t bytes)
{
    struct smem *smem = &block->smem;
    smem->bytes = bytes;
    smem->view = mmap(NULL, SMEM_VIEW_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    smem->data = malloc(bytes);
    smem->words = calloc(bytes / 4 + 1, sizeof *smem->words);
    smem->barrier_at = calloc(bytes / 8 + 1, 1);
    if (smem->view == MAP_FAILED || smem->data == NULL || smem->words == NULL || smem->barrier_at == NULL)
        emu_wrong("no memory for a block's shared memory of %u bytes", bytes);
    memset(smem->data, NOBODY_WROTE, bytes);
}

static void free_variables(struct smem *smem)
{
    while (smem->variables) {
        struct static_variable *v = smem->variables;
        for (int i = 0; i < GUARD; ++i)
            if (v->data[i - GUARD] != NOBODY_WROTE || v->data[(int)v->bytes + i] != NOBODY_WROTE)
                emu_wrong("a byte beside a SHARED variable of %u bytes was written", v->bytes);
        smem->variables = v->next;
        free(v->data - GUARD);
        free(v);
    }
}

void emu_smem_end(struct block *block)
{
    struct smem *smem = &block->smem;
    if (block->landings > 0)
        emu_wrong("the block ends while %u asynchronous writes or arrivals are on their way to it", block->landings);
    if (smem->readings)
        emu_wrong("the block ends while %s still reads %s", smem->readings->what, emu_place(smem->readings->begin).s);
    for (int i = 0; i < smem->barrier_count; ++i) {
        const struct mbarrier *bar = &smem->barriers[i];
        if (bar->live && bar->bytes != 0)
            emu_wrong("the block ends while %lld bytes are expected at %s", (long long)bar->bytes,
                      emu_place(bar->offset).s);
        free(bar->gathered);
        free(bar->completed);
    }
    free_variables(smem);
    free(smem->data);
    free(smem->words);
    free(smem->barrier_at);
    munmap(smem->view, SMEM_VIEW_BYTES);
}

/* ---- Addresses ----------------------------------------------------------------------------------------------- */

uint8_t *dynamic_smem(void)
{
    return emu.self->warp->block->smem.view + SMEM_VIEW_BASE;
}

uint32_t emu_offset(const struct block *block, const void *pointer, uint32_t bytes, uint32_t align)
{
    const struct smem *smem = &block->smem;
    const int64_t in_view = (int64_t)((intptr_t)pointer - (intptr_t)smem->view), offset = in_view - SMEM_VIEW_BASE;
    if (in_view < 0 || in_view >= SMEM_VIEW_BYTES)
        emu_wrong("%p does not point into the block's dynamic shared memory", pointer);
    if (offset < 0 || offset + bytes > smem->bytes)
        emu_wrong("%u bytes at %lld lie outside of the block's %u bytes of shared memory", bytes, (long long)offset,
                  smem->bytes);
    if (offset % align != 0)
        emu_wrong("%s is not aligned to %u bytes", emu_place((uint32_t)offset).s, align);
    return (uint32_t)offset;
}

uint32_t smem_address(const void *pointer)
{
    return SMEM_BASE + emu_offset(emu.self->warp->block, pointer, 0, 1);
}

void *static_smem(const void *key, uint32_t bytes)
{
    struct smem *smem = &emu.self->warp->block->smem;
    for (struct static_variable *v = smem->variables; v; v = v->next)
        if (v->key == key)
            return v->data;
    struct static_variable *v = calloc(1, sizeof *v);
    uint8_t *data = aligned_alloc(GUARD, ((size_t)bytes + 3 * GUARD - 1) / GUARD * GUARD);
    if (v == NULL || data == NULL)
        emu_wrong("no memory for a SHARED variable of %u bytes", bytes);
    memset(data, NOBODY_WROTE, (size_t)bytes + 2 * GUARD);
    *v = (struct static_variable){smem->variables, key, bytes, data + GUARD};
    smem->variables = v;
    return v->data;
}

/* ---- What may be written, what read -------------------------------------------------------------------------- */

static void check_no_landing(const struct block *block, uint32_t offset, uint32_t bytes, const char *what)
{
    for (uint32_t i = offset / 4; i < (offset + bytes + 3) / 4; ++i)
        if (block->smem.words[i].landing)
            emu_wrong("%s at %s while an asynchronous write is on its way there", what, emu_place(i * 4).s);
}

static void check_no_reading(const struct block *block, uint32_t offset, uint32_t bytes, const char *what)
{
    for (const struct reading *r = block->smem.readings; r; r = r->next)
        if (offset < r->end && r->begin < offset + bytes)
            emu_wrong("%s at %s of block %u, which %s, begun by %s, may still read", what,
                      emu_place(offset > r->begin ? offset : r->begin).s, block->index, r->what,
                      emu_who(r->origin.block, r->origin.thread).s);
}

static void check_no_mbarrier(const struct block *block, uint32_t offset, uint32_t bytes, const char *what)
{
    for (uint32_t i = offset / 8; i < (offset + bytes + 7) / 8; ++i) {
        const uint8_t index = block->smem.barrier_at[i];
        if (index && block->smem.barriers[index - 1].live)
            emu_wrong("%s at %s, which is a live mbarrier", what, emu_place(i * 8).s);
    }
}

static void check_write(const struct block *block, uint32_t offset, uint32_t bytes, const char *what)
{
    if (block->left)
        emu_wrong("%s in block %u, which has ended", what, block->index);
    check_no_landing(block, offset, bytes, what);
    check_no_reading(block, offset, bytes, what);
    check_no_mbarrier(block, offset, bytes, what);
}

static void unknown_write(const struct check *c, uint32_t word)
{
    const struct word *w = &c->block->smem.words[word];
    const uint32_t slot = w->writer - 1u;
    if (!emu_knows(c->thread, slot, w->clock))
        emu_wrong("%s at %s, last written by %s; nothing orders that before this", c->what, emu_place(word * 4).s,
                  emu_slot_text(c->block->cluster, slot).s);
    emu_wrong("%s at %s, last written by %s; fence_smem_for_async is missing between the two", c->what,
              emu_place(word * 4).s, emu_slot_text(c->block->cluster, slot).s);
}

static bool is_known(const struct check *c, const struct word *w)
{
    if (w->writer == 0)
        return true;
    return c->async && !w->async ? emu_knows_fenced(c->thread, w->writer - 1u, w->clock)
                                 : emu_knows(c->thread, w->writer - 1u, w->clock);
}

/* Neighbouring words mostly have one writer, so that one look-up serves them. */
void emu_check_read(struct check *c, uint32_t offset, uint32_t bytes)
{
    for (uint32_t i = offset / 4; i < (offset + bytes + 3) / 4; ++i) {
        const struct word *w = &c->block->smem.words[i];
        if (memcmp(w, &c->last, sizeof *w) == 0)
            continue;
        if (w->landing)
            emu_wrong("%s at %s while an asynchronous write is on its way there", c->what, emu_place(i * 4).s);
        if (!is_known(c, w))
            unknown_write(c, i);
        c->last = *w;
    }
}

/* ---- Accesses by threads ------------------------------------------------------------------------------------- */

static void set_words(struct block *block, uint32_t offset, uint32_t bytes, struct word word)
{
    for (uint32_t i = offset / 4; i < (offset + bytes + 3) / 4; ++i)
        block->smem.words[i] = word;
}

void emu_smem_write(struct thread *thread, struct block *block, uint32_t offset, const void *data, uint32_t bytes)
{
    struct check check = {.thread = thread, .block = block, .what = "a write"};
    check_write(block, offset, bytes, "a write");
    emu_check_read(&check, offset, bytes); /* what was there may not be lost unseen */
    set_words(block, offset, bytes, (struct word){emu_clock_now(thread), (uint16_t)(thread->slot + 1), 0, 0});
    memcpy(block->smem.data + offset, data, bytes);
}

void emu_smem_read(struct thread *thread, struct block *block, uint32_t offset, void *data, uint32_t bytes)
{
    struct check check = {.thread = thread, .block = block, .what = "a read"};
    emu_check_read(&check, offset, bytes);
    memcpy(data, block->smem.data + offset, bytes);
}

static struct block *own_block(void)
{
    return emu.self->warp->block;
}

uint32_t load_smem_u32(const uint32_t *p)
{
    uint32_t value;
    ENTER();
    emu_smem_read(emu.self, own_block(), emu_offset(own_block(), p, 4, 4), &value, 4);
    return value;
}

void load_smem_u32x2(const uint32_t *p, uint32_t *words)
{
    ENTER();
    emu_smem_read(emu.self, own_block(), emu_offset(own_block(), p, 8, 8), words, 8);
}

void load_smem_f32x4(const float *p, float *x)
{
    ENTER();
    emu_smem_read(emu.self, own_block(), emu_offset(own_block(), p, 16, 16), x, 16);
}

void store_smem_f32(float *p, float x)
{
    ENTER();
    emu_smem_write(emu.self, own_block(), emu_offset(own_block(), p, 4, 4), &x, 4);
}

void store_smem_u32(uint32_t *p, uint32_t value)
{
    ENTER();
    emu_smem_write(emu.self, own_block(), emu_offset(own_block(), p, 4, 4), &value, 4);
}

void store_smem_f32x2(void *p, float x, float y)
{
    const float pair[2] = {x, y};
    ENTER();
    emu_smem_write(emu.self, own_block(), emu_offset(own_block(), p, 8, 8), pair, 8);
}

/* Lane i says where row i % 8 of matrix i / 8 goes; lanes 4r to 4r + 3 hold row r, in a word for each matrix. */
static bool store_matrices(struct warp *warp)
{
    const struct meeting *m = &warp->meeting;
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        uint32_t row[4];
        for (uint32_t i = 0; i < 4; ++i)
            row[i] = m->words[lane % 8 * 4 + i][lane / 8];
        emu_smem_write(&warp->threads[lane], warp->block, emu_offset(warp->block, m->pointer[lane], 16, 16), row, 16);
    }
    return true;
}

void store_smem_matrices(void *row, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3)
{
    ENTER();
    struct meeting *m = &emu.self->warp->meeting;
    const uint32_t words[4] = {w0, w1, w2, w3};
    m->pointer[emu.self->index % LANES] = row;
    m->words[emu.self->index % LANES] = words;
    emu_meet(MEET_MATRICES, 0, store_matrices);
}

void fence_smem_for_async(void)
{
    ENTER();
    emu_clock_fence(emu.self);
}

/* ---- Accesses to other blocks of the cluster ------------------------------------------------------------------ */

static struct block *peer(uint32_t rank)
{
    const struct cluster *cluster = own_block()->cluster;
    if (rank >= cluster->size)
        emu_wrong("there is no block of rank %u in a cluster of %u", rank, cluster->size);
    if (cluster->blocks[rank].left)
        emu_wrong("block %u has ended, its shared memory is gone", cluster->blocks[rank].index);
    return &cluster->blocks[rank];
}

uint32_t load_cluster_u32(const uint32_t *p, uint32_t rank)
{
    uint32_t value;
    ENTER();
    emu_smem_read(emu.self, peer(rank), emu_offset(own_block(), p, 4, 4), &value, 4);
    return value;
}

void load_cluster_f32x4(const float *p, uint32_t rank, float *x)
{
    ENTER();
    emu_smem_read(emu.self, peer(rank), emu_offset(own_block(), p, 16, 16), x, 16);
}

void store_cluster_u32(uint32_t *p, uint32_t rank, uint32_t value)
{
    ENTER();
    emu_smem_write(emu.self, peer(rank), emu_offset(own_block(), p, 4, 4), &value, 4);
}

/* ---- Asynchronous accesses ----------------------------------------------------------------------------------- */

/* Until it lands, what was there may be gone already, or not; whoever wrote that must have done so before. */
void emu_landing_begin(struct block *block, uint32_t offset, uint32_t bytes, const char *what, bool async)
{
    struct check check = {.thread = emu.self, .block = block, .what = what, .async = async};
    check_write(block, offset, bytes, what);
    emu_check_read(&check, offset, bytes);
    for (uint32_t i = offset / 4; i < (offset + bytes + 3) / 4; ++i)
        block->smem.words[i].landing = 1;
    if (emu_below(2))
        memset(block->smem.data + offset, NOBODY_WROTE, bytes);
}

void emu_landing_end(struct block *block, uint32_t offset, uint32_t bytes, uint32_t writer, uint32_t time, bool async)
{
    set_words(block, offset, bytes, (struct word){time, (uint16_t)(writer + 1), 0, async});
}

void emu_reading_begin(struct block *block, struct reading *reading)
{
    reading->origin = emu_origin();
    reading->next = block->smem.readings;
    block->smem.readings = reading;
}

void emu_reading_end(struct block *block, struct reading *reading)
{
    struct reading **link = &block->smem.readings;
    while (*link != reading)
        link = &(*link)->next;
    *link = reading->next;
}
