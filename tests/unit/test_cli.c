/* The program's parts that need no GPU: cases, files and numbers. */
#include "cli/array.h"
#include "cli/cases.h"
#include "cli/groups.h"
#include "cli/npy.h"
#include "cli/number.h"
#include "cli/parallel.h"
#include "cli/program.h"
#include "cli/random.h"
#include "cli/report.h"
#include "cli/safetensors.h"
#include "cli/selftest.h"
#include "cpu/convert.h"
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

/* ---- Cases ---------------------------------------------------------------------------------------------------- */

static const char *printed(const char *line)
{
    static char name[CASE_NAME_BYTES];
    struct test_case c;
    if (!case_parse(line, &c))
        test_fail(__FILE__, __LINE__, "\"%s\" was refused: %s", line, trouble_text());
    case_print(&c, name);
    return name;
}

static void expect_printed(const char *line, const char *wanted)
{
    const char *got = printed(line);
    if (strcmp(got, wanted) != 0)
        test_fail(__FILE__, __LINE__, "\"%s\" prints as \"%s\", wanted \"%s\"", line, got, wanted);
}

static void expect_refused(const char *line, const char *words)
{
    struct test_case c;
    if (case_parse(line, &c))
        test_fail(__FILE__, __LINE__, "\"%s\" was accepted", line);
    EXPECT_TEXT(trouble_text(), words);
}

TEST(a_case_prints_its_canonical_line)
{
    expect_printed("gemm fp8 m=4096 n=7168 k=2048", "gemm fp8 m=4096 n=7168 k=2048 out=bf16 recipe=1,128,128");
    expect_printed("  gemm\tfp8 k=3 out=fp32 m=1 n=2 \n", "gemm fp8 m=1 n=2 k=3 out=fp32 recipe=1,128,128");
    expect_printed("gemm fp8 m=1 n=2 k=3 seed=1 c=none lda=+0 batch=0 sfa_layout=mn",
                   "gemm fp8 m=1 n=2 k=3 out=bf16 recipe=1,128,128");
    expect_printed("quantize fp8 m=7 k=9", "quantize fp8 m=7 k=9 in=bf16 gran=1,128 sf=fp32");
    expect_printed("transform scale m=7 k=9 round=1", "transform scale m=7 k=9 from=fp32 to=ue8m0 gran=1,128 round=1");
}

TEST(every_key_survives_printing_and_parsing)
{
    const char *lines[] = {
        "gemm fp8 m=5 n=6 k=7 out=fp16 recipe=1,128,128 batch=3 c=separate major=mn sfa=ue8m0 sfa_layout=strided",
        "gemm fp8 m=5 n=6 k=7 out=bf16 recipe=1,128,128 sfb=ue8m0 sfb_layout=mn lda=+16 ldb=+7 ldd=+3 d_layout=col",
        "gemm fp8 m=5 n=6 k=7 out=bf16 recipe=1,128,128 batch=3 broadcast=b shift=+1 num_sms=77 seed=12",
        "gemm fp8 m=5 n=6 k=7 out=fp32 recipe=1,128,128 batch=2 c=d d_layout=step batch_layout=inner",
        "gemm fp8 m=5 n=6 k=7 out=bf16 recipe=1,1,128 kind=contiguous groups=3 tail=-2 alignment=64 layout_step=+1",
        "gemm fp8 n=6 k=7 out=bf16 recipe=1,128,128 kind=contiguous groups=3 sizes=-128,0,9,1 tail=400 c=d",
        "gemm fp8 n=6 k=7 out=bf16 recipe=1,128,128 kind=psum groups=2 sizes=5 zero_padding=1 expected_m=4 beside_ns=9",
        "gemm fp8 m=9 n=6 k=7 out=bf16 recipe=1,128,128 kind=masked groups=2 mean=4 expected_m=7",
        "gemm fp8 m=9 n=6 k=7 out=bf16 recipe=1,128,128 kind=masked groups=2 sizes=-1,2147483647",
        "gemm fp8 m=9 n=6 k=7 out=fp32 recipe=1,1,128 kind=k_grouped groups=2 flat=1",
        "gemm fp8 m=9 n=6 out=fp32 recipe=1,1,128 kind=k_grouped groups=2 sizes=0,300 tail=-5 major=mn",
        "quantize fp8 m=5 k=6 in=fp16 gran=128,1 sf=ue8m0 batch=2 sf_layout=row lda=+1 shift=+2 round=1 seed=3",
        "transform scale m=5 k=6 from=ue8m0 to=fp32 gran=128,128 batch=4 sf_layout=mn_unaligned seed=9",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); ++i)
        expect_printed(lines[i], lines[i]);
}

/* The longest list there may be, and every other key at its longest. */
TEST(the_longest_case_survives_too)
{
    char line[2 * CASE_NAME_BYTES] = "gemm fp8 m=1073741824 n=1073741824 k=1073741824 out=bf16 recipe=1024,1024,1024 "
                                     "kind=masked groups=65536 sizes=-2147483648";
    char name[CASE_NAME_BYTES];
    for (int i = 1; i < CASE_MOST_SIZES; ++i)
        strcat(line, ",-2147483648");
    strcat(line, " expected_m=2147483647 layout_step=+1048576 c=separate major=mk sfa=ue8m0 sfb=ue8m0 "
                 "sfa_layout=mn_unaligned sfb_layout=mn_unaligned lda=+1048576 ldb=+1048576 ldd=+1048576 "
                 "d_layout=step shift=+1048576 num_sms=65536 beside_ns=1073741824 seed=9223372036854775807");
    struct test_case c;
    EXPECT_THAT(case_parse(line, &c), "%s", trouble_text());
    case_print(&c, name);
    EXPECT_THAT(strcmp(line, name) == 0, "%s", name);
}

