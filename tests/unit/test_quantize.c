/* dg_quantize_fp8, dg_scale_layout and dg_transform_scale on the CPU, against arithmetic written differently. */
#include "arrays.h"
#include "cpu/convert.h"
#include "deepgemm.h"
#include "tests/test.h"

#include <float.h>
#include <math.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint32_t word_at(const struct array *a, int64_t batch, int64_t row, int64_t col)
{
    uint32_t word;
    memcpy(&word, array_at(a, batch, row, col), sizeof word);
    return word;
}

static void set_word(const struct array *a, int64_t batch, int64_t row, int64_t col, uint32_t word)
{
    memcpy(array_at(a, batch, row, col), &word, sizeof word);
}

/* ---- The casts, step by step as clients of the Python package know them --------------------------------------- */

/* ceil_to_ue8m0 by frexp: the power of two that is not below, with an exponent byte of 1 to 254. */
static float ceil_to_power(float value)
{
    int exponent;
    if (!isfinite(value))
        return ldexpf(1, 127);
    const double fraction = frexp((double)value, &exponent); /* 0.5 <= fraction < 1 */
    if (fraction == 0.5)
        --exponent;
    return (float)ldexp(1, exponent < -126 ? -126 : exponent > 127 ? 127 : exponent);
}

/* sf = amax.clamp(1e-4) * (1 / 448) */
static float wanted_scale(float amax, bool round)
{
    const float clamped = amax < 1e-4f ? 1e-4f : amax; /* NaN stays */
    const float scale = clamped * (1.0f / 448.0f);
    return round ? ceil_to_power(scale) : scale;
}

/* (x * (1 / sf)).to(float8_e4m3fn), by rint; NaN without sign. */
static uint8_t wanted_code(float x, float scale)
{
    const float scaled = x * (1.0f / scale);
    const double magnitude = fabs((double)scaled);
    int exponent;
    if (!(magnitude <= 464))
        return 0x7f;
    frexp(magnitude, &exponent);
    if (exponent < -5)
        exponent = -5;
    const double units = rint(ldexp(magnitude, 4 - exponent)); /* of 2^(exponent-4): up to 16 */
    const int code = units < 8 ? (int)units : (exponent + 5) * 8 + (int)units;
    return (uint8_t)(code | (signbit(scaled) ? 0x80 : 0));
}

/* ---- Problems ------------------------------------------------------------------------------------------------ */

struct quantize {
    int64_t m, k, gran_mn, gran_k;
    bool packed, round;
    struct array x, q, sf;
    dg_quantize_args args;
};

struct shape {
    int32_t ndim;
    int64_t batch, m, k;
};

struct grain {
    int32_t mn, k;
};
static const struct grain grains[] = {{1, 128}, {128, 128}, {128, 1}};

static struct quantize quantize_make(struct random *r, struct shape s, struct grain grain, dg_dtype dtype, bool packed,
                                     bool round)
{
    struct quantize t = {.m = s.m, .k = s.k, .gran_mn = grain.mn, .gran_k = grain.k, .packed = packed};
    t.round = packed || round;
    const int64_t groups = ceil_div(s.k, grain.k), cols = packed ? ceil_div(groups, 4) : groups;
    t.args = (dg_quantize_args)DG_QUANTIZE_ARGS_INIT;
    t.x = array_make(dtype, s.ndim, s.batch, s.m, s.k, (enum layout)random_below(r, LAYOUTS));
    t.q = array_make(DG_FLOAT8_E4M3, s.ndim, s.batch, s.m, s.k, (enum layout)random_below(r, LAYOUTS));
    t.sf = array_make(packed ? DG_INT32 : DG_FLOAT32, s.ndim, s.batch, ceil_div(s.m, grain.mn), cols,
                      (enum layout)random_below(r, LAYOUTS));
    ARRAY_FOR_EACH (&t.x, b, i, j)
        array_write(&t.x, b, i, j, random_float(r) * ldexpf(1, (int)random_below(r, 12) - 6));
    t.args.x = t.x.t;
    t.args.q = t.q.t;
    t.args.sf = t.sf.t;
    t.args.gran_mn = grain.mn;
    t.args.gran_k = grain.k;
    t.args.round_scale = round;
    return t;
}

static void quantize_free(struct quantize *t)
{
    array_free(&t->x);
    array_free(&t->q);
    array_free(&t->sf);
}

/* One group: rows m_begin .. m_end-1, columns k_begin .. k_end-1. */
struct group {
    int64_t batch, mn, k, m_begin, m_end, k_begin, k_end;
};

