/* `deepgemm precompile`: kernels into the cache before they are needed, on a machine without a GPU if need be. */
#include "problem.h"
#include "program.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char help_text[] =
    "Usage: deepgemm precompile [CASE...] [--shapes FILE] [--nk N,K]... [--m LO:HI] [--target TARGET]\n"
    "                           [--pack FILE]\n\n"
    "Compiles every kernel that the cases need and stores them in the cache; nothing is launched.\n\n"
    "  CASE            a case, quoted or not: gemm, quantize or transform; its shift is taken for 0\n"
    "  --shapes FILE   cases from a file, one a line\n"
    "  --nk N,K        a weight's size; may come several times. Stands for a bf16 gemm with M from --m, and for\n"
    "                  quantising its activations, bf16 [M,K], with the float32 scales that it reads\n"
    "  --m LO:HI       all kernels for M from LO to HI, for every case (default: the case's own M; 1:8192 for --nk).\n"
    "                  M is the rows of D: of groups in contiguous and psum all together, in masked of one\n"
    "  --target T      compile for h100, h200, h20, gh200, or a description such as arch=90,sms=132, instead of the\n"
    "                  device here; needs no GPU\n"
    "  --device D      cuda:N, when there are several (default cuda:0)\n"
    "  --pack FILE     also add the kernels to FILE. Where DG_PACK names that file, they need no compiler and no "
    "cache\n"
    "  -h, --help      this text\n\n"
    "`deepgemm help cases` tells how a case is written.\n";

struct work {
    struct case_list cases;
    int64_t m_min, m_max; /* 0: each case's own M */
    bool has_target, has_device;
    dg_device_info target;
    int32_t device;
    const char *pack;
};

static void show(void *user, int64_t done, int64_t total, const char *what)
{
    enum { WIDTH = 24 };
    char bar[WIDTH + 1];
    (void)user;
    const int filled = total > 0 ? (int)(WIDTH * done / total) : 0;
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)(filled < WIDTH ? filled : WIDTH));
    bar[WIDTH] = 0;
    progress("[%s] %" PRId64 "/%" PRId64 " %s", bar, done, total, what ? what : "");
}

/* "1:8192", or one number for both. */
static bool parse_range(const char *text, int64_t *low, int64_t *high)
{
    char first[32];
    const size_t length = strcspn(text, ":");
    if (length >= sizeof(first))
        return trouble("\"%.40s\" is no range of M such as 1:8192", text);
    memcpy(first, text, length);
    first[length] = 0;
    if (!parse_number(first, 1, 1 << 30, low))
        return false;
    *high = *low;
    if (text[length] == ':' && !parse_number(text + length + 1, 1, 1 << 30, high))
        return false;
    return *low <= *high || trouble("the range %s of M is empty", text);
}

/* The product with a weight, and what makes its A of activations. */
static bool add_nk(struct work *work, const char *text)
{
    int64_t nk[2];
    char line[128];
    if (!parse_numbers(text, 1, 1 << 30, 2, nk))
        return false;
    snprintf(line, sizeof(line), "gemm fp8 m=1 n=%" PRId64 " k=%" PRId64, nk[0], nk[1]);
    if (!case_list_pattern(&work->cases, line))
        return false;
    snprintf(line, sizeof(line), "quantize fp8 m=1 k=%" PRId64, nk[1]);
    return case_list_pattern(&work->cases, line);
}

/* The arguments of one operation: a case's. */
struct call {
    dg_gemm_args gemm;
    dg_quantize_args quantize;
    dg_transform_scale_args transform;
};

static bool call_gemm(const struct test_case *test, int32_t device, struct call *call, dg_precompile_args *args)
{
    struct gemm gemm;
    if (!gemm_describe(&gemm, test, device))
        return false;
    call->gemm = gemm_args(&gemm);
    args->gemm = &call->gemm;
    return true;
}

static bool call_quantize(const struct test_case *test, int32_t device, struct call *call, dg_precompile_args *args)
{
    struct quantization quantization;
    if (!quantization_describe(&quantization, test, device))
        return false;
    call->quantize = quantization_args(&quantization);
    args->quantize = &call->quantize;
    return true;
}

static bool call_transform(const struct test_case *test, int32_t device, struct call *call, dg_precompile_args *args)
{
    struct transform transform;
    if (!transform_describe(&transform, test, device))
        return false;
    call->transform = transform_args(&transform);
    args->transform = &call->transform;
    return true;
}

/* The case with M rows in all. Kernels know nothing of how these are dealt out: no group gets any here. */
static struct test_case with_rows(const struct test_case *test, int64_t m)
{
    struct test_case c = *test;
    if (c.kind == DG_GEMM_CONTIGUOUS || c.kind == DG_GEMM_PSUM) {
        c.m = 0;
        c.sizes[0] = 1;
        c.sizes[1] = 0;
        c.tail = m;
    } else
        c.m = m;
    return c;
}

