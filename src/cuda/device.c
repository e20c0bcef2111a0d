#include "cuda/device.h"

#include <pthread.h>
#include <stdatomic.h>

/* What is known of each device; `info` and `primary` are written once, under the lock. */
static struct slot {
    _Atomic bool known;
    _Atomic(CUcontext) primary; /* NULL until it is retained */
    struct cuda_device device;
} slots[MAX_DEVICES];

static pthread_mutex_t filling = PTHREAD_MUTEX_INITIALIZER;

/* ---- Devices ------------------------------------------------------------------------------------------------- */

static dg_status read_attributes(const struct driver *driver, CUdevice device, dg_device_info *info)
{
    int major, minor, sms, l2, smem;
    CHECK_CUDA(driver, cuDeviceGetAttribute, (&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK_CUDA(driver, cuDeviceGetAttribute, (&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    CHECK_CUDA(driver, cuDeviceGetAttribute, (&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CHECK_CUDA(driver, cuDeviceGetAttribute, (&l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device));
    CHECK_CUDA(driver, cuDeviceGetAttribute, (&smem, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
    info->arch = 10 * major + minor;
    info->num_sms = sms;
    info->l2_bytes = l2;
    info->smem_bytes_per_block = smem;
    return DG_SUCCESS;
}

static dg_status read_device(const struct driver *driver, int32_t ordinal, struct cuda_device *device)
{
    int count;
    size_t memory;
    CHECK_CUDA(driver, cuDeviceGetCount, (&count));
    if (ordinal < 0 || ordinal >= count || ordinal >= MAX_DEVICES)
        return fail(DG_ERROR_NO_DEVICE, "device is %d; the number of CUDA devices here is %d, counted from 0",
                    (int)ordinal, count);
    device->ordinal = ordinal;
    device->info.size = sizeof device->info;
    device->info.driver_version = driver->version;
    CHECK_CUDA(driver, cuDeviceGet, (&device->handle, ordinal));
    CHECK_CUDA(driver, cuDeviceGetName, (device->info.name, (int)sizeof device->info.name, device->handle));
    CHECK_CUDA(driver, cuDeviceTotalMem, (&memory, device->handle));
    device->info.memory_bytes = (int64_t)memory;
    return read_attributes(driver, device->handle, &device->info);
}

static dg_status first_get(const struct driver *driver, int32_t ordinal, const struct cuda_device **device)
{
    struct cuda_device fresh = {0};
    pthread_mutex_lock(&filling);
    dg_status status = read_device(driver, ordinal, &fresh);
    if (status == DG_SUCCESS) {
        struct slot *slot = &slots[ordinal];
        if (!atomic_load(&slot->known)) /* another thread may have been first, and its readers are at work */
            slot->device = fresh;
        atomic_store_explicit(&slot->known, true, memory_order_release);
        *device = &slot->device;
    }
    pthread_mutex_unlock(&filling);
    return status;
}

dg_status cuda_device_get(int32_t ordinal, const struct cuda_device **device)
{
    const struct driver *driver;
    CHECK(driver_get(&driver)); /* first: in a forked child nothing that is known holds any more */
    if (ordinal < 0 || ordinal >= MAX_DEVICES || !atomic_load_explicit(&slots[ordinal].known, memory_order_acquire))
        return first_get(driver, ordinal, device);
    *device = &slots[ordinal].device;
    return DG_SUCCESS;
}

/* ---- Contexts ------------------------------------------------------------------------------------------------ */

static dg_status primary_context(const struct cuda_scope *scope, CUcontext *context)
{
    struct slot *slot = &slots[scope->device->ordinal];
    CUresult result = CUDA_SUCCESS;
    *context = atomic_load_explicit(&slot->primary, memory_order_acquire);
    if (*context)
        return DG_SUCCESS;
    pthread_mutex_lock(&filling);
    *context = atomic_load(&slot->primary); /* another thread may have been first */
    if (*context == NULL) {
        result = scope->driver->cuDevicePrimaryCtxRetain(context, scope->device->handle);
        if (result == CUDA_SUCCESS)
            atomic_store_explicit(&slot->primary, *context, memory_order_release);
    }
    pthread_mutex_unlock(&filling);
    return result == CUDA_SUCCESS ? DG_SUCCESS : driver_fail(result, "cuDevicePrimaryCtxRetain");
}

static dg_status find_context(struct cuda_scope *scope, dg_stream stream)
{
    if (cuda_is_default_stream(stream))
        return primary_context(scope, &scope->context);
    CHECK_CUDA(scope->driver, cuStreamGetCtx, (stream, &scope->context));
    return DG_SUCCESS;
}

/* The program has reset the device (cudaDeviceReset), and with it the primary context that we had retained. */
static bool primary_is_gone(const struct cuda_scope *scope, CUresult result)
{
    const struct slot *slot = &slots[scope->device->ordinal];
    return (result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT) &&
           scope->context == atomic_load_explicit(&slot->primary, memory_order_relaxed);
}

static dg_status make_current(struct cuda_scope *scope)
{
    CUcontext current;
    CHECK_CUDA(scope->driver, cuCtxGetCurrent, (&current));
    if (current == scope->context)
        return DG_SUCCESS;
    CUresult result = scope->driver->cuCtxPushCurrent(scope->context);
    if (primary_is_gone(scope, result)) {
        atomic_store(&slots[scope->device->ordinal].primary, NULL);
        CHECK(primary_context(scope, &scope->context));
        result = scope->driver->cuCtxPushCurrent(scope->context);
    }
    if (result != CUDA_SUCCESS)
        return driver_fail(result, "cuCtxPushCurrent");
    scope->pushed = true;
    return DG_SUCCESS;
}

/* Asked for the current context: the driver has no question about another one that every supported version answers. */
static dg_status check_owner(const struct cuda_scope *scope)
{
    const struct slot *slot = &slots[scope->device->ordinal];
    CUdevice owner;
    if (scope->context == atomic_load_explicit(&slot->primary, memory_order_relaxed))
        return DG_SUCCESS;
    CHECK_CUDA(scope->driver, cuCtxGetDevice, (&owner));
    if (owner == scope->device->handle)
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT,
                "stream belongs to CUDA device %d; wanted one of CUDA device %d, where the memory is", owner,
                (int)scope->device->ordinal);
}

dg_status cuda_enter(int32_t ordinal, dg_stream stream, struct cuda_scope *scope)
{
    dg_status status;
    *scope = (struct cuda_scope){0};
    CHECK(driver_get(&scope->driver));
    CHECK(cuda_device_get(ordinal, &scope->device));
    CHECK(find_context(scope, stream));
    CHECK(make_current(scope));
    CHECKGOTO(check_owner(scope), status, leave);
    return DG_SUCCESS;
leave:
    cuda_leave(scope);
    return status;
}

void cuda_leave(struct cuda_scope *scope)
{
    CUcontext popped;
    if (scope->pushed) /* the pop's only failure is an empty stack, which a push precludes */
        scope->driver->cuCtxPopCurrent(&popped);
    scope->pushed = false;
}

/* ---- Pointers ------------------------------------------------------------------------------------------------ */

/* What the driver knows of a pointer. Of one that it does not know, type is 0. */
struct pointer_facts {
    unsigned int type;   /* CU_MEMORYTYPE_... */
    int ordinal;         /* of the device that it was allocated on or registered for */
    CUdeviceptr address; /* by which kernels of the current context reach it; 0: they cannot */
};

static dg_status ask_pointer(const struct driver *driver, const void *pointer, struct pointer_facts *facts)
{
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *data[] = {&facts->type, &facts->ordinal, &facts->address};
    *facts = (struct pointer_facts){0};
    CHECK_CUDA(driver, cuPointerGetAttributes, (3, wanted, data, (CUdeviceptr)(uintptr_t)pointer));
    return DG_SUCCESS;
}

dg_status cuda_check_pointer(const struct cuda_scope *scope, const char *name, const void *pointer)
{
    struct pointer_facts facts;
    const int ordinal = scope->device->ordinal;
    CHECK(ask_pointer(scope->driver, pointer, &facts));
    if (facts.type == 0)
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "%s.data is %p, which is no memory that CUDA knows; wanted memory that CUDA device %d can reach",
                    name, pointer, ordinal);
    if (facts.address == (CUdeviceptr)(uintptr_t)pointer ||
        (facts.type == CU_MEMORYTYPE_DEVICE && facts.ordinal == ordinal))
        return DG_SUCCESS;
    if (facts.address != 0)
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "%s.data is %p, the host's address of registered memory; CUDA device %d reaches it at 0x%llx", name,
                    pointer, ordinal, facts.address);
    if (facts.type == CU_MEMORYTYPE_DEVICE)
        return fail(DG_ERROR_INVALID_ARGUMENT,
                    "%s.data is %p, memory of CUDA device %d, to which CUDA device %d has no peer access", name,
                    pointer, facts.ordinal, ordinal);
    return fail(DG_ERROR_INVALID_ARGUMENT, "%s.data is %p, host memory that is not mapped for CUDA device %d", name,
                pointer, ordinal);
}
