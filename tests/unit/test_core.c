/* Status texts, settings, argument structs, tensor overlap, hashes. */
#include "core/check.h"
#include "core/context.h"
#include "core/hash.h"
#include "tests/test.h"

TEST(status_names_and_numbers_are_pinned)
{
    EXPECT_INT(DG_SUCCESS, 0);
    EXPECT_INT(DG_ERROR_INVALID_ARGUMENT, 100);
    EXPECT_INT(DG_ERROR_NO_DRIVER, 200);
    EXPECT_INT(DG_ERROR_COMPILE, 320);
    EXPECT_INT(DG_ERROR_INTERNAL, 900);
    EXPECT(strcmp(dg_status_name(DG_ERROR_WORKSPACE_TOO_SMALL), "DG_ERROR_WORKSPACE_TOO_SMALL") == 0);
    EXPECT(strcmp(dg_status_text(DG_ERROR_OUT_OF_MEMORY), "out of memory") == 0);
    EXPECT(strcmp(dg_status_name((dg_status)12345), "unknown dg_status") == 0);
    EXPECT(strcmp(dg_version(), "0.1.0") == 0);
}

TEST(a_failure_names_the_operation)
{
    operation_begin("dg_test");
    EXPECT_INT(fail(DG_ERROR_IO, "%s is %d", "x", 3), DG_ERROR_IO);
    EXPECT(strcmp(dg_last_error(), "dg_test: x is 3") == 0);
    fail_more("; and more");
    EXPECT(strcmp(dg_last_error(), "dg_test: x is 3; and more") == 0);
    char *huge = malloc(100000);
    memset(huge, 'y', 99999);
    huge[99999] = '\0';
    fail_text("%s", huge); /* cut, not overrun */
    fail_more("%s", huge);
    EXPECT(strlen(dg_last_error()) < 5000);
    free(huge);
}

/* ---- Settings ------------------------------------------------------------------------------------------------ */

TEST(settings_have_defaults_and_ranges)
{
    static const struct {
        dg_setting setting;
        int64_t otherwise, good, bad;
    } table[] = {
        {DG_SETTING_NUM_SMS, 0, 7, -1},         {DG_SETTING_PDL, 0, 1, 2},
        {DG_SETTING_TC_UTIL, 100, 50, 0},       {DG_SETTING_CONTIGUOUS_ALIGNMENT, 128, 224, 48},
        {DG_SETTING_BATCH_INVARIANT, 0, 1, -1}, {DG_SETTING_COMPILE, 1, 0, 2},
    };
    dg_context *context;
    EXPECT_OK(dg_context_create(&context));
    for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
        int64_t value = -7;
        EXPECT_OK(dg_get(context, table[i].setting, &value));
        EXPECT_INT(value, table[i].otherwise);
        EXPECT_OK(dg_set(context, table[i].setting, table[i].good));
        EXPECT_REFUSED(dg_set(context, table[i].setting, table[i].bad), DG_ERROR_INVALID_ARGUMENT, "wanted");
        EXPECT_OK(dg_get(context, table[i].setting, &value));
        EXPECT_INT(value, table[i].good);
    }
    for (int64_t v = 0; v <= 300; ++v) {
        bool good = v == 8 || v == 16 || (v >= 32 && v <= 256 && v % 32 == 0);
        EXPECT_INT(dg_set(context, DG_SETTING_CONTIGUOUS_ALIGNMENT, v) == DG_SUCCESS, good);
    }
    EXPECT_REFUSED(dg_set(context, (dg_setting)99, 0), DG_ERROR_INVALID_ARGUMENT, "setting is 99");
    EXPECT_REFUSED(dg_get(context, DG_SETTING_PDL, NULL), DG_ERROR_INVALID_ARGUMENT, "value is NULL");
    EXPECT_REFUSED(dg_context_create(NULL), DG_ERROR_INVALID_ARGUMENT, "context is NULL");
    dg_context_destroy(context);
    dg_context_destroy(NULL);
}