static struct group group_of(const struct quantize *t, int64_t batch, int64_t mn, int64_t k)
{
    struct group g = {batch, mn, k, mn * t->gran_mn, (mn + 1) * t->gran_mn, k * t->gran_k, (k + 1) * t->gran_k};
    g.m_end = g.m_end < t->m ? g.m_end : t->m;
    g.k_end = g.k_end < t->k ? g.k_end : t->k;
    return g;
}

static float amax_of(const struct quantize *t, const struct group *g)
{
    float amax = 0;
    for (int64_t m = g->m_begin; m < g->m_end; ++m)
        for (int64_t k = g->k_begin; k < g->k_end; ++k) {
            const float x = fabsf(array_read(&t->x, g->batch, m, k));
            amax = isnan(x) || isnan(amax) ? NAN : x > amax ? x : amax;
        }
    return amax;
}

static float scale_at(const struct quantize *t, int64_t batch, int64_t mn, int64_t k)
{
    float scale;
    const uint32_t word = word_at(&t->sf, batch, mn, t->packed ? k / 4 : k);
    if (t->packed)
        return ldexpf(1, (int)(word >> (8 * (k % 4)) & 0xff) - 127);
    memcpy(&scale, &word, sizeof scale);
    return scale;
}

static void check_group(const struct quantize *t, const struct group *g)
{
    const float scale = wanted_scale(amax_of(t, g), t->round), got = scale_at(t, g->batch, g->mn, g->k);
    EXPECT_THAT(bits_of(got) == bits_of(scale) || (isnan(got) && isnan(scale)), "scale [%d,%d,%d] is %a, wanted %a",
                (int)g->batch, (int)g->mn, (int)g->k, got, scale);
    for (int64_t m = g->m_begin; m < g->m_end; ++m)
        for (int64_t k = g->k_begin; k < g->k_end; ++k) {
            const uint8_t code = *(uint8_t *)array_at(&t->q, g->batch, m, k);
            const uint8_t wanted = wanted_code(array_read(&t->x, g->batch, m, k), scale);
            EXPECT_THAT(code == wanted, "q[%d,%d,%d] is 0x%x, wanted 0x%x", (int)g->batch, (int)m, (int)k, code,
                        wanted);
        }
}

static void check_unused_bytes(const struct quantize *t)
{
    ARRAY_FOR_EACH (&t->sf, b, i, word)
        for (int64_t k = 4 * word; k < 4 * word + 4; ++k)
            EXPECT(k < ceil_div(t->k, t->gran_k) || (word_at(&t->sf, b, i, word) >> (8 * (k % 4)) & 0xff) == 0);
}

/* Every scale and code bit by bit, the unused bytes of words, and nothing else written. */
static void check_quantize(const struct quantize *t)
{
    EXPECT_OK(dg_quantize_fp8(NULL, &t->args, NULL));
    for (int64_t b = 0; b < array_batch(&t->x); ++b)
        for (int64_t mn = 0; mn < ceil_div(t->m, t->gran_mn); ++mn)
            for (int64_t k = 0; k < ceil_div(t->k, t->gran_k); ++k) {
                const struct group group = group_of(t, b, mn, k);
                check_group(t, &group);
            }
    if (t->packed)
        check_unused_bytes(t);
    EXPECT(array_gaps_intact(&t->q) && array_gaps_intact(&t->sf));
}

TEST(quantisation_is_the_formula_in_every_layout)
{
    const int64_t ms[] = {1, 2, 3, 127, 128, 129, 200}, ks[] = {1, 2, 7, 127, 128, 129, 256, 300, 513, 640};
    const dg_dtype dtypes[] = {DG_FLOAT32, DG_FLOAT16, DG_BFLOAT16};
    struct random r = {1};
    for (int i = 0; i < 120; ++i) {
        const struct shape s = {i % 3 == 0 ? 3 : 2, 1 + random_below(&r, 2), PICK(&r, ms),
                                i % 2 ? 1 + i : PICK(&r, ks)};
        struct quantize t =
            quantize_make(&r, s, grains[i % 3], PICK(&r, dtypes), random_below(&r, 2) != 0, random_below(&r, 2) != 0);
        check_quantize(&t);
        quantize_free(&t);
    }
}

TEST(zeros_as_granularity_mean_1x128)
{
    struct random r = {2};
    struct quantize t = quantize_make(&r, (struct shape){2, 1, 5, 300}, grains[0], DG_BFLOAT16, false, false);
    t.args.gran_mn = t.args.gran_k = 0;
    check_quantize(&t);
    quantize_free(&t);
}

