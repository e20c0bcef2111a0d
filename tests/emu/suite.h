/* All cases with their seeds, each in a process of its own, as many at a time as there are processors. */
#ifndef EMU_SUITE_H
#define EMU_SUITE_H

#include <stdbool.h>

/* A bit of `groups` for "cases", "small", "parts" or "mutants"; 0 for any other word. */
unsigned suite_group(const char *word);

/* Runs groups (0: all) and prints what failed and how much ran; `seeds`: for each case, 0: as many as usual. Returns
   the exit status. */
int suite_run(const char *program, unsigned groups, int seeds);

/* Prints a hash of the outputs of each case whose arithmetic is exact. */
int suite_digest(bool cuda);

#endif
