/*
 * What we use of DLPack 1.3, under our own names. tests/python/dlpack_proof.c compares every size, offset and number
 * with DLPack's own header.
 */
#ifndef EXT_DLPACK_H
#define EXT_DLPACK_H

#include <stdint.h>

enum { DL_MAJOR = 1, DL_MINOR = 3 };

enum dl_device_type { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };

enum dl_type_code {
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_COMPLEX = 5,
    DL_BOOL = 6,
    DL_FLOAT8_E3M4 = 7,
    DL_FLOAT8_E4M3 = 8,
    DL_FLOAT8_E4M3B11FNUZ = 9,
    DL_FLOAT8_E4M3FN = 10,
    DL_FLOAT8_E4M3FNUZ = 11,
    DL_FLOAT8_E5M2 = 12,
    DL_FLOAT8_E5M2FNUZ = 13,
    DL_FLOAT8_E8M0FNU = 14,
    DL_FLOAT6_E2M3FN = 15,
    DL_FLOAT6_E3M2FN = 16,
    DL_FLOAT4_E2M1FN = 17
};

enum { DL_FLAG_READ_ONLY = 1 };

struct dl_version {
    uint32_t major, minor;
};

struct dl_device {
    int32_t type; /* enum dl_device_type */
    int32_t id;
};

struct dl_type {
    uint8_t code; /* enum dl_type_code */
    uint8_t bits;
    uint16_t lanes;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t ndim;
    struct dl_type dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: contiguous (before DLPack 1.2) */
    uint64_t byte_offset;
};

/* In a capsule "dltensor". */
struct dl_managed {
    struct dl_tensor tensor;
    void *manager;
    void (*deleter)(struct dl_managed *self);
};

/* In a capsule "dltensor_versioned". */
struct dl_managed_versioned {
    struct dl_version version;
    void *manager;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

/* The table that a type has as __dlpack_c_exchange_api__, in a capsule "dlpack_exchange_api". */
struct dl_exchange_header {
    struct dl_version version;
    struct dl_exchange_header *previous; /* the table of an older major version, or NULL */
};

struct dl_exchange {
    struct dl_exchange_header header;
    int (*allocate)(struct dl_tensor *prototype, struct dl_managed_versioned **out, void *error,
                    void (*set_error)(void *error, const char *kind, const char *message));
    int (*managed_from_object)(void *object, struct dl_managed_versioned **out);
    int (*object_from_managed)(struct dl_managed_versioned *tensor, void **object);
    int (*tensor_from_object)(void *object, struct dl_tensor *out); /* may be NULL */
    int (*current_stream)(int32_t device_type, int32_t device, void **stream);
};

#endif
