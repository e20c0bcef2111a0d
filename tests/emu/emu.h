/*
 * The emulation of a Hopper GPU as tests see it: hand emu_run to the fake driver as its `execute`, and every launch
 * runs here, on the calling thread, before the launch returns. docs/emulation.md tells what is modelled.
 *
 * Whatever is found wrong is printed with all that is known about it, and ends the process with EMU_WRONG: run what may
 * fail in a process of its own.
 */
#ifndef EMU_EMU_H
#define EMU_EMU_H

#include "tests/fake/fake_cuda.h"

enum { EMU_WRONG = 3 }; /* exit status */

struct emu_settings {
    uint64_t seed;      /* of all that is left to chance: when threads run and asynchronous work takes effect;
                           set by emu_begin */
    bool hopper_fp8;    /* FP8 products are summed with 13 fraction bits, truncated, else in FP32 in the order of k */
    bool trace;         /* print a line for each thing that happens in blocks of the first cluster */
    bool calm;          /* nobody lags behind, and what is asynchronous takes its usual time: for a first look */
    const char *replay; /* how to run this again; printed with what is found */
};
extern struct emu_settings emu_settings;

/* Global memory that kernels may read, and write if `writable`; TMA may touch no other. */
void emu_memory(void *data, size_t bytes, bool writable);
void emu_memory_constant(const void *data); /* the kernel before does not write what begins there */

/* Carry out a launch: the type of struct fake's `execute`. `image` is a shared library, `args` the kernel's argument.
 */
void emu_run(const struct fake_launch *launch, const void *image, size_t image_bytes, const void *args);

/* How long the kernel's argument is. */
size_t emu_args_bytes(const struct fake_launch *launch, const void *image, size_t image_bytes);

/* What is found wrong. */
void emu_wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Launches since the process began. */
extern uint64_t emu_launches;

/* The launches that follow happen as the seed says, the same whatever ran before. */
void emu_begin(uint64_t seed);

#endif
