/* A checked matrix as kernels take it. */
#ifndef OPS_STRIDED_H
#define OPS_STRIDED_H

#include "core/tensor.h"
#include "shared/base.h"

static inline struct strided strided_of(const struct matrix *m)
{
    return (struct strided){(uint64_t)(uintptr_t)m->data, m->batch_stride, m->row_stride, m->col_stride};
}

#endif
