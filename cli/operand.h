/* One tensor of a case: its layout as the case wants it, memory on the device, and the same bytes on the host. */
#ifndef CLI_OPERAND_H
#define CLI_OPERAND_H

#include "cases.h"

/*
 * `view` describes the tensor on its device, `host` the same layout in host memory (the same memory when the device
 * is the CPU). Around the tensor lie GUARD bytes before and after; they and the gaps inside a strided tensor are
 * filled with a pattern that nothing may change, or with NaNs that nothing may read.
 */
enum { OPERAND_GUARD = 1024 };

struct operand {
    dg_tensor view, host;
    void *device_memory, *host_memory;
    size_t bytes; /* with the guards */
};

/* How to lay out a tensor of `batch` (0: none) matrices. */
struct layout {
    dg_dtype dtype;
    int64_t batch, rows, cols;
    bool col_major; /* rows are contiguous instead of columns */
    bool batch_inner, broadcast;
    int64_t step;    /* stride of the contiguous dimension */
    int64_t padding; /* elements between its end and the next line */
};

/* The views only: data NULL, no memory. */
void operand_describe(struct operand *operand, const struct layout *layout, int32_t device);

/* Scales of the case's layout for a matrix [mn, k]. */
bool operand_describe_scales(struct operand *operand, enum case_scales where, int64_t mn, int64_t k, int64_t gran_mn,
                             int64_t gran_k, dg_dtype dtype, int64_t batch, bool broadcast, int32_t device);

/* Memory on the device and on the host for a described operand, and its views' data: `shift` elements after an aligned
   address. */
bool operand_allocate(struct operand *operand, int64_t shift);
void operand_free(struct operand *operand);

/* A matrix of the operand, or a part of one: views of the same memory, not to be freed. */
struct operand operand_part(const struct operand *operand, int64_t batch, int64_t row, int64_t rows, int64_t col,
                            int64_t cols);
/* The row-major matrix [rows, cols] that begins at element `first` of a vector, which is an operand of one row. */
struct operand operand_flat_part(const struct operand *vector, int64_t first, int64_t rows, int64_t cols);

/* Whole buffers, guards included, between host and device; nothing to do on the CPU. */
bool operand_upload(struct operand *operand);
bool operand_download(struct operand *operand);

/* Fill the whole host buffer with a byte: 0x7f is NaN as E4M3, 0xff as float32, float16, bfloat16 and UE8M0. */
void operand_fill(struct operand *operand, int byte);
/* Fill it with a pattern that depends on the position. */
void operand_fill_pattern(struct operand *operand);

/* Whether every byte that is part of no element is as in `image`, an earlier copy of the host buffer (NULL: as the
   pattern had it). false tells the first that is not. */
bool operand_gaps_same(const struct operand *operand, const char *name, const uint8_t *image);

/* Element [batch, row, col] of the host copy, for any rank. */
void *operand_element(const struct operand *operand, int64_t batch, int64_t row, int64_t col);

/* Call body on each run of elements that lie side by side in memory; together they are the tensor. */
void operand_for_runs(const struct operand *operand, void (*body)(void *user, uint8_t *data, size_t bytes), void *user);

static inline int64_t operand_rows(const dg_tensor *t)
{
    return t->shape[t->ndim - 2];
}

static inline int64_t operand_cols(const dg_tensor *t)
{
    return t->shape[t->ndim - 1];
}

static inline int64_t operand_batch(const dg_tensor *t)
{
    return t->ndim == 3 ? t->shape[0] : 1;
}

#endif
