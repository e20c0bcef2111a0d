/* `deepgemm matmul`: Y = X W^T from files or random data, in FP8 with fine-grained scales, timed and checked. */
#include "expect.h"
#include "gpu.h"
#include "judge.h"
#include "npy.h"
#include "number.h"
#include "program.h"
#include "random.h"
#include "safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help_text[] =
    "Usage: deepgemm matmul X W [options]\n"
    "       deepgemm matmul --random M,N,K [options]\n\n"
    "Y[M,N] = X[M,K] W[N,K]^T. X is quantised to FP8 with a scale for every 1x128 elements, W with one for every\n"
    "128x128. Each of them is a FILE.npy (float32, float16, float64, or bfloat16 as ml_dtypes stores it) or\n"
    "FILE.safetensors:NAME (F32, F16, BF16). W may be F8_E4M3 too, with its scales beside it as DeepSeek-V3's\n"
    "checkpoints have them: NAME ends in \".weight\" and NAME_scale_inv is F32 [ceil(N/128), ceil(K/128)].\n\n"
    "  -o FILE          write Y as FILE.npy: float16 for --out fp16, else float32 (NumPy has no bfloat16; the values\n"
    "                   are those of Y)\n"
    "  --out TYPE       Y's type: bf16 (default), fp16, fp32\n"
    "  --device DEVICE  cpu, cuda or cuda:N; otherwise the first GPU, or the CPU where there is none\n"
    "  --sf TYPE        the scales: fp32 (default) or ue8m0 (powers of two, packed)\n"
    "  --check          compare with FP64 products of the quantised operands and of the operands as given; of big\n"
    "                   problems some rows, as the output says. Exit code 1 if the error is beyond the contract\n"
    "  --random M,N,K   random X and W instead of files, X with some large columns, as activations have\n"
    "  --seed N         for --random (default 1)\n"
    "  -h, --help       this text\n";

struct matmul {
    const char *out_path;
    dg_dtype out, scale_dtype;
    int32_t device;
    bool check, random;
    int64_t shape[3]; /* M, N, K */
    int64_t seed;
    struct array x, w, w_scales; /* w_scales only for an FP8 W */
    struct operand x_codes, x_scales, w_codes, w_scales_used, y;
    dg_explanation plan;
    void *workspace;
    double us;
};

/* ---- Operands from files ----------------------------------------------------------------------------------------- */

static bool has_ending(const char *text, const char *ending)
{
    const size_t length = strlen(text), end = strlen(ending);
    return length >= end && strcmp(text + length - end, ending) == 0;
}

/* Splits "FILE.safetensors:NAME"; false when it is something else. */
static bool split_name(const char *given, char *path, size_t bytes, const char **name)
{
    static const char ending[] = ".safetensors:";
    const char *found = strstr(given, ending);
    if (found == NULL)
        return false;
    const size_t length = (size_t)(found - given) + sizeof(ending) - 2;
    if (length >= bytes)
        return false;
    memcpy(path, given, length);
    path[length] = 0;
    *name = given + length + 1;
    return true;
}

static bool read_operand(const char *given, struct array *array)
{
    char path[4096];
    const char *name;
    if (split_name(given, path, sizeof(path), &name))
        return safetensors_read(path, name, array);
    if (has_ending(given, ".safetensors"))
        return trouble("%s holds many tensors; name one as %s:NAME", given, given);
    return npy_read(given, array);
}

static bool read_weight_scales(const char *given, const struct array *w, struct array *scales)
{
    char path[4096], scale_name[1024];
    const char *name;
    const int64_t rows = (w->rows + 127) / 128, cols = (w->cols + 127) / 128;
    if (!split_name(given, path, sizeof(path), &name) || !has_ending(name, ".weight"))
        return trouble("%s is FP8, so its scales must be found: its name must end in \".weight\"", given);
    snprintf(scale_name, sizeof(scale_name), "%s_scale_inv", name);
    if (!safetensors_read(path, scale_name, scales))
        return false;
    if (scales->dtype != DG_FLOAT32 || scales->rows != rows || scales->cols != cols)
        return trouble("%s is [%" PRId64 ", %" PRId64 "] %s; W of [%" PRId64 ", %" PRId64 "] wants [%" PRId64
                       ", %" PRId64 "] float32",
                       scale_name, scales->rows, scales->cols, dg_dtype_name(scales->dtype), w->rows, w->cols, rows,
                       cols);
    return true;
}

