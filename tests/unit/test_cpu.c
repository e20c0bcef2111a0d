/* Conversions, threads, and the reference GEMM against arithmetic written differently. */
#include "arrays.h"
#include "cpu/convert.h"
#include "cpu/ref/ref.h"
#include "cpu/threads.h"
#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- Formats ------------------------------------------------------------------------------------------------- */

/* A sign, exponent and fraction format by its definition: fraction bits, bias; the magnitude's code. */
static double value_by_definition(unsigned code, int fraction, int bias)
{
    const int exponent = (int)(code >> fraction), rest = (int)(code & ((1u << fraction) - 1));
    if (exponent == 0)
        return ldexp(rest, 1 - bias - fraction);
    return ldexp((1 << fraction) + rest, exponent - bias - fraction);
}

struct format {
    const char *name;
    int fraction, bias;
    unsigned largest, sign; /* the largest finite magnitude, the sign bit */
    unsigned beyond;        /* the code of what rounds to more than the largest */
    float (*decode)(unsigned code);
    unsigned (*encode)(float value);
};

static float decode_e4m3(unsigned code)
{
    return e4m3_to_float((uint8_t)code);
}

static unsigned encode_e4m3(float value)
{
    return float_to_e4m3(value);
}

static float decode_bf16(unsigned code)
{
    return bf16_to_float((uint16_t)code);
}

static unsigned encode_bf16(float value)
{
    return float_to_bf16(value);
}

static float decode_fp16(unsigned code)
{
    return fp16_to_float((uint16_t)code);
}

static unsigned encode_fp16(float value)
{
    return float_to_fp16(value);
}

static const struct format formats[] = {
    {"e4m3", 3, 7, 0x7e, 0x80, 0x7f, decode_e4m3, encode_e4m3},
    {"bf16", 7, 127, 0x7f7f, 0x8000, 0x7f80, decode_bf16, encode_bf16},
    {"fp16", 10, 15, 0x7bff, 0x8000, 0x7c00, decode_fp16, encode_fp16},
};
enum { FORMATS = sizeof formats / sizeof *formats };

TEST(every_code_decodes_by_definition)
{
    for (int i = 0; i < FORMATS; ++i) {
        const struct format *f = &formats[i];
        for (unsigned code = 0; code <= f->largest; ++code) {
            const double wanted = value_by_definition(code, f->fraction, f->bias);
            EXPECT_THAT(f->decode(code) == wanted, "%s 0x%x is %a, wanted %a", f->name, code, f->decode(code), wanted);
            EXPECT(f->decode(code | f->sign) == -wanted && signbit(f->decode(code | f->sign)));
        }
    }
}

TEST(codes_beyond_the_largest_decode_to_infinity_and_nan)
{
    EXPECT(isnan(e4m3_to_float(0x7f)) && isnan(e4m3_to_float(0xff)));
    for (unsigned code = 0x7f81; code <= 0x7fff; ++code)
        EXPECT(isnan(bf16_to_float((uint16_t)code)) && isnan(bf16_to_float((uint16_t)(code | 0x8000))));
    for (unsigned code = 0x7c01; code <= 0x7fff; ++code)
        EXPECT(isnan(fp16_to_float((uint16_t)code)) && isnan(fp16_to_float((uint16_t)(code | 0x8000))));
    EXPECT(bf16_to_float(0x7f80) == INFINITY && bf16_to_float(0xff80) == -INFINITY);
    EXPECT(fp16_to_float(0x7c00) == INFINITY && fp16_to_float(0xfc00) == -INFINITY);
}

static void expect_code(const struct format *f, float value, unsigned wanted)
{
    const unsigned got = f->encode(value), negative = f->encode(-value);
    /* E4M3's NaN has no sign; everything else keeps its own. */
    const unsigned wanted_negative = wanted == f->beyond && f->fraction == 3 ? wanted : wanted | f->sign;
    EXPECT_THAT(got == wanted, "%s of %a is 0x%x, wanted 0x%x", f->name, value, got, wanted);
    EXPECT_THAT(negative == wanted_negative, "%s of %a is 0x%x, wanted 0x%x", f->name, -value, negative,
                wanted_negative);
}

