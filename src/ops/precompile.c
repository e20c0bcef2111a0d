/* dg_precompile: every kernel that a problem with a range of M would want, compiled without a GPU. */
#include "core/context.h"
#include "jit/cache.h"
#include "jit/pack.h"
#include "ops/device.h"
#include "ops/gemm_row.h"

#include <stdlib.h>
#include <string.h>

/* The distinct kernels found so far; a range of M needs a few dozen. */
struct kernel_set {
    struct kernel_spec *specs;
    size_t count, room;
};

static bool same_kernel(const struct kernel_spec *x, const struct kernel_spec *y)
{
    return strcmp(x->request.kernel, y->request.kernel) == 0 && strcmp(x->config, y->config) == 0;
}

static dg_status add_kernel(struct kernel_set *set, const struct kernel_spec *spec)
{
    for (size_t i = set->count; i-- > 0;) /* neighbours in M mostly share their kernel: the latest first */
        if (same_kernel(&set->specs[i], spec))
            return DG_SUCCESS;
    if (set->count == set->room) {
        size_t room = set->room ? 2 * set->room : 16;
        struct kernel_spec *more = realloc(set->specs, room * sizeof *more);
        if (more == NULL)
            return fail(DG_ERROR_OUT_OF_MEMORY, "%zu bytes for the list of kernels could not be allocated",
                        room * sizeof *more);
        set->specs = more;
        set->room = room;
    }
    set->specs[set->count++] = *spec;
    return DG_SUCCESS;
}

/* The same question with another M: the rows of a, sfa, c and d, and no data, which may be too small for it. */
static dg_gemm_args with_m(const dg_gemm_args *args, int64_t m)
{
    dg_gemm_args out = *args;
    out.a.data = out.b.data = out.sfa.data = out.sfb.data = out.c.data = out.d.data = NULL;
    int32_t row = out.d.ndim == 3 ? 1 : 0;
    out.a.shape[row] = out.sfa.shape[row] = out.d.shape[row] = m;
    if (out.c.dtype != DG_DTYPE_NONE)
        out.c.shape[row] = m;
    return out;
}

static const int64_t MOST_M = (int64_t)1 << 40;

struct range {
    const dg_gemm_args *args;
    struct gemm_terms terms;
    int64_t m_min, m_max;
};

/*
 * Every M up to 65,536; beyond, where a choice no longer hangs on one row, M on both sides of each 64-row tile, and
 * beyond 2^20 in steps of 1/64.
 */
static int64_t next_m(int64_t m)
{
    if (m < 65536)
        return m + 1;
    if (m < 1 << 20)
        return m % 64 == 0 ? m + 1 : round_up(m, 64);
    return m + m / 64;
}

static const char name[] = "dg_precompile";

/* The callback may call the library itself: afterwards sentences are about this operation again. */
static void report(const dg_precompile_args *how, int64_t done, int64_t total, const char *what)
{
    if (how->progress)
        how->progress(how->user, done, total, what);
    operation_begin(name);
}

static dg_status collect(const struct range *range, const dg_precompile_args *how, struct kernel_set *set)
{
    int64_t tried = 0;
    for (int64_t m = range->m_min; m <= range->m_max; m = next_m(m)) {
        dg_gemm_args args = with_m(range->args, m);
        struct gemm_problem p;
        struct gemm_plan plan = {0};
        struct kernel_spec spec;
        CHECK(gemm_problem_make(&args, NULL_DATA_ACCEPTED, &p));
        CHECK(gemm_select(&p, &range->terms, &plan.row, NULL, 0));
        if (tried++ % 1024 == 0)
            report(how, 0, 0, "planning");
        if (gemm_problem_empty(&p))
            continue;
        plan.row->plan(&p, &range->terms, &plan);
        plan.row->spec(&p, &plan, &spec);
        CHECK(add_kernel(set, &spec));
    }
    return DG_SUCCESS;
}

struct outcome {
    struct jit_cubin *cubins; /* one for each kernel of the set */
    int64_t compiled, cached, unwritten;
    int error; /* errno of an unwritten one */
};

