/* The program's layouts and its judge, which must see what is wrong and nothing else. */
#include "cli/judge.h"
#include "cli/number.h"
#include "cli/program.h"
#include "cli/random.h"
#include "tests/test.h"

#include <math.h>

/* ---- Layouts -------------------------------------------------------------------------------------------------- */

struct mark {
    size_t bytes;
};

static void mark_run(void *user, uint8_t *data, size_t bytes)
{
    memset(data, 0xee, bytes);
    ((struct mark *)user)->bytes += bytes;
}

/* Every element is in exactly one run, and marking them all leaves the gaps alone. */
static void check_layout(const struct layout *layout, int64_t shift)
{
    struct operand o;
    struct mark mark = {0};
    operand_describe(&o, layout, DG_CPU);
    EXPECT(operand_allocate(&o, shift));
    operand_fill_pattern(&o);
    EXPECT(operand_gaps_same(&o, "o", NULL));
    operand_for_runs(&o, mark_run, &mark);
    const int64_t batch = layout->batch ? layout->batch : 1, element = (int64_t)dg_dtype_size(layout->dtype);
    EXPECT_INT(mark.bytes, batch * layout->rows * layout->cols * element);
    for (int64_t b = 0; b < batch; ++b)
        for (int64_t row = 0; row < layout->rows; ++row)
            for (int64_t col = 0; col < layout->cols; ++col)
                EXPECT_INT(*(uint8_t *)operand_element(&o, b, row, col), 0xee);
    EXPECT_THAT(operand_gaps_same(&o, "o", NULL), "%s", trouble_text());
    ((uint8_t *)o.host_memory)[o.bytes - 1] ^= 1;
    EXPECT(!operand_gaps_same(&o, "o", NULL));
    EXPECT_TEXT(trouble_text(), "wrote outside o");
    operand_free(&o);
}

TEST(operands_lie_where_their_layout_says)
{
    const struct layout layouts[] = {
        {.dtype = DG_FLOAT32, .rows = 5, .cols = 7, .step = 1},
        {.dtype = DG_BFLOAT16, .rows = 5, .cols = 7, .step = 1, .padding = 3},
        {.dtype = DG_BFLOAT16, .rows = 5, .cols = 7, .step = 1, .col_major = true, .padding = 2},
        {.dtype = DG_FLOAT32, .batch = 3, .rows = 4, .cols = 6, .step = 2, .padding = 1},
        {.dtype = DG_BFLOAT16, .batch = 3, .rows = 4, .cols = 6, .step = 1, .batch_inner = true, .padding = 5},
        {.dtype = DG_FLOAT8_E4M3, .batch = 1, .rows = 1, .cols = 1, .step = 1},
    };
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); ++i)
        check_layout(&layouts[i], i % 2);
}

TEST(samples_have_the_first_and_the_last)
{
    int64_t numbers[24];
    EXPECT_INT(sample_numbers(0, 24, 1, numbers), 0);
    EXPECT_INT(sample_numbers(10, 24, 1, numbers), 10);
    EXPECT_INT(numbers[9], 9);
    for (int64_t count = 25; count < 100000; count = count * 3 / 2) {
        EXPECT_INT(sample_numbers(count, 24, (uint64_t)count, numbers), 24);
        EXPECT_INT(numbers[0], 0);
        EXPECT_INT(numbers[23], count - 1);
        for (int i = 1; i < 24; ++i)
            EXPECT(numbers[i - 1] < numbers[i]);
    }
}

/* ---- The judge judged ----------------------------------------------------------------------------------------- */

TEST(fp64_products_are_those_of_the_definition)
{
    enum { M = 7, N = 5, K = 9 };
    struct array a, b;
    double wanted[M * N];
    static const int64_t picked[3] = {0, 4, 6};
    EXPECT(array_make(&a, DG_FLOAT32, M, K) && array_make(&b, DG_BFLOAT16, N, K));
    random_fill(DG_FLOAT32, a.data, M, K, RANDOM_PLAIN, 1);
    random_fill(DG_BFLOAT16, b.data, N, K, RANDOM_MODEL, 2);
    const struct array_rows a_rows = {&a, 3, picked}, b_rows = {&b, N, NULL};
    const struct rows left = rows_of_array(&a_rows), right = rows_of_array(&b_rows);
    EXPECT(expect_fp64(&left, &right, wanted));
    for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < N; ++j) {
            double sum = 0.0;
            for (int k = 0; k < K; ++k)
                sum += (double)number_read(a.dtype, a.data, picked[i] * K + k) *
                       (double)number_read(b.dtype, b.data, j * K + k);
            EXPECT(fabs(wanted[i * N + j] - sum) < 1e-12);
        }
    }
    array_free(&a);
    array_free(&b);
}