/* At each code, and at the middle between it and the next one (what the format would have next, at the end): the
   middle goes to the even code, its neighbouring floats to their sides. */
TEST(rounding_is_to_nearest_even_at_every_boundary)
{
    for (int i = 0; i < FORMATS; ++i) {
        const struct format *f = &formats[i];
        for (unsigned code = 0; code <= f->largest; ++code) {
            const unsigned next = code == f->largest ? f->beyond : code + 1;
            const double low = value_by_definition(code, f->fraction, f->bias);
            const double high = value_by_definition(code + 1, f->fraction, f->bias);
            const float middle = (float)((low + high) / 2); /* exact */
            expect_code(f, (float)low, code);
            expect_code(f, nextafterf(middle, 0), code);
            expect_code(f, middle, code % 2 == 0 ? code : next);
            expect_code(f, nextafterf(middle, INFINITY), next);
        }
        expect_code(f, FLT_MAX, f->beyond);
        expect_code(f, INFINITY, f->beyond);
    }
}

TEST(nan_stays_nan)
{
    const uint32_t patterns[] = {0x7fc00000, 0x7f800001, 0x7fffffff, 0xffc00000, 0xff800001, 0x7f80ffff};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; ++i) {
        const float nan = float_of(patterns[i]);
        EXPECT_INT(float_to_e4m3(nan), 0x7f);
        EXPECT(isnan(bf16_to_float(float_to_bf16(nan))));
        EXPECT(isnan(fp16_to_float(float_to_fp16(nan))));
    }
}

/* The same codes by rint on the scaled value, over all binades and a sweep of fractions. */
static unsigned e4m3_by_rint(float value)
{
    const double magnitude = fabs((double)value);
    int exponent;
    if (!(magnitude <= 464))
        return 0x7f;
    frexp(magnitude, &exponent); /* magnitude in [2^(exponent-1), 2^exponent) */
    if (magnitude < ldexp(1, -6))
        exponent = -5; /* denormals share the first binade's unit */
    const double unit = ldexp(1, exponent - 4), rounded = rint(magnitude / unit) * unit;
    unsigned code = 0;
    while (value_by_definition(code, 3, 7) < rounded)
        ++code;
    return code | (signbit(value) ? 0x80 : 0);
}

TEST(e4m3_agrees_with_rint_on_a_sweep_of_all_floats)
{
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 99991) { /* a prime: all kinds of fractions */
        const float value = float_of((uint32_t)bits);
        EXPECT_THAT(float_to_e4m3(value) == e4m3_by_rint(value), "%a: 0x%x, wanted 0x%x", value, float_to_e4m3(value),
                    e4m3_by_rint(value));
    }
}

/* ---- UE8M0 --------------------------------------------------------------------------------------------------- */

TEST(ue8m0_has_256_codes)
{
    for (int code = 0; code < 255; ++code) {
        const float value = ue8m0_to_float((uint8_t)code);
        EXPECT_THAT(value == ldexp(1, code - 127), "code %d is %a", code, value);
        EXPECT(float_is_ue8m0(value));
        EXPECT_INT(float_to_ue8m0(value), code);
        EXPECT(!float_is_ue8m0(-value));
        EXPECT(!float_is_ue8m0(nextafterf(value, 0)) && !float_is_ue8m0(nextafterf(value, INFINITY)));
    }
    EXPECT(isnan(ue8m0_to_float(255)));
    EXPECT(!float_is_ue8m0(0.0f) && !float_is_ue8m0(-0.0f) && !float_is_ue8m0(INFINITY) && !float_is_ue8m0(NAN));
    EXPECT(!float_is_ue8m0(ldexpf(1, -128)) && !float_is_ue8m0(1.5f));
}

