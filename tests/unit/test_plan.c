/* The choice of configurations: valid for every problem, unchanged for the golden table, and refusals that say why. */
#include "ops/gemm_row.h"
#include "tests/test.h"
#include "tests/unit/golden_shapes.h"

#include <errno.h>

static const char golden_path[] = "tests/golden/gemm_h200.txt";

static dg_device_info h200(void)
{
    dg_device_info info = DG_DEVICE_INFO_INIT;
    EXPECT_OK(dg_device_preset("h200", &info));
    return info;
}

static dg_gemm_args question(int64_t batch, int64_t m, int64_t n, int64_t k, dg_dtype out)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    args.a = dg_matrix(NULL, DG_FLOAT8_E4M3, 0, m, k);
    args.b = dg_matrix(NULL, DG_FLOAT8_E4M3, 0, n, k);
    args.sfa = dg_matrix(NULL, DG_FLOAT32, 0, m, (k + 127) / 128);
    args.sfb = dg_matrix(NULL, DG_FLOAT32, 0, (n + 127) / 128, (k + 127) / 128);
    args.d = dg_matrix(NULL, out, 0, m, n);
    dg_tensor *const all[] = {&args.a, &args.b, &args.sfa, &args.sfb, &args.d};
    for (int i = 0; i < 5 && batch > 0; ++i) {
        dg_tensor t = *all[i];
        t.ndim = 3;
        t.shape[0] = batch;
        t.stride[0] = all[i]->shape[0] * all[i]->shape[1];
        t.shape[1] = all[i]->shape[0];
        t.stride[1] = all[i]->stride[0];
        t.shape[2] = all[i]->shape[1];
        t.stride[2] = 1;
        *all[i] = t;
    }
    return args;
}

/* m: rows of each group, which B's and D's entries or A's rows are made for. */
static dg_gemm_args grouped_question(dg_gemm_kind kind, int64_t groups, int64_t m, int64_t n, int64_t k)
{
    const bool masked = kind == DG_GEMM_MASKED;
    dg_gemm_args args = question(groups, m, n, k, DG_BFLOAT16);
    const dg_gemm_args rows = question(0, groups * m, n, k, DG_BFLOAT16);
    args.kind = kind;
    if (!masked) {
        args.a = rows.a;
        args.sfa = rows.sfa;
        args.d = rows.d;
    }
    args.layout = (dg_tensor){.dtype = DG_INT32, .device = 0, .ndim = 1, .stride = {1}};
    args.layout.shape[0] = kind == DG_GEMM_CONTIGUOUS ? groups * m : groups;
    return args;
}

/* A's scales MN-major with columns of a multiple of 16 bytes, as TMA loads them. */
static dg_gemm_args with_aligned_scales(dg_gemm_args args)
{
    dg_tensor *t = &args.sfa;
    int64_t rows = t->shape[t->ndim - 2], column = round_up(rows, 4);
    t->stride[t->ndim - 2] = 1;
    t->stride[t->ndim - 1] = column;
    if (t->ndim == 3)
        t->stride[0] = column * t->shape[2];
    return args;
}

static struct gemm_problem problem_of(const dg_gemm_args *args)
{
    struct gemm_problem p;
    operation_begin("dg_test");
    EXPECT_OK(gemm_problem_make(args, NULL_DATA_ACCEPTED, &p));
    return p;
}

/* ---- Golden -------------------------------------------------------------------------------------------------- */

static void write_plan(FILE *file, dg_gemm_args args)
{
    dg_device_info device = h200();
    args = with_aligned_scales(args);
    struct gemm_problem p = problem_of(&args);
    const struct gemm_terms terms = {&device, device.num_sms, false};
    struct gemm_plan plan = {0};
    char line[512];
    EXPECT_OK(gemm_select(&p, &terms, &plan.row, NULL, 0));
    plan.row->plan(&p, &terms, &plan);
    plan.row->line(&plan, line, sizeof line);
    char *end = strstr(line, " predicted_us");
    EXPECT(end != NULL);
    *end = '\0';
    fprintf(file, "%s: %s %s\n", gemm_problem_text(&p).s, plan.row->name, line);
}