static void make_and_run(struct gemm *g, const char *line)
{
    struct test_case c;
    EXPECT_THAT(case_parse(line, &c) && gemm_make(g, &c, DG_CPU, RANDOM_GROUPS) && gemm_run(g, NULL, NULL), "%s",
                trouble_text());
}

static bool accepted(const struct gemm *g, enum judge judge)
{
    struct verdict v;
    EXPECT_THAT(judge_gemm(g, judge, 24, 160, &v), "%s", trouble_text());
    return verdict_accept(&v, g->d.host.dtype);
}

TEST(both_judges_accept_what_is_right)
{
    static const char *const lines[] = {
        "gemm fp8 m=33 n=200 k=300",
        "gemm fp8 m=33 n=200 k=300 out=fp32 sfa=ue8m0 sfb=ue8m0 sfa_layout=strided major=mn",
        "gemm fp8 m=40 n=50 k=130 out=fp16 batch=5 batch_layout=inner broadcast=b c=d ldd=+3",
        "gemm fp8 m=40 n=50 k=130 c=separate d_layout=step shift=+1 lda=+5",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); ++i) {
        struct gemm g;
        make_and_run(&g, lines[i]);
        EXPECT_THAT(accepted(&g, JUDGE_FP64), "%s: %s", lines[i], trouble_text());
        EXPECT_THAT(accepted(&g, JUDGE_REFERENCE), "%s: %s", lines[i], trouble_text());
        EXPECT_THAT(gemm_check_surroundings(&g), "%s: %s", lines[i], trouble_text());
        gemm_free(&g);
    }
}

/* What a kernel gets wrong when it takes a scale from a neighbouring group: only some elements, and by little. */
TEST(the_judge_sees_one_wrong_scale)
{
    struct gemm g;
    make_and_run(&g, "gemm fp8 m=64 n=160 k=1024");
    float *scale = operand_element(&g.sfa, 0, 63, 7);
    const float right = *scale;
    *scale = *(float *)operand_element(&g.sfa, 0, 63, 6) == right ? 2.0f * right
                                                                  : *(float *)operand_element(&g.sfa, 0, 63, 6);
    EXPECT(gemm_run(&g, NULL, NULL));
    *scale = right;
    EXPECT(!accepted(&g, JUDGE_FP64));
    EXPECT_TEXT(trouble_text(), "worst element [0, 63, ");
    EXPECT(!accepted(&g, JUDGE_REFERENCE));
    gemm_free(&g);
}

TEST(the_judge_sees_one_wrong_element_and_tells_where)
{
    struct gemm g;
    make_and_run(&g, "gemm fp8 m=16 n=160 k=512 out=fp32");
    float *d = operand_element(&g.d, 0, 5, 77);
    *d += 0.1f * (fabsf(*d) + 100.0f);
    EXPECT(!accepted(&g, JUDGE_FP64));
    EXPECT_TEXT(trouble_text(), "worst element [0, 5, 77]");
    *d = NAN;
    EXPECT(!accepted(&g, JUDGE_FP64));
    EXPECT(!gemm_check_surroundings(&g));
    EXPECT_TEXT(trouble_text(), "is NaN");
    gemm_free(&g);
}

TEST(the_judge_compares_whole_results)
{
    struct gemm g, shifted;
    struct verdict v;
    make_and_run(&g, "gemm fp8 m=65 n=140 k=300 out=fp32 c=d");
    make_and_run(&shifted, "gemm fp8 m=65 n=140 k=300 out=fp32 c=d shift=+1");
    EXPECT(judge_whole(&g, &shifted, &v) && verdict_accept(&v, DG_FLOAT32));
    EXPECT(v.difference2 == 0.0);
    EXPECT_INT(v.elements, 65 * 140);
    float *d = operand_element(&shifted.d, 0, 64, 139);
    *d += 0.1f * (fabsf(*d) + 100.0f);
    EXPECT(judge_whole(&g, &shifted, &v) && !verdict_accept(&v, DG_FLOAT32));
    EXPECT_TEXT(trouble_text(), "worst element [0, 64, 139]");
    gemm_free(&g);
    gemm_free(&shifted);
}