TEST(rounding_up_to_a_power_of_two)
{
    for (int exponent = -126; exponent <= 127; ++exponent) {
        const float power = ldexpf(1, exponent), next = exponent == 127 ? power : 2 * power; /* the last is kept */
        EXPECT(round_up_to_ue8m0(power) == power);
        EXPECT(round_up_to_ue8m0(nextafterf(power, INFINITY)) == next);
        EXPECT(round_up_to_ue8m0(1.5f * power) == next);
        EXPECT(round_up_to_ue8m0(nextafterf(power, 0)) == power);
    }
    EXPECT(round_up_to_ue8m0(0.0f) == ldexpf(1, -126) && round_up_to_ue8m0(ldexpf(1, -127)) == ldexpf(1, -126));
    EXPECT(round_up_to_ue8m0(INFINITY) == ldexpf(1, 127) && round_up_to_ue8m0(NAN) == ldexpf(1, 127));
}

/* ---- Threads ------------------------------------------------------------------------------------------------- */

struct visits {
    atomic_int count[1000];
    atomic_int calls;
};

static void visit(void *user, int64_t begin, int64_t end)
{
    struct visits *v = user;
    atomic_fetch_add(&v->calls, 1);
    for (int64_t i = begin; i < end; ++i)
        atomic_fetch_add(&v->count[i], 1);
}

static bool visited_once(struct visits *v, int64_t count)
{
    for (int64_t i = 0; i < 1000; ++i)
        if (atomic_load(&v->count[i]) != (i < count))
            return false;
    return true;
}

enum { COST = 1000000 }; /* worth a thread for each index */

static void use_four_threads(void)
{
    setenv("OMP_NUM_THREADS", "4,2", 1);
}

TEST(threads_are_counted)
{
    cpu_set_t allowed;
    use_four_threads();
    EXPECT_INT(cpu_threads(), 4);
    setenv("OMP_NUM_THREADS", "100000", 1);
    EXPECT_INT(cpu_threads(), 256);
    EXPECT(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    for (int i = 0; i < 3; ++i) {
        setenv("OMP_NUM_THREADS", i == 0 ? "" : i == 1 ? "junk" : "-3", 1);
        EXPECT_INT(cpu_threads(), CPU_COUNT(&allowed));
    }
}

TEST(every_index_is_visited_once)
{
    use_four_threads();
    const int64_t counts[] = {0, 1, 2, 3, 4, 5, 7, 100, 999, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
        struct visits v = {0};
        cpu_parallel_for(counts[i], COST, visit, &v);
        EXPECT_THAT(visited_once(&v, counts[i]), "with %lld indices", (long long)counts[i]);
        EXPECT(atomic_load(&v.calls) <= 4 && atomic_load(&v.calls) <= counts[i]);
    }
}

TEST(threads_share_the_work)
{
    struct visits v = {0};
    use_four_threads();
    cpu_parallel_for(1000, COST, visit, &v);
    EXPECT_INT(atomic_load(&v.calls), 4);
}

TEST(short_work_is_not_worth_a_thread)
{
    struct visits v = {0};
    use_four_threads();
    cpu_parallel_for(1000, 190, visit, &v); /* 190 us */
    EXPECT_INT(atomic_load(&v.calls), 1);
    cpu_parallel_for(1000, 310, visit, &v);
    EXPECT_INT(atomic_load(&v.calls), 1 + 3);
    cpu_parallel_for(1000, INT64_MAX, visit, &v);
    EXPECT_INT(atomic_load(&v.calls), 1 + 3 + 4);
}

struct nested {
    struct visits inner[8];
};

static void visit_nested(void *user, int64_t begin, int64_t end)
{
    struct nested *n = user;
    for (int64_t i = begin; i < end; ++i)
        cpu_parallel_for(100, COST, visit, &n->inner[i]);
}

TEST(nested_loops_run_on_one_thread)
{
    static struct nested n;
    use_four_threads();
    cpu_parallel_for(8, COST, visit_nested, &n);
    for (int i = 0; i < 8; ++i) {
        EXPECT(visited_once(&n.inner[i], 100));
        EXPECT_INT(atomic_load(&n.inner[i].calls), 1);
    }
}

/* The exit status of a child, or -1 when it has not ended within `seconds` (and is killed). */
static int wait_for(pid_t child, int seconds)
{
    int status;
    for (int i = 0; i < 100 * seconds; ++i) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

TEST(a_forked_child_computes)
{
    struct visits v = {0};
    use_four_threads();
    cpu_parallel_for(1000, COST, visit, &v);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        struct visits own = {0};
        cpu_parallel_for(1000, COST, visit, &own);
        _exit(visited_once(&own, 1000) && atomic_load(&own.calls) == 4 ? 0 : 1);
    }
    EXPECT_INT(wait_for(child, 20), 0);
}

TEST(where_no_thread_starts_the_caller_does_all)
{
    struct visits v = {0};
    pthread_attr_t before, huge;
    use_four_threads();
    EXPECT(pthread_getattr_default_np(&before) == 0 && pthread_attr_init(&huge) == 0);
    EXPECT(pthread_attr_setstacksize(&huge, (size_t)1 << 46) == 0 && pthread_setattr_default_np(&huge) == 0);
    cpu_parallel_for(1000, COST, visit, &v);
    EXPECT(pthread_setattr_default_np(&before) == 0);
    EXPECT(visited_once(&v, 1000));
}

struct look {
    pthread_t thread;
    bool open; /* to SIGUSR1 */
};

static void look_at_signals(void *user, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; ++i) {
        struct look *look = (struct look *)user + i;
        sigset_t blocked;
        pthread_sigmask(SIG_BLOCK, NULL, &blocked);
        look->thread = pthread_self();
        look->open = !sigismember(&blocked, SIGUSR1);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* so that each thread gets a share */
    }
}