/* ---- Special groups ------------------------------------------------------------------------------------------ */

/* Row 0 zeros, 1 denormals, 2 an infinity, 3 a NaN, 4 both, 5 the largest floats, 6 an infinity beside them. */
enum { SPECIAL_ROWS = 7 };

static struct quantize special_groups(bool packed, bool round)
{
    struct random r = {3};
    struct quantize t =
        quantize_make(&r, (struct shape){2, 1, SPECIAL_ROWS, 128}, grains[0], DG_FLOAT32, packed, round);
    for (int64_t k = 0; k < 128; ++k) {
        const float sign = k % 2 ? -1.0f : 1.0f;
        array_write(&t.x, 0, 0, k, 0.0f * sign);
        array_write(&t.x, 0, 1, k, ldexpf(sign, -140));
        array_write(&t.x, 0, 5, k, sign * FLT_MAX);
        array_write(&t.x, 0, 6, k, sign * FLT_MAX);
    }
    array_write(&t.x, 0, 2, 64, -INFINITY);
    array_write(&t.x, 0, 3, 127, NAN);
    array_write(&t.x, 0, 4, 0, INFINITY);
    array_write(&t.x, 0, 4, 1, NAN);
    array_write(&t.x, 0, 6, 0, INFINITY);
    return t;
}

static unsigned code_at(const struct quantize *t, int64_t row, int64_t k)
{
    return *(uint8_t *)array_at(&t->q, 0, row, k);
}

/* 0 or -0 everywhere but at one place (-1: nowhere). */
static bool zeros_but(const struct quantize *t, int64_t row, int64_t place)
{
    for (int64_t k = 0; k < 128; ++k)
        if (k != place && (code_at(t, row, k) & 0x7f) != 0)
            return false;
    return true;
}

TEST(special_groups_as_the_manual_says)
{
    struct quantize t = special_groups(false, false);
    EXPECT_OK(dg_quantize_fp8(NULL, &t.args, NULL));
    EXPECT(scale_at(&t, 0, 0, 0) == 1e-4f * (1.0f / 448.0f) && zeros_but(&t, 0, -1));
    EXPECT(scale_at(&t, 0, 1, 0) == 1e-4f * (1.0f / 448.0f) && zeros_but(&t, 1, -1));
    EXPECT(scale_at(&t, 0, 2, 0) == INFINITY && zeros_but(&t, 2, 64));
    EXPECT_INT(code_at(&t, 2, 64), 0x7f);
    EXPECT(isnan(scale_at(&t, 0, 3, 0)) && isnan(scale_at(&t, 0, 4, 0)));
    for (int64_t k = 0; k < 128; ++k) {
        EXPECT_INT(code_at(&t, 3, k), 0x7f);
        EXPECT_INT(code_at(&t, 4, k), 0x7f);
        EXPECT_INT(code_at(&t, 5, k), k % 2 ? 0xfe : 0x7e); /* 448 */
    }
    check_quantize(&t);
    quantize_free(&t);
}

TEST(special_groups_have_finite_rounded_scales)
{
    for (int packed = 0; packed < 2; ++packed) {
        struct quantize t = special_groups(packed, true);
        EXPECT_OK(dg_quantize_fp8(NULL, &t.args, NULL));
        EXPECT(scale_at(&t, 0, 0, 0) == ldexpf(1, -22) && zeros_but(&t, 0, -1)); /* 1e-4 / 448 is 1.87 * 2^-23 */
        for (int64_t row = 2; row <= 4; ++row)
            EXPECT(scale_at(&t, 0, row, 0) == ldexpf(1, 127));
        EXPECT(zeros_but(&t, 2, 64) && zeros_but(&t, 3, 127));
        EXPECT(code_at(&t, 2, 64) == 0x7f && code_at(&t, 3, 127) == 0x7f);
        EXPECT(code_at(&t, 4, 0) == 0x7f && code_at(&t, 4, 1) == 0x7f);
        EXPECT_INT(code_at(&t, 6, 0), 0x7f);
        EXPECT_INT(code_at(&t, 6, 1), 0xc0); /* -FLT_MAX * 2^-127, rounded: -2 */
        check_quantize(&t);
        quantize_free(&t);
    }
}

/* ---- What is refused ----------------------------------------------------------------------------------------- */