TEST(writing_outside_d_is_seen)
{
    struct gemm g;
    make_and_run(&g, "gemm fp8 m=16 n=70 k=128 ldd=+3");
    EXPECT(gemm_check_surroundings(&g));
    ((uint16_t *)operand_element(&g.d, 0, 7, 69))[1] ^= 1; /* the gap after row 7 */
    EXPECT(!gemm_check_surroundings(&g));
    EXPECT_TEXT(trouble_text(), "wrote outside D: the byte at 1162 from its first"); /* (7 * 73 + 70) * 2 */
    gemm_free(&g);
}

/* ---- Groups --------------------------------------------------------------------------------------------------- */

static const char *const grouped[] = {
    "gemm fp8 n=200 k=300 kind=contiguous groups=4 sizes=-64,100,0,-300,130,7 alignment=64 tail=-20 layout_step=+3",
    "gemm fp8 n=200 k=300 kind=psum groups=5 sizes=100,0,-3,130,7 alignment=64 tail=80 zero_padding=1 out=fp16",
    "gemm fp8 m=65 n=200 k=300 kind=masked groups=5 sizes=100,0,-3,65,7 c=separate sfa=ue8m0 sfb=ue8m0",
    "gemm fp8 m=65 n=71 k=300 kind=masked groups=5 mean=20 out=fp32 c=d recipe=1,1,128 ldd=+3",
    "gemm fp8 m=65 n=71 kind=k_grouped groups=5 out=fp32 c=d flat=1 sizes=100,0,-3,1,300 tail=-120",
    "gemm fp8 m=65 n=71 kind=k_grouped groups=5 out=fp32 c=separate major=mn sizes=100,0,-3,1,300 tail=120",
};
enum { GROUPED = sizeof(grouped) / sizeof(grouped[0]) };

static bool all_accepted(const struct gemm *g)
{
    struct verdict v;
    return judge_gemm(g, JUDGE_FP64, INT32_MAX, INT32_MAX, &v) && verdict_accept(&v, g->d.host.dtype);
}

TEST(grouped_results_are_accepted)
{
    for (int i = 0; i < GROUPED; ++i) {
        struct gemm g;
        make_and_run(&g, grouped[i]);
        EXPECT_THAT(gemm_check_surroundings(&g), "%s: %s", grouped[i], trouble_text());
        EXPECT_THAT(all_accepted(&g), "%s: %s", grouped[i], trouble_text());
        EXPECT_THAT(accepted(&g, JUDGE_FP64), "%s: %s", grouped[i], trouble_text());
        EXPECT_THAT(accepted(&g, JUDGE_REFERENCE), "%s: %s", grouped[i], trouble_text());
        EXPECT(gemm_refill(&g, RANDOM_GROUPS, 77) && gemm_run(&g, NULL, NULL));
        EXPECT_THAT(gemm_check_surroundings(&g) && all_accepted(&g), "%s, refilled: %s", grouped[i], trouble_text());
        gemm_free(&g);
    }
}

enum row_use { STAYS, ZERO, COMPUTED };

static enum row_use use_of(const struct gemm *g, int64_t batch, int64_t row)
{
    enum row_use use = STAYS;
    for (int64_t i = 0; i < g->groups.count; ++i) {
        const struct span *s = &g->groups.spans[i];
        if (s->batch == batch && row >= s->row && row < s->zero_end)
            use = row < s->end ? COMPUTED : ZERO;
    }
    return use;
}

/* One wrong row at a time, every one of D: of a computed row a wrong sum or none, of the others any change. */
static void spoil_rows(struct gemm *g, const char *line)
{
    const int64_t col = g->test.n - 1, rows = g->groups.room.rows;
    const dg_dtype dtype = g->d.host.dtype;
    for (int64_t i = 0; i < operand_batch(&g->d.host) * rows; ++i) {
        const enum row_use use = use_of(g, i / rows, i % rows);
        uint8_t *element = operand_element(&g->d, i / rows, i % rows, col), before[4];
        memcpy(before, element, dg_dtype_size(dtype));
        if (use == COMPUTED) {
            const float value = number_read(dtype, element, 0);
            number_write(dtype, element, 0, value + 0.5f * (fabsf(value) + 100.0f));
            EXPECT_THAT(!all_accepted(g), "%s: row %d is wrong and accepted", line, (int)i);
            number_write(dtype, element, 0, NAN);
        } else
            element[0] ^= 1;
        EXPECT_THAT(!gemm_check_surroundings(g), "%s: row %d is wrong and accepted", line, (int)i);
        EXPECT_TEXT(trouble_text(), use == COMPUTED ? "is NaN" : use == ZERO ? "has to be zeros" : "was changed");
        memcpy(element, before, dg_dtype_size(dtype));
    }
    EXPECT_THAT(gemm_check_surroundings(g) && all_accepted(g), "%s: %s", line, trouble_text());
}