TEST(signals_go_to_the_callers_thread)
{
    struct look looks[4];
    int others = 0;
    use_four_threads();
    cpu_parallel_for(4, COST, look_at_signals, looks);
    for (int i = 0; i < 4; ++i) {
        const bool other = !pthread_equal(looks[i].thread, pthread_self());
        EXPECT(looks[i].open == !other);
        others += other;
    }
    EXPECT(others > 0);
}

/* ---- GEMM ---------------------------------------------------------------------------------------------------- */

struct gemm {
    int64_t batch, m, n, k;
    int32_t ndim;
    bool sfa_packed, sfb_packed;
    struct array a, b, sfa, sfb, c, d;
    float *a_values, *b_values; /* by decode_operands */
    dg_gemm_args args;
};

static struct array make_scales(struct random *r, const struct gemm *g, int64_t rows, bool packed)
{
    const int64_t groups = ceil_div(g->k, 128), cols = packed ? ceil_div(groups, 4) : groups;
    struct array sf = array_make(packed ? DG_INT32 : DG_FLOAT32, g->ndim, g->batch, rows, cols,
                                 (enum layout)random_below(r, LAYOUTS));
    ARRAY_FOR_EACH (&sf, i, j, l) {
        uint32_t word = 0;
        for (int byte = 0; byte < 4; ++byte)
            word |= (uint32_t)(119 + random_below(r, 6)) << (8 * byte);
        const float scale = 0.03f * (1.1f + random_float(r));
        memcpy(array_at(&sf, i, j, l), packed ? (const void *)&word : (const void *)&scale, 4);
    }
    return sf;
}

static struct array make_codes(struct random *r, const struct gemm *g, int64_t rows)
{
    struct array x = array_make(DG_FLOAT8_E4M3, g->ndim, g->batch, rows, g->k, (enum layout)random_below(r, LAYOUTS));
    ARRAY_FOR_EACH (&x, i, j, l)
        *(uint8_t *)array_at(&x, i, j, l) = float_to_e4m3(3 * random_float(r));
    return x;
}

