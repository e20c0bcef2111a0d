#include "plan/tma_rules.h"

#include <stdio.h>

/* The limits are those of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management"). */
enum { TMA_ALIGNMENT = 16 };
static const int64_t TMA_MAX_SIZE = (int64_t)1 << 32;   /* elements, inclusive */
static const int64_t TMA_MAX_STRIDE = (int64_t)1 << 40; /* bytes, exclusive */

/* A dimension beyond the columns: `what` is "row" or "batch". False: the text says why not. */
static bool dimension_fits(struct text *out, const char *name, const char *what, int64_t size, int64_t stride,
                           int64_t element)
{
    if (size > TMA_MAX_SIZE)
        snprintf(out->s, sizeof out->s, "%s's %s count is %lld; TMA takes up to 2^32", name, what, (long long)size);
    else if (size > 1 && stride == 0)
        snprintf(out->s, sizeof out->s, "%s's %s stride is 0; TMA cannot repeat what it reads", name, what);
    else if (size > 1 && stride >= TMA_MAX_STRIDE / element)
        snprintf(out->s, sizeof out->s, "%s's %s stride is %lld elements; TMA takes less than 2^40 bytes", name, what,
                 (long long)stride);
    else if (size > 1 && stride * element % TMA_ALIGNMENT != 0)
        snprintf(out->s, sizeof out->s, "%s's %s stride is %lld bytes, no multiple of %d", name, what,
                 (long long)(stride * element), TMA_ALIGNMENT);
    return out->s[0] == '\0';
}

struct text tma_refusal(const char *name, const struct matrix *m)
{
    struct text out = {""};
    const int64_t element = (int64_t)dg_dtype_size(m->dtype);
    if (m->batch < 1 || m->rows < 1 || m->cols < 1)
        snprintf(out.s, sizeof out.s, "%s is empty", name);
    else if (m->cols > 1 && m->col_stride != 1)
        snprintf(out.s, sizeof out.s, "%s's column stride is %lld; TMA wants contiguous columns", name,
                 (long long)m->col_stride);
    else if (m->cols > TMA_MAX_SIZE)
        snprintf(out.s, sizeof out.s, "%s's column count is %lld; TMA takes up to 2^32", name, (long long)m->cols);
    else if ((uintptr_t)m->data % TMA_ALIGNMENT != 0)
        snprintf(out.s, sizeof out.s, "%s.data is %p, not aligned to %d bytes", name, (void *)m->data, TMA_ALIGNMENT);
    else if (dimension_fits(&out, name, "row", m->rows, m->row_stride, element))
        dimension_fits(&out, name, "batch", m->batch, m->batch_stride, element);
    return out;
}