TEST(each_wrong_row_of_groups_is_seen)
{
    static const char *const small[] = {
        "gemm fp8 n=20 k=130 kind=contiguous groups=3 sizes=-8,9,0,-8,12 alignment=8 tail=-3",
        "gemm fp8 n=20 k=130 kind=psum groups=3 sizes=9,0,12 alignment=8 tail=9",
        "gemm fp8 n=20 k=130 kind=psum groups=3 sizes=9,0,12 alignment=8 tail=9 zero_padding=1 ldd=+1",
        "gemm fp8 m=9 n=20 k=130 kind=masked groups=4 sizes=0,9,3,-1 c=d",
        "gemm fp8 m=9 n=20 kind=k_grouped groups=3 sizes=130,0,16 out=fp32 c=separate",
    };
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); ++i) {
        struct gemm g;
        make_and_run(&g, small[i]);
        spoil_rows(&g, small[i]);
        gemm_free(&g);
    }
}

/* The products of another layout than the one that is judged. */
static void expect_misdeal_seen(const char *line, int64_t index, int32_t number)
{
    struct gemm g;
    make_and_run(&g, line);
    int32_t *at = operand_element(&g.layout, 0, index, 0);
    const int32_t right = *at;
    *at = number;
    EXPECT(gemm_reset(&g) && gemm_run(&g, NULL, NULL));
    *at = right;
    EXPECT_THAT(!gemm_check_surroundings(&g) || !all_accepted(&g), "%s: layout[%d]=%d is accepted", line, (int)index,
                (int)number);
    gemm_free(&g);
}

TEST(another_deal_of_groups_is_seen)
{
    static const char contiguous[] = "gemm fp8 n=20 k=130 kind=contiguous groups=3 sizes=9,8,-8,12 alignment=8";
    expect_misdeal_seen(contiguous, 0, 1);
    expect_misdeal_seen(contiguous, 8, -1);
    expect_misdeal_seen(contiguous, 24, 2);
    static const char psum[] = "gemm fp8 n=20 k=130 kind=psum groups=3 sizes=9,8,12 alignment=8 zero_padding=1";
    expect_misdeal_seen(psum, 0, 8);
    expect_misdeal_seen(psum, 0, 10);
    expect_misdeal_seen(psum, 1, 20);
    static const char masked[] = "gemm fp8 m=9 n=20 k=130 kind=masked groups=3 sizes=9,0,4";
    expect_misdeal_seen(masked, 0, 8);
    expect_misdeal_seen(masked, 1, 1);
    expect_misdeal_seen(masked, 2, 5);
    static const char k_grouped[] = "gemm fp8 m=9 n=20 kind=k_grouped groups=3 sizes=128,256,130 out=fp32";
    expect_misdeal_seen(k_grouped, 0, 64);
    expect_misdeal_seen(k_grouped, 1, 128);
    expect_misdeal_seen(k_grouped, 2, 129);
}

TEST(whole_grouped_results_are_compared)
{
    for (int i = 0; i < GROUPED; ++i) {
        char line[CASE_NAME_BYTES];
        struct gemm g, shifted;
        struct verdict v;
        snprintf(line, sizeof(line), "%s shift=+1", grouped[i]);
        make_and_run(&g, grouped[i]);
        make_and_run(&shifted, line);
        EXPECT(judge_whole(&g, &shifted, &v) && verdict_accept(&v, g.d.host.dtype) && v.difference2 == 0.0);
        const struct span *last = &g.groups.spans[g.groups.count - 1];
        void *d = operand_element(&shifted.d, last->batch, last->end - 1, g.test.n - 1);
        const float value = number_read(g.d.host.dtype, d, 0);
        number_write(g.d.host.dtype, d, 0, value + 0.5f * (fabsf(value) + 100.0f));
        EXPECT(judge_whole(&g, &shifted, &v) && !verdict_accept(&v, g.d.host.dtype));
        gemm_free(&g);
        gemm_free(&shifted);
    }
}