static bool load_files(struct matmul *m, const char *x, const char *w)
{
    if (!read_operand(x, &m->x) || !read_operand(w, &m->w))
        return false;
    if (m->x.dtype == DG_FLOAT8_E4M3)
        return trouble("X is FP8 without scales; give it as float32, float16 or bfloat16");
    if (m->x.cols != m->w.cols)
        return trouble("X is [%" PRId64 ", %" PRId64 "] and W [%" PRId64 ", %" PRId64
                       "]: their second sizes, K, differ",
                       m->x.rows, m->x.cols, m->w.rows, m->w.cols);
    m->shape[0] = m->x.rows;
    m->shape[1] = m->w.rows;
    m->shape[2] = m->x.cols;
    return m->w.dtype != DG_FLOAT8_E4M3 || read_weight_scales(w, &m->w, &m->w_scales);
}

static bool make_random(struct matmul *m)
{
    if (!array_make(&m->x, DG_BFLOAT16, m->shape[0], m->shape[2]) ||
        !array_make(&m->w, DG_BFLOAT16, m->shape[1], m->shape[2]))
        return false;
    random_fill(DG_BFLOAT16, m->x.data, m->x.rows, m->x.cols, RANDOM_MODEL, 2 * (uint64_t)m->seed);
    random_fill(DG_BFLOAT16, m->w.data, m->w.rows, m->w.cols, RANDOM_PLAIN, 2 * (uint64_t)m->seed + 1);
    return true;
}

/* ---- Quantising -------------------------------------------------------------------------------------------------- */

static bool describe_and_allocate(struct operand *operand, dg_dtype dtype, int64_t rows, int64_t cols, int32_t device)
{
    const struct layout layout = {.dtype = dtype, .rows = rows, .cols = cols, .step = 1};
    operand_describe(operand, &layout, device);
    return operand_allocate(operand, 0);
}

/* codes and scales from an array that is copied to the device for it. */
static bool quantize(const struct matmul *m, const struct array *from, int64_t gran, struct operand *codes,
                     struct operand *scales)
{
    struct operand x = {0};
    dg_quantize_args args = DG_QUANTIZE_ARGS_INIT;
    bool done = describe_and_allocate(&x, from->dtype, from->rows, from->cols, m->device);
    if (done)
        memcpy(x.host.data, from->data, (size_t)array_count(from) * dg_dtype_size(from->dtype));
    args.x = x.view;
    args.q = codes->view;
    args.sf = scales->view;
    args.gran_mn = (int32_t)gran;
    args.gran_k = 128;
    done = done && operand_upload(&x) && ok(dg_quantize_fp8(NULL, &args, NULL)) &&
           ok(dg_synchronize(m->device, NULL)) && operand_download(codes) && operand_download(scales);
    operand_free(&x);
    return done;
}

static bool take_given_weights(struct matmul *m)
{
    memcpy(m->w_codes.host.data, m->w.data, (size_t)array_count(&m->w));
    for (int64_t row = 0; row < m->w_scales.rows; ++row)
        for (int64_t col = 0; col < m->w_scales.cols; ++col)
            memcpy(operand_element(&m->w_scales_used, 0, row, col),
                   (const float *)m->w_scales.data + row * m->w_scales.cols + col, sizeof(float));
    return operand_upload(&m->w_codes) && operand_upload(&m->w_scales_used);
}

