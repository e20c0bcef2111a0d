/* Checks that all operations share. Each failure names the argument, what came and what was wanted. */
#ifndef CORE_CHECK_H
#define CORE_CHECK_H

#include "core/status.h"
#include "core/tensor.h"

/* Bits for the dtypes a tensor may have. */
#define DTYPE_BIT(dtype) (1u << (dtype))

/* May data be NULL? In questions yes; in calls only when the tensor is empty. */
enum null_data { NULL_DATA_REFUSED, NULL_DATA_ACCEPTED };

/* Present, dtype, rank, sizes, strides, alignment, data, and that its byte span can be addressed. */
dg_status check_tensor(const char *name, const dg_tensor *tensor, unsigned dtypes, int32_t min_ndim, int32_t max_ndim,
                       enum null_data null_data);

/*
 * A shape is [rows, cols], or with the leading dimension of `like` [batch, rows, cols]. Two steps, so that nothing is
 * formatted unless it fails; the format tells where the wanted shape comes from:
 *
 *     if (!shape_is(&sfa, &d, m, groups))
 *         return fail_shape("sfa", &sfa, &d, m, groups, "K=%lld with 128-wide groups", k);
 */
bool shape_is(const dg_tensor *tensor, const dg_tensor *like, int64_t rows, int64_t cols);
dg_status fail_shape(const char *name, const dg_tensor *tensor, const dg_tensor *like, int64_t rows, int64_t cols,
                     const char *why, ...) __attribute__((format(printf, 6, 7)));

/* What is written must not meet itself, nor what is read. */
dg_status check_writable(const char *name, const struct matrix *m);
dg_status check_disjoint(const char *name, const struct matrix *m, const char *other_name, const struct matrix *other);

/* A field that has no meaning yet, so that it can get one. */
dg_status check_reserved(const char *name, int32_t reserved);

dg_status check_same_device(const char *name, const dg_tensor *tensor, const char *other_name, const dg_tensor *other);

/*
 * Bring a versioned args struct to this library's size: shorter ones are filled with zeros, longer ones must be zero
 * beyond what is known here. `struct_name` is for the sentence.
 */
dg_status import_args(void *dst, size_t dst_bytes, const void *src, const char *struct_name);

/* The way back for structs that the library fills: as many bytes as the caller's size says, which stays. */
dg_status export_struct(void *dst, const void *src, size_t src_bytes, const char *struct_name);

#endif