/* ---- Quantisation and transforms ------------------------------------------------------------------------------ */

TEST(the_quantisation_judge_sees_wrong_codes_and_scales)
{
    struct test_case c;
    struct quantization z;
    EXPECT(case_parse("quantize fp8 m=40 k=300 in=fp32", &c));
    EXPECT_THAT(quantization_make(&z, &c, DG_CPU) && quantization_run(&z, NULL), "%s", trouble_text());
    EXPECT_THAT(judge_quantization(&z), "%s", trouble_text());
    uint8_t *code = operand_element(&z.q, 0, 17, 200);
    *code += 1;
    EXPECT(!judge_quantization(&z));
    EXPECT_TEXT(trouble_text(), "the code at [0, 17, 200]");
    *code -= 1;
    float *scale = operand_element(&z.sf, 0, 39, 2);
    *scale = nextafterf(*scale, 1.0f);
    EXPECT(!judge_quantization(&z));
    EXPECT_TEXT(trouble_text(), "the scale of group [0, 39, 2]");
    quantization_free(&z);
}

TEST(the_transform_judge_sees_a_wrong_scale)
{
    struct test_case c;
    struct transform f;
    EXPECT(case_parse("transform scale m=40 k=700", &c));
    EXPECT_THAT(transform_make(&f, &c, DG_CPU) && transform_run(&f, NULL), "%s", trouble_text());
    EXPECT_THAT(judge_transform(&f), "%s", trouble_text());
    *(uint32_t *)operand_element(&f.dst, 0, 3, 1) ^= 1u << 8; /* the sixth group's byte */
    EXPECT(!judge_transform(&f));
    EXPECT_TEXT(trouble_text(), "scale [0, 3, 5]");
    transform_free(&f);
}

/* The error measure's own definition, on numbers done by hand. */
TEST(the_error_is_the_contracts)
{
    struct verdict v = {0};
    double xy = 0.0, xx = 0.0, yy = 0.0;
    for (int i = 0; i < 100; ++i) {
        const double y = random_normal(1, (uint64_t)i), x = y * 1.001;
        verdict_add(&v, &(struct element){0, 0, i, x, y}, 1.0, DG_FLOAT32);
        xy += x * y;
        xx += x * x;
        yy += y * y;
    }
    EXPECT(fabs(verdict_error(&v) - (1.0 - 2.0 * xy / (xx + yy))) < 1e-12);
    EXPECT(verdict_accept(&v, DG_FLOAT32)); /* 5e-7 */
    EXPECT(verdict_limit(&v, DG_BFLOAT16) == 5e-6);
    EXPECT(verdict_limit(&v, DG_FLOAT16) == 2e-6 && verdict_limit(&v, DG_FLOAT32) == 2e-6);
}

static double error_of_one(float wanted, float got)
{
    struct verdict v = {0};
    verdict_add(&v, &(struct element){0, 0, 0, (double)got, (double)wanted}, 0.0, DG_BFLOAT16);
    return verdict_error(&v) / verdict_limit(&v, DG_BFLOAT16);
}

/* A single number may have been rounded at its worst: just above a power of two, to one of its neighbours half away. */
TEST(one_rounding_is_within_the_limit)
{
    EXPECT(error_of_one(1.0f + 0x1p-8f, 1.0f) < 1.0);
    EXPECT(error_of_one(1.0f + 0x1p-8f, 1.0f + 0x1p-7f) < 1.0);
    EXPECT(error_of_one(1.0f + 0x1p-8f, 1.0f - 0x1p-7f) > 1.0);
}

/* Two results of one sum may be rounded to either side, one step of BF16 apart; that is near where both are rounded. */
TEST(two_roundings_are_near)
{
    for (int both = 0; both < 2; ++both) {
        struct verdict v = {.wanted_rounded = both != 0};
        verdict_add(&v, &(struct element){0, 0, 0, 1088.0, 1096.0}, 80.0, DG_BFLOAT16);
        EXPECT((v.worst_multiple <= 1.0) == (both != 0));
    }
}