static void write_golden(FILE *file)
{
    for (size_t i = 0; i < sizeof golden_nk / sizeof *golden_nk; ++i)
        for (size_t j = 0; j < sizeof golden_m / sizeof *golden_m; ++j)
            write_plan(file, question(0, golden_m[j], golden_nk[i][0], golden_nk[i][1], DG_BFLOAT16));
    for (size_t i = 0; i < sizeof golden_groups / sizeof *golden_groups; ++i)
        for (size_t j = 0; j < sizeof golden_group_nk / sizeof *golden_group_nk; ++j) {
            const struct golden_group *g = &golden_groups[i];
            const bool masked = g->kind == DG_GEMM_MASKED; /* with room for more rows than are expected */
            dg_gemm_args args = grouped_question(g->kind, g->groups, masked ? round_up(2 * g->rows, 128) : g->rows,
                                                 golden_group_nk[j][0], golden_group_nk[j][1]);
            args.expected_m = masked ? g->rows : 0;
            write_plan(file, args);
        }
}

/* UPDATE_GOLDEN=1 writes the table anew, for a change of the heuristic that is meant. */
TEST(the_golden_plans_have_not_changed)
{
    if (getenv("UPDATE_GOLDEN")) {
        FILE *file = fopen(golden_path, "w");
        EXPECT(file != NULL);
        write_golden(file);
        fclose(file);
    }
    FILE *file = fopen(golden_path, "r");
    EXPECT_THAT(file != NULL, "%s: %s (run from the project's root)", golden_path, strerror(errno));
    char *text = NULL, line[1024];
    size_t bytes = 0;
    FILE *now = open_memstream(&text, &bytes);
    write_golden(now);
    fclose(now);
    const char *at = text;
    int count = 0;
    while (fgets(line, sizeof line, file)) {
        size_t length = strlen(line);
        EXPECT_THAT(strncmp(at, line, length) == 0, "golden: %snow:    %.*s", line, (int)strcspn(at, "\n"), at);
        at += length;
        ++count;
    }
    fclose(file);
    EXPECT_INT(count, 92);
    EXPECT(*at == '\0');
    free(text);
}

/* ---- Properties ---------------------------------------------------------------------------------------------- */

/* The kernel keeps two scales of B for a tile. */
static bool touches_two_blocks_at_most(int32_t block_n, int32_t tiles)
{
    for (int64_t i = 0; i < tiles; ++i)
        if ((i * block_n + block_n - 1) / 128 - i * block_n / 128 > 1)
            return false;
    return true;
}

static void check_plan(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms,
                       const struct gemm_1d2d_plan *plan)
{
    const struct gemm_1d2d_config *c = &plan->config;
    const struct text what = gemm_problem_text(p);
    int64_t rows = (int64_t)plan->sched.m_tiles * c->block_m * c->cluster_m;
    int64_t cols = (int64_t)plan->sched.n_tiles * c->block_n * c->cluster_n;
    EXPECT_THAT(rows >= p->m && rows - p->m < c->block_m * c->cluster_m, "%s: rows", what.s);
    EXPECT_THAT(cols >= p->n && cols - p->n < c->block_n * c->cluster_n, "%s: columns", what.s);
    EXPECT_INT(plan->sched.tiles, p->batch * plan->sched.m_tiles * plan->sched.n_tiles);
    EXPECT(plan->grid >= 1 && plan->grid <= num_sms && plan->grid % plan->cluster == 0);
    EXPECT_INT(plan->cluster, c->cluster_m * c->cluster_n);
    EXPECT_THAT(c->smem_bytes <= device->smem_bytes_per_block, "%s: shared memory", what.s);
    EXPECT_THAT(c->stages >= 3, "%s: stages", what.s);
    EXPECT(plan->a_box_rows >= 1 && plan->a_box_rows <= 256 && plan->b_box_rows >= 1 && plan->b_box_rows <= 256);
    EXPECT(plan->b_box_rows * c->cluster_m == c->block_n && c->block_n % 16 == 0);
    EXPECT_INT(plan->load_bytes, (plan->a_box_rows * c->cluster_n + c->block_n) * 128);
    EXPECT((c->part_n == c->block_n || c->part_n * 2 == c->block_n) && c->part_n % 8 == 0);
    EXPECT((c->span == 2 || c->span == 4) && plan->scale_box_rows == (c->sfa_packed ? 1 : c->span));
    /* The sums and the partial ones are a thread's registers: of 255, 232 and 160 for one, two and three warpgroups. */
    const int32_t room = c->warpgroups == 1 ? 208 : c->warpgroups == 2 ? 192 : 128;
    EXPECT(c->block_m / (c->warpgroups * 64) * c->block_n / 2 + c->partials * c->part_n / 2 <= room);
    EXPECT_THAT(touches_two_blocks_at_most(c->block_n, 256), "%s: scales of B", what.s);
    EXPECT(!c->tma_store || c->block_n % c->store_cols == 0);
    EXPECT(c->warpgroups * 64 <= c->block_m && plan->threads == (c->warpgroups + 1) * 128);
}

