/* Libraries, kernels, launches and tensor maps of the fake driver. */
#include "tests/fake/fake_private.h"

#include <stdio.h>
#include <string.h>

enum { LIBRARIES = 1024, FUNCTIONS = 2048 };

/* A library has one kernel, as the cubins of this project do: both handles are one object. */
struct CUkern_st {
    bool alive;
    char name[64];
    int smem_bytes[FAKE_DEVICES]; /* the dynamic limit that was set */
    bool loaded[FAKE_CONTEXTS];
    const unsigned char *image;
};

/* A kernel in one context. */
struct CUfunc_st {
    CUkernel kernel;
    CUcontext context;
};

static struct CUkern_st kernels[LIBRARIES];
static struct CUfunc_st functions[FUNCTIONS];
static int kernel_count, function_count;

/* ---- Libraries and kernels ----------------------------------------------------------------------------------- */

static uint64_t read_le(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i)
        value = value << 8 | at[i];
    return value;
}

/* Whether a cubin (ELF64) has a symbol of that name. One without sections, as tests make up, has them all. */
static bool has_symbol(const unsigned char *elf, const char *name)
{
    const unsigned char *sections = elf + read_le(elf + 40, 8);
    const int count = (int)read_le(elf + 60, 2), entry = (int)read_le(elf + 58, 2);
    for (int i = 0; i < count; ++i) {
        const unsigned char *section = sections + i * entry;
        if (read_le(section + 4, 4) != 2) /* SHT_SYMTAB */
            continue;
        const unsigned char *strings = elf + read_le(sections + (int)read_le(section + 40, 4) * entry + 24, 8);
        const unsigned char *symbols = elf + read_le(section + 24, 8);
        for (uint64_t at = 0; at < read_le(section + 32, 8); at += 24)
            if (strcmp((const char *)strings + read_le(symbols + at, 4), name) == 0)
                return true;
    }
    return count == 0;
}

CUresult fake_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                                unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
    ENTER(cuLibraryLoadData, "%u JIT options, %u options", jit_count, count);
    TRY(fake_need_no_capture());
    (void)jit_options;
    (void)jit_values;
    (void)options;
    (void)values;
    if (memcmp(code, "\177ELF", 4) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    if (kernel_count == LIBRARIES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUkernel kernel = &kernels[kernel_count++];
    *kernel = (struct CUkern_st){.alive = true, .image = code};
    *library = (CUlibrary)(void *)kernel;
    ++fake.libraries;
    return CUDA_SUCCESS;
}

CUresult fake_cuLibraryUnload(CUlibrary library)
{
    RESTORE(cuLibraryUnload, "%s", "");
    CUkernel kernel = (CUkernel)(void *)library;
    if (!kernel->alive)
        return CUDA_ERROR_INVALID_HANDLE;
    kernel->alive = false;
    --fake.libraries;
    return CUDA_SUCCESS;
}

CUresult fake_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    ENTER(cuLibraryGetKernel, "%s", name);
    CUkernel found = (CUkernel)(void *)library;
    if (!found->alive)
        return CUDA_ERROR_INVALID_HANDLE;
    if (strcmp(name, fake.no_kernel) == 0 || !has_symbol(found->image, name))
        return CUDA_ERROR_NOT_FOUND;
    snprintf(found->name, sizeof found->name, "%s", name);
    *kernel = found;
    return CUDA_SUCCESS;
}

CUresult fake_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    ENTER(cuKernelSetAttribute, "%d of %s on device %d", attribute, kernel->name, device);
    if (!kernel->alive)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!fake_good_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value > fake.devices[device].smem_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    kernel->smem_bytes[device] = value;
    return CUDA_SUCCESS;
}

/* Before 12.4, where cuFuncLoad came, handing out the function loads it. */
CUresult fake_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    ENTER(cuKernelGetFunction, "%s", kernel->name);
    TRY(fake_need_context());
    TRY(fake_need_no_capture());
    if (!kernel->alive)
        return CUDA_ERROR_INVALID_HANDLE;
    int i = 0;
    while (i < function_count && (functions[i].kernel != kernel || functions[i].context != fake_top()))
        ++i;
    if (i == FUNCTIONS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (i == function_count)
        functions[function_count++] = (struct CUfunc_st){kernel, fake_top()};
    *function = &functions[i];
    if (fake.version < 12040)
        kernel->loaded[fake_context_index(fake_top())] = true;
    return CUDA_SUCCESS;
}

CUresult fake_cuFuncLoad(CUfunction function)
{
    ENTER(cuFuncLoad, "%s", function->kernel->name);
    TRY(fake_need_no_capture());
    if (!function->kernel->alive)
        return CUDA_ERROR_INVALID_HANDLE;
    function->kernel->loaded[fake_context_index(function->context)] = true;
    return CUDA_SUCCESS;
}

/* The section headers come last in a file. */
static size_t elf_bytes(const unsigned char *elf)
{
    return read_le(elf + 40, 8) + read_le(elf + 58, 2) * read_le(elf + 60, 2);
}

/* A CUfunction or a CUkernel: told apart by which array it points into. */
static CUkernel kernel_of(CUfunction function)
{
    const uintptr_t at = (uintptr_t)function;
    if (at >= (uintptr_t)kernels && at < (uintptr_t)(kernels + LIBRARIES))
        return (CUkernel)(void *)function;
    return function->kernel;
}