static struct quantize plain(void)
{
    struct random r = {4};
    struct quantize t = quantize_make(&r, (struct shape){2, 1, 4, 300}, grains[0], DG_BFLOAT16, false, false);
    array_free(&t.q);
    array_free(&t.sf);
    t.q = array_make(DG_FLOAT8_E4M3, 2, 1, 4, 300, ROW_MAJOR);
    t.sf = array_make(DG_FLOAT32, 2, 1, 4, 3, ROW_MAJOR);
    t.args.q = t.q.t;
    t.args.sf = t.sf.t;
    return t;
}

/* Refused with these words, and nothing written. */
#define EXPECT_QUANTIZE_REFUSED(t, words)                                                                              \
    do {                                                                                                               \
        EXPECT_REFUSED(dg_quantize_fp8(NULL, &(t).args, NULL), DG_ERROR_INVALID_ARGUMENT, words);                      \
        EXPECT_TEXT(dg_last_error(), "dg_quantize_fp8: ");                                                             \
        EXPECT(array_untouched(&(t).q) && array_untouched(&(t).sf));                                                   \
        quantize_free(&(t));                                                                                           \
    } while (0)

TEST(bad_arguments_of_quantisation)
{
    struct quantize t;
    EXPECT_REFUSED(dg_quantize_fp8(NULL, NULL, NULL), DG_ERROR_INVALID_ARGUMENT, "dg_quantize_args is NULL");
    t = plain(), t.args.size = 3;
    EXPECT_QUANTIZE_REFUSED(t, "dg_quantize_args.size is 3");
    t = plain(), t.args.reserved = 1;
    EXPECT_QUANTIZE_REFUSED(t, "reserved is 1");
    t = plain(), t.args.gran_k = 64;
    EXPECT_QUANTIZE_REFUSED(t, "gran_mn x gran_k is 1 x 64; supported: 1 x 128, 128 x 128, 128 x 1");
    t = plain(), t.args.gran_k = 1;
    EXPECT_QUANTIZE_REFUSED(t, "1 x 1;");
    t = plain(), t.args.gran_mn = -1;
    EXPECT_QUANTIZE_REFUSED(t, "-1 x 128;");
    t = plain(), t.args.x.dtype = DG_DTYPE_NONE;
    EXPECT_QUANTIZE_REFUSED(t, "x is missing");
    t = plain(), t.args.x.dtype = DG_FLOAT8_E4M3;
    EXPECT_QUANTIZE_REFUSED(t, "x has the dtype float8_e4m3");
    t = plain(), t.args.q.dtype = DG_BFLOAT16;
    EXPECT_QUANTIZE_REFUSED(t, "q has the dtype bfloat16");
    t = plain(), t.args.sf.dtype = DG_BFLOAT16;
    EXPECT_QUANTIZE_REFUSED(t, "sf has the dtype bfloat16");
    t = plain(), t.args.x.ndim = 1;
    EXPECT_QUANTIZE_REFUSED(t, "x has 1 dimensions");
    t = plain(), t.args.q.ndim = 3;
    EXPECT_QUANTIZE_REFUSED(t, "q has 3 dimensions; wanted 2");
    t = plain(), t.args.sf.ndim = 3;
    EXPECT_QUANTIZE_REFUSED(t, "sf has 3 dimensions; wanted 2");
    t = plain(), t.args.x.stride[0] = -1;
    EXPECT_QUANTIZE_REFUSED(t, "x has the stride -1");
    t = plain(), t.args.x.data = NULL;
    EXPECT_QUANTIZE_REFUSED(t, "x.data is NULL");
    t = plain(), t.args.sf.data = (char *)t.args.sf.data + 1;
    EXPECT_QUANTIZE_REFUSED(t, "must be aligned");
    t = plain(), t.args.q.device = 0;
    EXPECT_QUANTIZE_REFUSED(t, "q is on CUDA device 0 but x is on the CPU");
    t = plain(), t.args.sf.device = 1;
    EXPECT_QUANTIZE_REFUSED(t, "sf is on CUDA device 1 but x is on the CPU");
    t = plain(), t.args.q.shape[1] = 299;
    EXPECT_QUANTIZE_REFUSED(t, "q is [4, 299] float8_e4m3");
    t = plain(), t.args.sf.shape[1] = 2;
    EXPECT_QUANTIZE_REFUSED(t, "M=4, K=300 with groups of 1 x 128 wants [4, 3]");
    t = plain(), t.args.gran_mn = 128;
    EXPECT_QUANTIZE_REFUSED(t, "groups of 128 x 128 wants [1, 3]");
    t = plain(), t.args.gran_mn = 128, t.args.gran_k = 1;
    EXPECT_QUANTIZE_REFUSED(t, "groups of 128 x 1 wants [1, 300]");
    t = plain(), t.args.sf.dtype = DG_INT32;
    EXPECT_QUANTIZE_REFUSED(t, "four to a word, wants [4, 1]");
}

