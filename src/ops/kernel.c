#include "ops/kernel.h"

#include "core/hash.h"
#include "core/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256 };

/* Entries are only ever added, at the head of a bucket's list, so readers need no lock. */
struct entry {
    struct entry *next;
    struct cuda_kernel kernel;
    _Atomic(CUcontext) loaded_in; /* the CUDA context that had it last */
    char name[];                  /* "device kernel\nconfig\nwrappers" */
};

static _Atomic(struct entry *) buckets[BUCKETS];
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER; /* one module load at a time, on misses only */

/* What tells kernels apart, as text; returns its length. */
static size_t write_name(char *out, size_t bytes, const struct jit_request *request, int32_t device)
{
    int n = snprintf(out, bytes, "%d %s\n%s", (int)device, request->kernel, request->config);
    for (int32_t i = 0; i < request->wgmma_count; ++i) {
        const struct jit_wgmma *w = &request->wgmma[i];
        n += snprintf(out + n, bytes - (size_t)n, "%s %d %d\n", w->type, (int)w->n, (int)w->a_in_registers);
    }
    return (size_t)n;
}

static uint32_t bucket_of(const char *name, size_t length)
{
    return (uint32_t)(hash_words(name, length / 8 * 8) ^ length) % BUCKETS;
}

static struct entry *find(uint32_t bucket, const char *name)
{
    for (struct entry *e = atomic_load_explicit(&buckets[bucket], memory_order_acquire); e; e = e->next)
        if (strcmp(e->name, name) == 0)
            return e;
    return NULL;
}

static void add(uint32_t bucket, const char *name, const struct cuda_kernel *kernel, CUcontext loaded_in)
{
    size_t bytes = strlen(name) + 1;
    struct entry *e = malloc(sizeof *e + bytes);
    if (e == NULL)
        return; /* the next call loads it again */
    e->kernel = *kernel;
    atomic_init(&e->loaded_in, loaded_in);
    memcpy(e->name, name, bytes);
    e->next = atomic_load_explicit(&buckets[bucket], memory_order_relaxed);
    atomic_store_explicit(&buckets[bucket], e, memory_order_release);
}

static dg_status take(const struct cuda_scope *scope, struct entry *e, struct cuda_kernel *kernel)
{
    *kernel = e->kernel;
    if (atomic_load_explicit(&e->loaded_in, memory_order_relaxed) == scope->context)
        return DG_SUCCESS;
    CHECK(cuda_kernel_touch(scope, kernel));
    atomic_store_explicit(&e->loaded_in, scope->context, memory_order_relaxed);
    return DG_SUCCESS;
}

static dg_status load(const struct cuda_scope *scope, uint32_t bucket, const char *name, const char *symbol,
                      const struct jit_cubin *cubin, int32_t smem_bytes, struct cuda_kernel *kernel)
{
    dg_status status;
    pthread_mutex_lock(&load_lock);
    struct entry *e = find(bucket, name); /* another thread may have been first */
    if (e) {
        status = take(scope, e, kernel);
    } else {
        status = cuda_kernel_load(scope, cubin->image, cubin->bytes, symbol, smem_bytes, kernel);
        if (status == DG_SUCCESS)
            add(bucket, name, kernel, scope->context);
    }
    pthread_mutex_unlock(&load_lock);
    return status;
}

dg_status kernel_get(dg_context *context, const struct cuda_scope *scope, struct jit_request *request,
                     int32_t smem_bytes, struct cuda_kernel *kernel)
{
    char name[1024];
    struct jit_cubin cubin;
    request->arch = scope->device->info.arch;
    request->driver_major = scope->device->info.driver_version / 1000;
    size_t length = write_name(name, sizeof name, request, scope->device->ordinal);
    uint32_t bucket = bucket_of(name, length);
    struct entry *e = find(bucket, name);
    if (e)
        return take(scope, e, kernel);
    CHECK(jit_get(request, context_get(context, DG_SETTING_COMPILE) != 0, &cubin, NULL));
    return load(scope, bucket, name, request->kernel, &cubin, smem_bytes, kernel);
}