static bool prepare(struct matmul *m)
{
    const int64_t rows = m->shape[0], cols = m->shape[1], k = m->shape[2];
    const bool given = m->w.dtype == DG_FLOAT8_E4M3;
    if (!describe_and_allocate(&m->x_codes, DG_FLOAT8_E4M3, rows, k, m->device) ||
        !describe_and_allocate(&m->w_codes, DG_FLOAT8_E4M3, cols, k, m->device) ||
        !describe_and_allocate(&m->y, m->out, rows, cols, m->device) ||
        !operand_describe_scales(&m->x_scales, CASE_SF_MN, rows, k, 1, 128, m->scale_dtype, 0, false, m->device) ||
        !operand_describe_scales(&m->w_scales_used, CASE_SF_ROW, cols, k, 128, 128, given ? DG_FLOAT32 : m->scale_dtype,
                                 0, false, m->device) ||
        !operand_allocate(&m->x_scales, 0) || !operand_allocate(&m->w_scales_used, 0))
        return false;
    return quantize(m, &m->x, 1, &m->x_codes, &m->x_scales) &&
           (given ? take_given_weights(m) : quantize(m, &m->w, 128, &m->w_codes, &m->w_scales_used));
}

/* ---- The product ------------------------------------------------------------------------------------------------- */

/* Ten calls between two events, after a first one that may compile. */
static bool time_on_gpu(struct matmul *m, const dg_gemm_args *args)
{
    enum { CALLS = 10 };
    gpu_event *begin = NULL, *end = NULL;
    dg_stream stream = NULL;
    bool done = gpu_begin(m->device) && gpu_stream_create(&stream) && gpu_event_create(&begin) &&
                gpu_event_create(&end) && ok(dg_gemm(NULL, args, stream)) && gpu_stream_wait(stream) &&
                gpu_event_record(begin, stream);
    for (int i = 0; done && i < CALLS; ++i)
        done = ok(dg_gemm(NULL, args, stream));
    done = done && gpu_event_record(end, stream) && gpu_event_elapsed(begin, end, &m->us);
    m->us /= CALLS;
    gpu_event_destroy(begin);
    gpu_event_destroy(end);
    gpu_stream_destroy(stream);
    return done;
}

static bool time_on_cpu(struct matmul *m, const dg_gemm_args *args)
{
    const double begin = now_seconds();
    if (!ok(dg_gemm(NULL, args, NULL)))
        return false;
    m->us = 1e6 * (now_seconds() - begin);
    return true;
}

static bool multiply(struct matmul *m)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    args.a = m->x_codes.view;
    args.b = m->w_codes.view;
    args.sfa = m->x_scales.view;
    args.sfb = m->w_scales_used.view;
    args.d = m->y.view;
    m->plan = (dg_explanation){.size = sizeof(m->plan)};
    if (!ok(dg_gemm_explain(NULL, &args, NULL, &m->plan)))
        return false;
    if (m->plan.workspace_bytes && !ok(dg_alloc(m->device, m->plan.workspace_bytes, &m->workspace)))
        return false;
    args.workspace = m->workspace;
    args.workspace_bytes = m->plan.workspace_bytes;
    return (m->device == DG_CPU ? time_on_cpu(m, &args) : time_on_gpu(m, &args)) && operand_download(&m->y);
}

/* ---- Checking ---------------------------------------------------------------------------------------------------- */

/* Room for comparing `count` rows of Y. */
struct comparison {
    int64_t count, *numbers;
    double *wanted, *row, *norm_x, *norm_w;
};

static bool comparison_make(struct comparison *c, const struct matmul *m, int64_t most)
{
    c->numbers = get_memory((size_t)most * sizeof(int64_t));
    c->wanted = get_memory((size_t)(most * m->shape[1]) * sizeof(double));
    c->row = get_memory((size_t)m->shape[2] * sizeof(double));
    c->norm_x = get_memory((size_t)most * sizeof(double));
    c->norm_w = get_memory((size_t)m->shape[1] * sizeof(double));
    if (!c->numbers || !c->wanted || !c->row || !c->norm_x || !c->norm_w)
        return false;
    c->count = sample_numbers(m->shape[0], most, 1, c->numbers);
    return true;
}

static void comparison_free(struct comparison *c)
{
    free(c->numbers);
    free(c->wanted);
    free(c->row);
    free(c->norm_x);
    free(c->norm_w);
}

