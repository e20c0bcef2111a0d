/* Views of memory that others own, from what they say about it. */
#ifndef EXT_VIEW_H
#define EXT_VIEW_H

#include "call.h"

/* Each fills a view of `object`, and says when it must not be written to; false with an exception set. */
bool view_exchange(struct call *call, const char *name, PyObject *object, const struct dl_exchange *exchange,
                   dg_tensor *tensor, bool *read_only);
bool view_capsule(struct call *call, const char *name, PyObject *object, dg_tensor *tensor, bool *read_only);
bool view_array(struct call *call, const char *name, PyObject *object, dg_tensor *tensor, bool *read_only);

/* The device with a number that a framework tells. */
bool view_cuda_device(const struct call *call, const char *name, int64_t number, dg_tensor *tensor);

bool view_torch(struct call *call, const char *name, PyObject *object, dg_tensor *tensor);

/* From DLPack's description. */
bool view_dlpack(const struct call *call, const char *name, const struct dl_tensor *from, dg_tensor *tensor);

/* A type by the name that NumPy and torch have for it; refuses what no function takes. NULL: an exception is set. */
bool view_type_named(const struct call *call, const char *name, const char *type, dg_dtype *out);

/* What Python objects say, each in the `part` of them that sentences name: `count` integers of a tuple, the sizes, an
   address. */
bool view_integers(const struct call *call, const char *name, const char *part, PyObject *tuple, int32_t count,
                   int64_t *out);
bool view_shape(const struct call *call, const char *name, const char *part, PyObject *tuple, dg_tensor *tensor);
bool view_address(const struct call *call, const char *name, const char *part, PyObject *object, dg_tensor *tensor);

/* The strides of a tensor without gaps. */
void view_contiguous(dg_tensor *tensor);

/* TypeError: a part of an object is something else than was wanted; NULL: there is none. */
bool view_refuse_part(const struct call *call, const char *name, const char *part, PyObject *came, const char *wanted);

/* RuntimeError: an element type that no function of the library takes. */
bool view_refuse_type(const struct call *call, const char *name, const char *type);

/* RuntimeError: more dimensions than a dg_tensor has. */
bool view_refuse_dimensions(const struct call *call, const char *name, Py_ssize_t ndim);

#endif