TEST(bad_cases_are_refused_with_a_sentence)
{
    expect_refused("", "a case begins with");
    expect_refused("conv fp8 m=1", "not \"conv\"");
    expect_refused("gemm", "after \"gemm\" comes \"fp8\"");
    expect_refused("gemm bf16 m=1", "not \"bf16\"");
    expect_refused("gemm fp8 m=1 n=2", "lacks k=");
    expect_refused("gemm fp8 m=1 n=2 k=3 x=4", "gemm has no key \"x\"; it has m, n, k, out");
    expect_refused("quantize fp8 m=1 k=3 n=4", "quantize has no key \"n\"");
    expect_refused("gemm fp8 m=1 n=2 k=3 m=4", "m comes twice");
    expect_refused("gemm fp8 m=1 n=2 k", "\"k\" is no key=value");
    expect_refused("gemm fp8 m=one n=2 k=3", "m=one: \"one\" is not a whole number");
    expect_refused("gemm fp8 m=1.5 n=2 k=3", "m=1.5");
    expect_refused("gemm fp8 m= n=2 k=3", "is not a whole number");
    expect_refused("gemm fp8 m=-1 n=2 k=3", "-1 is not between 0 and");
    expect_refused("gemm fp8 m=99999999999999999999 n=2 k=3", "is not between 0 and");
    expect_refused("gemm fp8 m=1 n=2 k=3 out=fp8", "out=fp8: wanted is one of bf16, fp16, fp32");
    expect_refused("gemm fp8 m=1 n=2 k=3 recipe=1,128", "has 2 numbers, not 3");
    expect_refused("gemm fp8 m=1 n=2 k=3 recipe=1,128,128,1", "more than 3 numbers");
    expect_refused("gemm fp8 m=1 n=2 k=3 lda=16", "such as +16");
    expect_refused("gemm fp8 m=1 n=2 k=3 lda=+-16", "lda=-16");
    expect_refused("gemm fp8 m=1 n=2 k=3 broadcast=a", "want a batch");
    expect_refused("gemm fp8 m=1 n=2 k=3 batch=2 batch_layout=inner major=mk", "contiguous along k");
    expect_refused("transform scale m=1 k=2 from=ue8m0 to=ue8m0", "does not exist");
    expect_refused("gemm fp8 m=1 n=2 k=3 kind=grouped", "wanted is one of dense, contiguous, psum, masked, k_grouped");
    expect_refused("gemm fp8 m=1 n=2 k=3 kind=masked", "kind=masked wants groups=");
    expect_refused("gemm fp8 m=1 n=2 k=3 groups=3", "groups has no meaning with kind=dense");
    expect_refused("gemm fp8 m=1 n=2 k=3 kind=psum groups=3 batch=2", "batch has no meaning with kind=psum");
    expect_refused("gemm fp8 m=1 n=2 k=3 kind=psum groups=3 mean=2", "mean has no meaning with kind=psum");
    expect_refused("gemm fp8 m=1 n=2 k=3 kind=psum groups=3 sizes=2", "m and sizes exclude each other with kind=psum");
    expect_refused("gemm fp8 n=2 kind=psum groups=3 sizes=2", "lacks k=");
    expect_refused("gemm fp8 m=1 n=2 k=3 kind=k_grouped groups=3 sizes=2", "k and sizes exclude each other");
    expect_refused("gemm fp8 n=2 k=3 kind=contiguous groups=3 sizes=-2,-3", "no group gets any rows");
    expect_refused("gemm fp8 n=2 k=3 kind=psum groups=3 sizes=128,-128", "two groups share rows");
    expect_refused("gemm fp8 n=2 k=3 kind=psum groups=3 sizes=", "is not a whole number");
    expect_refused("gemm fp8 n=2 k=3 kind=psum groups=3 sizes=2147483648", "is not between");
    expect_refused("gemm fp8 n=2 k=3 kind=psum groups=3 sizes=2147483647", "the groups add up to");
    expect_refused("gemm fp8 m=1 n=2 k=3 kind=k_grouped groups=3 flat=1 lda=+1", "flat=1 leaves no choice");
    expect_refused(
        "gemm fp8 n=2 k=3 kind=psum groups=1 sizes=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
        "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0",
        "it has 65 numbers; at most 64");
}

/* ---- Groups --------------------------------------------------------------------------------------------------- */

static void deal(const char *line, struct groups *groups)
{
    struct test_case c;
    EXPECT_THAT(case_parse(line, &c) && groups_make(groups, &c, (uint64_t)c.seed), "%s: %s", line, trouble_text());
}

static void expect_layout(const struct groups *groups, int64_t first, int64_t end, int32_t number)
{
    for (int64_t i = first; i < end; ++i)
        EXPECT_THAT(groups->layout[i] == number, "row %d is marked %d, wanted %d", (int)i, groups->layout[i], number);
}

