#include "core/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct text dtype_choices(unsigned dtypes)
{
    struct text out = {""};
    size_t used = 0;
    for (unsigned i = 1; i < 32; ++i)
        if (dtypes & (1u << i)) {
            int n = snprintf(out.s + used, sizeof out.s - used, "%s%s", used ? " or " : "", dg_dtype_name((dg_dtype)i));
            used += n > 0 ? (size_t)n : 0;
        }
    return out;
}

static dg_status check_extent(const char *name, const dg_tensor *t)
{
    int64_t last = 0; /* index of the last element */
    for (int32_t i = 0; i < t->ndim; ++i) {
        if (t->shape[i] < 0)
            return fail(DG_ERROR_INVALID_ARGUMENT, "%s has the size %lld in dimension %d; sizes are 0 or more", name,
                        (long long)t->shape[i], (int)i);
        if (t->shape[i] > 1 && t->stride[i] < 0)
            return fail(DG_ERROR_INVALID_ARGUMENT, "%s has the stride %lld in dimension %d; strides are 0 or more",
                        name, (long long)t->stride[i], (int)i);
    }
    if (tensor_empty(t))
        return DG_SUCCESS;
    for (int32_t i = 0; i < t->ndim; ++i) {
        int64_t reach;
        if (t->shape[i] > 1 && (__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &reach) ||
                                __builtin_add_overflow(last, reach, &last)))
            return fail(DG_ERROR_INVALID_ARGUMENT, "%s is %s: its last element lies beyond what can be addressed", name,
                        tensor_text(t).s);
    }
    if (last > (INT64_MAX >> 4)) /* 16 bytes at most an element, so that byte offsets cannot overflow either */
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s is %s: its last element lies beyond what can be addressed", name,
                    tensor_text(t).s);
    return DG_SUCCESS;
}

static dg_status check_data(const char *name, const dg_tensor *t, enum null_data null_data)
{
    if (tensor_empty(t) || (t->data == NULL && null_data == NULL_DATA_ACCEPTED))
        return DG_SUCCESS;
    if (t->data == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s.data is NULL; %s wants memory", name, tensor_text(t).s);
    size_t align = dg_dtype_size(t->dtype);
    if ((uintptr_t)t->data % align != 0)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s.data is %p; %s must be aligned to its element, %zu bytes", name,
                    t->data, dg_dtype_name(t->dtype), align);
    return DG_SUCCESS;
}

dg_status check_tensor(const char *name, const dg_tensor *tensor, unsigned dtypes, int32_t min_ndim, int32_t max_ndim,
                       enum null_data null_data)
{
    if (!tensor_present(tensor))
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s is missing (its dtype is DG_DTYPE_NONE); wanted %s", name,
                    dtype_choices(dtypes).s);
    unsigned dtype = (unsigned)tensor->dtype;
    if (dtype >= 32 || !(dtypes & (1u << dtype)))
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s has the dtype %s (%d); wanted %s", name,
                    dg_dtype_name(tensor->dtype), (int)tensor->dtype, dtype_choices(dtypes).s);
    if (tensor->ndim < min_ndim || tensor->ndim > max_ndim)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s has %d dimensions; wanted %d%s%.0d", name, (int)tensor->ndim,
                    (int)min_ndim, min_ndim == max_ndim ? "" : " to ", min_ndim == max_ndim ? 0 : (int)max_ndim);
    if (tensor->device < DG_CPU)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s.device is %d; wanted DG_CPU (-1) or a CUDA device", name,
                    (int)tensor->device);
    if (tensor->reserved != 0)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s.reserved is %d; wanted zero", name, (int)tensor->reserved);
    CHECK(check_extent(name, tensor));
    return check_data(name, tensor, null_data);
}

bool shape_is(const dg_tensor *tensor, const dg_tensor *like, int64_t rows, int64_t cols)
{
    const int32_t last = like->ndim - 1;
    return tensor->ndim == like->ndim && tensor->shape[last - 1] == rows && tensor->shape[last] == cols &&
           (last == 1 || tensor->shape[0] == like->shape[0]);
}

