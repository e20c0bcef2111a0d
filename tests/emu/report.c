/* What is found wrong, in words; the timeline; deadlocks; faults. */
#include "tests/emu/machine.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- Names --------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static struct emu_text text(const char *format, ...)
{
    struct emu_text out;
    va_list values;
    va_start(values, format);
    vsnprintf(out.s, sizeof out.s, format, values);
    va_end(values);
    return out;
}

static const struct emu_field *field_at(uint32_t offset)
{
    for (const struct emu_field *f = emu.fields; f && f->name; ++f)
        if (offset >= f->offset && offset < f->offset + f->bytes)
            return f;
    return NULL;
}

struct emu_text emu_place(uint32_t offset)
{
    const struct emu_field *f = field_at(offset);
    if (f == NULL)
        return text("byte %u of shared memory", offset);
    const uint32_t within = (offset - f->offset) % f->stride;
    if (within == 0)
        return text("%s[%u]", f->name, (offset - f->offset) / f->stride);
    return text("%s[%u]+%#x", f->name, (offset - f->offset) / f->stride, within);
}

/* What the warp does in its kernel. */
static struct emu_text role(uint32_t warp)
{
    static const char *const producers[] = {"operands", "scales", "idle", "idle"};
    if (strncmp(emu.launch->kernel, "sm90_fp8_gemm_", 14) != 0)
        return text("%s", "");
    const uint32_t math = (emu.threads / LANES - 2) / 4 * 4; /* the two or four warps behind are producers */
    return warp >= math ? text(" (%s)", producers[warp - math]) : text(" (math %u)", warp / 4);
}

struct emu_text emu_who(uint32_t block, uint32_t thread)
{
    return text("block %u warp %u%s lane %u", block, thread / LANES, role(thread / LANES).s, thread % LANES);
}

struct emu_text emu_slot_text(const struct cluster *cluster, uint32_t slot)
{
    const uint32_t threads = cluster->size * emu.threads, first = cluster->blocks[0].index;
    if (slot < threads)
        return emu_who(first + slot / emu.threads, slot % emu.threads);
    const uint32_t rank = (slot - threads) / MBARRIERS, index = (slot - threads) % MBARRIERS;
    return text("bytes counted at %s of block %u", emu_place(cluster->blocks[rank].smem.barriers[index].offset).s,
                first + rank);
}

struct origin emu_origin(void)
{
    if (emu.self == NULL)
        return emu.acting;
    return (struct origin){emu.self->warp->block->index, emu.self->index, emu.self->where};
}

/* ---- Places in the kernel's text ----------------------------------------------------------------------------- */

/* Line `number` of a file, without what it is indented by. */
static void print_line(const char *path, int number)
{
    char text_there[256];
    FILE *in = fopen(path, "r");
    bool there = in != NULL;
    for (int i = 0; there && i < number; ++i)
        there = fgets(text_there, sizeof text_there, in) != NULL;
    if (there)
        printf(": %s", text_there + strspn(text_there, " ")); /* ends with its newline */
    else
        printf("\n");
    if (in)
        fclose(in);
}

/* "at sm90_fp8_gemm_1d2d.cu:118: mbarrier_wait(...", and from where that was called: inlined functions, by addr2line,
   which tells the name of each but the first. */
static void print_place(const void *address)
{
    char command[256], function[256], path[512];
    int number, depth = 0;
    if (address == NULL || emu.kernel_file == NULL)
        return;
    snprintf(command, sizeof command, "addr2line -Cfi -e %s %#zx 2>/dev/null", emu.kernel_file,
             (size_t)((const char *)address - emu.kernel_base) - 1);
    FILE *pipe = popen(command, "r");
    while (pipe && fscanf(pipe, " %255[^\n] %511[^:\n]:%d%*[^\n]", function, path, &number) >= 3) {
        if (depth == 0) {
            printf("    at %s:%d", strrchr(path, '/') ? strrchr(path, '/') + 1 : path, number);
            print_line(path, number);
        } else {
            function[strcspn(function, "(")] = '\0';
            printf("%s%s:%d", depth == 1 ? "       called from " : ", ", function, number);
        }
        ++depth;
    }
    printf("%s", depth > 1 ? "\n" : "");
    if (pipe)
        pclose(pipe);
}

static void print_circumstances(void)
{
    printf("    at time %llu; again: %s --seed %llu\n", (unsigned long long)emu.now,
           emu_settings.replay ? emu_settings.replay : "", (unsigned long long)emu_settings.seed);
}

static void leave(void)
{
    fflush(stdout);
    _exit(EMU_WRONG);
}

void emu_wrong(const char *format, ...)
{
    va_list values;
    printf("WRONG: ");
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\n");
    if (emu.launch && emu.over) {
        printf("    after %s\n", emu.launch->kernel);
        print_circumstances();
    } else if (emu.launch) {
        const struct origin origin = emu_origin();
        printf("    in %s, %s%s\n", emu.launch->kernel, emu.self ? "" : "asynchronously, for ",
               emu_who(origin.block, origin.thread).s);
        print_place(origin.where);
        print_circumstances();
    }
    leave();
    __builtin_unreachable();
}

void emu_expect(int condition, const char *text_of_it)
{
    ENTER();
    if (!condition)
        emu_wrong("this is not true: %s", text_of_it);
}

/* ---- The timeline -------------------------------------------------------------------------------------------- */