/* What a span says, as text. */
static void expect_span(const struct groups *groups, int64_t index, const char *wanted)
{
    char got[128];
    EXPECT(index < groups->count);
    const struct span *s = &groups->spans[index];
    snprintf(got, sizeof(got), "d %d, b %d, rows %d to %d, zeros to %d, k %d from %d, scales from %d", (int)s->batch,
             (int)s->group, (int)s->row, (int)s->end, (int)s->zero_end, (int)s->k, (int)s->k_begin, (int)s->k_block);
    EXPECT_THAT(strcmp(got, wanted) == 0, "span %d is \"%s\", wanted \"%s\"", (int)index, got, wanted);
}

TEST(contiguous_groups_are_dealt_as_written)
{
    struct groups g;
    deal("gemm fp8 n=2 k=300 kind=contiguous groups=3 sizes=-30,40,0,-64,7,-1 alignment=32 tail=40", &g);
    EXPECT_INT(g.room.rows, 32 + 64 + 64 + 32 + 40);
    EXPECT_INT(g.room.layout, g.room.rows);
    expect_layout(&g, 0, 32, -1);
    expect_layout(&g, 32, 72, 0);
    expect_layout(&g, 72, 96, -1);
    expect_layout(&g, 96, 160, 3); /* of no group too: there are three */
    expect_layout(&g, 160, 167, 2);
    expect_layout(&g, 167, 232, -1);
    EXPECT_INT(g.count, 2);
    expect_span(&g, 0, "d 0, b 0, rows 32 to 96, zeros to 96, k 300 from 0, scales from 0");
    expect_span(&g, 1, "d 0, b 2, rows 160 to 192, zeros to 192, k 300 from 0, scales from 0");
    groups_free(&g);
    deal("gemm fp8 n=2 k=3 kind=contiguous groups=2 sizes=40,-1,-1,-1,-1 alignment=8 tail=-3", &g);
    EXPECT_INT(g.room.rows, 40 + 4 * 8 + 40 - 3);
    expect_layout(&g, 48, 56, 2);
    expect_layout(&g, 56, 64, INT32_MIN);
    expect_layout(&g, 64, 72, INT32_MAX);
    expect_span(&g, 1, "d 0, b 1, rows 72 to 109, zeros to 109, k 3 from 0, scales from 0");
    groups_free(&g);
}

TEST(prefix_sums_are_dealt_as_written)
{
    struct groups g;
    deal("gemm fp8 n=2 k=3 kind=psum groups=5 sizes=-9,40,0,-3,50 alignment=32 zero_padding=1 tail=-20", &g);
    static const int32_t ends[] = {-9, 40, 64, 61, 114};
    for (int i = 0; i < 5; ++i)
        EXPECT_INT(g.layout[i], ends[i]);
    EXPECT_INT(g.room.rows, 108);
    EXPECT_INT(g.count, 4);
    expect_span(&g, 0, "d 0, b 0, rows 0 to 0, zeros to 0, k 3 from 0, scales from 0");
    expect_span(&g, 1, "d 0, b 1, rows 0 to 40, zeros to 64, k 3 from 0, scales from 0");
    expect_span(&g, 2, "d 0, b 2, rows 64 to 64, zeros to 64, k 3 from 0, scales from 0");
    expect_span(&g, 3, "d 0, b 4, rows 64 to 108, zeros to 108, k 3 from 0, scales from 0");
    groups_free(&g);
}

TEST(counts_and_ks_are_dealt_as_written)
{
    struct groups g;
    deal("gemm fp8 m=9 n=2 k=3 kind=masked groups=3 sizes=-1,10,4", &g);
    expect_span(&g, 0, "d 0, b 0, rows 0 to 0, zeros to 0, k 3 from 0, scales from 0");
    expect_span(&g, 1, "d 1, b 1, rows 0 to 9, zeros to 9, k 3 from 0, scales from 0");
    expect_span(&g, 2, "d 2, b 2, rows 0 to 4, zeros to 4, k 3 from 0, scales from 0");
    groups_free(&g);
    deal("gemm fp8 m=9 n=2 kind=k_grouped groups=4 sizes=130,-7,0,300 tail=-10", &g);
    EXPECT_INT(g.room.k, 420);
    EXPECT_INT(g.room.k_blocks, 5);
    expect_span(&g, 1, "d 1, b 1, rows 0 to 9, zeros to 9, k 0 from 130, scales from 2");
    expect_span(&g, 3, "d 3, b 3, rows 0 to 9, zeros to 9, k 290 from 130, scales from 2");
    groups_free(&g);
}

TEST(drawn_sizes_spread_about_their_mean_and_fit_any_seed)
{
    static const char *const lines[] = {"gemm fp8 m=100 n=2 k=3 kind=contiguous groups=50 alignment=8",
                                        "gemm fp8 m=100 n=2 k=3 kind=psum groups=50 alignment=8",
                                        "gemm fp8 m=4096 n=2 k=3 kind=masked groups=50 mean=100"};
    for (int i = 0; i < 3; ++i) {
        struct test_case c;
        struct groups g;
        double rows = 0.0;
        deal(lines[i], &g);
        EXPECT_INT(g.count, 50);
        for (int64_t j = 0; j < g.count; ++j) {
            const int64_t size = g.spans[j].end - g.spans[j].row;
            EXPECT(size >= 70 && size <= 136); /* contiguous: up to the next aligned row */
            rows += (double)size;
        }
        EXPECT(rows > 4600 && rows < 5600);
        groups_free(&g);
        EXPECT(case_parse(lines[i], &c));
        for (uint64_t seed = 2; seed < 50; ++seed) { /* ASan would see what does not fit */
            EXPECT(groups_make(&g, &c, seed));
            for (int64_t j = 0; j < g.count; ++j)
                EXPECT(g.spans[j].end <= g.room.rows);
            groups_free(&g);
        }
    }
}

