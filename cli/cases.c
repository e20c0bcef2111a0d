#include "cases.h"

#include "program.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table of keys ------------------------------------------------------------------------------------------- */

struct word {
    const char *name;
    int64_t value;
};

static const struct word float_words[] = {{"bf16", DG_BFLOAT16}, {"fp16", DG_FLOAT16}, {"fp32", DG_FLOAT32}, {NULL, 0}};
static const struct word scale_words[] = {{"fp32", DG_FLOAT32}, {"ue8m0", DG_INT32}, {NULL, 0}};
static const struct word c_words[] = {
    {"none", CASE_C_NONE}, {"d", CASE_C_IS_D}, {"separate", CASE_C_SEPARATE}, {NULL, 0}};
static const struct word major_words[] = {
    {"kk", CASE_MAJOR_KK}, {"mk", CASE_MAJOR_MK}, {"kn", CASE_MAJOR_KN}, {"mn", CASE_MAJOR_MN}, {NULL, 0}};
static const struct word layout_words[] = {{"mn", CASE_SF_MN},
                                           {"row", CASE_SF_ROW},
                                           {"mn_unaligned", CASE_SF_MN_UNALIGNED},
                                           {"strided", CASE_SF_STRIDED},
                                           {NULL, 0}};
static const struct word d_words[] = {{"row", CASE_D_ROW}, {"col", CASE_D_COL}, {"step", CASE_D_STEP}, {NULL, 0}};
static const struct word batch_words[] = {{"outer", CASE_BATCH_OUTER}, {"inner", CASE_BATCH_INNER}, {NULL, 0}};
static const struct word broadcast_words[] = {
    {"none", CASE_BROADCAST_NONE}, {"a", CASE_BROADCAST_A}, {"b", CASE_BROADCAST_B}, {NULL, 0}};

enum key_kind { NUMBER, PADDING /* "+3" */, WORD };
enum { G = 1 << CASE_GEMM, Q = 1 << CASE_QUANTIZE, T = 1 << CASE_TRANSFORM };
enum { REQUIRED = 1, ALWAYS = 2 /* printed even at its default */ };

struct key {
    const char *name;
    unsigned ops, flags;
    enum key_kind kind;
    size_t offset; /* of the first number in struct test_case */
    int count;
    int64_t min, max, defaults[3];
    const struct word *words;
    const char *text;
};

#define AT(field) offsetof(struct test_case, field)
#define NUMBER_KEY(name, ops, flags, min, max, otherwise, text)                                                        \
    {                                                                                                                  \
#name, ops, flags, NUMBER, AT(name), 1, min, max, {otherwise }, NULL, text                                     \
    }
#define PADDING_KEY(name, ops, text)                                                                                   \
    {                                                                                                                  \
#name, ops, 0, PADDING, AT(name), 1, 0, 1 << 20, {0 }, NULL, text                                              \
    }
#define WORD_KEY(name, ops, flags, words, otherwise, text)                                                             \
    {                                                                                                                  \
#name, ops, flags, WORD, AT(name), 1, 0, 0, {otherwise }, words, text                                          \
    }
enum { SIZE_MAX_INT = 1 << 30 };

