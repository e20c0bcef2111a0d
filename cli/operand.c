#include "operand.h"

#include "parallel.h"
#include "program.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Layouts ----------------------------------------------------------------------------------------------------- */

static const int64_t MOST_ELEMENTS = (int64_t)1 << 56; /* no memory has so many */

/* A stride; one that is beyond all memory stands for any such. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) || product > MOST_ELEMENTS ? MOST_ELEMENTS : product;
}

static dg_tensor describe(const struct layout *l, int32_t device)
{
    const int64_t contiguous = l->col_major ? l->rows : l->cols, lines = l->col_major ? l->cols : l->rows;
    const int64_t line = (contiguous > 0 ? contiguous : 1) * l->step + l->padding;
    const int64_t batches = l->batch > 0 ? l->batch : 1;
    const int64_t line_stride = l->batch_inner ? times(line, batches) : line;
    dg_tensor t = {.dtype = l->dtype, .device = device, .ndim = l->batch ? 3 : 2};
    int64_t *shape = t.shape, *stride = t.stride;
    if (l->batch) {
        *shape++ = l->batch;
        *stride++ = l->broadcast ? 0 : l->batch_inner ? line : times(line, lines);
    }
    shape[0] = l->rows;
    shape[1] = l->cols;
    stride[0] = l->col_major ? l->step : line_stride;
    stride[1] = l->col_major ? line_stride : l->step;
    return t;
}

/* "16 x 4096 x 7168" */
static const char *tensor_sizes(const dg_tensor *t)
{
    static _Thread_local char text[80];
    size_t used = 0;
    for (int i = 0; i < t->ndim; ++i)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRId64, i ? " x " : "", t->shape[i]);
    return text;
}

static bool is_empty(const dg_tensor *t)
{
    for (int i = 0; i < t->ndim; ++i)
        if (t->shape[i] == 0)
            return true;
    return false;
}

/* Elements from the first to the last, both included; false when no memory has so many. */
static bool span(const dg_tensor *t, int64_t *elements)
{
    *elements = is_empty(t) ? 0 : 1;
    for (int i = 0; *elements && i < t->ndim; ++i) {
        int64_t more;
        if (__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &more) ||
            __builtin_add_overflow(*elements, more, elements) || *elements > MOST_ELEMENTS)
            return false;
    }
    return true;
}

void operand_describe(struct operand *operand, const struct layout *layout, int32_t device)
{
    *operand = (struct operand){.view = describe(layout, device)};
}

