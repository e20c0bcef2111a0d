/* Mistakes put into kernels, and into what the host hands to them, to see that the emulation finds them. */
#ifndef EMU_MUTATE_H
#define EMU_MUTATE_H

#include "tests/fake/fake_cuda.h"

struct mutant {
    const char *name, *source, *old_text, *new_text, *line;
};
extern const struct mutant mutants[];
extern const size_t mutant_count;

/* From now on kernels are compiled with the mutant of that name. */
void mutate(const char *name);

/* From now on spoil_run makes one thing of each launch wrong: of all its tensor maps the "swizzle", the height of the
   "box", the "stride" or the "size" of rows; or the number of "threads"; or the bytes of "smem". */
void spoil(const char *what);

/* emu_run, of a launch that may have been spoilt. */
void spoil_run(const struct fake_launch *launch, const void *image, size_t image_bytes, const void *args);

#endif