TEST(every_problem_gets_a_valid_plan)
{
    static const dg_dtype types[] = {DG_BFLOAT16, DG_FLOAT16, DG_FLOAT32};
    dg_device_info device = h200();
    unsigned seed = 1;
    for (int i = 0; i < 3000; ++i) {
        int64_t m = 1 + rand_r(&seed) % (i % 3 ? 300 : 9000), n = 1 + rand_r(&seed) % (i % 5 ? 3000 : 40000);
        int64_t k = 16 * (1 + rand_r(&seed) % 500), batch = i % 7 ? 0 : 1 + rand_r(&seed) % 5;
        int32_t sms = i % 2 ? 132 : 1 + rand_r(&seed) % 132;
        dg_gemm_args args = question(batch, m, n, k, types[i % 3]);
        if (i % 2)
            args = with_aligned_scales(args);
        struct gemm_problem p = problem_of(&args);
        struct gemm_1d2d_plan plan;
        EXPECT(gemm_1d2d_refusal(&p, &device, false).s[0] == '\0');
        gemm_1d2d_choose(&p, &device, sms, &plan);
        check_plan(&p, &device, sms, &plan);
        if (i % 2)
            EXPECT_INT(plan.config.sfa_tma, 1);
    }
}

TEST(every_grouped_problem_gets_a_valid_plan)
{
    static const dg_gemm_kind kinds[] = {DG_GEMM_CONTIGUOUS, DG_GEMM_PSUM, DG_GEMM_MASKED};
    static const int32_t alignments[] = {0, 8, 16, 32, 64, 96, 128, 256};
    dg_device_info device = h200();
    unsigned seed = 5;
    for (int i = 0; i < 2000; ++i) {
        const int64_t groups = 1 + rand_r(&seed) % 300, m = 1 + rand_r(&seed) % (i % 3 ? 200 : 3000);
        const int64_t n = 1 + rand_r(&seed) % 8000, k = 16 * (1 + rand_r(&seed) % 500);
        const int32_t sms = i % 2 ? 132 : 1 + rand_r(&seed) % 132;
        dg_gemm_args args = grouped_question(kinds[i % 3], groups, m, n, k);
        args.expected_m = rand_r(&seed) % 3 ? 0 : rand_r(&seed) % 5000;
        args.alignment = kinds[i % 3] == DG_GEMM_MASKED ? 0 : alignments[rand_r(&seed) % 8];
        struct gemm_problem p = problem_of(&args);
        struct gemm_1d2d_plan plan;
        EXPECT(gemm_1d2d_refusal(&p, &device, false).s[0] == '\0');
        gemm_1d2d_choose(&p, &device, sms, &plan);
        const struct gemm_1d2d_config *c = &plan.config;
        const struct text what = gemm_problem_text(&p);
        EXPECT_INT(c->kind, kinds[i % 3]);
        EXPECT_THAT(plan.grid >= 1 && plan.grid <= sms && plan.grid % plan.cluster == 0, "%s: grid %d", what.s,
                    plan.grid);
        EXPECT_THAT(c->smem_bytes <= device.smem_bytes_per_block && c->stages >= 3, "%s: shared memory", what.s);
        EXPECT_THAT(plan.sched.n_tiles * c->block_n * c->cluster_n >= n, "%s: columns", what.s);
        EXPECT(plan.sched.strip >= 4 && plan.sched.strip_along_n == 0 && plan.sched.m_tiles >= 1);
        if (c->kind == GEMM_KIND_CONTIGUOUS && c->block_m * c->cluster_m > 128)
            EXPECT_THAT(c->block_m * c->cluster_m <= p.groups.alignment, "%s: %d rows of tiles, blocks of %d", what.s,
                        c->block_m, (int)p.groups.alignment);
        EXPECT_THAT(c->cluster_n > 1 || plan.a_box_rows >= p.m || c->block_m % plan.a_box_rows == 0,
                    "%s: %d rows of tiles in boxes of %d", what.s, c->block_m, plan.a_box_rows);
    }
}