static dg_status compile(struct kernel_set *set, const dg_precompile_args *args, int32_t arch, bool may_compile,
                         struct outcome *outcome)
{
    outcome->cubins = calloc(set->count + 1, sizeof *outcome->cubins);
    if (outcome->cubins == NULL)
        return fail(DG_ERROR_OUT_OF_MEMORY, "no memory for a list of %zu kernels", set->count);
    for (size_t i = 0; i < set->count; ++i) {
        struct kernel_spec *spec = &set->specs[i];
        struct jit_cubin *cubin = &outcome->cubins[i];
        enum jit_origin origin;
        spec->request.config = spec->config; /* the list may have moved since */
        spec->request.arch = arch;
        report(args, (int64_t)i, (int64_t)set->count, spec->request.kernel);
        CHECK(jit_get(&spec->request, may_compile, cubin, &origin));
        ++*(origin == JIT_COMPILED ? &outcome->compiled : &outcome->cached);
        const bool cached = origin == JIT_FROM_DISK || origin == JIT_COMPILED;
        const int error = cached ? cubin->unwritten : jit_keep(&spec->request, cubin);
        if (error) {
            ++outcome->unwritten;
            outcome->error = error;
        }
    }
    report(args, (int64_t)set->count, (int64_t)set->count, "done");
    return DG_SUCCESS;
}

/* A launch does with kernels in memory, but who precompiles wants them on the disk: in the cache, if in no pack. */
static dg_status check_written(const struct outcome *outcome)
{
    char directory[CACHE_PATH_BYTES];
    const char *reason;
    if (outcome->unwritten == 0)
        return DG_SUCCESS;
    if (cache_directory(directory, sizeof directory, &reason))
        return fail(DG_ERROR_IO, "%lld kernels could not be stored in %s (%s); this process has them in memory",
                    (long long)outcome->unwritten, directory, strerror(outcome->error));
    return fail(DG_ERROR_IO, "%lld kernels could not be stored, as %s; this process has them in memory",
                (long long)outcome->unwritten, reason);
}

static dg_status find_range(const dg_precompile_args *args, const dg_gemm_args *gemm, struct range *range)
{
    range->m_min = args->m_min;
    range->m_max = args->m_max;
    if (args->m_min == 0 && args->m_max == 0 && gemm->d.ndim >= 2 && gemm->d.ndim <= 3)
        range->m_min = range->m_max = gemm->d.shape[gemm->d.ndim - 2];
    if (range->m_min < 0 || range->m_max < range->m_min || range->m_max > MOST_M)
        return fail(DG_ERROR_INVALID_ARGUMENT, "m_min is %lld and m_max %lld; wanted 0 <= m_min <= m_max <= 2^40",
                    (long long)args->m_min, (long long)args->m_max);
    range->args = gemm;
    return DG_SUCCESS;
}

dg_status dg_precompile(dg_context *given, const dg_precompile_args *given_args, int64_t *compiled, int64_t *cached)
{
    dg_context *context;
    dg_precompile_args args;
    dg_gemm_args gemm;
    dg_device_info device;
    struct range range = {.terms.device = &device};
    struct kernel_set set = {0};
    struct outcome outcome = {0};
    dg_status status = DG_SUCCESS;
    operation_begin(name);
    CHECK(context_resolve(given, &context));
    CHECK(import_args(&args, sizeof args, given_args, "dg_precompile_args"));
    CHECK(import_args(&gemm, sizeof gemm, args.gemm, "dg_gemm_args"));
    CHECK(find_range(&args, &gemm, &range));
    if (args.target == NULL && gemm.d.device < 0)
        return fail(DG_ERROR_INVALID_ARGUMENT, "the tensors are on the CPU, which needs no kernels; wanted a target or "
                                               "tensors with a CUDA device");
    CHECK(device_target(args.target, gemm.d.device, &device));
    range.terms.num_sms = context_sms(context, gemm.num_sms, device.num_sms);
    range.terms.batch_invariant = context_get(context, DG_SETTING_BATCH_INVARIANT) != 0;

    if (args.pack)
        CHECK(pack_check(args.pack));
    CHECKGOTO(collect(&range, &args, &set), status, release);
    CHECKGOTO(compile(&set, &args, device.arch, context_get(context, DG_SETTING_COMPILE) != 0, &outcome), status,
              release);
    status = args.pack ? pack_add(args.pack, device.arch, outcome.cubins, set.count) : check_written(&outcome);
    if (compiled)
        *compiled = outcome.compiled;
    if (cached)
        *cached = outcome.cached;
release:
    free(outcome.cubins);
    free(set.specs);
    return status;
}