TEST(overlaps_that_quantisation_refuses)
{
    struct quantize t;
    t = plain(), t.args.q.stride[0] = 1;
    EXPECT_QUANTIZE_REFUSED(t, "q has the strides [0, 1, 1]");
    t = plain(), t.args.sf.stride[0] = 0;
    EXPECT_QUANTIZE_REFUSED(t, "sf has the strides");
    t = plain(), t.args.q.data = t.args.x.data;
    EXPECT_QUANTIZE_REFUSED(t, "q shares elements with x");
    t = plain(), t.args.sf.data = t.args.x.data;
    EXPECT_QUANTIZE_REFUSED(t, "sf shares elements with x");
    t = plain(), t.args.sf.data = t.args.q.data;
    EXPECT_QUANTIZE_REFUSED(t, "sf shares elements with q");
}

TEST(broadcast_input_is_fine)
{
    struct quantize t = plain();
    for (int64_t k = 0; k < 300; ++k)
        for (int64_t m = 1; m < 4; ++m)
            memcpy(array_at(&t.x, 0, m, k), array_at(&t.x, 0, 0, k), 2);
    t.args.x.stride[0] = 0;
    check_quantize(&t);
    quantize_free(&t);
}

TEST(empty_quantisation_does_nothing)
{
    const struct shape shapes[] = {{2, 1, 0, 128}, {2, 1, 3, 0}, {3, 0, 3, 128}};
    for (int i = 0; i < 3; ++i)
        for (int g = 0; g < 3; ++g) {
            struct random r = {5};
            struct quantize t = quantize_make(&r, shapes[i], grains[g], DG_FLOAT32, g == 1, false);
            EXPECT_OK(dg_quantize_fp8(NULL, &t.args, NULL));
            EXPECT(array_untouched(&t.q) && array_untouched(&t.sf));
            quantize_free(&t);
        }
}

/* ---- dg_scale_layout ----------------------------------------------------------------------------------------- */

static void check_layout(int64_t mn, int64_t k, struct grain grain, dg_dtype dtype, int64_t batch, dg_tensor wanted,
                         size_t wanted_bytes)
{
    dg_tensor layout;
    size_t bytes;
    EXPECT_OK(dg_scale_layout(mn, k, grain.mn, grain.k, dtype, batch, &layout, &bytes));
    EXPECT_INT(layout.ndim, wanted.ndim);
    for (int32_t i = 0; i < wanted.ndim; ++i) {
        EXPECT_INT(layout.shape[i], wanted.shape[i]);
        EXPECT_INT(layout.stride[i], wanted.stride[i]);
    }
    EXPECT(layout.data == NULL && layout.device == DG_CPU && layout.dtype == dtype && layout.reserved == 0);
    EXPECT_INT(bytes, wanted_bytes);
    EXPECT_OK(dg_scale_layout(mn, k, grain.mn, grain.k, dtype, batch, &layout, NULL));
}

TEST(scale_layouts)
{
    check_layout(4096, 7168, grains[0], DG_FLOAT32, 0, (dg_tensor){.ndim = 2, .shape = {4096, 56}, .stride = {1, 4096}},
                 4096 * 56 * 4);
    check_layout(5, 7169, grains[0], DG_FLOAT32, 0, (dg_tensor){.ndim = 2, .shape = {5, 57}, .stride = {1, 8}},
                 8 * 57 * 4);
    check_layout(5, 7169, grains[0], DG_INT32, 3, (dg_tensor){.ndim = 3, .shape = {3, 5, 15}, .stride = {120, 1, 8}},
                 3 * 120 * 4);
    check_layout(129, 128, grains[1], DG_FLOAT32, 0, (dg_tensor){.ndim = 2, .shape = {2, 1}, .stride = {1, 4}}, 16);
    check_layout(256, 10, grains[2], DG_INT32, 0, (dg_tensor){.ndim = 2, .shape = {2, 3}, .stride = {1, 4}}, 48);
    check_layout(0, 128, grains[0], DG_FLOAT32, 0, (dg_tensor){.ndim = 2, .shape = {0, 1}, .stride = {1, 0}}, 0);
    check_layout(7, 0, grains[0], DG_FLOAT32, 2, (dg_tensor){.ndim = 3, .shape = {2, 7, 0}, .stride = {0, 1, 8}}, 0);
}