/* Compares the picked rows of Y with FP64 products. */
static bool compare_rows(const struct matmul *m, struct comparison *c, const struct rows *x, const struct rows *w,
                         struct verdict *verdict)
{
    *verdict = (struct verdict){0};
    if (!expect_fp64(x, w, c->wanted))
        return false;
    row_norms(x, c->row, c->norm_x);
    row_norms(w, c->row, c->norm_w);
    for (int64_t i = 0; i < x->count; ++i) {
        for (int64_t col = 0; col < w->count; ++col) {
            struct element e = {0, c->numbers[i], col, 0.0, c->wanted[i * w->count + col]};
            e.got = (double)number_read(m->out, operand_element(&m->y, 0, e.row, col), 0);
            verdict_add(verdict, &e, c->norm_x[i] * c->norm_w[col] / sqrt((double)(x->k ? x->k : 1)), m->out);
        }
    }
    return true;
}

/* How many rows can be checked in a few seconds: about 10^9 products a second and core. */
static int64_t rows_to_check(const struct matmul *m)
{
    const double rows = 4e9 / ((double)m->shape[1] * (double)m->shape[2] + 1.0);
    return rows < 8.0 ? 8 : rows > (double)m->shape[0] ? m->shape[0] : (int64_t)rows;
}

static bool measure(struct matmul *m, struct comparison *c, struct verdict *quantized, struct verdict *given)
{
    const struct quantized_rows x_codes = {&m->x_codes, &m->x_scales, 1, 0, c->count, c->numbers};
    const struct quantized_rows w_codes = {&m->w_codes, &m->w_scales_used, 128, 0, m->shape[1], NULL};
    const struct array_rows x_given = {&m->x, c->count, c->numbers}, w_given = {&m->w, m->shape[1], NULL};
    const struct rows x = rows_of_quantized(&x_codes), w = rows_of_quantized(&w_codes);
    const struct rows x_plain = rows_of_array(&x_given), w_plain = rows_of_array(&w_given);
    return compare_rows(m, c, &x, &w, quantized) &&
           compare_rows(m, c, &x_plain, m->w.dtype == DG_FLOAT8_E4M3 ? &w : &w_plain, given);
}

