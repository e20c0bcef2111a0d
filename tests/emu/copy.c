/*
 * cp.async: four bytes from global to shared memory. Each copy reads and writes when it likes, in any order, across
 * groups too. Only after its thread has waited for the copy's group is it as if the thread had written the bytes.
 */
#include "tests/emu/machine.h"

#include <stdlib.h>
#include <string.h>

/* What lands but has not been waited for: a time that nobody will ever know. */
static const uint32_t NOT_WAITED_FOR = 0xffffffffu;

struct copy {
    struct event event;
    struct copy *next; /* of the same group */
    struct copy_group *group;
    struct thread *thread;
    uint32_t offset;
    const void *global; /* NULL: zeros */
};

struct copy_group {
    struct copy_group *next; /* an older one */
    struct copy *copies;
    uint32_t on_their_way;
};

struct copy_groups {
    struct copy_group open;    /* not committed yet */
    struct copy_group *newest; /* of those that are committed and not waited for */
};

static struct copy_groups *groups_of(struct thread *thread)
{
    if (thread->copies == NULL)
        thread->copies = calloc(1, sizeof *thread->copies);
    return thread->copies;
}

/* Whether all but the `pending` newest groups have landed. */
static bool landed(const struct copy_groups *groups, uint32_t pending)
{
    for (const struct copy_group *g = groups->newest; g; g = g->next)
        if (pending > 0)
            --pending;
        else if (g->on_their_way > 0)
            return false;
    return true;
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
    emu_landing_end(block, copy->offset, 4, thread->slot, NOT_WAITED_FOR, false);
    --copy->group->on_their_way;
    if (thread->waits == WAITS_COPIES && landed(thread->copies, thread->detail))
        emu_wake(thread);
}

void copy_async_4(void *smem, const void *global, int valid)
{
    ENTER();
    struct thread *self = emu.self;
    struct copy_groups *groups = groups_of(self);
    struct copy *copy = malloc(sizeof *copy);
    const uint32_t offset = emu_offset(self->warp->block, smem, 4, 4);
    if (valid && (uintptr_t)global % 4 != 0)
        emu_wrong("copy_async_4 from %p, which is not aligned to 4 bytes", global);
    if (valid && !emu_memory_known((uintptr_t)global, 4, false))
        emu_wrong("copy_async_4 from %p, which belongs to no tensor", global);
    *copy = (struct copy){.next = groups->open.copies,
                          .group = &groups->open,
                          .thread = self,
                          .offset = offset,
                          .global = valid ? global : NULL};
    groups->open.copies = copy;
    ++groups->open.on_their_way;
    emu_landing_begin(self->warp->block, offset, 4, "copy_async_4", false);
    emu_schedule(&copy->event, emu_due(DELAY_COPY), land);
}

void copy_async_commit(void)
{
    ENTER();
    struct copy_groups *groups = groups_of(emu.self);
    struct copy_group *group = malloc(sizeof *group);
    *group = groups->open;
    group->next = groups->newest;
    for (struct copy *copy = group->copies; copy; copy = copy->next)
        copy->group = group;
    groups->newest = group;
    groups->open = (struct copy_group){0};
}

/* From now on the thread's own writes: whoever synchronises with it knows them. */
static void take_over(struct thread *thread, struct copy_group *group)
{
    struct block *block = thread->warp->block;
    while (group->copies) {
        struct copy *copy = group->copies;
        struct word *word = &block->smem.words[copy->offset / 4];
        if (word->writer == thread->slot + 1 && word->clock == NOT_WAITED_FOR)
            word->clock = emu_clock_now(thread);
        group->copies = copy->next;
        free(copy);
    }
}

void copy_async_wait(uint32_t pending)
{
    ENTER();
    struct copy_groups *groups = groups_of(emu.self);
    if (!landed(groups, pending))
        emu_block(WAITS_COPIES, pending);
    struct copy_group **link = &groups->newest;
    for (; pending > 0 && *link; --pending)
        link = &(*link)->next;
    while (*link) {
        struct copy_group *group = *link;
        *link = group->next;
        take_over(emu.self, group);
        free(group);
    }
}

void emu_copies_end(struct thread *thread)
{
    struct copy_groups *groups = thread->copies;
    if (groups == NULL)
        return;
    if (groups->open.copies)
        emu_wrong("the thread ends with copies that it has not committed");
    if (groups->newest)
        emu_wrong("the thread ends without having waited for its copies");
    free(groups);
    thread->copies = NULL;
}