TEST(bad_arguments_of_scale_layout)
{
    dg_tensor l = {.ndim = 77};
    const dg_status bad = DG_ERROR_INVALID_ARGUMENT;
    EXPECT_REFUSED(dg_scale_layout(1, 1, 1, 1, DG_FLOAT32, 0, NULL, NULL), bad, "dg_scale_layout: layout is NULL");
    EXPECT_REFUSED(dg_scale_layout(-1, 1, 1, 1, DG_FLOAT32, 0, &l, NULL), bad, "mn, k, batch are -1, 1, 0");
    EXPECT_REFUSED(dg_scale_layout(1, -1, 1, 1, DG_FLOAT32, 0, &l, NULL), bad, "mn, k, batch are 1, -1, 0");
    EXPECT_REFUSED(dg_scale_layout(1, 1, 1, 1, DG_FLOAT32, -1, &l, NULL), bad, "mn, k, batch are 1, 1, -1");
    EXPECT_REFUSED(dg_scale_layout(1, 1, 0, 1, DG_FLOAT32, 0, &l, NULL), bad, "gran_mn, gran_k are 0, 1");
    EXPECT_REFUSED(dg_scale_layout(1, 1, 1, -2, DG_FLOAT32, 0, &l, NULL), bad, "gran_mn, gran_k are 1, -2");
    EXPECT_REFUSED(dg_scale_layout(1, 1, 1, 1, DG_BFLOAT16, 0, &l, NULL), bad, "scale_dtype is bfloat16");
    EXPECT_REFUSED(dg_scale_layout(INT64_MAX, 1, 1, 1, DG_FLOAT32, 0, &l, NULL), bad, "cannot be addressed");
    EXPECT_REFUSED(dg_scale_layout(1ll << 40, 1ll << 40, 1, 1, DG_INT32, 0, &l, NULL), bad, "cannot be addressed");
    EXPECT_REFUSED(dg_scale_layout(1ll << 30, 1ll << 30, 1, 1, DG_INT32, 8, &l, NULL), bad, "cannot be addressed");
    EXPECT_INT(l.ndim, 77);
}

/* A quantisation can write into the layout, whose padding stays as it was. */
TEST(quantisation_writes_into_the_fastest_layout)
{
    struct quantize t = plain();
    dg_tensor layout;
    size_t bytes;
    EXPECT_OK(dg_scale_layout(4, 300, 1, 128, DG_FLOAT32, 0, &layout, &bytes));
    EXPECT_INT(bytes, 4 * 3 * 4);
    memcpy(t.sf.t.shape, layout.shape, sizeof layout.shape);
    memcpy(t.sf.t.stride, layout.stride, sizeof layout.stride);
    t.args.sf = t.sf.t;
    check_quantize(&t);
    quantize_free(&t);
}

/* ---- dg_transform_scale -------------------------------------------------------------------------------------- */

struct transform {
    struct array src, dst;
    dg_transform_scale_args args;
};

static struct transform transform_make(struct random *r, struct shape s, dg_dtype src, dg_dtype dst)
{
    const int64_t words = ceil_div(s.k, 4); /* s.k counts groups */
    struct transform t;
    t.args = (dg_transform_scale_args)DG_TRANSFORM_SCALE_ARGS_INIT;
    t.src = array_make(src, s.ndim, s.batch, s.m, src == DG_INT32 ? words : s.k, (enum layout)random_below(r, LAYOUTS));
    t.dst = array_make(dst, s.ndim, s.batch, s.m, dst == DG_INT32 ? words : s.k, (enum layout)random_below(r, LAYOUTS));
    t.args.src = t.src.t;
    t.args.dst = t.dst.t;
    return t;
}

static void transform_free(struct transform *t)
{
    array_free(&t->src);
    array_free(&t->dst);
}

static struct shape random_shape(struct random *r)
{
    return (struct shape){random_below(r, 2) ? 3 : 2, 1 + random_below(r, 3), 1 + random_below(r, 70),
                          1 + random_below(r, 70)};
}