TEST(every_change_of_a_setting_makes_a_new_epoch)
{
    dg_context *x, *y;
    EXPECT_OK(dg_context_create(&x));
    EXPECT_OK(dg_context_create(&y));
    uint64_t ex = context_epoch(x), ey = context_epoch(y);
    EXPECT(ex != ey);
    EXPECT_OK(dg_set(x, DG_SETTING_PDL, 1));
    EXPECT(context_epoch(x) != ex && context_epoch(x) != ey);
    EXPECT(context_epoch(y) == ey);
    dg_context_destroy(x);
    dg_context_destroy(y);
}

TEST(sm_counts_are_bounded)
{
    dg_context *context;
    EXPECT_OK(dg_context_create(&context));
    EXPECT_INT(context_sms(context, 0, 132), 132);
    EXPECT_INT(context_sms(context, 20, 132), 20);
    EXPECT_INT(context_sms(context, 999, 132), 132);
    EXPECT_OK(dg_set(context, DG_SETTING_NUM_SMS, 65));
    EXPECT_INT(context_sms(context, 0, 132), 65);
    EXPECT_INT(context_sms(context, 100, 132), 100);
    EXPECT_OK(dg_set(context, DG_SETTING_TC_UTIL, 50));
    EXPECT_INT(context_sms(context, 0, 132), 33);
    EXPECT_OK(dg_set(context, DG_SETTING_TC_UTIL, 1));
    EXPECT_INT(context_sms(context, 1, 132), 1);
    dg_context_destroy(context);
}

TEST(a_wrong_context_is_recognised)
{
    static char not_a_context[512]; /* no magic number in it */
    EXPECT_REFUSED(dg_set((dg_context *)(void *)not_a_context, DG_SETTING_PDL, 1), DG_ERROR_INVALID_ARGUMENT,
                   "not a context");
#ifdef DG_DEBUG
    dg_context *context;
    EXPECT_OK(dg_context_create(&context));
    dg_context_destroy(context);
    EXPECT_REFUSED(dg_set(context, DG_SETTING_PDL, 1), DG_ERROR_CONTEXT_DESTROYED, "destroyed");
#endif
}

/* ---- Argument structs ---------------------------------------------------------------------------------------- */

struct versioned {
    size_t size;
    int32_t a, b;
    int64_t c;
};

TEST(argument_structs_of_other_sizes)
{
    union {
        struct versioned known;
        unsigned char bytes[sizeof(struct versioned) + 16];
    } given = {{0}};
    struct versioned got;
    operation_begin("dg_test");
    given.known = (struct versioned){sizeof given.known, 1, 2, 3};
    EXPECT_OK(import_args(&got, sizeof got, &given, "args"));
    EXPECT(got.a == 1 && got.b == 2 && got.c == 3);
    given.known.size = 16; /* an older caller: c is not there */
    EXPECT_OK(import_args(&got, sizeof got, &given, "args"));
    EXPECT(got.a == 1 && got.b == 2 && got.c == 0 && got.size == sizeof got);
    given.known.size = sizeof given; /* a newer one, with zeros in what we do not know */
    EXPECT_OK(import_args(&got, sizeof got, &given, "args"));
    given.bytes[sizeof given - 1] = 1;
    EXPECT_REFUSED(import_args(&got, sizeof got, &given, "args"), DG_ERROR_INVALID_ARGUMENT, "newer library");
    given.known.size = 0;
    EXPECT_REFUSED(import_args(&got, sizeof got, &given, "args"), DG_ERROR_INVALID_ARGUMENT, "args.size is 0");
    EXPECT_REFUSED(import_args(&got, sizeof got, NULL, "args"), DG_ERROR_INVALID_ARGUMENT, "NULL");
}

/* ---- Overlap: against the definition, element by element ------------------------------------------------------- */

static bool overlap_by_definition(const struct matrix *x, const struct matrix *y)
{
    int64_t xs = (int64_t)dg_dtype_size(x->dtype), ys = (int64_t)dg_dtype_size(y->dtype);
    for (int64_t i = 0; i < x->batch * x->rows * x->cols; ++i) {
        int64_t at = i / (x->rows * x->cols) * x->batch_stride + i / x->cols % x->rows * x->row_stride +
                     i % x->cols * x->col_stride;
        char *px = x->data + at * xs;
        for (int64_t j = 0; j < y->batch * y->rows * y->cols; ++j) {
            int64_t to = j / (y->rows * y->cols) * y->batch_stride + j / y->cols % y->rows * y->row_stride +
                         j % y->cols * y->col_stride;
            char *py = y->data + to * ys;
            if (px < py + ys && py < px + xs)
                return true;
        }
    }
    return false;
}