/* Where warps meet, the last lane to come speaks for them, else lane 0. */
void emu_trace(const struct block *block, const char *format, ...)
{
    va_list values;
    const bool silent = emu.self && !emu.meeting && emu.self->index % LANES != 0;
    if (!emu_settings.trace || block->index >= emu.cluster_size || silent)
        return;
    printf("%7llu  block %u  ", (unsigned long long)emu.now, emu.self ? emu.self->warp->block->index : block->index);
    if (emu.self)
        printf("warp %2u%-11s  ", emu.self->warp->index, role(emu.self->warp->index).s);
    else
        printf("%-18s  ", "");
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\n");
}

/* ---- Deadlock ------------------------------------------------------------------------------------------------ */

static struct emu_text waits_text(const struct thread *t)
{
    const struct mbarrier *bar = t->barrier;
    switch (t->waits) {
    case WAITS_LANES:
        return text("for the other lanes of the warp, at %s", emu_meeting_name(t->detail));
    case WAITS_BLOCK:
        return text("at block_barrier, where %u of %u threads are", t->warp->block->barrier.threads,
                    t->warp->block->alive);
    case WAITS_NAMED:
        return text("at the named barrier %u, where %u of %u threads are", t->detail,
                    t->warp->block->named[t->detail].threads, t->warp->block->named[t->detail].wanted);
    case WAITS_CLUSTER:
        return text("at cluster_barrier");
    case WAITS_MBARRIER:
        return text("for parity %u at %s, which is in phase %u: %u of %u arrivals and %lld bytes are still to come",
                    t->detail, emu_place(bar->offset).s, bar->phase, bar->pending, bar->count, (long long)bar->bytes);
    case WAITS_COPIES:
        return text("for its copies");
    case WAITS_READ:
    case WAITS_STORED:
        return text("for its stores but %u groups", t->detail);
    case WAITS_PRODUCTS:
        return text("for its wgmmas but %u groups", t->detail);
    case WAITS_REGISTERS:
        return text("for %u registers a thread; %lld are free in the block", t->detail,
                    (long long)t->warp->block->free_registers);
    case WAITS_KERNEL:
        return text("for the kernel before");
    case WAITS_NOT:
        break;
    }
    return text("for nothing");
}

static bool wait_alike(const struct thread *a, const struct thread *b)
{
    return a->waits == b->waits && a->detail == b->detail && a->barrier == b->barrier && a->where == b->where;
}

/* Lanes that wait for the same are told of at once, a place where several warps are only once. */
static void print_waiting_warp(const struct warp *warp)
{
    static const void *told;
    uint32_t left = warp->alive;
    while (left != 0) {
        const struct thread *first = &warp->threads[__builtin_ctz(left)];
        uint32_t alike = 0;
        for (uint32_t lane = 0; lane < LANES; ++lane)
            if (left >> lane & 1 && wait_alike(first, &warp->threads[lane]))
                alike |= 1u << lane;
        left &= ~alike;
        printf("  block %u warp %u%s lanes %#x wait %s\n", warp->block->index, warp->index, role(warp->index).s, alike,
               waits_text(first).s);
        if (first->where != told)
            print_place(first->where);
        told = first->where;
    }
}

static void print_waiting_block(struct block *block)
{
    for (uint32_t i = 0; !block->left && i < block->warp_count; ++i)
        print_waiting_warp(&block->warps[i]);
}

void emu_print_waiting(void)
{
    emu_each_block(print_waiting_block);
    fflush(stdout);
}

static struct thread *first_waiting;
static void find_waiting_block(struct block *block)
{
    for (uint32_t i = 0; !block->left && i < block->warp_count && !first_waiting; ++i)
        if (block->warps[i].alive)
            first_waiting = &block->warps[i].threads[__builtin_ctz(block->warps[i].alive)];
}

void emu_deadlock(void)
{
    emu_each_block(find_waiting_block);
    printf("WRONG: deadlock, for one %s\n", waits_text(first_waiting).s);
    printf("    in %s; all that wait:\n", emu.launch->kernel);
    emu_print_waiting();
    print_circumstances();
    leave();
    __builtin_unreachable();
}

/* ---- Faults -------------------------------------------------------------------------------------------------- */

static const void *fault;
static struct block *faulty;

static void find_faulty_block(struct block *block)
{
    const uint8_t *view = block->smem.view;
    if (!block->left && (const uint8_t *)fault >= view && (const uint8_t *)fault < view + SMEM_VIEW_BYTES)
        faulty = block;
}

static void explain_fault(int signal, siginfo_t *info, void *context)
{
    const ucontext_t *c = context;
    const void *at = (const void *)(uintptr_t)c->uc_mcontext.gregs[REG_RIP];
    (void)signal;
    fault = info->si_addr;
    emu_each_block(find_faulty_block);
    if (emu.self)
        emu.self->where = (const char *)at + 1;
    if (faulty)
        emu_wrong("a plain access to dynamic shared memory, at %s; only the functions of kernels/common may",
                  emu_place((uint32_t)((const uint8_t *)fault - faulty->smem.view - SMEM_VIEW_BASE)).s);
    if (fibre_overflowed(fault) >= 0)
        emu_wrong("a thread's stack has overflowed");
    emu_wrong("a plain access to %p, which belongs to no tensor", fault);
}

/* On a stack of its own, since that of a fibre may be what is full. */
void emu_watch_faults(void)
{
    static char stack[256 << 10];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    action.sa_sigaction = explain_fault;
    sigaltstack(&other, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}
