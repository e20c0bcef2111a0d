/* dg_precompile: every kernel that problems with a range of M would want, compiled without a GPU. */
#include "core/context.h"
#include "jit/cache.h"
#include "jit/pack.h"
#include "ops/device.h"
#include "ops/gemm_row.h"
#include "ops/scale_kernels.h"

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

/* A spec that names no kernel adds none. */
static dg_status add_kernel(struct kernel_set *set, const struct kernel_spec *spec)
{
    if (spec->request.kernel == NULL)
        return DG_SUCCESS;
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

/* ---- Questions --------------------------------------------------------------------------------------------------- */

/* What is asked, brought to this library's structs, and for which device. */
struct question {
    dg_precompile_args how;
    dg_gemm_args gemm; /* of these three what `how` has */
    dg_quantize_args quantize;
    dg_transform_scale_args transform;
    dg_device_info device;
    struct gemm_terms terms;
};

/* Of an operand or of d; a layout's only dimension. */
static int32_t row_dimension(const dg_tensor *tensor)
{
    return tensor->ndim == 3 ? 1 : 0;
}

/* The tensor with so many rows, and without its data, which may be too small for them. */
static dg_tensor with_rows(dg_tensor tensor, int64_t rows)
{
    tensor.data = NULL;
    tensor.shape[row_dimension(&tensor)] = rows;
    return tensor;
}

static dg_tensor without_data(dg_tensor tensor)
{
    tensor.data = NULL;
    return tensor;
}

/* The kernel of an operation's problem with M rows; `spec` stays as it is where there is nothing to launch. */
typedef dg_status kernel_of(const struct question *q, int64_t m, struct kernel_spec *spec);

static dg_status gemm_kernel(const struct question *q, int64_t m, struct kernel_spec *spec)
{
    struct gemm_problem p;
    struct gemm_plan plan = {0};
    dg_gemm_args args = q->gemm;
    /* A flat operand has all groups' K in each of its rows. */
    const int64_t rows = args.d.shape[row_dimension(&args.d)], k = rows > 0 ? args.a.shape[0] / rows : 0;
    args.a = with_rows(args.a, args.a.ndim == 1 ? m * k : m);
    args.sfa = with_rows(args.sfa, m);
    args.d = with_rows(args.d, m);
    if (args.c.dtype != DG_DTYPE_NONE)
        args.c = with_rows(args.c, m);
    args.layout = args.kind == DG_GEMM_CONTIGUOUS ? with_rows(args.layout, m) : without_data(args.layout);
    args.b = without_data(args.b);
    args.sfb = without_data(args.sfb);
    CHECK(gemm_problem_make(&args, NULL_DATA_ACCEPTED, &p));
    CHECK(gemm_select(&p, &q->terms, &plan.row, NULL, 0));
    if (gemm_problem_empty(&p))
        return DG_SUCCESS;
    plan.row->plan(&p, &q->terms, &plan);
    plan.row->spec(&p, &plan, spec);
    return DG_SUCCESS;
}

static dg_status quantize_kernel(const struct question *q, int64_t m, struct kernel_spec *spec)
{
    struct quantize_problem p;
    dg_quantize_args args = q->quantize;
    args.x = with_rows(args.x, m);
    args.q = with_rows(args.q, m);
    args.sf = with_rows(args.sf, ceil_div(m, args.gran_mn > 0 ? args.gran_mn : 1));
    CHECK(quantize_problem_make(&args, NULL_DATA_ACCEPTED, &p));
    if (!quantize_problem_empty(&p))
        quantize_spec(&p, spec);
    return DG_SUCCESS;
}

/* It is the same for every M. */
static dg_status transform_kernel(const struct question *q, struct kernel_spec *spec)
{
    struct transform_problem p;
    dg_transform_scale_args args = q->transform;
    args.src = without_data(args.src);
    args.dst = without_data(args.dst);
    CHECK(transform_problem_make(&args, NULL_DATA_ACCEPTED, &p));
    if (!transform_problem_empty(&p))
        transform_spec(&p, spec);
    return DG_SUCCESS;
}

/* ---- All M of a question ----------------------------------------------------------------------------------------- */

static const char name[] = "dg_precompile";
static const int64_t MOST_M = (int64_t)1 << 40;

/* The callback may call the library itself: afterwards sentences are about this operation again. */
static void report(const dg_precompile_args *how, int64_t done, int64_t total, const char *what)
{
    if (how->progress)
        how->progress(how->user, done, total, what);
    operation_begin(name);
}

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

static dg_status check_range(int64_t m_min, int64_t m_max)
{
    if (m_min < 0 || m_max < m_min || m_max > MOST_M)
        return fail(DG_ERROR_INVALID_ARGUMENT, "m_min is %lld and m_max %lld; wanted 0 <= m_min <= m_max <= 2^40",
                    (long long)m_min, (long long)m_max);
    return DG_SUCCESS;
}

/* For every M of the range; where none is given, for the tensor's own. */
static dg_status collect(const struct question *q, kernel_of *kernel, const dg_tensor *tensor, struct kernel_set *set)
{
    int64_t m_min = q->how.m_min, m_max = q->how.m_max, tried = 0;
    if (m_min == 0 && m_max == 0)
        m_min = m_max = tensor->shape[row_dimension(tensor)];
    CHECK(check_range(m_min, m_max));
    for (int64_t m = m_min; m <= m_max; m = next_m(m)) {
        struct kernel_spec spec = {.request.kernel = NULL};
        CHECK(kernel(q, m, &spec));
        if (tried++ % 1024 == 0)
            report(&q->how, 0, 0, "planning");
        CHECK(add_kernel(set, &spec));
    }
    return DG_SUCCESS;
}

static dg_status collect_all(const struct question *q, struct kernel_set *set)
{
    struct kernel_spec spec = {.request.kernel = NULL};
    if (q->how.gemm)
        CHECK(collect(q, gemm_kernel, &q->gemm.d, set));
    if (q->how.quantize)
        CHECK(collect(q, quantize_kernel, &q->quantize.x, set));
    if (q->how.transform)
        CHECK(transform_kernel(q, &spec));
    return add_kernel(set, &spec);
}

/* ---- Compiling --------------------------------------------------------------------------------------------------- */

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

/* ---- The operation ----------------------------------------------------------------------------------------------- */

static dg_status import_question(const dg_precompile_args *given, struct question *q)
{
    CHECK(import_args(&q->how, sizeof q->how, given, "dg_precompile_args"));
    if (q->how.gemm)
        CHECK(import_args(&q->gemm, sizeof q->gemm, q->how.gemm, "dg_gemm_args"));
    if (q->how.quantize)
        CHECK(import_args(&q->quantize, sizeof q->quantize, q->how.quantize, "dg_quantize_args"));
    if (q->how.transform)
        CHECK(import_args(&q->transform, sizeof q->transform, q->how.transform, "dg_transform_scale_args"));
    return DG_SUCCESS;
}

/* The target, or the one device of all tensors. */
static dg_status find_device(struct question *q)
{
    const dg_tensor *const tensors[] = {q->how.gemm ? &q->gemm.d : NULL, q->how.quantize ? &q->quantize.x : NULL,
                                        q->how.transform ? &q->transform.src : NULL};
    static const char *const names[] = {"gemm's d", "quantize's x", "transform's src"};
    int first = 0;
    while (first < 3 && tensors[first] == NULL)
        ++first;
    if (first == 3)
        return fail(DG_ERROR_INVALID_ARGUMENT, "gemm, quantize and transform are all NULL; wanted one at least");
    for (int i = first + 1; i < 3 && q->how.target == NULL; ++i)
        if (tensors[i])
            CHECK(check_same_device(names[i], tensors[i], names[first], tensors[first]));
    const int32_t device = tensors[first]->device;
    if (q->how.target == NULL && device < 0)
        return fail(DG_ERROR_INVALID_ARGUMENT, "the tensors are on the CPU, which needs no kernels; wanted a target or "
                                               "tensors with a CUDA device");
    return device_target(q->how.target, device, &q->device);
}

static dg_status question_make(dg_context *context, const dg_precompile_args *given, struct question *q)
{
    CHECK(import_question(given, q));
    CHECK(check_range(q->how.m_min, q->how.m_max));
    CHECK(find_device(q));
    q->terms = (struct gemm_terms){&q->device, context_sms(context, q->gemm.num_sms, q->device.num_sms),
                                   context_get(context, DG_SETTING_BATCH_INVARIANT) != 0};
    return DG_SUCCESS;
}

dg_status dg_precompile(dg_context *given, const dg_precompile_args *given_args, int64_t *compiled, int64_t *cached)
{
    dg_context *context;
    struct question q = {0};
    struct kernel_set set = {0};
    struct outcome outcome = {0};
    dg_status status = DG_SUCCESS;
    operation_begin(name);
    CHECK(context_resolve(given, &context));
    CHECK(question_make(context, given_args, &q));
    if (q.how.pack)
        CHECK(pack_check(q.how.pack));
    CHECKGOTO(collect_all(&q, &set), status, release);
    CHECKGOTO(compile(&set, &q.how, q.device.arch, context_get(context, DG_SETTING_COMPILE) != 0, &outcome), status,
              release);
    status = q.how.pack ? pack_add(q.how.pack, q.device.arch, outcome.cubins, set.count) : check_written(&outcome);
    if (compiled)
        *compiled = outcome.compiled;
    if (cached)
        *cached = outcome.cached;
release:
    free(outcome.cubins);
    free(set.specs);
    return status;
}