static struct matrix random_matrix(char *base, unsigned *seed)
{
    static const dg_dtype types[] = {DG_FLOAT8_E4M3, DG_BFLOAT16, DG_FLOAT32};
    struct matrix m = {.dtype = types[rand_r(seed) % 3]};
    m.data = base + rand_r(seed) % 16 * 4;
    m.batch = 1 + rand_r(seed) % 3;
    m.rows = 1 + rand_r(seed) % 4;
    m.cols = 1 + rand_r(seed) % 4;
    m.batch_stride = m.batch > 1 ? rand_r(seed) % 20 : 0;
    m.row_stride = m.rows > 1 ? rand_r(seed) % 12 : 0;
    m.col_stride = m.cols > 1 ? rand_r(seed) % 3 : 0;
    return m;
}

TEST(overlap_is_exact)
{
    static char buffer[1024];
    unsigned seed = 1;
    int overlapping = 0;
    for (int i = 0; i < 20000; ++i) {
        struct matrix x = random_matrix(buffer, &seed), y = random_matrix(buffer, &seed);
        bool wanted = overlap_by_definition(&x, &y);
        overlapping += wanted;
        EXPECT_THAT(matrices_overlap(&x, &y) == wanted, "pair %d: wanted %d", i, wanted);
    }
    EXPECT(overlapping > 2000 && overlapping < 18000); /* both answers were tested */
}

TEST(interleaved_views_do_not_overlap)
{
    static char buffer[4096];
    /* Rows of 64 bytes: 32 of A, then 16 BF16 of D. */
    struct matrix a = {
        .data = buffer, .dtype = DG_FLOAT8_E4M3, .batch = 1, .rows = 8, .cols = 32, .row_stride = 64, .col_stride = 1};
    struct matrix d = {.data = buffer + 32,
                       .dtype = DG_BFLOAT16,
                       .batch = 1,
                       .rows = 8,
                       .cols = 16,
                       .row_stride = 32,
                       .col_stride = 1};
    EXPECT(!matrices_overlap(&a, &d));
    d.cols = 17;
    EXPECT(matrices_overlap(&a, &d));
    d.device = 1; /* other memory */
    EXPECT(!matrices_overlap(&a, &d));
}

TEST(broadcast_views_are_judged_at_once)
{
    /* A row of every other byte, 2^40 times: fast only if the repetition is seen. */
    static uint8_t memory[1 << 16];
    struct matrix a = {
        .data = (char *)memory, .dtype = DG_FLOAT8_E4M3, .batch = 1, .rows = (int64_t)1 << 40, .cols = 4096};
    struct matrix d = a;
    a.col_stride = 2;
    d.data += 1;
    d.rows = 4;
    d.cols = 1024;
    d.row_stride = 2048;
    d.col_stride = 2;
    EXPECT(!matrices_overlap(&a, &d));
    d.data += 1;
    EXPECT(matrices_overlap(&a, &d));
    EXPECT(matrices_overlap(&d, &a));
}

static struct matrix sparse(char *data, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride)
{
    return (struct matrix){data, DG_BFLOAT16, 0, 1, rows, cols, 0, row_stride, col_stride};
}

