#include "cuda/tensormap.h"

static bool data_type(dg_dtype dtype, CUtensorMapDataType *type)
{
    switch (dtype) {
    case DG_FLOAT8_E4M3: /* TMA has no FP8 type and needs none: it moves bytes */
        *type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
        return true;
    case DG_FLOAT16:
        *type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        return true;
    case DG_BFLOAT16:
        *type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
        return true;
    case DG_FLOAT32:
        *type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
        return true;
    case DG_INT32:
        *type = CU_TENSOR_MAP_DATA_TYPE_INT32;
        return true;
    case DG_DTYPE_NONE:
        break;
    }
    return false;
}

static bool swizzle_mode(int32_t bytes, CUtensorMapSwizzle *mode)
{
    switch (bytes) {
    case 0:
        *mode = CU_TENSOR_MAP_SWIZZLE_NONE;
        return true;
    case 32:
        *mode = CU_TENSOR_MAP_SWIZZLE_32B;
        return true;
    case 64:
        *mode = CU_TENSOR_MAP_SWIZZLE_64B;
        return true;
    case 128:
        *mode = CU_TENSOR_MAP_SWIZZLE_128B;
        return true;
    default:
        return false;
    }
}

/*
 * The strides in bytes of rows and batch entries. Dimensions of size 1 have the stride 0 in a struct matrix, which the
 * driver refuses although nothing would ever be added; any multiple of 16 will do for them.
 */
static void byte_strides(const struct matrix *m, uint64_t strides[2])
{
    const int64_t element = (int64_t)dg_dtype_size(m->dtype);
    strides[0] = (uint64_t)(m->rows > 1 ? m->row_stride * element : round_up(m->cols * element, 16));
    strides[1] = m->batch > 1 ? (uint64_t)(m->batch_stride * element) : strides[0];
}

static dg_status encode_fail(CUresult result, const struct matrix *m, const uint32_t box[3], int32_t swizzle_bytes)
{
    dg_status status = driver_fail(result, "cuTensorMapEncodeTiled");
    fail_more("; %lld x %lld x %lld %s at %p, strides %lld and %lld, boxes of %u x %u, swizzle %d", (long long)m->batch,
              (long long)m->rows, (long long)m->cols, dg_dtype_name(m->dtype), (void *)m->data,
              (long long)m->batch_stride, (long long)m->row_stride, box[1], box[0], (int)swizzle_bytes);
    return status;
}

dg_status tensormap_encode(const struct driver *driver, struct tensor_map *map, const struct matrix *m,
                           int32_t box_rows, int32_t box_cols, int32_t swizzle_bytes)
{
    CUtensorMapDataType type;
    CUtensorMapSwizzle swizzle;
    if (!data_type(m->dtype, &type) || !swizzle_mode(swizzle_bytes, &swizzle))
        return fail(DG_ERROR_INTERNAL, "there is no tensor map of %s with a swizzle of %d bytes",
                    dg_dtype_name(m->dtype), (int)swizzle_bytes);
    const uint64_t sizes[3] = {(uint64_t)m->cols, (uint64_t)m->rows, (uint64_t)m->batch};
    const uint32_t box[3] = {(uint32_t)box_cols, (uint32_t)box_rows, 1};
    const uint32_t every_element[3] = {1, 1, 1};
    uint64_t strides[2];
    byte_strides(m, strides);
    CUresult result = driver->cuTensorMapEncodeTiled(
        map, type, 3, m->data, sizes, strides, box, every_element, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? DG_SUCCESS : encode_fail(result, m, box, swizzle_bytes);
}