TEST(groups_work_is_that_of_what_is_in_use)
{
    struct test_case c;
    EXPECT(case_parse("gemm fp8 m=64 n=256 k=256 kind=masked groups=4 sizes=0,10,20,-3", &c));
    EXPECT_INT(case_flops(&c), 2 * 30 * 256 * 256);
    EXPECT_INT(case_bytes(&c), 30 * (256 + 8) + 2 * (256 * 256 + 16) + 30 * 256 * 2);
    EXPECT(case_parse("gemm fp8 m=64 n=256 kind=k_grouped groups=3 sizes=0,128,384 out=fp32 c=d", &c));
    EXPECT_INT(case_flops(&c), 2 * 64 * 256 * 512);
    EXPECT_INT(case_bytes(&c), (64 + 256) * (512 + 16) + 3 * 64 * 256 * 8);
    EXPECT(case_parse("gemm fp8 n=256 k=256 kind=contiguous groups=3 sizes=1,0,-512,130", &c));
    EXPECT_INT(case_flops(&c), 2 * (128 + 256) * 256 * 256); /* whole blocks are computed */
}

TEST(arguments_make_cases_quoted_or_not)
{
    char *words[] = {"gemm fp8 m=1 n=2 k=3", "gemm", "fp8", "m=4", "n=5", "k=6", "quantize fp8 m=7", "k=8"};
    struct case_list list = {0};
    EXPECT(case_list_arguments(&list, 8, words));
    EXPECT_INT(list.count, 3);
    EXPECT_INT(list.items[1].n, 5);
    EXPECT_INT(list.items[2].op, CASE_QUANTIZE);
    EXPECT_INT(list.items[2].k, 8);
    EXPECT(!case_list_arguments(&list, 1, (char *[]){"m=3"}));
    case_list_free(&list);
}

TEST(a_pattern_stands_for_all_its_alternatives)
{
    struct case_list list = {0};
    EXPECT(case_list_pattern(&list, "gemm fp8 m={1|64} {n=576 k=7168|n=7168 k=2048} out={bf16|fp32}"));
    EXPECT_INT(list.count, 8);
    EXPECT_INT(list.items[0].m, 1);
    EXPECT_INT(list.items[0].n, 576);
    EXPECT_INT(list.items[7].m, 64);
    EXPECT_INT(list.items[7].k, 2048);
    EXPECT_INT(list.items[7].out, DG_FLOAT32);
    EXPECT(!case_list_pattern(&list, "gemm fp8 m={1|2"));
    case_list_free(&list);
}

static const char *temporary(const char *name)
{
    static char path[512];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/test_cli.%ld.%s", folder && *folder ? folder : "/tmp", (long)getpid(), name);
    return path;
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL);
    EXPECT(fwrite(data, 1, bytes, file) == bytes);
    EXPECT_INT(fclose(file), 0);
}

TEST(a_file_of_cases_has_comments_and_names_the_bad_line)
{
    static const char good[] = "# head\n\n  gemm fp8 m=1 n=2 k=3 # why\r\ngemm fp8 m=4 n=5 k=6\n";
    static const char bad[] = "gemm fp8 m=1 n=2 k=3\ngemm fp8 m=1 n=2\n";
    const char *path = temporary("shapes");
    struct case_list list = {0};
    write_file(path, good, sizeof(good) - 1);
    EXPECT(case_list_file(&list, path));
    EXPECT_INT(list.count, 2);
    EXPECT_INT(list.items[1].k, 6);
    write_file(path, bad, sizeof(bad) - 1);
    EXPECT(!case_list_file(&list, path));
    EXPECT_TEXT(trouble_text(), "shapes:2: ");
    EXPECT_TEXT(trouble_text(), "lacks k=");
    unlink(path);
    EXPECT(!case_list_file(&list, path));
    case_list_free(&list);
}

TEST(the_dense_shapes_are_the_56_that_are_measured)
{
    struct case_list list = {0};
    EXPECT(case_list_file(&list, "bench/shapes/dense.txt"));
    EXPECT_INT(list.count, 56);
    double flops = 0.0;
    for (int64_t i = 0; i < list.count; ++i)
        flops += case_flops(&list.items[i]);
    EXPECT_INT(flops, 2ll * (1 + 16 + 64 + 128 + 256 + 1024 + 4096 + 8192) *
                          (2112ll * 7168 + 576 * 7168 + 24576 * 1536 + 32768 * 512 + 7168ll * 16384 + 4096 * 7168 +
                           7168 * 2048));
    case_list_free(&list);
}

/* The rows (or K) of each are those of which the original was measured: its TFLOPS were told beside its time. */
TEST(the_grouped_shapes_are_the_39_that_were_measured)
{
    static const int tflops[] = {1465, 1329, 1404, 1330, 1445, 1366, 1397, 1216, 1316, 1228, 1315, 1199, 1039,
                                 966,  1015, 907,  1343, 1292, 1377, 1229, 150,  140,  148,  134,  120,  104,
                                 110,  93,   457,  406,  422,  380,  27,   26,   26,   26,   1037, 977,  891};
    struct case_list list = {0};
    EXPECT_THAT(case_list_file(&list, "bench/shapes/grouped.txt"), "%s", trouble_text());
    EXPECT_INT(list.count, 39);
    for (int64_t i = 0; i < list.count; ++i) {
        const double got = case_flops(&list.items[i]) / (double)list.items[i].beside_ns * 1e-3;
        EXPECT_THAT(fabs(got - tflops[i]) < 1.0 + 0.003 * tflops[i], "case %d: %.1f TFLOPS, %d were told", (int)i, got,
                    tflops[i]);
    }
    case_list_free(&list);
}

