/*
 * The grouped kinds of dg_gemm on the CPU: each span must have the bits of a dense product of its rows, and every other
 * element of D must be as it was. What the spans are is said here once more, in the words of deepgemm.h.
 */
#include "cpu/convert.h"
#include "deepgemm.h"
#include "shared/gemm_groups.h"
#include "tests/test.h"

#include <math.h>

enum { MOST_ROWS = 512, N = 200, K = 300, MOST_GROUPS = 8, KG = (K + 127) / 128, NB = (N + 127) / 128 };
enum { POISON = 0x7fc1 };

static uint8_t a[MOST_GROUPS * MOST_ROWS * K], b[MOST_GROUPS * N * K];
static float sfa[MOST_GROUPS * MOST_ROWS * KG], sfb[MOST_GROUPS * N * KG];
static uint16_t d[MOST_GROUPS * MOST_ROWS * N], wanted[MOST_GROUPS * MOST_ROWS * N];
static int32_t layout[MOST_ROWS];
static int64_t rows, groups;

static uint32_t next_random(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static void fill(void)
{
    for (size_t i = 0; i < sizeof a; ++i)
        a[i] = (uint8_t)(next_random() % 0x60 | (next_random() & 0x80));
    for (size_t i = 0; i < sizeof b; ++i)
        b[i] = (uint8_t)(next_random() % 0x60 | (next_random() & 0x80));
    for (size_t i = 0; i < sizeof sfa / sizeof *sfa; ++i)
        sfa[i] = (float)(next_random() % 1000) / 1000.0f + 0.1f;
    for (size_t i = 0; i < sizeof sfb / sizeof *sfb; ++i)
        sfb[i] = (float)(next_random() % 1000) / 1000.0f + 0.1f;
    for (size_t i = 0; i < sizeof d / sizeof *d; ++i)
        d[i] = wanted[i] = POISON;
}

static dg_tensor stack(void *data, dg_dtype dtype, int64_t batch, int64_t mn, int64_t k)
{
    dg_tensor t = dg_matrix(data, dtype, DG_CPU, mn, k);
    t.ndim = 3;
    t.shape[0] = batch;
    t.shape[1] = mn;
    t.shape[2] = k;
    t.stride[0] = mn * k;
    t.stride[1] = k;
    t.stride[2] = 1;
    return t;
}

static dg_tensor vector(int64_t count)
{
    dg_tensor t = dg_matrix(layout, DG_INT32, DG_CPU, 1, 1);
    t.ndim = 1;
    t.shape[0] = count;
    t.stride[0] = 1;
    return t;
}

/* The rows first..end of D as one dense product with B number `group`; `entry` is A's and D's. */
static void want(int64_t entry, int64_t group, int64_t first, int64_t end)
{
    const int64_t row = entry * rows + first, count = end - first;
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    args.a = dg_matrix(a + row * K, DG_FLOAT8_E4M3, DG_CPU, count, K);
    args.sfa = dg_matrix(sfa + row * KG, DG_FLOAT32, DG_CPU, count, KG);
    args.b = dg_matrix(b + group * N * K, DG_FLOAT8_E4M3, DG_CPU, N, K);
    args.sfb = dg_matrix(sfb + group * NB * KG, DG_FLOAT32, DG_CPU, NB, KG);
    args.d = dg_matrix(wanted + row * N, DG_BFLOAT16, DG_CPU, count, N);
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
}

static dg_gemm_args grouped_args(dg_gemm_kind kind)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    const bool masked = kind == DG_GEMM_MASKED;
    args.kind = kind;
    args.a = masked ? stack(a, DG_FLOAT8_E4M3, groups, rows, K) : dg_matrix(a, DG_FLOAT8_E4M3, DG_CPU, rows, K);
    args.sfa = masked ? stack(sfa, DG_FLOAT32, groups, rows, KG) : dg_matrix(sfa, DG_FLOAT32, DG_CPU, rows, KG);
    args.d = masked ? stack(d, DG_BFLOAT16, groups, rows, N) : dg_matrix(d, DG_BFLOAT16, DG_CPU, rows, N);
    args.b = stack(b, DG_FLOAT8_E4M3, groups, N, K);
    args.sfb = stack(sfb, DG_FLOAT32, groups, NB, KG);
    args.layout = vector(kind == DG_GEMM_CONTIGUOUS ? rows : groups);
    return args;
}