enum c_mode { NO_C, OWN_C, C_IS_D, C_MODES };

static struct gemm gemm_make(struct random *r, int32_t ndim, int64_t batch, int64_t m, int64_t n, int64_t k,
                             dg_dtype dtype, enum c_mode c_mode, bool sfa_packed, bool sfb_packed)
{
    struct gemm g = {.batch = ndim == 3 ? batch : 1, .m = m, .n = n, .k = k, .ndim = ndim};
    g.args = (dg_gemm_args)DG_GEMM_ARGS_INIT;
    g.sfa_packed = sfa_packed;
    g.sfb_packed = sfb_packed;
    g.a = make_codes(r, &g, m);
    g.b = make_codes(r, &g, n);
    g.sfa = make_scales(r, &g, m, sfa_packed);
    g.sfb = make_scales(r, &g, ceil_div(n, 128), sfb_packed);
    g.d = array_make(dtype, ndim, g.batch, m, n, (enum layout)random_below(r, LAYOUTS));
    g.c = array_make(dtype, ndim, g.batch, m, n, (enum layout)random_below(r, LAYOUTS));
    const struct array *c = c_mode == C_IS_D ? &g.d : &g.c;
    ARRAY_FOR_EACH (c, i, j, l)
        array_write(c, i, j, l, random_float(r));
    g.args.a = g.a.t;
    g.args.b = g.b.t;
    g.args.sfa = g.sfa.t;
    g.args.sfb = g.sfb.t;
    g.args.d = g.d.t;
    if (c_mode != NO_C)
        g.args.c = c->t;
    return g;
}

static void gemm_free(struct gemm *g)
{
    array_free(&g->a);
    array_free(&g->b);
    array_free(&g->sfa);
    array_free(&g->sfb);
    array_free(&g->c);
    array_free(&g->d);
    free(g->a_values);
    free(g->b_values);
}

static float scale_at(const struct array *sf, int64_t batch, int64_t row, int64_t group)
{
    if (sf->t.dtype == DG_FLOAT32)
        return array_read(sf, batch, row, group);
    const unsigned char *bytes = array_at(sf, batch, row, group / 4); /* the first group in the lowest byte */
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return ldexpf(1, (int)(word >> (8 * (group % 4)) & 0xff) - 127);
}

/* The values of an operand, [batch][row][k]. */
static float *decode(const struct array *x)
{
    float *values = malloc((size_t)(array_batch(x) * array_rows(x) * array_cols(x) + 1) * sizeof *values),
          *next = values;
    ARRAY_FOR_EACH (x, b, i, k)
        *next++ = e4m3_to_float(*(uint8_t *)array_at(x, b, i, k));
    return values;
}

/* For the element_ functions, which want the operands as they now are. */
static void decode_operands(struct gemm *g)
{
    free(g->a_values);
    free(g->b_values);
    g->a_values = decode(&g->a);
    g->b_values = decode(&g->b);
}

/* The element by the formula of deepgemm.h in FP32, before rounding to D's type. */
static float element_fp32(const struct gemm *g, int64_t batch, int64_t row, int64_t col, float c)
{
    const float *a = g->a_values + (batch * g->m + row) * g->k, *b = g->b_values + (batch * g->n + col) * g->k;
    float accumulator = 0;
    for (int64_t k = 0; k < g->k; k += 128) {
        float partial = 0;
        for (int64_t i = k; i < g->k && i < k + 128; ++i)
            partial += a[i] * b[i];
        const float scale = scale_at(&g->sfa, batch, row, k / 128) * scale_at(&g->sfb, batch, col / 128, k / 128);
        accumulator = fmaf(scale, partial, accumulator);
    }
    return accumulator + c;
}