TEST(scales_are_copied_bit_by_bit)
{
    struct random r = {6};
    for (int i = 0; i < 50; ++i) {
        struct transform t = transform_make(&r, random_shape(&r), DG_FLOAT32, DG_FLOAT32);
        ARRAY_FOR_EACH (&t.src, b, j, k)
            set_word(&t.src, b, j, k, random_bits(&r)); /* NaN of all kinds among them */
        t.args.round_scale = i % 2;
        EXPECT_OK(dg_transform_scale(NULL, &t.args, NULL));
        ARRAY_FOR_EACH (&t.dst, b, j, k)
            EXPECT_INT(word_at(&t.dst, b, j, k), word_at(&t.src, b, j, k));
        EXPECT(array_gaps_intact(&t.dst));
        transform_free(&t);
    }
}

static unsigned byte_at(const struct array *a, int64_t batch, int64_t row, int64_t group)
{
    return word_at(a, batch, row, group / 4) >> (8 * (group % 4)) & 0xff;
}

TEST(packing_powers_of_two)
{
    struct random r = {7};
    for (int i = 0; i < 50; ++i) {
        struct transform t = transform_make(&r, random_shape(&r), DG_FLOAT32, DG_INT32);
        ARRAY_FOR_EACH (&t.src, b, j, k)
            set_word(&t.src, b, j, k, bits_of(ldexpf(1, (int)((b + 3 * j + 7 * k) % 255) - 127)));
        EXPECT_OK(dg_transform_scale(NULL, &t.args, NULL));
        ARRAY_FOR_EACH (&t.dst, b, j, word)
            for (int64_t k = 4 * word; k < 4 * word + 4; ++k)
                EXPECT_INT(byte_at(&t.dst, b, j, k), k < array_cols(&t.src) ? (b + 3 * j + 7 * k) % 255 : 0);
        EXPECT(array_gaps_intact(&t.dst));
        transform_free(&t);
    }
}

TEST(packing_can_round_up)
{
    const float values[] = {1.0f, 1.1f, 1e-4f / 448, 0.0f, FLT_MAX, INFINITY, NAN, 3e-39f};
    const int codes[] = {127, 128, 127 - 22, 1, 254, 254, 254, 1};
    struct random r = {8};
    struct transform t = transform_make(&r, (struct shape){2, 1, 2, 8}, DG_FLOAT32, DG_INT32);
    ARRAY_FOR_EACH (&t.src, b, j, k)
        set_word(&t.src, b, j, k, bits_of(values[k]));
    t.args.round_scale = 1;
    EXPECT_OK(dg_transform_scale(NULL, &t.args, NULL));
    for (int64_t k = 0; k < 8; ++k)
        EXPECT_THAT((int)byte_at(&t.dst, 0, 1, k) == codes[k], "%a became code %d, wanted %d", values[k],
                    (int)byte_at(&t.dst, 0, 1, k), codes[k]);
    transform_free(&t);
}

TEST(packing_refuses_other_numbers_and_writes_nothing)
{
    const float values[] = {1.5f, 0.0f, -1.0f, INFINITY, NAN, 3e-39f};
    const char *words[] = {"holds 1.5 in", "holds 0 in", "holds -1 in",
                           "holds inf in", "nan in",     "holds 3.00000065e-39 in"};
    for (int i = 0; i < 6; ++i) {
        struct random r = {9};
        struct transform t = transform_make(&r, (struct shape){3, 2, 5, 9}, DG_FLOAT32, DG_INT32);
        ARRAY_FOR_EACH (&t.src, b, j, k)
            set_word(&t.src, b, j, k, bits_of(2.0f));
        set_word(&t.src, 1, 3, 8, bits_of(values[i]));
        EXPECT_REFUSED(dg_transform_scale(NULL, &t.args, NULL), DG_ERROR_INVALID_ARGUMENT, words[i]);
        EXPECT_TEXT(dg_last_error(), "dg_transform_scale: src holds");
        EXPECT_TEXT(dg_last_error(), "batch 1, row 3, column 8");
        EXPECT(array_untouched(&t.dst));
        transform_free(&t);
    }
}

TEST(unpacking_is_exact)
{
    struct random r = {10};
    for (int i = 0; i < 50; ++i) {
        struct transform t = transform_make(&r, random_shape(&r), DG_INT32, DG_FLOAT32);
        ARRAY_FOR_EACH (&t.src, b, j, k)
            set_word(&t.src, b, j, k, random_bits(&r));
        EXPECT_OK(dg_transform_scale(NULL, &t.args, NULL));
        ARRAY_FOR_EACH (&t.dst, b, j, k) {
            float got;
            const unsigned code = byte_at(&t.src, b, j, k);
            memcpy(&got, array_at(&t.dst, b, j, k), sizeof got);
            EXPECT(code == 255 ? isnan(got) : got == ldexpf(1, (int)code - 127));
        }
        EXPECT(array_gaps_intact(&t.dst));
        transform_free(&t);
    }
}

