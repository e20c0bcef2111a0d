/*
 * Cases: an operation of the library on small tensors, once by the CPU reference and then, with many seeds, by the
 * emulated GPU; all bytes of all tensors must agree. A case is a line of words, "gemm 128x96 m=200 n=300 pdl"; the
 * first names the operation.
 */
#ifndef EMU_CASE_H
#define EMU_CASE_H

#include "core/tensor.h"
#include "tests/emu/emu.h"

#include <stdint.h>

/* Exit status when a case could not be run: a kernel that does not compile, a word that makes no sense. */
enum { CASE_BROKEN = 70 };

/* Runs the line's case with seeds first_seed, first_seed + 1, ...; what is wrong ends the process. */
void case_run(const char *line, uint64_t first_seed, int seeds);

/* Runs it once, on a real GPU if `cuda`, compares, and prints a hash of the outputs. */
void case_digest(const char *line, bool cuda);

/* ---- For operations -------------------------------------------------------------------------------------------- */

struct operation {
    const char *name;
    const char *const *words;                           /* patterns of what may follow, ended by NULL; NULL: anything */
    void (*prepare)(const char *line);                  /* makes and fills all tensors */
    dg_status (*run)(const char *line, bool on_device); /* the reference, or the kernel */
};
extern const struct operation gemm_operation, quantize_operation, transform_operation, part_operation;

/* The number after "name=", or `otherwise`; whether the line has the word, as it is: "pdl", "out=bf16". */
int64_t case_number(const char *line, const char *name, int64_t otherwise);
bool case_has(const char *line, const char *word);
/* DG_FLOAT32, DG_FLOAT16 or DG_BFLOAT16 after "name=": f32, f16 or bf16, which is the default. */
dg_dtype case_type(const char *line, const char *name);

/* Ends the process when a call has failed. */
void case_ok(dg_status status);

/* The text of a file, which stays. */
const char *case_read(const char *path);

/* Random numbers, the same on every run. */
uint32_t case_random(void);
int64_t case_below(int64_t count);
float case_uniform(void); /* -1 .. 1 */

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/*
 * One tensor twice: on the host, and on the device that is emulated, whose memory lies between pages that nobody may
 * touch. What lies between rows and after the last is compared too.
 */
struct tensor {
    const char *name;
    dg_tensor host, device;
    uint8_t *host_memory, *device_memory, *before;
    size_t bytes;
    bool output;
    bool anything; /* may come out */
    double within; /* 0: the same bits; else 1 - 2<x,y> / (<x,x> + <y,y>) is below */
};

enum case_layout {
    LAYOUT_ROWS,   /* row-major, rows contiguous; from one to the next a multiple of `align` bytes, and `extra` elements
                    */
    LAYOUT_COLS,   /* the same, transposed */
    LAYOUT_SPREAD, /* row-major, two elements apart everywhere */
};

/* "name=cols", "name=spread", or LAYOUT_ROWS. */
enum case_layout case_layout(const char *line, const char *name);

/* One more tensor of the case. batch 0: two dimensions. */
struct tensor *tensor_make(const char *name, dg_dtype dtype, int64_t batch, int64_t rows, int64_t cols,
                           enum case_layout layout, int64_t align, int64_t extra);

#define TENSOR_FOR_EACH(t, b, r, c)                                                                                    \
    for (int64_t b = 0; b < ((t)->host.ndim == 3 ? (t)->host.shape[0] : 1); ++b)                                       \
        for (int64_t r = 0; r < (t)->host.shape[(t)->host.ndim - 2]; ++r)                                              \
            for (int64_t c = 0; c < (t)->host.shape[(t)->host.ndim - 1]; ++c)

void *tensor_at(const struct tensor *t, int64_t batch, int64_t row, int64_t col); /* on the host */
/* Rounded to the tensor's type, which is a float's. */
void tensor_set(const struct tensor *t, int64_t batch, int64_t row, int64_t col, float value);

#endif