static const struct key keys[] = {
    NUMBER_KEY(m, G | Q | T, REQUIRED | ALWAYS, 0, SIZE_MAX_INT, 0, "rows of A and D; of x"),
    NUMBER_KEY(n, G, REQUIRED | ALWAYS, 0, SIZE_MAX_INT, 0, "rows of B, columns of D"),
    NUMBER_KEY(k, G | Q | T, REQUIRED | ALWAYS, 0, SIZE_MAX_INT, 0, "columns of A and B; of x"),
    WORD_KEY(out, G, ALWAYS, float_words, DG_BFLOAT16, "type of D"),
    {"recipe",
     G,
     ALWAYS,
     NUMBER,
     AT(recipe),
     3,
     1,
     1024,
     {1, 128, 128},
     NULL,
     "rows, columns and k of a scale's group"},
    WORD_KEY(in, Q, ALWAYS, float_words, DG_BFLOAT16, "type of x"),
    WORD_KEY(from, T, ALWAYS, scale_words, DG_FLOAT32, "type of the scales that are read"),
    WORD_KEY(to, T, ALWAYS, scale_words, DG_INT32, "type of the scales that are written"),
    {"gran", Q | T, ALWAYS, NUMBER, AT(gran), 2, 1, 1 << 20, {1, 128}, NULL, "rows and k of a scale's group"},
    WORD_KEY(sf, Q, ALWAYS, scale_words, DG_FLOAT32, "type of the scales"),
    NUMBER_KEY(batch, G | Q | T, 0, 0, 1 << 20, 0, "size of a leading dimension; 0: there is none"),
    WORD_KEY(c, G, 0, c_words, CASE_C_NONE, "D = C + A B^T: with C apart, or C in D"),
    WORD_KEY(major, G, 0, major_words, CASE_MAJOR_KK, "contiguous dimension of A (k or m) and of B (k or n)"),
    WORD_KEY(sfa, G, 0, scale_words, DG_FLOAT32, "type of A's scales"),
    WORD_KEY(sfb, G, 0, scale_words, DG_FLOAT32, "type of B's scales"),
    WORD_KEY(sfa_layout, G, 0, layout_words, CASE_SF_MN, "where A's scales lie"),
    WORD_KEY(sfb_layout, G, 0, layout_words, CASE_SF_ROW, "where B's scales lie"),
    WORD_KEY(sf_layout, Q | T, 0, layout_words, CASE_SF_MN, "where the written scales lie"),
    PADDING_KEY(lda, G | Q, "elements between A's (or x's) rows, or columns if these are contiguous"),
    PADDING_KEY(ldb, G, "the same for B"),
    PADDING_KEY(ldd, G, "the same for D and C"),
    WORD_KEY(d_layout, G, 0, d_words, CASE_D_ROW, "D and C contiguous along rows, along columns, or in steps of 2"),
    WORD_KEY(batch_layout, G, 0, batch_words, CASE_BATCH_OUTER, "batch in A and D outside the rows, or inside them"),
    WORD_KEY(broadcast, G, 0, broadcast_words, CASE_BROADCAST_NONE, "A or B is one matrix for the whole batch"),
    PADDING_KEY(shift, G | Q, "A, B and D (or x and q) begin so many elements after an aligned address"),
    NUMBER_KEY(round, Q | T, 0, 0, 1, 0, "1: scales are rounded up to powers of two"),
    NUMBER_KEY(num_sms, G, 0, 0, 1 << 16, 0, "bound on the SMs; 0: none"),
    NUMBER_KEY(seed, G | Q | T, 0, 0, INT64_MAX, 1, "of the random data"),
};
enum { KEY_COUNT = sizeof(keys) / sizeof(keys[0]) };

static const struct {
    const char *name, *type;
} ops[] = {
    [CASE_GEMM] = {"gemm", "fp8"}, [CASE_QUANTIZE] = {"quantize", "fp8"}, [CASE_TRANSFORM] = {"transform", "scale"}};
enum { OP_COUNT = sizeof(ops) / sizeof(ops[0]) };

static int64_t *key_values(const struct key *key, struct test_case *c)
{
    return (int64_t *)(void *)((char *)c + key->offset);
}