/* The element from dequantised operands in FP64; a group's common factor is taken out of its sum. */
static double element_fp64(const struct gemm *g, int64_t batch, int64_t row, int64_t col, double c)
{
    const float *a = g->a_values + (batch * g->m + row) * g->k, *b = g->b_values + (batch * g->n + col) * g->k;
    double sum = c;
    for (int64_t k = 0; k < g->k; k += 128) {
        double products = 0;
        for (int64_t i = k; i < g->k && i < k + 128; ++i)
            products += (double)a[i] * (double)b[i];
        sum += products * (double)scale_at(&g->sfa, batch, row, k / 128) *
               (double)scale_at(&g->sfb, batch, col / 128, k / 128);
    }
    return sum;
}

static float rounded_to(dg_dtype dtype, float value)
{
    return dtype == DG_BFLOAT16  ? bf16_to_float(float_to_bf16(value))
           : dtype == DG_FLOAT16 ? fp16_to_float(float_to_fp16(value))
                                 : value;
}

static void run_reference(const struct gemm *g)
{
    struct gemm_problem problem;
    EXPECT_OK(gemm_problem_make(&g->args, NULL_DATA_REFUSED, &problem));
    ref_gemm(&problem);
}

/* Runs the reference; every element must be the formula's, and the error against FP64 within deepgemm.h's bound. */
static void check_gemm(struct gemm *g)
{
    decode_operands(g);
    const bool has_c = tensor_present(&g->args.c);
    const struct array *c = g->args.c.data == g->d.t.data ? &g->d : &g->c;
    const size_t count = (size_t)(g->batch * g->m * g->n);
    float *wanted = malloc((count + 1) * sizeof *wanted);
    double *exact = malloc((count + 1) * sizeof *exact), xy = 0, xx = 0, yy = 0;
    size_t next = 0;
    ARRAY_FOR_EACH (&g->d, b, i, j) {
        const float own_c = has_c ? array_read(c, b, i, j) : 0;
        wanted[next] = rounded_to(g->d.t.dtype, element_fp32(g, b, i, j, own_c));
        exact[next++] = element_fp64(g, b, i, j, (double)own_c);
    }
    run_reference(g);
    next = 0;
    ARRAY_FOR_EACH (&g->d, b, i, j) {
        const float got = array_read(&g->d, b, i, j);
        EXPECT_THAT(bits_of(got) == bits_of(wanted[next]), "d[%d,%d,%d] is %a, wanted %a", (int)b, (int)i, (int)j, got,
                    wanted[next]);
        xy += (double)got * exact[next];
        xx += (double)got * (double)got;
        yy += exact[next] * exact[next];
        ++next;
    }
    const double error = xx + yy > 0 ? 1 - 2 * xy / (xx + yy) : 0;
    EXPECT_THAT(error < (g->d.t.dtype == DG_BFLOAT16 ? 5e-6 : 2e-6), "the error is %g", error);
    EXPECT(array_gaps_intact(&g->d));
    free(wanted);
    free(exact);
}

TEST(gemm_gives_the_formula_in_every_layout)
{
    const int64_t mn[] = {1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 140};
    const int64_t ks[] = {0, 1, 5, 127, 128, 129, 256, 300, 512, 513, 640, 1000};
    const dg_dtype dtypes[] = {DG_BFLOAT16, DG_FLOAT16, DG_FLOAT32};
    struct random r = {1};
    for (int i = 0; i < 200; ++i) {
        const int32_t ndim = i % 3 == 0 ? 3 : 2;
        struct gemm g =
            gemm_make(&r, ndim, 1 + random_below(&r, 3), PICK(&r, mn), PICK(&r, mn), PICK(&r, ks), PICK(&r, dtypes),
                      (enum c_mode)random_below(&r, C_MODES), random_below(&r, 2) != 0, random_below(&r, 2) != 0);
        check_gemm(&g);
        gemm_free(&g);
    }
}