static struct transform plain_transform(dg_dtype src, dg_dtype dst)
{
    struct random r = {11};
    struct transform t = transform_make(&r, (struct shape){2, 1, 4, 6}, src, dst);
    array_free(&t.dst);
    t.dst = array_make(dst, 2, 1, 4, dst == DG_INT32 ? 2 : 6, ROW_MAJOR);
    t.args.dst = t.dst.t;
    return t;
}

#define EXPECT_TRANSFORM_REFUSED(t, words)                                                                             \
    do {                                                                                                               \
        EXPECT_REFUSED(dg_transform_scale(NULL, &(t).args, NULL), DG_ERROR_INVALID_ARGUMENT, words);                   \
        EXPECT_TEXT(dg_last_error(), "dg_transform_scale: ");                                                          \
        EXPECT(array_untouched(&(t).dst));                                                                             \
        transform_free(&(t));                                                                                          \
    } while (0)

TEST(bad_arguments_of_transform)
{
    const dg_dtype f32 = DG_FLOAT32, i32 = DG_INT32;
    struct transform t;
    EXPECT_REFUSED(dg_transform_scale(NULL, NULL, NULL), DG_ERROR_INVALID_ARGUMENT, "dg_transform_scale_args is NULL");
    t = plain_transform(f32, f32), t.args.size = 0;
    EXPECT_TRANSFORM_REFUSED(t, "dg_transform_scale_args.size is 0");
    t = plain_transform(f32, f32), t.args.reserved = -3;
    EXPECT_TRANSFORM_REFUSED(t, "reserved is -3");
    t = plain_transform(i32, i32);
    EXPECT_TRANSFORM_REFUSED(t, "src and dst are both int32; supported: float32 to float32");
    t = plain_transform(f32, f32), t.args.src.dtype = DG_BFLOAT16;
    EXPECT_TRANSFORM_REFUSED(t, "src has the dtype bfloat16");
    t = plain_transform(f32, f32), t.args.dst.dtype = DG_FLOAT16;
    EXPECT_TRANSFORM_REFUSED(t, "dst has the dtype float16");
    t = plain_transform(f32, f32), t.args.src.ndim = 4;
    EXPECT_TRANSFORM_REFUSED(t, "src has 4 dimensions");
    t = plain_transform(f32, f32), t.args.dst.ndim = 3;
    EXPECT_TRANSFORM_REFUSED(t, "dst has 3 dimensions; wanted 2");
    t = plain_transform(f32, f32), t.args.dst.device = 2;
    EXPECT_TRANSFORM_REFUSED(t, "dst is on CUDA device 2 but src is on the CPU");
    t = plain_transform(f32, f32), t.args.dst.data = NULL;
    EXPECT_TRANSFORM_REFUSED(t, "dst.data is NULL");
    t = plain_transform(f32, f32), t.args.dst.shape[1] = 5;
    EXPECT_TRANSFORM_REFUSED(t, "src, which is [4, 6], wants [4, 6]");
    t = plain_transform(f32, i32), t.args.dst.shape[1] = 1;
    EXPECT_TRANSFORM_REFUSED(t, "packed four to a word, wants [4, 2]");
    t = plain_transform(i32, f32), t.args.dst.shape[1] = 3;
    EXPECT_TRANSFORM_REFUSED(t, "unpacked four to a word, wants [4, 1]");
    t = plain_transform(f32, f32), t.args.dst.stride[0] = 0;
    EXPECT_TRANSFORM_REFUSED(t, "dst has the strides");
    t = plain_transform(f32, f32), t.args.src.data = t.args.dst.data;
    EXPECT_TRANSFORM_REFUSED(t, "dst shares elements with src");
}

TEST(empty_transform_does_nothing)
{
    const struct shape shapes[] = {{2, 1, 0, 5}, {2, 1, 5, 0}, {3, 0, 2, 2}};
    for (int i = 0; i < 3; ++i) {
        struct random r = {12};
        struct transform t = transform_make(&r, shapes[i], DG_FLOAT32, DG_INT32);
        EXPECT_OK(dg_transform_scale(NULL, &t.args, NULL));
        EXPECT(array_untouched(&t.dst));
        transform_free(&t);
    }
}