TEST(a_hint_beyond_all_rows_is_no_more_than_a_hint)
{
    const int64_t groups = 1 << 20, rows = 1 << 16;
    dg_device_info device = h200();
    dg_gemm_args args = grouped_question(DG_GEMM_PSUM, groups, 1, 16000, 32);
    struct gemm_1d2d_plan plan;
    args.a.shape[0] = args.sfa.shape[0] = args.d.shape[0] = rows;
    args.expected_m = 2000;
    struct gemm_problem p = problem_of(&args);
    EXPECT(gemm_1d2d_refusal(&p, &device, false).s[0] == '\0');
    gemm_1d2d_choose(&p, &device, 132, &plan);
    EXPECT(plan.sched.tiles > 0 && plan.sched.tiles <= (rows / 64 + groups) * plan.sched.n_tiles);
}

TEST(every_tile_that_can_be_asked_for_is_valid)
{
    dg_device_info device = h200();
    dg_gemm_args args = question(0, 1000, 5000, 1024, DG_FLOAT32);
    struct gemm_problem p = problem_of(&args);
    int plans = 0;
    for (int32_t m = 64; m <= 256; m += 64)
        for (int32_t n = 16; n <= 256; n += 16)
            for (int32_t c = 0; c < 3; ++c) {
                struct gemm_1d2d_plan plan;
                if (!gemm_1d2d_plan_tile(&p, &device, 132, m, n, c == 1 ? 2 : 1, c == 2 ? 2 : 1, &plan))
                    continue;
                check_plan(&p, &device, 132, &plan);
                ++plans;
            }
    EXPECT(plans > 60);
}

static void check_skinny(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms,
                         const struct gemm_skinny_plan *plan)
{
    const struct gemm_skinny_config *c = &plan->config;
    const struct text what = gemm_problem_text(p);
    EXPECT_THAT((int64_t)plan->m_tiles * c->block_m >= p->m && (plan->m_tiles - 1) * c->block_m < p->m, "%s: rows",
                what.s);
    EXPECT_THAT((int64_t)plan->n_tiles * 64 >= p->n && (plan->n_tiles - 1) * 64 < p->n, "%s: columns", what.s);
    EXPECT_INT(plan->tiles, p->batch * plan->m_tiles * plan->n_tiles);
    EXPECT(plan->grid >= 1 && plan->grid <= num_sms * c->blocks_per_sm && plan->grid % c->splits == 0);
    EXPECT(c->splits == 1 || plan->grid == plan->tiles * c->splits); /* a cluster does one tile */
    EXPECT(c->blocks_per_sm == 1 || num_sms == device->num_sms);
    EXPECT(c->splits <= ceil_div(ceil_div(p->k, 128), c->step)); /* nobody's share is empty */
    EXPECT_THAT(c->smem_bytes <= device->smem_bytes_per_block && (c->smem_bytes + 1024) * c->blocks_per_sm <= 233472,
                "%s: shared memory", what.s);
    EXPECT(c->stages >= 2 && c->stages <= 16 && (c->step == 1 || c->step == 2 || c->step == 4));
    EXPECT(c->block_m % 8 == 0 && c->block_m <= 128 && plan->a_box_rows >= 1 && plan->a_box_rows <= c->block_m);
    EXPECT_INT(plan->load_bytes, c->step * (plan->a_box_rows + 64) * 128 +
                                     (c->sfa_tma ? c->block_m * 4 * (c->sfa_packed ? 1 : c->step) : 0));
}

TEST(every_problem_with_few_rows_gets_a_valid_skinny_plan)
{
    static const dg_dtype types[] = {DG_BFLOAT16, DG_FLOAT16, DG_FLOAT32};
    dg_device_info device = h200();
    unsigned seed = 2;
    for (int i = 0; i < 1500; ++i) {
        int64_t m = 1 + rand_r(&seed) % (i % 3 ? 130 : 256), n = 1 + rand_r(&seed) % (i % 5 ? 3000 : 40000);
        int64_t k = 16 * (1 + rand_r(&seed) % 500), batch = i % 7 ? 0 : 1 + rand_r(&seed) % 5;
        int32_t sms = i % 2 ? 132 : 1 + rand_r(&seed) % 132;
        dg_gemm_args args = question(batch, m, n, k, types[i % 3]);
        if (i % 2)
            args = with_aligned_scales(args);
        struct gemm_problem p = problem_of(&args);
        struct gemm_skinny_plan plan;
        EXPECT(gemm_skinny_choose(&p, &device, sms, &plan));
        check_skinny(&p, &device, sms, &plan);
    }
}

