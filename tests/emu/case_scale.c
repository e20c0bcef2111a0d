/*
 * Cases of dg_quantize_fp8 and dg_transform_scale and their kernels:
 *
 *   quantize m=200 k=300 [batch=2] [gran=1x128|128x128|128x1] [x=f32|f16|bf16] [round] [packed] [x=cols] [q=cols]
 *            [sf=cols] [x=spread] ... [special] [zeros] [sms=1] [arch=80] [pdl]
 *   transform m=200 groups=9 [batch=2] [pack] [unpack] [round] [src=cols] [dst=cols] [special] [sms=1] [pdl]
 *
 * special: some elements are NaN, infinite, tiny or huge; zeros: some groups are nothing but zeros.
 */
#include "tests/emu/case.h"

#include "core/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct tensor *in, *out, *sf;

/* Of every magnitude; one in 64 of them odd, in the first rows at least. */
static float any_value(bool special)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 1e-30f, 3e38f, 0.0f, -0.0f, 1e-42f};
    if (special && case_below(64) == 0)
        return odd[case_below(sizeof odd / sizeof odd[0])];
    return ldexpf(case_uniform(), (int)case_below(12) - 6);
}

/* ---- dg_quantize_fp8 ------------------------------------------------------------------------------------------- */

static void granularity(const char *line, int64_t *mn, int64_t *k)
{
    *mn = case_has(line, "gran=128x128") || case_has(line, "gran=128x1") ? 128 : 1;
    *k = case_has(line, "gran=128x1") ? 1 : 128;
}

static void prepare_quantize(const char *line)
{
    const int64_t m = case_number(line, "m", 128), k = case_number(line, "k", 128);
    const int64_t batch = case_number(line, "batch", 0);
    const bool packed = case_has(line, "packed");
    int64_t gran_mn, gran_k;
    granularity(line, &gran_mn, &gran_k);
    const int64_t groups = ceil_div(k, gran_k);
    in = tensor_make("x", case_type(line, "x"), batch, m, k, case_layout(line, "x"), 16, 0);
    out = tensor_make("q", DG_FLOAT8_E4M3, batch, m, k, case_layout(line, "q"), 8, 0);
    sf = tensor_make("sf", packed ? DG_INT32 : DG_FLOAT32, batch, ceil_div(m, gran_mn),
                     packed ? ceil_div(groups, 4) : groups, case_layout(line, "sf"), 4, 0);
    out->output = sf->output = true;
    TENSOR_FOR_EACH(in, b, r, c)
    {
        const bool zero = case_has(line, "zeros") && (r / gran_mn + c / gran_k) % 3 == 0;
        tensor_set(in, b, r, c, zero ? 0.0f : any_value(case_has(line, "special") && c % 3 == 0));
    }
}

static dg_status run_quantize(const char *line, bool on_device)
{
    dg_quantize_args args = DG_QUANTIZE_ARGS_INIT;
    int64_t gran_mn, gran_k;
    granularity(line, &gran_mn, &gran_k);
    args.x = on_device ? in->device : in->host;
    args.q = on_device ? out->device : out->host;
    args.sf = on_device ? sf->device : sf->host;
    args.gran_mn = (int32_t)gran_mn;
    args.gran_k = (int32_t)gran_k;
    args.round_scale = case_has(line, "round");
    return dg_quantize_fp8(NULL, &args, NULL);
}

static const char *const quantize_words[] = {
    "m=[0-9]*",   "k=[0-9]*", "batch=[0-9]*", "sms=[0-9]*", "arch=[0-9]*", "gran=1x128", "gran=128x128",
    "gran=128x1", "x=f32",    "x=f16",        "x=bf16",     "[xq]=cols",   "sf=cols",    "[xq]=spread",
    "sf=spread",  "round",    "packed",       "pdl",        "special",     "zeros",      NULL};

const struct operation quantize_operation = {"quantize", quantize_words, prepare_quantize, run_quantize};

/* ---- dg_transform_scale ---------------------------------------------------------------------------------------- */

static void fill_scales(struct tensor *t, const char *line)
{
    const bool powers = case_has(line, "pack") && !case_has(line, "round");
    TENSOR_FOR_EACH(t, b, r, c)
    {
        const uint32_t word = case_random();
        if (t->host.dtype == DG_INT32)
            memcpy(tensor_at(t, b, r, c), &word, sizeof word);
        else
            tensor_set(t, b, r, c,
                       powers ? ldexpf(1, (int)case_below(255) - 127) : any_value(case_has(line, "special")));
    }
}

static void prepare_transform(const char *line)
{
    const int64_t m = case_number(line, "m", 32), groups = case_number(line, "groups", 4), words = ceil_div(groups, 4);
    const int64_t batch = case_number(line, "batch", 0);
    const bool pack = case_has(line, "pack"), unpack = case_has(line, "unpack");
    in = tensor_make("src", unpack ? DG_INT32 : DG_FLOAT32, batch, m, unpack ? words : groups, case_layout(line, "src"),
                     4, 0);
    out = tensor_make("dst", pack ? DG_INT32 : DG_FLOAT32, batch, m, pack ? words : groups, case_layout(line, "dst"), 4,
                      1);
    out->output = true;
    fill_scales(in, line);
}

static dg_status run_transform(const char *line, bool on_device)
{
    dg_transform_scale_args args = DG_TRANSFORM_SCALE_ARGS_INIT;
    args.src = on_device ? in->device : in->host;
    args.dst = on_device ? out->device : out->host;
    args.round_scale = case_has(line, "round");
    return dg_transform_scale(NULL, &args, NULL);
}

static const char *const transform_words[] = {"m=[0-9]*", "groups=[0-9]*", "batch=[0-9]*", "sms=[0-9]*", "arch=[0-9]*",
                                              "src=cols", "src=spread",    "dst=cols",     "dst=spread", "pack",
                                              "unpack",   "round",         "pdl",          "special",    NULL};

const struct operation transform_operation = {"transform", transform_words, prepare_transform, run_transform};
