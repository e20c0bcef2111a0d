/* A request made complete: every text and option that the compiler gets, and the key that stands for them. */
#ifndef JIT_KEY_H
#define JIT_KEY_H

#include "core/hash.h"
#include "jit/jit.h"

enum { UNIT_HEADERS = 32, UNIT_OPTIONS = 8, KEY_TEXT_BYTES = 33 };

struct jit_unit {
    const char *kernel, *text;
    int32_t arch, driver_major;
    /* As nvrtcCreateProgram wants them: the two generated headers, then the embedded ones that are included. */
    const char *header_names[UNIT_HEADERS], *header_texts[UNIT_HEADERS];
    int header_count;
    const char *options[UNIT_OPTIONS];
    int option_count;
    char arch_option[40];
    char *wgmma; /* owned */
    struct hash128 key;
    char key_text[KEY_TEXT_BYTES]; /* the key in hexadecimal */
};

/*
 * Collect the texts of a request and hash them. The key changes with the kernel's text, the text of a header that it
 * includes (directly or not), the config, the wgmma shapes, the architecture, and options that change the code; with
 * nothing else, so that editing one header leaves other kernels' cache entries alone. The unit points into the request.
 */
dg_status jit_unit_make(const struct jit_request *request, struct jit_unit *unit);
void jit_unit_free(struct jit_unit *unit);

/* Whether the unit's driver can read what a compiler makes. */
static inline bool jit_unit_can_load(const struct jit_unit *unit, int32_t compiler)
{
    return unit->driver_major == 0 || compiler / 1000 <= unit->driver_major;
}

#endif