/* Strides are wanted for the largest M. */
static bool make_call(const struct work *work, const struct test_case *test, struct call *call,
                      dg_precompile_args *args)
{
    static bool (*const makers[])(const struct test_case *, int32_t, struct call *, dg_precompile_args *) = {
        [CASE_GEMM] = call_gemm, [CASE_QUANTIZE] = call_quantize, [CASE_TRANSFORM] = call_transform};
    const struct test_case largest = work->m_max ? with_rows(test, work->m_max) : *test;
    return makers[test->op](&largest, work->device, call, args);
}

static bool compile_case(const struct work *work, const struct test_case *test, int64_t *compiled, int64_t *cached)
{
    struct call call;
    char name[CASE_NAME_BYTES];
    dg_precompile_args args = DG_PRECOMPILE_ARGS_INIT;
    if (!make_call(work, test, &call, &args))
        return false;
    args.m_min = work->m_min;
    args.m_max = work->m_max;
    args.target = work->has_target ? &work->target : NULL;
    args.progress = show;
    args.pack = work->pack;
    int64_t new_kernels = 0, old_kernels = 0;
    const double begin = now_seconds();
    if (!ok(dg_precompile(NULL, &args, &new_kernels, &old_kernels)))
        return false;
    case_print(test, name);
    progress_clear();
    printf("%s: ", name);
    if (work->m_min)
        printf("m=%" PRId64 "..%" PRId64 ": ", work->m_min, work->m_max);
    printf("%" PRId64 " compiled, %" PRId64 " cached, %.1f s\n", new_kernels, old_kernels, now_seconds() - begin);
    *compiled += new_kernels;
    *cached += old_kernels;
    return true;
}

static bool print_pack(const char *path)
{
    int64_t kernels = 0, bytes = 0;
    if (!ok(dg_pack_query(path, &kernels, &bytes)))
        return false;
    printf("%s: %" PRId64 " kernels, %" PRId64 " bytes\n", path, kernels, bytes);
    return true;
}

static int compile_all(const struct work *work)
{
    int64_t compiled = 0, cached = 0;
    char directory[PATH_MAX] = "";
    for (int64_t i = 0; i < work->cases.count; ++i)
        if (!compile_case(work, &work->cases.items[i], &compiled, &cached))
            return fail_check();
    dg_cache_directory(directory, sizeof(directory));
    printf("%" PRId64 " compiled, %" PRId64 " cached, in %s\n", compiled, cached, directory);
    return work->pack == NULL || print_pack(work->pack) ? EXIT_PASS : fail_check();
}

enum { SHAPES = OPTION_LONG, NK, M, TARGET, DEVICE, PACK };

static bool take_option(struct work *work, int option, bool *from_nk)
{
    switch (option) {
    case SHAPES:
        return case_list_file(&work->cases, optarg);
    case NK:
        *from_nk = true;
        return add_nk(work, optarg);
    case M:
        return parse_range(optarg, &work->m_min, &work->m_max);
    case TARGET:
        work->has_target = true;
        return parse_target(optarg, &work->target);
    case PACK:
        work->pack = optarg;
        return true;
    default:
        work->has_device = true;
        return parse_device(optarg, &work->device);
    }
}

static int run(int argc, char **argv)
{
    static const struct option options[] = {HELP_OPTION,
                                            {"shapes", required_argument, NULL, SHAPES},
                                            {"nk", required_argument, NULL, NK},
                                            {"m", required_argument, NULL, M},
                                            {"target", required_argument, NULL, TARGET},
                                            {"device", required_argument, NULL, DEVICE},
                                            {"pack", required_argument, NULL, PACK},
                                            {0}};
    struct work work = {0};
    bool from_nk = false;
    int code = EXIT_PASS;
    for (int option; (option = next_option(argc, argv, options, &code)) != -1;) {
        if (option == OPTION_DONE)
            goto done;
        if (!take_option(&work, option, &from_nk)) {
            code = fail_usage("%s", trouble_text());
            goto done;
        }
    }
    if (work.has_target && work.has_device)
        code = fail_usage("--target and --device exclude each other");
    else if (!case_list_arguments(&work.cases, argc - optind, argv + optind))
        code = fail_usage("%s", trouble_text());
    else if (work.cases.count == 0)
        code = fail_usage("nothing to compile: give a case, --shapes or --nk");
    else {
        if (from_nk && work.m_min == 0) {
            work.m_min = 1;
            work.m_max = 8192;
        }
        code = compile_all(&work);
    }
done:
    case_list_free(&work.cases);
    return code;
}

const struct command command_precompile = {"precompile", "compile kernels into the cache ahead of time", help_text,
                                           run};