TEST(gemm_crosses_blocks_of_b_scales)
{
    struct random r = {2};
    struct gemm g = gemm_make(&r, 2, 1, 5, 300, 700, DG_FLOAT32, NO_C, false, false);
    check_gemm(&g);
    gemm_free(&g);
}

TEST(gemm_without_k_gives_c_or_zeros)
{
    struct random r = {3};
    struct gemm without = gemm_make(&r, 2, 1, 3, 20, 0, DG_BFLOAT16, NO_C, false, false);
    struct gemm with = gemm_make(&r, 2, 1, 3, 20, 0, DG_BFLOAT16, OWN_C, true, true);
    run_reference(&without);
    run_reference(&with);
    ARRAY_FOR_EACH (&without.d, b, i, j) {
        EXPECT_INT(bits_of(array_read(&without.d, b, i, j)), 0);
        EXPECT(array_read(&with.d, b, i, j) == array_read(&with.c, b, i, j));
    }
    gemm_free(&without);
    gemm_free(&with);
}

/* Integers and powers of two leave nothing to round: the result is exactly the integer product. */
TEST(gemm_is_exact_on_small_integers)
{
    struct random r = {4};
    struct gemm g = gemm_make(&r, 3, 2, 33, 47, 400, DG_FLOAT32, NO_C, true, true);
    ARRAY_FOR_EACH (&g.a, b, i, j)
        *(uint8_t *)array_at(&g.a, b, i, j) = float_to_e4m3((float)(random_below(&r, 17) - 8));
    ARRAY_FOR_EACH (&g.b, b, i, j)
        *(uint8_t *)array_at(&g.b, b, i, j) = float_to_e4m3((float)(random_below(&r, 17) - 8));
    run_reference(&g);
    decode_operands(&g);
    ARRAY_FOR_EACH (&g.d, b, i, j)
        EXPECT((double)array_read(&g.d, b, i, j) == element_fp64(&g, b, i, j, 0));
    gemm_free(&g);
}

TEST(gemm_passes_on_nan_and_overflows_fp16_to_infinity)
{
    struct random r = {5};
    struct gemm g = gemm_make(&r, 2, 1, 4, 4, 200, DG_FLOAT16, NO_C, false, false);
    const float large = 1e4f;
    for (int64_t k = 0; k < 200; ++k) {
        *(uint8_t *)array_at(&g.a, 0, 1, k) = *(uint8_t *)array_at(&g.b, 0, 1, k) = 0x7e; /* 448 */
        *(uint8_t *)array_at(&g.b, 0, 2, k) = 0xfe;
    }
    *(uint8_t *)array_at(&g.a, 0, 2, 199) = 0xff;
    memcpy(array_at(&g.sfa, 0, 1, 0), &large, sizeof large);
    run_reference(&g);
    EXPECT(array_read(&g.d, 0, 1, 1) == INFINITY && array_read(&g.d, 0, 1, 2) == -INFINITY);
    for (int64_t j = 0; j < 4; ++j)
        EXPECT(isnan(array_read(&g.d, 0, 2, j)));
    EXPECT(isfinite(array_read(&g.d, 0, 0, 0)) && isfinite(array_read(&g.d, 0, 3, 3)));
    gemm_free(&g);
}

TEST(gemm_reads_a_nan_scale)
{
    struct random r = {6};
    struct gemm g = gemm_make(&r, 2, 1, 2, 2, 600, DG_FLOAT32, NO_C, true, false);
    uint32_t word;
    memcpy(&word, array_at(&g.sfa, 0, 1, 1), 4);
    word = (word & ~0xffu) | 255; /* group 4 */
    memcpy(array_at(&g.sfa, 0, 1, 1), &word, 4);
    run_reference(&g);
    EXPECT(isfinite(array_read(&g.d, 0, 0, 0)) && isnan(array_read(&g.d, 0, 1, 0)));
    gemm_free(&g);
}