static CUresult read_attributes(const CUlaunchConfig *config, struct fake_launch *launch)
{
    for (unsigned int i = 0; i < config->numAttrs; ++i) {
        const CUlaunchAttribute *a = &config->attrs[i];
        if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            launch->cluster[0] = a->value.clusterDim.x;
            launch->cluster[1] = a->value.clusterDim.y;
            launch->cluster[2] = a->value.clusterDim.z;
        } else if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
            launch->pdl = a->value.programmaticStreamSerializationAllowed != 0;
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    launch->attributes = config->numAttrs;
    return CUDA_SUCCESS;
}

static CUresult check_launch(const struct fake_launch *l, const struct CUkern_st *kernel)
{
    uint64_t threads = 1, blocks = 1;
    for (int i = 0; i < 3; ++i) {
        threads *= l->block[i];
        if (l->grid[i] == 0 || l->block[i] == 0 || (i > 0 && l->grid[i] > 65535))
            return CUDA_ERROR_INVALID_VALUE;
        if (l->attributes && l->cluster[0]) {
            if (l->cluster[i] == 0 || l->grid[i] % l->cluster[i] != 0)
                return CUDA_ERROR_INVALID_VALUE;
            blocks *= l->cluster[i];
        }
    }
    /* Up to 48 KiB of dynamic shared memory needs no attribute; 8 blocks are the portable size of a cluster. */
    const uint32_t allowed = (uint32_t)kernel->smem_bytes[l->device];
    if (threads > 1024 || blocks > 8 || l->smem_bytes > (allowed > 49152 ? allowed : 49152))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult fake_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    CUkernel kernel = kernel_of(function);
    ENTER(cuLaunchKernelEx, "%s", kernel->name);
    TRY(fake_need_stream(config->hStream));
    if (!kernel->alive || extra != NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    struct fake_launch *l = &fake.launches[fake.launch_count % FAKE_LAUNCHES];
    *l = (struct fake_launch){
        .device = fake_top()->device,
        .context = fake_top(),
        .stream = config->hStream,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .smem_bytes = config->sharedMemBytes,
        .captured = !fake_is_default(config->hStream) && config->hStream->capturing,
        .loaded_late = !kernel->loaded[fake_context_index(fake_top())],
        .args_bytes = fake.args_bytes < FAKE_ARGS ? fake.args_bytes : FAKE_ARGS,
    };
    memcpy(l->kernel, kernel->name, sizeof l->kernel);
    TRY(read_attributes(config, l));
    TRY(check_launch(l, kernel));
    if (l->args_bytes > 0)
        memcpy(l->args, parameters[0], l->args_bytes);
    ++fake.launch_count;
    if (fake.execute && !l->captured)
        fake.execute(l, kernel->image, elf_bytes(kernel->image), parameters[0]);
    return CUDA_SUCCESS;
}

/* ---- Tensor maps --------------------------------------------------------------------------------------------- */

static uint32_t element_bytes(CUtensorMapDataType type)
{
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
        return 1;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return 2;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
        return 4;
    default:
        return 0;
    }
}

/* The rules that the driver's documentation gives for maps without interleaving. */
static bool good_map(const struct fake_tensor_map *m)
{
    const uint32_t element = element_bytes(m->type), inner = m->box[0] * element;
    if (element == 0 || m->rank < 1 || m->rank > 5 || m->address % 16 != 0 || m->interleave != 0 || m->swizzle > 3)
        return false;
    for (int i = 0; i < m->rank; ++i)
        if (m->sizes[i] == 0 || m->sizes[i] > (uint64_t)1 << 32 || m->box[i] == 0 || m->box[i] > 256 ||
            m->element_strides[i] == 0 || m->element_strides[i] > 8)
            return false;
    for (int i = 0; i < m->rank - 1; ++i)
        if (m->strides[i] == 0 || m->strides[i] % 16 != 0 || m->strides[i] >= (uint64_t)1 << 40)
            return false;
    return inner % 16 == 0 && (m->swizzle == 0 || inner <= 16u << m->swizzle);
}

CUresult fake_cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, uint32_t rank, void *address,
                                     const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                                     const uint32_t *element_strides, CUtensorMapInterleave interleave,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill fill)
{
    ENTER(cuTensorMapEncodeTiled, "type %d rank %u swizzle %d box %u x %u", type, rank, swizzle, box[1], box[0]);
    if ((uintptr_t)map % 64 != 0 || rank < 1 || rank > 5)
        return CUDA_ERROR_INVALID_VALUE;
    struct fake_tensor_map m = {.magic = FAKE_TENSOR_MAP,
                                .type = (uint8_t)type,
                                .rank = (uint8_t)rank,
                                .interleave = (uint8_t)interleave,
                                .swizzle = (uint8_t)swizzle,
                                .promotion = (uint8_t)promotion,
                                .fill = (uint8_t)fill,
                                .address = (uintptr_t)address};
    for (uint32_t i = 0; i < rank; ++i) {
        m.sizes[i] = sizes[i];
        m.box[i] = (uint16_t)(box[i] > UINT16_MAX ? 0 : box[i]);
        m.element_strides[i] = (uint8_t)(element_strides[i] > UINT8_MAX ? 0 : element_strides[i]);
        if (i + 1 < rank)
            m.strides[i] = strides[i];
    }
    if (!good_map(&m))
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}