bool operand_describe_scales(struct operand *operand, enum case_scales where, int64_t mn, int64_t k, int64_t gran_mn,
                             int64_t gran_k, dg_dtype dtype, int64_t batch, bool broadcast, int32_t device)
{
    dg_tensor t;
    *operand = (struct operand){0};
    if (!ok(dg_scale_layout(mn, k, (int32_t)gran_mn, (int32_t)gran_k, dtype, batch, &t, NULL)))
        return false;
    struct layout l = {.dtype = dtype, .batch = batch, .rows = operand_rows(&t), .cols = operand_cols(&t), .step = 1};
    l.broadcast = broadcast;
    if (where == CASE_SF_MN_UNALIGNED) {
        l.col_major = true;
        l.padding = l.rows % 4 ? 0 : 1; /* columns no multiple of 16 bytes apart */
    } else if (where == CASE_SF_STRIDED) {
        l.step = 2;
        l.padding = 3;
    }
    operand->view = describe(&l, device);
    if (where == CASE_SF_MN) {
        operand->view = t;
        operand->view.device = device;
        if (broadcast)
            operand->view.stride[0] = 0;
    }
    return true;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

bool operand_allocate(struct operand *operand, int64_t shift)
{
    const size_t element = dg_dtype_size(operand->view.dtype), before = OPERAND_GUARD + (size_t)shift * element;
    int64_t elements;
    if (!span(&operand->view, &elements))
        return trouble("a tensor of %s elements is larger than any memory", tensor_sizes(&operand->view));
    operand->bytes = before + (size_t)elements * element + OPERAND_GUARD;
    operand->host_memory = get_memory(operand->bytes);
    if (operand->host_memory == NULL)
        return false;
    operand->device_memory = operand->host_memory;
    if (operand->view.device != DG_CPU) {
        operand->device_memory = NULL;
        if (!ok(dg_alloc(operand->view.device, operand->bytes, &operand->device_memory)))
            return false;
    }
    operand->host = operand->view;
    operand->host.device = DG_CPU;
    operand->host.data = (char *)operand->host_memory + before;
    operand->view.data = (char *)operand->device_memory + before;
    return true;
}

void operand_free(struct operand *operand)
{
    if (operand->view.device != DG_CPU && operand->device_memory)
        dg_free(operand->view.device, operand->device_memory);
    free(operand->host_memory);
    *operand = (struct operand){0};
}

static dg_tensor part_of(dg_tensor t, int64_t first, int64_t rows, int64_t cols)
{
    t.shape[0] = rows;
    t.shape[1] = cols;
    t.stride[0] = t.stride[t.ndim - 2];
    t.stride[1] = t.stride[t.ndim - 1];
    t.ndim = 2;
    if (t.data)
        t.data = (char *)t.data + first * (int64_t)dg_dtype_size(t.dtype);
    return t;
}

struct operand operand_part(const struct operand *operand, int64_t batch, int64_t row, int64_t rows, int64_t col,
                            int64_t cols)
{
    const dg_tensor *t = &operand->view;
    const int64_t *stride = t->stride + t->ndim - 2;
    const int64_t first = (t->ndim == 3 ? batch * t->stride[0] : 0) + row * stride[0] + col * stride[1];
    struct operand part = *operand;
    part.view = part_of(operand->view, first, rows, cols);
    part.host = part_of(operand->host, first, rows, cols);
    return part;
}

struct operand operand_flat_part(const struct operand *vector, int64_t first, int64_t rows, int64_t cols)
{
    struct operand part = operand_part(vector, 0, 0, rows, first, cols);
    part.view.stride[0] = part.host.stride[0] = cols;
    return part;
}

bool operand_upload(struct operand *operand)
{
    if (operand->view.device == DG_CPU)
        return true;
    return ok(
        dg_copy(operand->device_memory, operand->view.device, operand->host_memory, DG_CPU, operand->bytes, NULL));
}

bool operand_download(struct operand *operand)
{
    if (operand->view.device == DG_CPU)
        return true;
    return ok(
        dg_copy(operand->host_memory, DG_CPU, operand->device_memory, operand->view.device, operand->bytes, NULL));
}

void operand_fill(struct operand *operand, int byte)
{
    memset(operand->host_memory, byte, operand->bytes);
}

static void write_pattern_range(void *user, int64_t begin, int64_t end)
{
    uint8_t *data = user;
    for (int64_t i = begin; i < end; ++i)
        data[i] = (uint8_t)(i * 37 + (i >> 8) * 101 + 0x5b);
}

static void write_pattern(uint8_t *data, size_t bytes)
{
    parallel_for((int64_t)bytes, 1 << 16, write_pattern_range, data);
}

void operand_fill_pattern(struct operand *operand)
{
    write_pattern(operand->host_memory, operand->bytes);
}

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

void *operand_element(const struct operand *operand, int64_t batch, int64_t row, int64_t col)
{
    const dg_tensor *t = &operand->host;
    const int64_t *stride = t->stride + t->ndim - 2;
    const int64_t index = (t->ndim == 3 ? batch * t->stride[0] : 0) + row * stride[0] + col * stride[1];
    return (char *)t->data + index * (int64_t)dg_dtype_size(t->dtype);
}

void operand_for_runs(const struct operand *operand, void (*body)(void *user, uint8_t *data, size_t bytes), void *user)
{
    const dg_tensor *t = &operand->host;
    const int64_t *stride = t->stride + t->ndim - 2;
    const int64_t rows = operand_rows(t), cols = operand_cols(t);
    const bool along_cols = stride[1] == 1, along_rows = !along_cols && stride[0] == 1;
    const int64_t run = along_cols ? cols : along_rows ? rows : 1;
    const int64_t row_step = along_rows ? run : 1, col_step = along_cols ? run : 1;
    if (run == 0)
        return;
    for (int64_t batch = 0; batch < operand_batch(t); ++batch)
        for (int64_t row = 0; row < rows; row += row_step)
            for (int64_t col = 0; col < cols; col += col_step)
                body(user, operand_element(operand, batch, row, col), (size_t)run * dg_dtype_size(t->dtype));
}

/* The image with the elements as they are now: equal to the buffer if the gaps are. */
struct overlay {
    const struct operand *operand;
    uint8_t *image;
};

static void overlay_run(void *user, uint8_t *data, size_t bytes)
{
    const struct overlay *o = user;
    memcpy(o->image + (data - (uint8_t *)o->operand->host_memory), data, bytes);
}

bool operand_gaps_same(const struct operand *operand, const char *name, const uint8_t *image)
{
    const uint8_t *now = operand->host_memory;
    struct overlay o = {operand, get_memory(operand->bytes)};
    size_t at = 0;
    if (o.image == NULL)
        return false;
    if (image)
        memcpy(o.image, image, operand->bytes);
    else
        write_pattern(o.image, operand->bytes);
    operand_for_runs(operand, overlay_run, &o);
    const bool same = memcmp(o.image, now, operand->bytes) == 0;
    while (!same && o.image[at] == now[at])
        ++at;
    free(o.image);
    return same || trouble("wrote outside %s: the byte at %lld from its first, which belongs to no element", name,
                           (long long)(now + at - (const uint8_t *)operand->host.data));
}