TEST(the_selftest_table_parses_and_grows_with_its_level)
{
    struct case_list quick = {0}, normal = {0}, full = {0};
    EXPECT_THAT(selftest_cases(&quick, SELFTEST_QUICK, 1), "%s", trouble_text());
    EXPECT_THAT(selftest_cases(&normal, SELFTEST_NORMAL, 1), "%s", trouble_text());
    EXPECT_THAT(selftest_cases(&full, SELFTEST_FULL, 7), "%s", trouble_text());
    for (int64_t i = 0; i < full.count; ++i)
        for (int64_t j = 0; j < i; ++j)
            EXPECT(memcmp(&full.items[i], &full.items[j], sizeof(full.items[i])) != 0); /* none twice */
    EXPECT(quick.count > 100 && normal.count > quick.count + 200 && full.count > normal.count);
    EXPECT_INT(full.items[full.count - 1].seed, 7);
    case_list_free(&quick);
    case_list_free(&normal);
    case_list_free(&full);
}

TEST(bytes_and_operations_of_a_case)
{
    struct test_case c;
    EXPECT(case_parse("gemm fp8 m=2 n=256 k=256 out=fp32 c=separate batch=3 broadcast=b", &c));
    EXPECT_INT(case_flops(&c), 2 * 3 * 2 * 256 * 256);
    EXPECT_INT(case_bytes(&c), 3 * (2 * 256 + 4 * 2 * 2) + (256 * 256 + 4 * 2 * 2) + 3 * 2 * (2 * 256 * 4));
    EXPECT(case_parse("quantize fp8 m=130 k=300 gran=128,128 sf=ue8m0", &c));
    EXPECT_INT(case_bytes(&c), 130 * 300 * 3 + 4 * 2 * 1);
}

/* ---- Options -------------------------------------------------------------------------------------------------- */

TEST(devices_and_targets_parse)
{
    int32_t device = 5;
    dg_device_info target;
    EXPECT(parse_device("cpu", &device));
    EXPECT_INT(device, DG_CPU);
    EXPECT(parse_device("cuda:3", &device));
    EXPECT_INT(device, 3);
    EXPECT(!parse_device("cuda:x", &device));
    EXPECT(!parse_device("cudax", &device));
    EXPECT(!parse_device("gpu", &device));
    EXPECT_TEXT(trouble_text(), "\"gpu\" is no device");
    EXPECT(parse_target("arch=90,sms=78,l2=60,smem=200,memory=96", &target));
    EXPECT_INT(target.arch, 90);
    EXPECT_INT(target.num_sms, 78);
    EXPECT_INT(target.l2_bytes, 60ll << 20);
    EXPECT_INT(target.smem_bytes_per_block, 200 << 10);
    EXPECT_INT(target.memory_bytes, 96ll << 30);
    EXPECT(parse_target("h100", &target));
    EXPECT(!parse_target("b300", &target));
    EXPECT(!parse_target("sms=", &target));
    EXPECT(!parse_target("sms=132,x", &target));
    EXPECT(!parse_target("cores=4", &target));
    EXPECT_TEXT(trouble_text(), "no key \"cores\"");
}

/* ---- Numbers -------------------------------------------------------------------------------------------------- */

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

TEST(all_codes_mean_what_the_library_says)
{
    for (int i = 0; i < 256; ++i) {
        EXPECT_THAT(same_float(number_from_e4m3((uint8_t)i), e4m3_to_float((uint8_t)i)), "E4M3 code %d", i);
        EXPECT_THAT(same_float(number_from_ue8m0((uint8_t)i), ue8m0_to_float((uint8_t)i)), "UE8M0 code %d", i);
    }
    for (int i = 0; i < 65536; ++i) {
        const uint16_t bits = (uint16_t)i;
        const float half = number_from_fp16(bits), brain = number_from_bf16(bits);
        EXPECT_THAT(same_float(half, fp16_to_float(bits)), "FP16 code %d", i);
        EXPECT_THAT(same_float(brain, bf16_to_float(bits)), "BF16 code %d", i);
        EXPECT_THAT(isnan(half) || number_to_fp16(half) == bits, "FP16 code %d comes back as %d", i,
                    number_to_fp16(half));
        EXPECT_THAT(isnan(brain) || number_to_bf16(brain) == bits, "BF16 code %d", i);
    }
}

TEST(rounding_agrees_with_the_library)
{
    for (uint64_t i = 0; i < 200000; ++i) {
        const uint32_t bits = (uint32_t)random_bits(3, i);
        float value;
        memcpy(&value, &bits, sizeof(value));
        if (isnan(value))
            continue;
        EXPECT_THAT(number_to_fp16(value) == float_to_fp16(value), "FP16 of %a", (double)value);
        EXPECT_THAT(number_to_bf16(value) == float_to_bf16(value), "BF16 of %a", (double)value);
        value = random_normal(4, i) * 0.001f;
        EXPECT_THAT(number_to_fp16(value) == float_to_fp16(value), "FP16 of %a", (double)value);
    }
}

