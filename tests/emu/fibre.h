/*
 * Fibres: stacks of their own that give way to each other by name, thousands of them in one host thread. Each thread of
 * the emulated GPU is one.
 */
#ifndef EMU_FIBRE_H
#define EMU_FIBRE_H

#include <stddef.h>

struct fibre {
    void *sp;    /* where it stopped, while it does not run */
    char *stack; /* its lowest byte; NULL: the host thread's own stack */
    void (*run)(void *argument);
    void *argument;
    void *sanitizer; /* what AddressSanitizer wants kept */
};

enum { FIBRE_STACKS = 4096 };

/* A fibre that will call run(argument) when it is first switched to; `number` chooses its stack, one of FIBRE_STACKS.
   run must not return, but end by switching away for ever. */
void fibre_make(struct fibre *fibre, int number, void (*run)(void *argument), void *argument);

/* Go on in `to` until something switches back to `from`. `ends`: nothing ever will. */
void fibre_switch(struct fibre *from, struct fibre *to, int ends);

/* The number of the stack below whose end the address lies, or -1: for the report of a stack that overflowed. */
int fibre_overflowed(const void *address);

#endif