static void expect_wanted(const char *what)
{
    for (size_t i = 0; i < sizeof d / sizeof *d; ++i)
        EXPECT_THAT(d[i] == wanted[i], "%s: element %zu (row %zu) is %#x, wanted %#x", what, i, i / N, d[i], wanted[i]);
}

TEST(contiguous_blocks_follow_their_first_row)
{
    static const int64_t alignments[] = {0, 8, 16, 32, 96, 128, 256};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; ++i) {
        const int64_t block = alignments[i] ? alignments[i] : 128;
        rows = 300 + (int64_t)i;
        groups = 3;
        fill();
        for (int64_t row = 0; row < rows; ++row)
            layout[row] = row % block == 0 ? (int32_t)(next_random() % 5) - 1 : -1; /* -1 to 3, and 3 is none either */
        layout[block] = INT32_MIN;
        dg_gemm_args args = grouped_args(DG_GEMM_CONTIGUOUS);
        args.alignment = (int32_t)alignments[i];
        EXPECT_OK(dg_gemm(NULL, &args, NULL));
        for (int64_t row = 0; row < rows; row += block)
            if (layout[row] >= 0 && layout[row] < groups)
                want(0, layout[row], row, row + block < rows ? row + block : rows);
        expect_wanted("contiguous");
    }
}

static void check_psum(const int32_t *ends, int64_t count, int64_t block, bool zeros)
{
    int64_t before = 0;
    rows = 400;
    groups = count;
    fill();
    memcpy(layout, ends, (size_t)count * sizeof *ends);
    dg_gemm_args args = grouped_args(DG_GEMM_PSUM);
    args.alignment = (int32_t)block;
    args.flags = zeros ? DG_GEMM_ZERO_PADDING : 0;
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    for (int64_t g = 0; g < count; ++g) {
        const int64_t first = (before + block - 1) / block * block, end = ends[g] < rows ? ends[g] : rows;
        if (end >= first) {
            if (end > first)
                want(0, g, first, end);
            for (int64_t row = end; zeros && row % block != 0 && row < rows; ++row)
                memset(wanted + row * N, 0, N * sizeof *wanted);
        }
        before = ends[g] < 0 ? 0 : end;
    }
    expect_wanted("psum");
}

TEST(psum_groups_begin_aligned_and_gaps_stay_or_become_zeros)
{
    for (int zeros = 0; zeros < 2; ++zeros) {
        check_psum((const int32_t[]){100, 128, 129, 300}, 4, 128, zeros);
        check_psum((const int32_t[]){0, 0, 390, 512, 512}, 5, 128, zeros);
        check_psum((const int32_t[]){1, 9, 17, 30, 400}, 5, 8, zeros);
        check_psum((const int32_t[]){-5, 64, 20, 5000}, 4, 32, zeros); /* nonsense stays inside */
    }
}

TEST(masked_rows_alone_are_computed)
{
    static const int64_t most[] = {1, 8, 65, 200};
    for (size_t i = 0; i < sizeof most / sizeof *most; ++i)
        for (int zero = 0; zero < 2; ++zero) {
            rows = most[i];
            groups = 6;
            fill();
            for (int64_t g = 0; g < groups; ++g)
                layout[g] = zero ? -(int32_t)(g % 2) : (int32_t)(next_random() % (uint32_t)(rows + 1));
            layout[2] = zero ? 0 : (int32_t)rows + 7;
            dg_gemm_args args = grouped_args(DG_GEMM_MASKED);
            args.expected_m = (int32_t)i;
            EXPECT_OK(dg_gemm(NULL, &args, NULL));
            for (int64_t g = 0; g < groups; ++g)
                if (layout[g] > 0)
                    want(g, g, 0, layout[g] < rows ? layout[g] : rows);
            expect_wanted("masked");
        }
}