TEST(random_numbers_are_normal_and_do_not_depend_on_threads)
{
    enum { ROWS = 100, COLS = 300 };
    static float fill[ROWS * COLS];
    double sum = 0.0, sum2 = 0.0, sum4 = 0.0;
    random_fill(DG_FLOAT32, fill, ROWS, COLS, RANDOM_PLAIN, 5);
    for (int i = 0; i < ROWS * COLS; ++i) {
        const double x = (double)fill[i];
        EXPECT(fill[i] == random_normal(5, (uint64_t)i));
        sum += x;
        sum2 += x * x;
        sum4 += x * x * x * x;
    }
    EXPECT(fabs(sum / (ROWS * COLS)) < 0.02);
    EXPECT(fabs(sum2 / (ROWS * COLS) - 1.0) < 0.03);
    EXPECT(fabs(sum4 / (ROWS * COLS) - 3.0) < 0.2);
}

static void count_up(void *user, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; ++i)
        ++((unsigned char *)user)[i]; /* each element belongs to one thread */
}

TEST(a_parallel_loop_does_everything_once)
{
    static unsigned char counts[5000];
    for (int64_t count = 0; count <= 5000; count += count < 20 ? 1 : 1245) {
        memset(counts, 0, sizeof(counts));
        parallel_for(count, 7, count_up, counts);
        for (int64_t i = 0; i < 5000; ++i)
            EXPECT_INT(counts[i], i < count);
    }
}

/* ---- .npy ----------------------------------------------------------------------------------------------------- */

/* A version-1 file with this dictionary and data, in a buffer of exactly its size, so that ASan sees every overrun. */
static uint8_t *npy_bytes(const char *dictionary, const void *data, size_t data_bytes, size_t *bytes)
{
    const size_t length = strlen(dictionary) + 1;
    uint8_t *file = malloc(10 + length + data_bytes);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (uint8_t)length;
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + 10, dictionary, length - 1);
    file[9 + length] = '\n';
    memcpy(file + 10 + length, data, data_bytes);
    *bytes = 10 + length + data_bytes;
    return file;
}

static bool parse_npy(const char *dictionary, const void *data, size_t data_bytes, struct array *array)
{
    size_t bytes;
    uint8_t *copy = npy_bytes(dictionary, data, data_bytes, &bytes);
    const struct file file = {"x.npy", copy, bytes};
    *array = (struct array){0};
    const bool good = npy_parse(&file, array);
    free(copy);
    return good;
}

static void expect_npy(const char *dictionary, const void *data, size_t data_bytes, dg_dtype dtype, int64_t rows,
                       int64_t cols, const float *wanted)
{
    struct array a;
    if (!parse_npy(dictionary, data, data_bytes, &a))
        test_fail(__FILE__, __LINE__, "%s: %s", dictionary, trouble_text());
    EXPECT_INT(a.dtype, dtype);
    EXPECT_INT(a.rows, rows);
    EXPECT_INT(a.cols, cols);
    for (int64_t i = 0; i < rows * cols; ++i)
        EXPECT_THAT(number_read(dtype, a.data, i) == wanted[i], "%s: element %d", dictionary, (int)i);
    array_free(&a);
}

TEST(npy_files_are_read_in_all_types_and_orders)
{
    static const float f[] = {1, 2, 3, 4, 5, 6}, transposed[] = {1, 3, 5, 2, 4, 6};
    static const double d[] = {1, 2, 3, 4, 5, 6};
    uint16_t half[6], brain[6];
    for (int i = 0; i < 6; ++i) {
        half[i] = number_to_fp16(f[i]);
        brain[i] = number_to_bf16(f[i]);
    }
    expect_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", f, 24, DG_FLOAT32, 2, 3, f);
    expect_npy("{'shape':(2,3),'fortran_order':True,'descr':'<f4'}", f, 24, DG_FLOAT32, 2, 3, transposed);
    expect_npy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }", d, 48, DG_FLOAT32, 2, 3, transposed);
    expect_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (6,), }", d, 48, DG_FLOAT32, 1, 6, f);
    expect_npy("{'descr': '<f2', 'fortran_order': False, 'shape': (3, 2), }", half, 12, DG_FLOAT16, 3, 2, f);
    expect_npy("{'descr': '<V2', 'fortran_order': False, 'shape': (3, 2), }", brain, 12, DG_BFLOAT16, 3, 2, f);
    expect_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", f, 0, DG_FLOAT32, 0, 3, f);
}

TEST(npy_files_that_are_no_matrix_are_refused)
{
    static const float f[6] = {0};
    static const struct {
        const char *dictionary, *words;
        size_t bytes;
    } bad[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", "elements of type '>f4'", 24},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", "elements of type '<i4'", 24},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }", "records with fields", 24},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }", "more than two dimensions", 24},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "a single number", 4},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", "ends early", 24},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", "longer than its shape", 24},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "ends early", 24},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }", "ends early", 24},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3), }", "shape is damaged", 24},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }", "shape is damaged", 24},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3", "shape is damaged", 24},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2, 3), }", "neither True nor False", 24},
        {"{'descr': '<f4', 'fortran_order': False, }", "has no shape", 24},
        {"{'fortran_order': False, 'shape': (2, 3), }", "names no type", 24},
        {"{'fortran_order': False, 'shape': (2, 3), 'descr': '<f4", "is damaged", 24},
    };
    struct array a;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        EXPECT_THAT(!parse_npy(bad[i].dictionary, f, bad[i].bytes, &a), "%s was accepted", bad[i].dictionary);
        EXPECT_TEXT(trouble_text(), bad[i].words);
        EXPECT(a.data == NULL);
    }
}