TEST(large_interleaved_views_are_judged_at_once)
{
    char *base = (char *)(uintptr_t)0x100000;
    /* 4096 x 7168 of every other element, and those between them. */
    struct matrix d = sparse(base, 4096, 7168, 14336, 2), c = sparse(base + 2, 4096, 7168, 14336, 2);
    EXPECT(!matrices_overlap(&c, &d) && !matrices_overlap(&d, &c));
    c.row_stride = 14337; /* the second row hits the first one's gaps no more */
    EXPECT(matrices_overlap(&c, &d) && matrices_overlap(&d, &c));
    /* A column each. */
    d = sparse(base, INT32_MAX, 1, 65536, 1);
    c = sparse(base + 2, INT32_MAX, 1, 65536, 1);
    EXPECT(!matrices_overlap(&c, &d));
    c.data = base + (int64_t)65536 * 2 * 1000000;
    EXPECT(matrices_overlap(&c, &d));
    /* Steps that nothing nests: what cannot be told in time counts as an overlap. */
    d = (struct matrix){base,          DG_FLOAT8_E4M3, 0, 1 << 29, 1 << 29, 1 << 29, (1 << 20) + 2,
                        (1 << 20) + 4, (1 << 20) + 6};
    c = d;
    c.data = base + 1;
    EXPECT(matrices_overlap(&c, &d));
}

TEST(self_overlap)
{
    struct matrix m = {
        .dtype = DG_BFLOAT16, .batch = 2, .rows = 3, .cols = 4, .batch_stride = 12, .row_stride = 4, .col_stride = 1};
    EXPECT(!matrix_overlaps_itself(&m));
    m.row_stride = 3;
    EXPECT(matrix_overlaps_itself(&m));
    m.row_stride = 0;
    EXPECT(matrix_overlaps_itself(&m));
    m = (struct matrix){
        .dtype = DG_BFLOAT16, .batch = 2, .rows = 3, .cols = 4, .batch_stride = 4, .row_stride = 8, .col_stride = 1};
    EXPECT(!matrix_overlaps_itself(&m)); /* batch entries beside each other within a row */
    m.rows = 0;
    m.row_stride = 0;
    EXPECT(!matrix_overlaps_itself(&m));
}

/* ---- Checks and hashes --------------------------------------------------------------------------------------- */

TEST(extents_beyond_the_address_space_are_refused)
{
    dg_tensor t = dg_matrix(NULL, DG_FLOAT32, DG_CPU, INT64_MAX / 2, 4);
    operation_begin("dg_test");
    EXPECT_REFUSED(check_tensor("t", &t, DTYPE_BIT(DG_FLOAT32), 2, 3, NULL_DATA_ACCEPTED), DG_ERROR_INVALID_ARGUMENT,
                   "beyond what can be addressed");
    t = dg_matrix(NULL, DG_FLOAT32, DG_CPU, -1, 4);
    EXPECT_REFUSED(check_tensor("t", &t, DTYPE_BIT(DG_FLOAT32), 2, 3, NULL_DATA_ACCEPTED), DG_ERROR_INVALID_ARGUMENT,
                   "size -1 in dimension 0");
    t = dg_matrix(NULL, DG_FLOAT32, DG_CPU, 4, 4);
    t.stride[0] = -4;
    EXPECT_REFUSED(check_tensor("t", &t, DTYPE_BIT(DG_FLOAT32), 2, 3, NULL_DATA_ACCEPTED), DG_ERROR_INVALID_ARGUMENT,
                   "stride -4 in dimension 0");
}

TEST(tensors_are_described)
{
    dg_tensor t = dg_matrix(NULL, DG_FLOAT32, DG_CPU, 128, 55);
    EXPECT(strcmp(tensor_text(&t).s, "[128, 55] float32") == 0);
    t = dg_transposed(t);
    EXPECT(strcmp(tensor_text(&t).s, "[55, 128] float32 with strides [1, 55]") == 0);
    t.ndim = 99; /* garbage must not be read past */
    EXPECT(strlen(tensor_text(&t).s) > 0);
}

TEST(fnv_has_the_published_values)
{
    /* FNV-1a 128 of "" is its offset basis; pieces are told apart by their lengths. */
    struct hash128 h = hash128_begin(), x = h, y = h;
    EXPECT(h.high == 0x6c62272e07bb0142u && h.low == 0x62b821756295c58du);
    hash128_add(&x, "ab", 2);
    hash128_add(&x, "c", 1);
    hash128_add(&y, "a", 1);
    hash128_add(&y, "bc", 2);
    EXPECT(x.high != y.high || x.low != y.low);
}
