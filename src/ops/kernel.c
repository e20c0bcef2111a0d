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
    char name[]; /* "device kernel\nconfig\nwrappers" */
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

static bool find(uint32_t bucket, const char *name, struct cuda_kernel *kernel)
{
    for (struct entry *e = atomic_load_explicit(&buckets[bucket], memory_order_acquire); e; e = e->next)
        if (strcmp(e->name, name) == 0) {
            *kernel = e->kernel;
            return true;
        }
    return false;
}

static void add(uint32_t bucket, const char *name, size_t length, const struct cuda_kernel *kernel)
{
    struct entry *e = malloc(sizeof *e + length + 1);
    if (e == NULL)
        return; /* the next call loads it again */
    e->kernel = *kernel;
    memcpy(e->name, name, length + 1);
    e->next = atomic_load_explicit(&buckets[bucket], memory_order_relaxed);
    atomic_store_explicit(&buckets[bucket], e, memory_order_release);
}

static dg_status load(const struct cuda_scope *scope, const struct jit_request *request, const struct jit_cubin *cubin,
                      int32_t smem_bytes, struct cuda_kernel *kernel)
{
    char name[4096];
    size_t length = write_name(name, sizeof name, request, scope->device->ordinal);
    uint32_t bucket = bucket_of(name, length);
    dg_status status = DG_SUCCESS;
    pthread_mutex_lock(&load_lock);
    if (!find(bucket, name, kernel)) { /* another thread may have been first */
        status = cuda_kernel_load(scope, cubin->image, cubin->bytes, request->kernel, smem_bytes, kernel);
        if (status == DG_SUCCESS)
            add(bucket, name, length, kernel);
    }
    pthread_mutex_unlock(&load_lock);
    return status;
}

dg_status kernel_get(dg_context *context, const struct cuda_scope *scope, struct jit_request *request,
                     int32_t smem_bytes, struct cuda_kernel *kernel)
{
    char name[4096];
    struct jit_cubin cubin;
    request->arch = scope->device->info.arch;
    size_t length = write_name(name, sizeof name, request, scope->device->ordinal);
    if (find(bucket_of(name, length), name, kernel))
        return cuda_kernel_touch(scope, kernel);
    CHECK(jit_get(request, context_get(context, DG_SETTING_COMPILE) != 0, &cubin, NULL));
    return load(scope, request, &cubin, smem_bytes, kernel);
}