/* Parse `count` damaged copies: cut short, and with random bytes changed. A sentence or a result, never a crash. */
static void damage(const uint8_t *good, size_t bytes, int count,
                   bool (*parse)(const struct file *file, struct array *array))
{
    static const char likely[] = "{}()[]',:\" 0129-<f4V2e\n\\";
    int refused = 0;
    for (int i = 0; i < count; ++i) {
        const uint64_t bits = random_bits(77, (uint64_t)i);
        const size_t length = i < (int)bytes ? (size_t)i : bytes; /* first every shorter length */
        uint8_t *copy = malloc(length ? length : 1);
        struct array a = {0};
        memcpy(copy, good, length);
        for (int change = 0; length == bytes && change <= (int)(bits % 3); ++change) {
            const uint64_t more = random_bits(bits, (uint64_t)change);
            const uint8_t byte = more & 1 ? (uint8_t)likely[(more >> 8) % (sizeof(likely) - 1)] : (uint8_t)(more >> 16);
            copy[(more >> 32) % length] = byte;
        }
        const struct file file = {"damaged", copy, length};
        if (parse(&file, &a)) {
            for (int64_t j = 0; j < array_count(&a); ++j) /* every byte of it can be read */
                (void)number_read(a.dtype, a.data, j);
        } else {
            ++refused;
            EXPECT_TEXT(trouble_text(), "damaged");
        }
        array_free(&a);
        free(copy);
    }
    EXPECT(refused > count / 10);
}

TEST(damaged_npy_files_give_sentences)
{
    static const float f[6] = {1, 2, 3, 4, 5, 6};
    size_t bytes;
    uint8_t *good = npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", f, sizeof(f), &bytes);
    damage(good, bytes, 20000, npy_parse);
    free(good);
    good = npy_bytes("{'descr': '<f8', 'fortran_order': True, 'shape': (1, 3), }", f, sizeof(f), &bytes);
    damage(good, bytes, 20000, npy_parse);
    free(good);
}

TEST(what_is_written_as_npy_is_read_again)
{
    static const float values[] = {1.0f, -2.5f, 1024.0f, 0x1p-20f, 0.0f, 3.25f};
    static const dg_dtype types[] = {DG_FLOAT32, DG_FLOAT16, DG_BFLOAT16};
    const char *path = temporary("y.npy");
    for (int i = 0; i < 3; ++i) {
        struct array a, b;
        EXPECT(array_make(&a, types[i], 2, 3));
        for (int j = 0; j < 6; ++j)
            number_write(types[i], a.data, j, values[j]);
        EXPECT(npy_write(path, &a));
        EXPECT_THAT(npy_read(path, &b), "%s", trouble_text());
        EXPECT_INT(b.dtype, types[i] == DG_FLOAT16 ? DG_FLOAT16 : DG_FLOAT32);
        EXPECT_INT(b.rows, 2);
        EXPECT_INT(b.cols, 3);
        for (int j = 0; j < 6; ++j)
            EXPECT(number_read(a.dtype, a.data, j) == number_read(b.dtype, b.data, j));
        array_free(&a);
        array_free(&b);
    }
    unlink(path);
    struct array none;
    EXPECT(!npy_read(path, &none));
    EXPECT_TEXT(trouble_text(), "No such file");
    EXPECT(!npy_read("/", &none));
    EXPECT_TEXT(trouble_text(), "is not a regular file");
}

/* ---- .safetensors --------------------------------------------------------------------------------------------- */

static const char st_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[0,6]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[6,14]},"
    "\"c\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[14,18]},"
    "\"i\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[14,18]},"
    "\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[6,14]},"
    "\"far\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[16,24]},"
    "\"huge\":{\"dtype\":\"F32\",\"shape\":[9007199254740992,9007199254740992],\"data_offsets\":[6,14]},"
    "\"backwards\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[14,6]},"
    "\"part\":{\"dtype\":\"F32\",\"shape\":[1,1.5],\"data_offsets\":[6,12]},"
    "\"short\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[6,13]},"
    "\"text\":7}";
enum { ST_DATA = 18 };