dg_status fail_shape(const char *name, const dg_tensor *tensor, const dg_tensor *like, int64_t rows, int64_t cols,
                     const char *why, ...)
{
    char reason[256];
    va_list values;
    dg_tensor wanted = {.ndim = like->ndim, .shape = {like->shape[0]}};
    wanted.shape[like->ndim - 2] = rows;
    wanted.shape[like->ndim - 1] = cols;
    va_start(values, why);
    vsnprintf(reason, sizeof reason, why, values);
    va_end(values);
    return fail(DG_ERROR_INVALID_ARGUMENT, "%s is %s; %s wants %s", name, tensor_text(tensor).s, reason,
                shape_text(&wanted).s);
}

dg_status check_writable(const char *name, const struct matrix *m)
{
    if (!matrix_overlaps_itself(m))
        return DG_SUCCESS;
    return fail(
        DG_ERROR_INVALID_ARGUMENT,
        "%s has the strides [%lld, %lld, %lld] (batch, row, column), with which elements may share memory; wanted "
        "each dimension's stride to clear what lies inside it",
        name, (long long)m->batch_stride, (long long)m->row_stride, (long long)m->col_stride);
}

dg_status check_disjoint(const char *name, const struct matrix *m, const char *other_name, const struct matrix *other)
{
    if (m->data == NULL || other->data == NULL || !matrices_overlap(m, other))
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT, "%s shares elements with %s; they may share a buffer, but no element", name,
                other_name);
}

dg_status check_reserved(const char *name, int32_t reserved)
{
    if (reserved == 0)
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT, "%s is %d; wanted zero (start from the INIT macro)", name, (int)reserved);
}

static struct text device_text(int32_t device)
{
    struct text out = {"the CPU"};
    if (device >= 0)
        snprintf(out.s, sizeof out.s, "CUDA device %d", (int)device);
    return out;
}

dg_status check_same_device(const char *name, const dg_tensor *tensor, const char *other_name, const dg_tensor *other)
{
    if (tensor->device == other->device)
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT, "%s is on %s but %s is on %s; all tensors must be on one device", name,
                device_text(tensor->device).s, other_name, device_text(other->device).s);
}

dg_status import_args(void *dst, size_t dst_bytes, const void *src, const char *struct_name)
{
    size_t given;
    if (src == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "the pointer to %s is NULL", struct_name);
    memcpy(&given, src, sizeof given);
    if (given < sizeof given || given > 65536)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s.size is %zu; set it to sizeof(%s), which is %zu here", struct_name,
                    given, struct_name, dst_bytes);
    size_t known = given < dst_bytes ? given : dst_bytes;
    memcpy(dst, src, known);
    memset((char *)dst + known, 0, dst_bytes - known);
    for (size_t i = dst_bytes; i < given; ++i)
        if (((const char *)src)[i] != 0)
            return fail(DG_ERROR_INVALID_ARGUMENT,
                        "%s.size is %zu and byte %zu is not zero: a field that this library (%s, %zu bytes) does not "
                        "know; load a newer library",
                        struct_name, given, i, dg_version(), dst_bytes);
    memcpy(dst, &dst_bytes, sizeof dst_bytes);
    return DG_SUCCESS;
}

dg_status export_struct(void *dst, const void *src, size_t src_bytes, const char *struct_name)
{
    size_t room;
    memcpy(&room, dst, sizeof room);
    if (room < sizeof room || room > 65536)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s.size is %zu; set it to sizeof(%s), which is %zu here", struct_name,
                    room, struct_name, src_bytes);
    size_t known = room < src_bytes ? room : src_bytes;
    memcpy((char *)dst + sizeof room, (const char *)src + sizeof room, known - sizeof room);
    memset((char *)dst + known, 0, room - known);
    return DG_SUCCESS;
}