/* ---- Groups along K ------------------------------------------------------------------------------------------ */

enum { KM = 40, KN = 24 };
static float kd[MOST_GROUPS * KM * KN], kc[MOST_GROUPS * KM * KN];

/* One group's product, summed as the header says; the groups of 128 begin anew in each. */
static float k_element(const uint8_t *x, const float *sx, int64_t x_stride, const uint8_t *y, const float *sy,
                       int64_t y_stride, int64_t k)
{
    float sum = 0;
    for (int64_t group = 0; group * 128 < k; ++group) {
        float partial = 0;
        for (int64_t i = group * 128; i < k && i < group * 128 + 128; ++i)
            partial += e4m3_to_float(x[i * x_stride]) * e4m3_to_float(y[i * y_stride]);
        sum = fmaf(sx[group] * sy[group], partial, sum);
    }
    return sum;
}

static void check_k_groups(const int32_t *ks, int64_t count, bool flat, bool has_c)
{
    int64_t total = 0, blocks = 0;
    for (int64_t g = 0; g < count; ++g) {
        total += ks[g];
        blocks += (ks[g] + 127) / 128;
    }
    groups = count;
    fill();
    memcpy(layout, ks, (size_t)count * sizeof *ks);
    for (size_t i = 0; i < sizeof kc / sizeof *kc; ++i)
        kc[i] = (float)(next_random() % 100);
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    args.kind = DG_GEMM_K_GROUPED;
    args.a = dg_transposed(dg_matrix(a, DG_FLOAT8_E4M3, DG_CPU, total, KM));
    args.b = dg_transposed(dg_matrix(b, DG_FLOAT8_E4M3, DG_CPU, total, KN));
    if (flat) {
        args.a.ndim = args.b.ndim = 1;
        args.a.shape[0] = total * KM;
        args.b.shape[0] = total * KN;
        args.a.stride[0] = args.b.stride[0] = 1;
    }
    args.sfa = dg_matrix(sfa, DG_FLOAT32, DG_CPU, KM, blocks);
    args.sfb = dg_matrix(sfb, DG_FLOAT32, DG_CPU, KN, blocks);
    args.d = stack(kd, DG_FLOAT32, count, KM, KN);
    if (has_c)
        args.c = stack(kc, DG_FLOAT32, count, KM, KN);
    args.layout = vector(count);
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    int64_t k = 0, block = 0;
    for (int64_t g = 0; g < count; k += ks[g], block += (ks[g] + 127) / 128, ++g)
        for (int64_t i = 0; i < KM * KN; ++i) {
            const int64_t m = i / KN, n = i % KN;
            const uint8_t *x = flat ? a + k * KM + m * ks[g] : a + k * KM + m;
            const uint8_t *y = flat ? b + k * KN + n * ks[g] : b + k * KN + n;
            const float sum = k_element(x, sfa + m * blocks + block, flat ? 1 : KM, y, sfb + n * blocks + block,
                                        flat ? 1 : KN, ks[g]);
            const float value = has_c ? sum + kc[g * KM * KN + i] : sum, got = kd[g * KM * KN + i];
            EXPECT_THAT(got == value, "group %d of K=%d, d[%d,%d] is %a, wanted %a", (int)g, (int)ks[g], (int)m, (int)n,
                        (double)got, (double)value);
        }
}

TEST(k_groups_are_products_of_their_own)
{
    for (int flat = 0; flat < 2; ++flat)
        for (int has_c = 0; has_c < 2; ++has_c) {
            check_k_groups((const int32_t[]){128, 256, 0, 384}, 4, flat, has_c);
            check_k_groups((const int32_t[]){0, 100, 1, 0, 300, 0}, 6, flat, has_c);
            check_k_groups((const int32_t[]){0, 0}, 2, flat, has_c);
        }
}

