/* Global memory that kernels may touch, and the kernel before, which may still be writing it. */
#include "tests/emu/machine.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANGES = 64, STALE = 0xff };

static struct range {
    uint8_t *data, *late; /* late: what the kernel before will have written */
    size_t bytes;
    bool writable, constant; /* constant: the kernel before does not write it */
} ranges[MAX_RANGES];
static int range_count;

void emu_memory(void *data, size_t bytes, bool writable)
{
    if (range_count == MAX_RANGES)
        emu_wrong("more than %d ranges of global memory", MAX_RANGES);
    ranges[range_count++] = (struct range){data, NULL, bytes, writable, false};
}

void emu_memory_constant(const void *data)
{
    for (int i = 0; i < range_count; ++i)
        ranges[i].constant = ranges[i].constant || ranges[i].data == data;
}

bool emu_memory_known(uint64_t address, uint64_t bytes, bool write)
{
    for (int i = 0; i < range_count; ++i) {
        const uint64_t offset = address - (uint64_t)(uintptr_t)ranges[i].data;
        if (offset < ranges[i].bytes && bytes <= ranges[i].bytes - offset)
            return ranges[i].writable || !write;
    }
    return false;
}

/* ---- Programmatic dependent launch --------------------------------------------------------------------------- */

static struct event kernel_before;
static struct thread *waiting;

/* All that it wrote appears, also over what this kernel may have written too early. */
static void kernel_before_ends(struct event *event)
{
    (void)event;
    for (int i = 0; i < range_count; ++i) {
        if (ranges[i].constant)
            continue;
        memcpy(ranges[i].data, ranges[i].late, ranges[i].bytes);
        free(ranges[i].late);
    }
    emu.kernel_before = false;
    while (waiting) {
        struct thread *thread = waiting;
        waiting = thread->next_waiting;
        emu_wake(thread);
    }
}

/* Under programmatic dependent launch it may still run: nothing that it writes is there yet. */
void emu_kernel_before_begin(void)
{
    if (!emu.launch->pdl)
        return;
    for (int i = 0; i < range_count; ++i) {
        if (ranges[i].constant)
            continue;
        ranges[i].late = malloc(ranges[i].bytes);
        memcpy(ranges[i].late, ranges[i].data, ranges[i].bytes);
        memset(ranges[i].data, STALE, ranges[i].bytes);
    }
    emu.kernel_before = true;
    emu_schedule(&kernel_before, emu_due(DELAY_KERNEL), kernel_before_ends);
}

void grid_dependency_wait(void)
{
    ENTER();
    if (!emu.kernel_before)
        return;
    emu.self->next_waiting = waiting;
    waiting = emu.self;
    emu_block(WAITS_KERNEL, 0);
}

/* The next kernel may come now. It would wait for this one's end before it reads what this one writes. */
void grid_dependency_launch(void)
{
    ENTER();
}

void load_once_16(const void *p, uint32_t *words)
{
    if ((uintptr_t)p % 16 != 0)
        emu_wrong("load_once_16 from %p, which is not aligned to 16 bytes", p);
    memcpy(words, p, 16);
}