TEST(every_skinny_tile_that_can_be_asked_for_is_valid)
{
    dg_device_info device = h200();
    dg_gemm_args args = question(0, 100, 2000, 1500, DG_FLOAT32);
    struct gemm_problem p = problem_of(&args);
    struct gemm_skinny_tile tile;
    int plans = 0;
    for (int32_t i = 0; gemm_skinny_tile_at(i, &tile); ++i) {
        struct gemm_skinny_plan plan;
        if (!gemm_skinny_plan_tile(&p, &device, 132, &tile, &plan))
            continue;
        check_skinny(&p, &device, 132, &plan);
        ++plans;
    }
    EXPECT(plans > 50);
}

/* Which kernel takes a problem, and why the other one does not. */
TEST(few_rows_go_to_the_skinny_kernel)
{
    dg_device_info device = h200();
    struct gemm_terms terms = {&device, 132, false};
    const struct gemm_row *row;
    char refused[512];
    for (int64_t m = 1; m <= 4096; m *= 4) {
        dg_gemm_args args = question(0, m, 4096, 7168, DG_BFLOAT16);
        struct gemm_problem p = problem_of(&args);
        EXPECT_OK(gemm_select(&p, &terms, &row, refused, sizeof refused));
        if (m != 64) /* where the two are as fast */
            EXPECT(row == (m < 64 ? &gemm_row_sm90_fp8_gemm_skinny : &gemm_row_sm90_fp8_gemm_1d2d));
        if (m == 256)
            EXPECT_TEXT(refused, "sm90_fp8_gemm_skinny: ");
        if (m == 256)
            EXPECT_TEXT(refused, " us are expected, and ");
        if (m == 1024)
            EXPECT_TEXT(refused, "M is 1024; it takes 256 at most");
    }
    terms.batch_invariant = true;
    dg_gemm_args args = question(0, 1, 4096, 7168, DG_BFLOAT16);
    struct gemm_problem p = problem_of(&args);
    EXPECT_OK(gemm_select(&p, &terms, &row, refused, sizeof refused));
    EXPECT(row == &gemm_row_sm90_fp8_gemm_1d2d);
    EXPECT_TEXT(refused, "batch_invariant rules out");
}

/* Whoever spares SMs for others gets no grid that is larger than what is left. */
TEST(a_limit_of_sms_holds_for_the_skinny_kernel)
{
    dg_device_info device = h200();
    for (int32_t sms = 1; sms <= 132; ++sms) {
        dg_gemm_args args = question(0, 8, 2112, 7168, DG_BFLOAT16);
        struct gemm_problem p = problem_of(&args);
        struct gemm_skinny_plan plan;
        EXPECT(gemm_skinny_choose(&p, &device, sms, &plan));
        EXPECT(plan.grid <= sms * (sms < 132 ? 1 : 2));
    }
}

TEST(a_d_that_tma_cannot_store_gets_the_other_store)
{
    dg_device_info device = h200();
    struct gemm_1d2d_plan plan;
    for (int64_t n = 1; n <= 64; ++n) {
        dg_gemm_args args = question(0, 100, n, 256, DG_BFLOAT16);
        struct gemm_problem p = problem_of(&args);
        gemm_1d2d_choose(&p, &device, 132, &plan);
        EXPECT_INT(plan.config.tma_store, n % 8 == 0);
    }
    dg_gemm_args args = question(0, 100, 64, 256, DG_BFLOAT16);
    args.d.data = (void *)(uintptr_t)0x1008; /* aligned to 8 only */
    struct gemm_problem p = problem_of(&args);
    gemm_1d2d_choose(&p, &device, 132, &plan);
    EXPECT_INT(plan.config.tma_store, 0);
}

/* ---- Refusals ------------------------------------------------------------------------------------------------ */