TEST(nonsense_in_a_layout_stays_within_its_room)
{
    const int32_t values[] = {INT32_MIN, 500, INT32_MAX, -1, 200, 0};
    memcpy(layout, values, sizeof values);
    struct gemm_groups g = {.kind = GEMM_KIND_K_GROUPED,
                            .spans = 6,
                            .groups = 6,
                            .rows = 7,
                            .k = 600,
                            .k_blocks = 5,
                            .layout = (uint64_t)(uintptr_t)layout,
                            .layout_stride = 1};
    struct gemm_span span = gemm_span_begin(&g);
    for (int64_t i = 0; i < g.spans; ++i) {
        gemm_span_read(&g, i, &span);
        EXPECT(span.k >= 0 && span.k_begin >= 0 && span.k_begin + span.k <= g.k);
        EXPECT(span.k_block + (span.k + 127) / 128 <= g.k_blocks);
    }
}

/* ---- What is refused ----------------------------------------------------------------------------------------- */

#define EXPECT_INVALID(args, words) EXPECT_REFUSED(dg_gemm(NULL, args, NULL), DG_ERROR_INVALID_ARGUMENT, words)

TEST(refusals_name_the_argument)
{
    rows = 256;
    groups = 3;
    fill();
    dg_gemm_args args = grouped_args(DG_GEMM_CONTIGUOUS);
    args.layout.shape[0] = 255;
    EXPECT_INVALID(&args, "layout is [255]; DG_GEMM_CONTIGUOUS wants a number for each row of d: [256]");
    args = grouped_args(DG_GEMM_CONTIGUOUS);
    args.layout.dtype = DG_FLOAT32;
    EXPECT_INVALID(&args, "layout has the dtype float32");
    args = grouped_args(DG_GEMM_CONTIGUOUS);
    args.layout.dtype = DG_DTYPE_NONE;
    EXPECT_INVALID(&args, "layout is missing");
    args = grouped_args(DG_GEMM_CONTIGUOUS);
    args.alignment = 100;
    EXPECT_INVALID(&args, "alignment is 100; wanted 8, 16 or a multiple of 32 up to 256");
    args = grouped_args(DG_GEMM_CONTIGUOUS);
    args.flags = DG_GEMM_ZERO_PADDING;
    EXPECT_INVALID(&args, "DG_GEMM_ZERO_PADDING, which is for DG_GEMM_PSUM; kind is DG_GEMM_CONTIGUOUS");
    args = grouped_args(DG_GEMM_CONTIGUOUS);
    args.kind = DG_GEMM_DENSE;
    EXPECT_INVALID(&args, "b has 3 dimensions; wanted 2");
    args = grouped_args(DG_GEMM_PSUM);
    args.layout.shape[0] = 4;
    EXPECT_INVALID(&args, "layout is [4]; DG_GEMM_PSUM wants an end for each group of b: [3]");
    args = grouped_args(DG_GEMM_MASKED);
    args.expected_m = -1;
    EXPECT_INVALID(&args, "expected_m is -1");
    args = grouped_args(DG_GEMM_MASKED);
    args.alignment = 64;
    EXPECT_INVALID(&args, "alignment is 64; wanted a kind that has one");
    args = grouped_args(DG_GEMM_MASKED);
    args.recipe[0] = args.recipe[1] = 1;
    args.recipe[2] = 64;
    EXPECT_INVALID(&args, "recipe is {1, 1, 64}; wanted {1, 128, 128}, {1, 1, 128} or zeros");
    args = grouped_args(DG_GEMM_MASKED);
    args.b.shape[0] = args.sfb.shape[0] = 2;
    EXPECT_INVALID(&args, "b is [2, 200, 300] float8_e4m3; d of 200 columns and a of K=300 wants [3, 200, 300]");
    args = grouped_args(DG_GEMM_MASKED);
    dg_gemm_args dense = args;
    dense.kind = DG_GEMM_DENSE;
    EXPECT_INVALID(&dense, "layout is [3] int32, but kind is DG_GEMM_DENSE");
}

TEST(empty_groups_and_rows_are_no_work)
{
    rows = 0;
    groups = 3;
    dg_gemm_args args = grouped_args(DG_GEMM_CONTIGUOUS);
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    rows = 64;
    groups = 0;
    args = grouped_args(DG_GEMM_CONTIGUOUS);
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    args = grouped_args(DG_GEMM_MASKED);
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
}