static uint8_t *safetensors_bytes(const char *header, size_t *bytes)
{
    const size_t length = strlen(header);
    const float numbers[2] = {1.5f, -2.0f};
    uint8_t *file = calloc(1, 8 + length + ST_DATA);
    for (int i = 0; i < 8; ++i)
        file[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(file + 8, header, length);
    uint8_t *data = file + 8 + length;
    for (int i = 0; i < 6; ++i)
        data[i] = (uint8_t)(0x30 + i);
    memcpy(data + 6, numbers, sizeof(numbers));
    data[15] = 0x3f; /* BF16 0.5 */
    data[17] = 0x40; /* BF16 2.0 */
    *bytes = 8 + length + ST_DATA;
    return file;
}

static bool parse_tensor(const char *name, struct array *array)
{
    size_t bytes;
    uint8_t *copy = safetensors_bytes(st_header, &bytes);
    const struct file file = {"x.safetensors", copy, bytes};
    *array = (struct array){0};
    const bool good = safetensors_parse(&file, name, array);
    free(copy);
    return good;
}

/* Without cJSON the one thing to test is the sentence. */
static void need_cjson(void)
{
    struct array a;
    if (parse_tensor("b", &a)) {
        array_free(&a);
        return;
    }
    EXPECT_TEXT(trouble_text(), "libcjson-dev");
    test_skip("this build has no cJSON");
}

TEST(safetensors_are_read_by_name)
{
    struct array a;
    need_cjson();
    EXPECT_THAT(parse_tensor("a.weight", &a), "%s", trouble_text());
    EXPECT_INT(a.dtype, DG_FLOAT8_E4M3);
    EXPECT_INT(a.rows, 2);
    EXPECT_INT(((uint8_t *)a.data)[5], 0x35);
    array_free(&a);
    EXPECT(parse_tensor("b", &a));
    EXPECT(((float *)a.data)[0] == 1.5f && ((float *)a.data)[1] == -2.0f);
    array_free(&a);
    EXPECT(parse_tensor("c", &a));
    EXPECT_INT(a.cols, 1);
    EXPECT(number_read(a.dtype, a.data, 0) == 0.5f && number_read(a.dtype, a.data, 1) == 2.0f);
    array_free(&a);
}

TEST(safetensors_that_do_not_fit_are_refused)
{
    static const struct {
        const char *name, *words;
    } bad[] = {{"nothing", "has no tensor nothing"},
               {"i", "is of type I32"},
               {"v", "is no matrix"},
               {"far", "ends early"},
               {"huge", "bytes of data"},
               {"backwards", "data_offsets of tensor backwards are damaged"},
               {"part", "shape of tensor part is damaged"},
               {"short", "has 7 bytes of data"},
               {"text", "has no dtype"},
               {"__metadata__", "has no dtype"}};
    struct array a;
    need_cjson();
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        EXPECT_THAT(!parse_tensor(bad[i].name, &a), "%s was accepted", bad[i].name);
        EXPECT_TEXT(trouble_text(), bad[i].words);
    }
    const uint8_t long_header[] = {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'};
    const struct file file = {"long", long_header, sizeof(long_header)};
    EXPECT(!safetensors_parse(&file, "a", &a));
    EXPECT_TEXT(trouble_text(), "its header would have 18446744073709551615 bytes");
}

static bool parse_damaged_a(const struct file *file, struct array *array)
{
    return safetensors_parse(file, "a.weight", array);
}

TEST(damaged_safetensors_give_sentences)
{
    size_t bytes;
    char header[256];
    need_cjson();
    snprintf(header, sizeof(header), "%.*s}}", (int)(strstr(st_header, "},\"b\"") - st_header), st_header);
    uint8_t *good = safetensors_bytes(header, &bytes);
    const struct file file = {"good", good, bytes};
    struct array a = {0};
    EXPECT_THAT(safetensors_parse(&file, "a.weight", &a), "%s", trouble_text());
    array_free(&a);
    damage(good, bytes, 20000, parse_damaged_a);
    free(good);
}

TEST(numbers_that_are_not_finite_are_named)
{
    struct array a;
    const struct {
        dg_dtype dtype;
        float value;
    } cases[] = {{DG_FLOAT32, NAN}, {DG_BFLOAT16, INFINITY}, {DG_FLOAT16, -INFINITY}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        EXPECT(array_make(&a, cases[i].dtype, 3, 4));
        random_fill(a.dtype, a.data, 3, 4, RANDOM_PLAIN, i);
        EXPECT(array_finite("X", &a));
        number_write(a.dtype, a.data, 6, cases[i].value);
        EXPECT(!array_finite("X", &a));
        EXPECT_TEXT(trouble_text(), "inf at [1, 2]" + (isnan(cases[i].value) ? 3 : 0));
        array_free(&a);
    }
}

TEST(paths_that_cannot_be_written_are_told_before)
{
    EXPECT(npy_writable("y.npy") && npy_writable("/tmp/y.npy") && npy_writable("/y.npy") == (access("/", W_OK) == 0));
    EXPECT(!npy_writable("/none/of/this/y.npy"));
    EXPECT_TEXT(trouble_text(), "/none/of/this: No such file or directory");
}

/* ---- NVIDIA's headers ------------------------------------------------------------------------------------------ */

static const char *toolkit_include(void)
{
    static char path[512];
    const char *places[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda", "/usr"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); ++i) {
        if (places[i] == NULL)
            continue;
        snprintf(path, sizeof(path), "%.480s/include/cuda.h", places[i]);
        if (access(path, R_OK) != 0)
            continue;
        *strrchr(path, '/') = '\0';
        return path;
    }
    return NULL;
}

static int prove(const char *options)
{
    char command[1024];
    const char *include = toolkit_include(), *compiler = getenv("CC");
    if (include == NULL)
        test_skip("no cuda.h here; CUDA_HOME can name a directory whose include/ has it");
    snprintf(command, sizeof(command),
             "%s -std=c11 -fsyntax-only -I. -I'%s' -DWANTED_PROOFS=1 %s tests/cli/abi_proof.c",
             compiler && *compiler ? compiler : "cc", include, options);
    return system(command);
}

TEST(the_programs_declarations_are_those_of_nvidia)
{
    EXPECT_INT(prove(""), 0);
    EXPECT(prove("-DABI_PROOF_FALSEHOOD 2>/dev/null") != 0);
}