static void expect_refusal(const dg_gemm_args *args, bool batch_invariant, const char *words)
{
    dg_device_info device = h200();
    struct gemm_problem p = problem_of(args);
    struct text reason = gemm_1d2d_refusal(&p, &device, batch_invariant);
    EXPECT_TEXT(reason.s, words);
}

TEST(refusals_say_why)
{
    dg_gemm_args args = question(0, 64, 128, 250, DG_BFLOAT16);
    expect_refusal(&args, false, "a's row stride is 250 bytes");
    args = question(0, 64, 128, 256, DG_BFLOAT16);
    args.b.data = (void *)(uintptr_t)0x1001;
    expect_refusal(&args, false, "b.data is 0x1001, not aligned");
    args = question(0, 64, 128, 256, DG_BFLOAT16);
    args.a = dg_transposed(dg_matrix(NULL, DG_FLOAT8_E4M3, 0, 256, 64)); /* M-major */
    expect_refusal(&args, false, "a's");
    args = question(0, 64, 128, 256, DG_BFLOAT16);
    args.d = dg_transposed(dg_matrix(NULL, DG_BFLOAT16, 0, 128, 64));
    expect_refusal(&args, false, "columns are not contiguous");
    args = question(0, 64, 128, 0, DG_BFLOAT16);
    expect_refusal(&args, false, "K is 0");
    args = question(2, 64, 128, 256, DG_BFLOAT16);
    args.b.stride[0] = 0; /* one B for all batch entries */
    expect_refusal(&args, false, "b's batch stride");
}

TEST(a_c_that_is_broadcast_is_refused)
{
    dg_gemm_args args = question(0, 64, 128, 256, DG_BFLOAT16);
    args.c = args.d;
    args.c.data = (void *)(uintptr_t)0x100000;
    args.c.stride[1] = 0; /* one value for a whole row */
    expect_refusal(&args, false, "d's or c's columns are not contiguous");
}

TEST(batch_invariance_treats_one_row_like_many)
{
    dg_device_info device = h200();
    int taken = 0;
    for (int64_t k = 100; k <= 260; k += 4)
        for (int64_t pitch = k; pitch < k + 16; pitch += 4) {
            dg_gemm_args one = question(0, 1, 128, k, DG_BFLOAT16), many = question(0, 2, 128, k, DG_BFLOAT16);
            one.b.stride[0] = many.b.stride[0] = 512;
            one.a.stride[0] = many.a.stride[0] = pitch;
            struct gemm_problem p1 = problem_of(&one), p2 = problem_of(&many);
            bool takes_one = gemm_1d2d_refusal(&p1, &device, true).s[0] == '\0';
            EXPECT_INT(takes_one, gemm_1d2d_refusal(&p2, &device, true).s[0] == '\0');
            taken += takes_one;
        }
    EXPECT(taken > 10);
}

TEST(sizes_beyond_the_kernels_integers_are_refused)
{
    dg_gemm_args args = question(INT32_MAX / 2, 1, 1, 16, DG_FLOAT32);
    args.a.stride[0] = args.b.stride[0] = 16;
    args.sfa.stride[0] = args.sfb.stride[0] = 0;
    struct gemm_problem p = problem_of(&args);
    dg_device_info device = h200();
    EXPECT(gemm_1d2d_refusal(&p, &device, false).s[0] == '\0');
    args.a.shape[0] = args.b.shape[0] = args.sfa.shape[0] = args.sfb.shape[0] = args.d.shape[0] = INT32_MAX / 2 + 1;
    expect_refusal(&args, false, "or the number of tiles 30");
}

TEST(too_little_shared_memory_is_refused)
{
    dg_device_info device = h200();
    dg_gemm_args args = question(0, 64, 128, 256, DG_BFLOAT16);
    struct gemm_problem p = problem_of(&args);
    device.smem_bytes_per_block = 8;
    EXPECT_TEXT(gemm_1d2d_refusal(&p, &device, false).s, "no tile fits into 8 bytes of shared memory");
}

TEST(other_architectures_are_refused)
{
    dg_device_info device = h200();
    dg_gemm_args args = question(0, 64, 128, 256, DG_BFLOAT16);
    struct gemm_problem p = problem_of(&args);
    device.arch = 100;
    EXPECT_TEXT(gemm_1d2d_refusal(&p, &device, false).s, "the device has 10.0");
}
