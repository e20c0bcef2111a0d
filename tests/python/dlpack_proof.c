/*
 * Compiled, never run: python/ext/dlpack.h against DLPack's own header.
 *
 *   cc -std=c11 -fsyntax-only -I. -I<where dlpack/dlpack.h is> tests/python/dlpack_proof.c
 */
#include "python/ext/dlpack.h"

#include <dlpack/dlpack.h>
#include <stddef.h>

#define VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), "the value of " #theirs);
#define SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(theirs), "the size of " #theirs);
#define FIELD(ours, our_field, theirs, their_field)                                                                    \
    _Static_assert(offsetof(struct ours, our_field) == offsetof(theirs, their_field) &&                                \
                       sizeof((struct ours){0}.our_field) == sizeof((theirs){0}.their_field),                          \
                   "the place of " #theirs "." #their_field);

VALUE(DL_MAJOR, DLPACK_MAJOR_VERSION)
_Static_assert(DL_MINOR <= DLPACK_MINOR_VERSION, "a header that knows all we use");
VALUE(DL_CPU, kDLCPU)
VALUE(DL_CUDA, kDLCUDA)
VALUE(DL_CUDA_HOST, kDLCUDAHost)
VALUE(DL_CUDA_MANAGED, kDLCUDAManaged)
VALUE(DL_INT, kDLInt)
VALUE(DL_UINT, kDLUInt)
VALUE(DL_FLOAT, kDLFloat)
VALUE(DL_BFLOAT, kDLBfloat)
VALUE(DL_COMPLEX, kDLComplex)
VALUE(DL_BOOL, kDLBool)
VALUE(DL_FLOAT8_E3M4, kDLFloat8_e3m4)
VALUE(DL_FLOAT8_E4M3, kDLFloat8_e4m3)
VALUE(DL_FLOAT8_E4M3B11FNUZ, kDLFloat8_e4m3b11fnuz)
VALUE(DL_FLOAT8_E4M3FN, kDLFloat8_e4m3fn)
VALUE(DL_FLOAT8_E4M3FNUZ, kDLFloat8_e4m3fnuz)
VALUE(DL_FLOAT8_E5M2, kDLFloat8_e5m2)
VALUE(DL_FLOAT8_E5M2FNUZ, kDLFloat8_e5m2fnuz)
VALUE(DL_FLOAT8_E8M0FNU, kDLFloat8_e8m0fnu)
VALUE(DL_FLOAT6_E2M3FN, kDLFloat6_e2m3fn)
VALUE(DL_FLOAT6_E3M2FN, kDLFloat6_e3m2fn)
VALUE(DL_FLOAT4_E2M1FN, kDLFloat4_e2m1fn)
VALUE(DL_FLAG_READ_ONLY, DLPACK_FLAG_BITMASK_READ_ONLY)

SIZE(dl_version, DLPackVersion)
FIELD(dl_version, major, DLPackVersion, major)
FIELD(dl_version, minor, DLPackVersion, minor)
SIZE(dl_device, DLDevice)
FIELD(dl_device, type, DLDevice, device_type)
FIELD(dl_device, id, DLDevice, device_id)
SIZE(dl_type, DLDataType)
FIELD(dl_type, code, DLDataType, code)
FIELD(dl_type, bits, DLDataType, bits)
FIELD(dl_type, lanes, DLDataType, lanes)
SIZE(dl_tensor, DLTensor)
FIELD(dl_tensor, data, DLTensor, data)
FIELD(dl_tensor, device, DLTensor, device)
FIELD(dl_tensor, ndim, DLTensor, ndim)
FIELD(dl_tensor, dtype, DLTensor, dtype)
FIELD(dl_tensor, shape, DLTensor, shape)
FIELD(dl_tensor, strides, DLTensor, strides)
FIELD(dl_tensor, byte_offset, DLTensor, byte_offset)
SIZE(dl_managed, DLManagedTensor)
FIELD(dl_managed, tensor, DLManagedTensor, dl_tensor)
FIELD(dl_managed, manager, DLManagedTensor, manager_ctx)
FIELD(dl_managed, deleter, DLManagedTensor, deleter)
SIZE(dl_managed_versioned, DLManagedTensorVersioned)
FIELD(dl_managed_versioned, version, DLManagedTensorVersioned, version)
FIELD(dl_managed_versioned, manager, DLManagedTensorVersioned, manager_ctx)
FIELD(dl_managed_versioned, deleter, DLManagedTensorVersioned, deleter)
FIELD(dl_managed_versioned, flags, DLManagedTensorVersioned, flags)
FIELD(dl_managed_versioned, tensor, DLManagedTensorVersioned, dl_tensor)
SIZE(dl_exchange_header, DLPackExchangeAPIHeader)
FIELD(dl_exchange_header, version, DLPackExchangeAPIHeader, version)
FIELD(dl_exchange_header, previous, DLPackExchangeAPIHeader, prev_api)
SIZE(dl_exchange, DLPackExchangeAPI)
FIELD(dl_exchange, header, DLPackExchangeAPI, header)
FIELD(dl_exchange, allocate, DLPackExchangeAPI, managed_tensor_allocator)
FIELD(dl_exchange, managed_from_object, DLPackExchangeAPI, managed_tensor_from_py_object_no_sync)
FIELD(dl_exchange, object_from_managed, DLPackExchangeAPI, managed_tensor_to_py_object_no_sync)
FIELD(dl_exchange, tensor_from_object, DLPackExchangeAPI, dltensor_from_py_object_no_sync)
FIELD(dl_exchange, current_stream, DLPackExchangeAPI, current_work_stream)

/* One line of each kind that is false: the check compiles these too and wants them refused. */
#if DLPACK_PROOF_FALSEHOOD == 1
VALUE(DL_FLOAT8_E4M3FN, kDLFloat8_e5m2)
#elif DLPACK_PROOF_FALSEHOOD == 2
SIZE(dl_managed, DLManagedTensorVersioned)
#elif DLPACK_PROOF_FALSEHOOD == 3
FIELD(dl_managed_versioned, manager, DLManagedTensorVersioned, flags)
#endif
