/*
 * cp.async: four bytes from global to shared memory. Each copy reads and writes when it likes, in any order. Whoever
 * waits for a barrier that its thread made wait for it (copy_async_arrive) knows what it wrote; so does the thread
 * after copy_async_wait_all, as if it had written the bytes itself.
 */
#include "tests/emu/machine.h"

#include <stdlib.h>
#include <string.h>

/* What has landed but nobody can know of yet. */
static const uint32_t UNKNOWN = 0xffffffffu;

struct copy {
    struct event event;
    struct copy *next; /* of the same arrival */
    struct arrival *arrival;
    struct thread *thread;
    uint32_t offset;
    const void *global; /* NULL: zeros */
};

/* Of the thread's at a barrier, to come when its copies and those of all older arrivals have landed. */
struct arrival {
    struct arrival *next;     /* a newer one */
    struct mbarrier *barrier; /* NULL: none yet */
    struct copy *copies;
    uint32_t on_their_way;
};

struct copies {
    struct arrival open; /* of copies that no barrier waits for */
    struct arrival *oldest;
};

static struct copies *copies_of(struct thread *thread)
{
    if (thread->copies == NULL)
        thread->copies = calloc(1, sizeof *thread->copies);
    return thread->copies;
}

static bool all_landed(const struct copies *copies)
{
    return copies->oldest == NULL && copies->open.on_their_way == 0;
}

/* The words that landed and are still what was copied become known to whoever knows `time` of `writer`. */
static void make_known(struct thread *thread, struct arrival *arrival, uint32_t writer, uint32_t time)
{
    struct block *block = thread->warp->block;
    while (arrival->copies) {
        struct copy *copy = arrival->copies;
        struct word *word = &block->smem.words[copy->offset / 4];
        if (word->writer == thread->slot + 1 && word->clock == UNKNOWN) {
            word->writer = (uint16_t)(writer + 1);
            word->clock = time;
        }
        arrival->copies = copy->next;
        free(copy);
    }
}

/* All arrivals whose time has come, oldest first. */
static void arrive(struct thread *thread)
{
    struct copies *copies = thread->copies;
    while (copies->oldest && copies->oldest->on_their_way == 0) {
        struct arrival *arrival = copies->oldest;
        copies->oldest = arrival->next;
        make_known(thread, arrival, arrival->barrier->slot, ++arrival->barrier->landings);
        emu_mbarrier_copies_come(arrival->barrier);
        free(arrival);
    }
    if (thread->waits == WAITS_COPIES && all_landed(copies))
        emu_wake(thread);
}

static void land(struct event *event)
{
    struct copy *copy = (struct copy *)(void *)event;
    struct thread *thread = copy->thread;
    struct block *block = thread->warp->block;
    if (copy->global)
        memcpy(block->smem.data + copy->offset, copy->global, 4);
    else
        memset(block->smem.data + copy->offset, 0, 4);
    emu_landing_end(block, copy->offset, 4, thread->slot, UNKNOWN, false);
    --copy->arrival->on_their_way;
    arrive(thread);
}

void copy_async_4(void *smem, const void *global, int valid)
{
    ENTER();
    struct thread *self = emu.self;
    struct copies *copies = copies_of(self);
    struct copy *copy = malloc(sizeof *copy);
    const uint32_t offset = emu_offset(self->warp->block, smem, 4, 4);
    if (valid && (uintptr_t)global % 4 != 0)
        emu_wrong("copy_async_4 from %p, which is not aligned to 4 bytes", global);
    if (valid && !emu_memory_known((uintptr_t)global, 4, false))
        emu_wrong("copy_async_4 from %p, which belongs to no tensor", global);
    *copy = (struct copy){.next = copies->open.copies,
                          .arrival = &copies->open,
                          .thread = self,
                          .offset = offset,
                          .global = valid ? global : NULL};
    copies->open.copies = copy;
    ++copies->open.on_their_way;
    emu_landing_begin(self->warp->block, offset, 4, "copy_async_4", false);
    emu_schedule(&copy->event, emu_due(DELAY_COPY), land);
}

void copy_async_arrive(uint64_t *bar)
{
    ENTER();
    struct thread *self = emu.self;
    struct copies *copies = copies_of(self);
    struct arrival *arrival = malloc(sizeof *arrival), **link = &copies->oldest;
    *arrival = copies->open;
    arrival->barrier = emu_mbarrier_at(self, self->warp->block, bar);
    for (struct copy *copy = arrival->copies; copy; copy = copy->next)
        copy->arrival = arrival;
    copies->open = (struct arrival){0};
    while (*link)
        link = &(*link)->next;
    *link = arrival;
    arrive(self);
}

void copy_async_wait_all(void)
{
    ENTER();
    struct copies *copies = copies_of(emu.self);
    if (!all_landed(copies))
        emu_block(WAITS_COPIES, 0);
    make_known(emu.self, &copies->open, emu.self->slot, emu_clock_now(emu.self));
}

void emu_copies_end(struct thread *thread)
{
    struct copies *copies = thread->copies;
    if (copies == NULL)
        return;
    if (copies->open.copies || copies->oldest)
        emu_wrong("the thread ends without having waited for its copies");
    free(copies);
    thread->copies = NULL;
}
