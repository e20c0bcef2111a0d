#include "tests/emu/fibre.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 256 << 10 }; /* red zones, and no variables share a place */
#else
enum { STACK_BYTES = 64 << 10 };
#endif
enum { GUARD_BYTES = 4096, STRIDE = STACK_BYTES + GUARD_BYTES };

/*
 * emu_fibre_switch(save, load): push what the System V ABI wants kept, change stacks, pop the same of the other side. A
 * new fibre's stack is laid out as if it had stopped in here, with emu_fibre_start to return to.
 */
void emu_fibre_switch(void **save, void *load);
void emu_fibre_start(void);
__asm__(".text\n"
        ".globl emu_fibre_switch\n"
        ".hidden emu_fibre_switch\n"
        ".type emu_fibre_switch, @function\n"
        "emu_fibre_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".globl emu_fibre_start\n" /* rbx(r12) */
        ".hidden emu_fibre_start\n"
        ".type emu_fibre_start, @function\n"
        "emu_fibre_start:\n"
        "    movq %r12, %rdi\n"
        "    jmp *%rbx\n");
enum { PUSHED_R12 = 3, PUSHED_RBX = 4, RETURN = 6, WORDS };

/* All stacks, each with a page below that nobody may touch. */
static char *stacks;

static void map_stacks(void)
{
    stacks = mmap(NULL, (size_t)FIBRE_STACKS * STRIDE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        perror("no memory for fibres");
        exit(70);
    }
}

static char *stack_of(int number)
{
    char *guard;
    if (stacks == NULL)
        map_stacks();
    guard = stacks + (size_t)number * STRIDE;
    if (mprotect(guard, GUARD_BYTES, PROT_NONE) != 0)
        perror("a fibre's stack has no guard page");
    return guard + GUARD_BYTES;
}

int fibre_overflowed(const void *address)
{
    const uintptr_t begin = (uintptr_t)stacks, at = (uintptr_t)address;
    if (stacks == NULL || at < begin || at >= begin + (uintptr_t)FIBRE_STACKS * STRIDE)
        return -1;
    return (at - begin) % STRIDE < GUARD_BYTES ? (int)((at - begin) / STRIDE) : -1;
}

/* ---- Switching ----------------------------------------------------------------------------------------------- */

#ifdef WITH_ASAN
static const void *host_stack;
static size_t host_bytes;

static void announce(struct fibre *from, const struct fibre *to, int ends)
{
    __sanitizer_start_switch_fiber(ends ? NULL : &from->sanitizer, to->stack ? to->stack : host_stack,
                                   to->stack ? STACK_BYTES : host_bytes);
}

/* The first switch of all comes from the host thread, whose stack nobody has told yet. */
static void arrived(void *sanitizer)
{
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(sanitizer, &stack, &bytes);
    if (host_stack == NULL) {
        host_stack = stack;
        host_bytes = bytes;
    }
}
#else
static void announce(struct fibre *from, const struct fibre *to, int ends)
{
    (void)from, (void)to, (void)ends;
}

static void arrived(void *sanitizer)
{
    (void)sanitizer;
}
#endif

static void begin(struct fibre *fibre)
{
    arrived(NULL);
    fibre->run(fibre->argument);
    abort(); /* it must not return */
}

void fibre_make(struct fibre *fibre, int number, void (*run)(void *argument), void *argument)
{
    static char *made[FIBRE_STACKS];
    if (made[number] == NULL)
        made[number] = stack_of(number);
    *fibre = (struct fibre){.stack = made[number], .run = run, .argument = argument};
#ifdef WITH_ASAN
    __asan_unpoison_memory_region(fibre->stack, STACK_BYTES);
#endif
    /* Below the top a zero, where the ABI wants a return address, which also ends a debugger's walk. */
    void **frame = (void **)(void *)(fibre->stack + STACK_BYTES) - 1 - WORDS;
    for (int i = 0; i <= WORDS; ++i)
        frame[i] = NULL;
    frame[PUSHED_R12] = fibre;
    frame[PUSHED_RBX] = (void *)(uintptr_t)begin;
    frame[RETURN] = (void *)(uintptr_t)emu_fibre_start;
    fibre->sp = frame;
}

void fibre_switch(struct fibre *from, struct fibre *to, int ends)
{
    announce(from, to, ends);
    emu_fibre_switch(&from->sp, to->sp);
    arrived(from->sanitizer);
}