/* Prints both errors; false when the first is beyond the contract (`within` false) or could not be computed. */
static bool check(struct matmul *m, bool *within)
{
    struct comparison c = {0};
    struct verdict quantized = {0}, given = {0};
    const bool done = comparison_make(&c, m, rows_to_check(m)) && measure(m, &c, &quantized, &given);
    comparison_free(&c);
    if (!done)
        return false;
    *within = verdict_accept(&quantized, m->out);
    printf("checked    %" PRId64 " of %" PRId64 " rows against FP64\n", c.count, m->shape[0]);
    printf("error      %.2e against the quantised operands (limit %.2e): %s\n", verdict_error(&quantized),
           verdict_limit(&quantized, m->out), *within ? "PASS" : "FAIL");
    if (!*within)
        printf("           %s\n", trouble_text());
    printf("           %.2e against the operands as given, quantisation included\n", verdict_error(&given));
    return true;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static void print_result(const struct matmul *m)
{
    const double flops = 2.0 * (double)m->shape[0] * (double)m->shape[1] * (double)m->shape[2];
    printf("device     %s\n", device_name(m->device));
    printf("problem    Y[%" PRId64 ", %" PRId64 "] %s = X[%" PRId64 ", %" PRId64 "] W[%" PRId64 ", %" PRId64 "]^T\n",
           m->shape[0], m->shape[1], dg_dtype_name(m->out), m->shape[0], m->shape[2], m->shape[1], m->shape[2]);
    printf("operands   X %s, W %s%s\n", m->random ? "random" : dg_dtype_name(m->x.dtype),
           m->random ? "random" : dg_dtype_name(m->w.dtype), m->w_scales.data ? " with its scales" : "");
    printf("row        %s\n", m->plan.row);
    if (*m->plan.config)
        printf("config     %s\n", m->plan.config);
    printf("time       %.1f us, %.4g TFLOPS (%s)\n", m->us, m->us > 0.0 ? flops / m->us * 1e-6 : 0.0,
           m->device == DG_CPU ? "one call" : "mean of ten calls in a row, operands in L2 if they fit");
}

static bool write_result(const struct matmul *m)
{
    const struct array y = {m->y.host.data, m->out, m->shape[0], m->shape[1]};
    if (!npy_write(m->out_path, &y))
        return false;
    printf("written    %s, [%" PRId64 ", %" PRId64 "] %s\n", m->out_path, y.rows, y.cols,
           m->out == DG_FLOAT16 ? "float16" : "float32");
    return true;
}

static int work(struct matmul *m, const char *x, const char *w)
{
    bool within = true;
    if (m->out_path && !npy_writable(m->out_path))
        return fail_check();
    if (!(m->random ? make_random(m) : load_files(m, x, w)))
        return fail_check();
    if (m->check && !(array_finite("X", &m->x) && array_finite("W", &m->w) &&
                      (m->w_scales.data == NULL || array_finite("W_scale_inv", &m->w_scales))))
        return fail_check();
    if (!prepare(m) || !multiply(m))
        return fail_check();
    print_result(m);
    fflush(stdout);
    if ((m->check && !check(m, &within)) || (m->out_path && !write_result(m)))
        return fail_check();
    return within ? EXIT_PASS : EXIT_CHECK_FAILED;
}

static void release(struct matmul *m)
{
    array_free(&m->x);
    array_free(&m->w);
    array_free(&m->w_scales);
    operand_free(&m->x_codes);
    operand_free(&m->x_scales);
    operand_free(&m->w_codes);
    operand_free(&m->w_scales_used);
    operand_free(&m->y);
    if (m->workspace)
        dg_free(m->device, m->workspace);
}

enum { OUT = OPTION_LONG, DEVICE, CHECK, SF, RANDOM, SEED };

static bool parse_type(const char *text, dg_dtype *dtype)
{
    static const struct {
        const char *name;
        dg_dtype dtype;
    } types[] = {{"bf16", DG_BFLOAT16}, {"fp16", DG_FLOAT16}, {"fp32", DG_FLOAT32}};
    for (int i = 0; i < 3; ++i) {
        if (strcmp(text, types[i].name) == 0) {
            *dtype = types[i].dtype;
            return true;
        }
    }
    return trouble("--out %s: wanted is bf16, fp16 or fp32", text);
}

static bool take_option(struct matmul *m, int option)
{
    switch (option) {
    case 'o':
        m->out_path = optarg;
        return true;
    case OUT:
        return parse_type(optarg, &m->out);
    case DEVICE:
        return parse_device(optarg, &m->device);
    case CHECK:
        m->check = true;
        return true;
    case SF:
        m->scale_dtype = strcmp(optarg, "ue8m0") == 0 ? DG_INT32 : DG_FLOAT32;
        return m->scale_dtype == DG_INT32 || strcmp(optarg, "fp32") == 0 ||
               trouble("--sf %s: wanted is fp32 or ue8m0", optarg);
    case RANDOM:
        m->random = true;
        return parse_numbers(optarg, 1, 1 << 24, 3, m->shape);
    default:
        return parse_number(optarg, 0, INT64_MAX / 4, &m->seed);
    }
}

static int run(int argc, char **argv)
{
    static const struct option options[] = {HELP_OPTION,
                                            {"output", required_argument, NULL, 'o'},
                                            {"out", required_argument, NULL, OUT},
                                            {"device", required_argument, NULL, DEVICE},
                                            {"check", no_argument, NULL, CHECK},
                                            {"sf", required_argument, NULL, SF},
                                            {"random", required_argument, NULL, RANDOM},
                                            {"seed", required_argument, NULL, SEED},
                                            {0}};
    struct matmul m = {.out = DG_BFLOAT16, .scale_dtype = DG_FLOAT32, .device = -2, .seed = 1};
    int leave = EXIT_PASS;
    for (int option; (option = next_option(argc, argv, options, &leave)) != -1;) {
        if (option == OPTION_DONE)
            return leave;
        if (!take_option(&m, option))
            return fail_usage("%s", trouble_text());
    }
    if (argc - optind != (m.random ? 0 : 2))
        return fail_usage(m.random ? "--random comes without files" : "give X and W, or --random M,N,K");
    if (m.device == -2) /* not given */
        parse_device("auto", &m.device);
    const int code = work(&m, argv[optind], m.random ? NULL : argv[optind + 1]);
    release(&m);
    return code;
}

const struct command command_matmul = {"matmul", "multiply matrices from files, or random ones", help_text, run};
