/* The files of sources.def as read-only data, each ended by a zero, since the compiler takes C strings. The directives
   are those that the assemblers of x86-64 and aarch64 have in common: % for section types, ; between statements. */
#define SOURCE(identifier, name, file)                                                                                 \
    .globl source_##identifier;                                                                                        \
    .hidden source_##identifier;                                                                                       \
    source_##identifier: .incbin file;                                                                                 \
    .byte 0

    .section .rodata.deepgemm_sources, "a", %progbits
#include "jit/sources.def"

/* Without this note the linker would ask for an executable stack. */
    .section .note.GNU-stack, "", %progbits