static const int64_t *key_values_const(const struct key *key, const struct test_case *c)
{
    return (const int64_t *)(const void *)((const char *)c + key->offset);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static bool read_word(const struct key *key, const char *text, int64_t *value)
{
    char list[128] = "";
    for (const struct word *w = key->words; w->name; ++w) {
        if (strcmp(w->name, text) == 0) {
            *value = w->value;
            return true;
        }
        const size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", w->name);
    }
    return trouble("%s=%s: wanted is one of %s", key->name, text, list);
}

static bool read_value(const struct key *key, const char *text, int64_t *values)
{
    if (key->kind == WORD)
        return read_word(key, text, values);
    if (key->kind == PADDING && *text++ != '+')
        return trouble("%s=%s: wanted is a padding in elements with its sign, such as +16", key->name, text - 1);
    if (parse_numbers(text, key->min, key->max, key->count, values))
        return true;
    char why[256];
    snprintf(why, sizeof(why), "%s", trouble_text());
    return trouble("%s=%s: %s", key->name, text, why);
}

static const struct key *find_key(int64_t op, const char *name)
{
    for (int i = 0; i < KEY_COUNT; ++i)
        if ((keys[i].ops & 1u << op) && strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

static bool unknown_key(int64_t op, const char *name)
{
    char list[256] = "";
    for (int i = 0; i < KEY_COUNT; ++i) {
        const size_t used = strlen(list);
        if (keys[i].ops & 1u << op)
            snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", keys[i].name);
    }
    return trouble("%s has no key \"%s\"; it has %s", ops[op].name, name, list);
}

/* One "key=value" word; `seen` has a bit for each key that has come. */
static bool read_key(char *word, struct test_case *c, uint64_t *seen)
{
    char *value = strchr(word, '=');
    if (value == NULL)
        return trouble("\"%s\" is no key=value", word);
    *value++ = 0;
    const struct key *key = find_key(c->op, word);
    if (key == NULL)
        return unknown_key(c->op, word);
    const uint64_t bit = (uint64_t)1 << (key - keys);
    if (*seen & bit)
        return trouble("%s comes twice", key->name);
    *seen |= bit;
    return read_value(key, value, key_values(key, c));
}

static int find_op(const char *word)
{
    for (int i = 0; i < OP_COUNT; ++i)
        if (strcmp(ops[i].name, word) == 0)
            return i;
    return -1;
}

static bool read_op(const char *name, const char *type, struct test_case *c)
{
    const int op = name ? find_op(name) : -1;
    if (op < 0)
        return trouble("a case begins with \"gemm fp8\", \"quantize fp8\" or \"transform scale\", not \"%s\"",
                       name ? name : "");
    if (type == NULL || strcmp(type, ops[op].type) != 0)
        return trouble("after \"%s\" comes \"%s\", not \"%s\"", name, ops[op].type, type ? type : "");
    *c = (struct test_case){.op = op};
    for (int i = 0; i < KEY_COUNT; ++i)
        memcpy(key_values(&keys[i], c), keys[i].defaults, (size_t)keys[i].count * sizeof(int64_t));
    return true;
}

/* What single keys cannot know. */
static bool check_case(const struct test_case *c)
{
    if (c->op == CASE_TRANSFORM && c->from == DG_INT32 && c->to == DG_INT32)
        return trouble("a transform from ue8m0 to ue8m0 does not exist: one side is fp32");
    if (c->op != CASE_GEMM)
        return true;
    if (c->batch == 0 && (c->batch_layout != CASE_BATCH_OUTER || c->broadcast != CASE_BROADCAST_NONE))
        return trouble("batch_layout and broadcast want a batch");
    if (c->batch_layout == CASE_BATCH_INNER && (c->major == CASE_MAJOR_MK || c->major == CASE_MAJOR_MN))
        return trouble("batch_layout=inner wants A contiguous along k");
    if (c->batch_layout == CASE_BATCH_INNER && c->d_layout == CASE_D_COL)
        return trouble("batch_layout=inner wants D contiguous along its columns");
    if (c->batch_layout == CASE_BATCH_INNER && c->broadcast == CASE_BROADCAST_A)
        return trouble("batch_layout=inner and broadcast=a exclude each other");
    return true;
}

bool case_parse(const char *line, struct test_case *c)
{
    char copy[1024];
    uint64_t seen = 0;
    if (strlen(line) >= sizeof(copy))
        return trouble("the case \"%.30s...\" is too long", line);
    strcpy(copy, line);
    char *rest = NULL;
    const char *name = strtok_r(copy, " \t\r\n", &rest), *type = strtok_r(NULL, " \t\r\n", &rest);
    if (!read_op(name, type, c))
        return false;
    for (char *word; (word = strtok_r(NULL, " \t\r\n", &rest)) != NULL;)
        if (!read_key(word, c, &seen))
            return false;
    for (int i = 0; i < KEY_COUNT; ++i)
        if ((keys[i].flags & REQUIRED) && (keys[i].ops & 1u << c->op) && !(seen & (uint64_t)1 << i))
            return trouble("\"%s\" lacks %s=", line, keys[i].name);
    return check_case(c);
}

/* ---- Printing ---------------------------------------------------------------------------------------------------- */

static void print_key(const struct key *key, const int64_t *values, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, " %s=%s", key->name, key->kind == PADDING ? "+" : "");
    if (key->kind == WORD) {
        const struct word *w = key->words;
        while (w && w->name && w->value != values[0])
            ++w;
        snprintf(text + used, bytes - used, "%s", w && w->name ? w->name : "?");
        return;
    }
    for (int i = 0; i < key->count && used < bytes; ++i)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, i ? "," : "", values[i]);
}

void case_print(const struct test_case *c, char name[CASE_NAME_BYTES])
{
    snprintf(name, CASE_NAME_BYTES, "%s %s", ops[c->op].name, ops[c->op].type);
    for (int i = 0; i < KEY_COUNT; ++i) {
        const int64_t *values = key_values_const(&keys[i], c);
        const size_t used = strlen(name);
        if (!(keys[i].ops & 1u << c->op))
            continue;
        if ((keys[i].flags & ALWAYS) || memcmp(values, keys[i].defaults, (size_t)keys[i].count * sizeof(*values)) != 0)
            print_key(&keys[i], values, name + used, CASE_NAME_BYTES - used);
    }
}

static void help_key(const struct key *key)
{
    enum { WIDTH = 44 };
    static const char *const numbers[] = {"N", "MN,K", "M,N,K"};
    char left[128], value[64];
    snprintf(left, sizeof(left), "%s=%s", key->name,
             key->kind == PADDING ? "+N"
             : key->words         ? ""
                                  : numbers[key->count - 1]);
    for (const struct word *w = key->words; w && w->name; ++w) {
        const size_t used = strlen(left);
        snprintf(left + used, sizeof(left) - used, "%s%s", w == key->words ? "" : "|", w->name);
    }
    print_key(key, key->defaults, value, sizeof(value));
    const char *otherwise = key->flags & REQUIRED ? "required" : strchr(value, '=') + 1;
    printf("  %-*s %s [%s]\n", WIDTH, left, key->text, otherwise);
}

void case_help(void)
{
    printf("A case is one line of text, the same for all commands, and printed as its name. Keys may come in any\n"
           "order; their defaults stand in brackets.\n");
    for (int op = 0; op < OP_COUNT; ++op) {
        printf("\n%s %s\n", ops[op].name, ops[op].type);
        for (int i = 0; i < KEY_COUNT; ++i)
            if (keys[i].ops & 1u << op)
                help_key(&keys[i]);
    }
    printf("\nExample: gemm fp8 m=4096 n=7168 k=2048 out=bf16 recipe=1,128,128\n");
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

bool case_list_add(struct case_list *list, const struct test_case *c)
{
    if (list->count == list->space) {
        const int64_t space = list->space ? 2 * list->space : 64;
        struct test_case *items = realloc(list->items, (size_t)space * sizeof(*items));
        if (items == NULL)
            return trouble("no memory for %" PRId64 " cases", space);
        list->items = items;
        list->space = space;
    }
    list->items[list->count++] = *c;
    return true;
}

void case_list_free(struct case_list *list)
{
    free(list->items);
    *list = (struct case_list){0};
}

static bool add_line(struct case_list *list, const char *line)
{
    struct test_case c;
    return case_parse(line, &c) && case_list_add(list, &c);
}

bool case_list_pattern(struct case_list *list, const char *pattern)
{
    char line[1024];
    const char *open = strchr(pattern, '{');
    if (open == NULL)
        return add_line(list, pattern);
    const char *close = strchr(open, '}');
    if (close == NULL)
        return trouble("the pattern \"%s\" has a { without a }", pattern);
    for (const char *part = open + 1; part <= close; part += strcspn(part, "|}") + 1) {
        const int written = snprintf(line, sizeof(line), "%.*s%.*s%s", (int)(open - pattern), pattern,
                                     (int)strcspn(part, "|}"), part, close + 1);
        if (written < 0 || (size_t)written >= sizeof(line))
            return trouble("the pattern \"%.40s...\" is too long", pattern);
        if (!case_list_pattern(list, line))
            return false;
    }
    return true;
}

/* Does the word, or the quoted case, begin with an operation's name? */
static bool begins_case(const char *word)
{
    char first[16] = "";
    const size_t length = strcspn(word, " ");
    if (length >= sizeof(first))
        return false;
    memcpy(first, word, length);
    return find_op(first) >= 0;
}

bool case_list_arguments(struct case_list *list, int count, char **words)
{
    char line[1024] = "";
    for (int i = 0; i < count; ++i) {
        const char *word = words[i] + strspn(words[i], " ");
        if (begins_case(word) && *line) {
            if (!case_list_pattern(list, line))
                return false;
            *line = 0;
        }
        const size_t used = strlen(line);
        if (used + strlen(word) + 2 > sizeof(line))
            return trouble("the case \"%.30s...\" is too long", line);
        snprintf(line + used, sizeof(line) - used, "%s%s", used ? " " : "", word);
    }
    return *line == 0 || case_list_pattern(list, line);
}

bool case_list_file(struct case_list *list, const char *path)
{
    char *line = NULL;
    size_t room = 0;
    bool done = true;
    const int64_t before = list->count;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return trouble("%s cannot be opened: %s", path, strerror(errno));
    for (int number = 1; done && getline(&line, &room, file) >= 0; ++number) {
        line[strcspn(line, "#\r\n")] = 0;
        if (line[strspn(line, " \t")] == 0 || case_list_pattern(list, line))
            continue;
        char why[512];
        snprintf(why, sizeof(why), "%s", trouble_text());
        done = trouble("%s:%d: %s", path, number, why);
    }
    if (done && ferror(file))
        done = trouble("%s cannot be read: %s", path, strerror(errno));
    else if (done && list->count == before)
        done = trouble("%s holds no case", path);
    free(line);
    fclose(file);
    return done;
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

double case_flops(const struct test_case *c)
{
    const double batch = c->batch ? (double)c->batch : 1.0;
    return c->op == CASE_GEMM ? 2.0 * batch * (double)c->m * (double)c->n * (double)c->k : 0.0;
}

static double groups(int64_t size, int64_t gran)
{
    const int64_t count = size / gran + (size % gran != 0);
    return (double)count;
}

/* Bytes of scales; a packed one has a byte of each word, a whole word at least. */
static double scale_bytes(int64_t mn, int64_t k, int64_t gran_mn, int64_t gran_k, int64_t dtype)
{
    const double per_row = dtype == DG_INT32 ? groups((int64_t)groups(k, gran_k), 4) : groups(k, gran_k);
    return 4.0 * groups(mn, gran_mn) * per_row;
}

static double gemm_bytes(const struct test_case *c)
{
    const double m = (double)c->m, n = (double)c->n, k = (double)c->k, batch = c->batch ? (double)c->batch : 1.0;
    const double a = m * k + scale_bytes(c->m, c->k, c->recipe[0], c->recipe[2], c->sfa);
    const double b = n * k + scale_bytes(c->n, c->k, c->recipe[1], c->recipe[2], c->sfb);
    const double d = m * n * (double)dg_dtype_size((dg_dtype)c->out) * (c->c == CASE_C_NONE ? 1.0 : 2.0);
    return a * (c->broadcast == CASE_BROADCAST_A ? 1.0 : batch) + b * (c->broadcast == CASE_BROADCAST_B ? 1.0 : batch) +
           d * batch;
}

double case_bytes(const struct test_case *c)
{
    const double batch = c->batch ? (double)c->batch : 1.0, elements = (double)c->m * (double)c->k;
    if (c->op == CASE_GEMM)
        return gemm_bytes(c);
    if (c->op == CASE_QUANTIZE)
        return batch * (elements * (double)(dg_dtype_size((dg_dtype)c->in) + 1) +
                        scale_bytes(c->m, c->k, c->gran[0], c->gran[1], c->sf));
    return batch * (scale_bytes(c->m, c->k, c->gran[0], c->gran[1], c->from) +
                    scale_bytes(c->m, c->k, c->gran[0], c->gran[1], c->to));
}
