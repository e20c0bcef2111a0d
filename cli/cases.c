#include "cases.h"

#include "groups.h"
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

static const struct word kind_words[] = {{"dense", DG_GEMM_DENSE},         {"contiguous", DG_GEMM_CONTIGUOUS},
                                         {"psum", DG_GEMM_PSUM},           {"masked", DG_GEMM_MASKED},
                                         {"k_grouped", DG_GEMM_K_GROUPED}, {NULL, 0}};

enum key_kind { NUMBER, PADDING /* "+3" */, WORD, LIST };
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
/* A list's length is the number at its offset; an empty one is the default. */
#define LIST_KEY(name, ops, min, max, text)                                                                            \
    {                                                                                                                  \
#name, ops, 0, LIST, AT(name), 1, min, max, {0 }, NULL, text                                                   \
    }
enum { SIZE_MAX_INT = 1 << 30, LINE_BYTES = 2048 };

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
    WORD_KEY(kind, G, 0, kind_words, DG_GEMM_DENSE, "how rows or K are grouped: see below"),
    NUMBER_KEY(groups, G, 0, 1, 1 << 16, 0, "how many"),
    LIST_KEY(sizes, G, INT32_MIN, INT32_MAX, "rows (or K) of the groups, again from the first when they run out"),
    NUMBER_KEY(mean, G, 0, 0, SIZE_MAX_INT, 0, "masked: rows in use; 0: any number up to m"),
    NUMBER_KEY(tail, G, 0, -SIZE_MAX_INT, SIZE_MAX_INT, 0, "rows (or K) behind all groups, or cut off from the last"),
    NUMBER_KEY(alignment, G, 0, 0, INT32_MAX, 0, "of groups in contiguous and psum; 0: 128"),
    NUMBER_KEY(zero_padding, G, 0, 0, 1, 0, "psum, 1: rows up to the next aligned one become zeros"),
    NUMBER_KEY(expected_m, G, 0, 0, INT32_MAX, 0, "the hint of psum and masked"),
    NUMBER_KEY(flat, G, 0, 0, 1, 0, "k_grouped, 1: A and B are vectors, a row-major matrix for each group"),
    PADDING_KEY(layout_step, G, "elements between those of the layout vector"),
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
    NUMBER_KEY(beside_ns, G, 0, 0, SIZE_MAX_INT, 0, "what another implementation took; bench tells the ratio"),
    NUMBER_KEY(seed, G | Q | T, 0, 0, INT64_MAX, 1, "of the random data, and of the groups' sizes"),
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

static bool read_list(const struct key *key, const char *text, int64_t *list)
{
    int64_t count = 1;
    for (const char *at = text; (at = strchr(at, ',')) != NULL; ++at)
        ++count;
    if (count > CASE_MOST_SIZES)
        return trouble("it has %" PRId64 " numbers; at most %d", count, CASE_MOST_SIZES);
    *list = count;
    return parse_numbers(text, key->min, key->max, (int)count, list + 1);
}

static bool read_value(const struct key *key, const char *text, int64_t *values)
{
    if (key->kind == WORD)
        return read_word(key, text, values);
    if (key->kind == PADDING && *text++ != '+')
        return trouble("%s=%s: wanted is a padding in elements with its sign, such as +16", key->name, text - 1);
    if (key->kind == LIST ? read_list(key, text, values) : parse_numbers(text, key->min, key->max, key->count, values))
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
    char list[512] = "";
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

static bool is_default(const struct key *key, const struct test_case *c)
{
    return memcmp(key_values_const(key, c), key->defaults, (size_t)key->count * sizeof(int64_t)) == 0;
}

const char *case_kind_name(int64_t kind)
{
    return kind_words[kind].name; /* in the order of dg_gemm_kind */
}

/* Keys that have no meaning with every kind. */
static bool check_kind(const struct test_case *c)
{
    enum {
        DENSE = 1 << DG_GEMM_DENSE,
        CONTIGUOUS = 1 << DG_GEMM_CONTIGUOUS,
        PSUM = 1 << DG_GEMM_PSUM,
        MASKED = 1 << DG_GEMM_MASKED,
        K_GROUPED = 1 << DG_GEMM_K_GROUPED,
        GROUPED = CONTIGUOUS | PSUM | MASKED | K_GROUPED
    };
    static const struct {
        const char *key;
        unsigned kinds;
    } rules[] = {{"batch", DENSE},
                 {"batch_layout", DENSE},
                 {"broadcast", DENSE},
                 {"groups", GROUPED},
                 {"sizes", GROUPED},
                 {"layout_step", GROUPED},
                 {"mean", MASKED},
                 {"tail", CONTIGUOUS | PSUM | K_GROUPED},
                 {"alignment", CONTIGUOUS | PSUM},
                 {"zero_padding", PSUM},
                 {"expected_m", PSUM | MASKED},
                 {"flat", K_GROUPED}};
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); ++i)
        if (!(rules[i].kinds & 1u << c->kind) && !is_default(find_key(CASE_GEMM, rules[i].key), c))
            return trouble("%s has no meaning with kind=%s", rules[i].key, case_kind_name(c->kind));
    return true;
}

static bool check_groups(const struct test_case *c)
{
    struct group_room room;
    if (c->kind == DG_GEMM_DENSE)
        return true;
    if (c->groups == 0)
        return trouble("kind=%s wants groups=", case_kind_name(c->kind));
    if (c->flat && (c->lda || c->ldb || c->major != CASE_MAJOR_KK))
        return trouble("flat=1 leaves no choice to major, lda and ldb");
    return group_room(c, &room);
}

/* What single keys cannot know. */
static bool check_case(const struct test_case *c)
{
    if (c->op == CASE_TRANSFORM && c->from == DG_INT32 && c->to == DG_INT32)
        return trouble("a transform from ue8m0 to ue8m0 does not exist: one side is fp32");
    if (c->op != CASE_GEMM)
        return true;
    if (!check_kind(c) || !check_groups(c))
        return false;
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

/* The list of sizes stands for the mean of those that are drawn. */
static bool is_replaced(const struct key *key, const struct test_case *c)
{
    if (c->op != CASE_GEMM || c->sizes[0] == 0)
        return false;
    return key->offset == AT(m)   ? c->kind == DG_GEMM_CONTIGUOUS || c->kind == DG_GEMM_PSUM
           : key->offset == AT(k) ? c->kind == DG_GEMM_K_GROUPED
                                  : key->offset == AT(mean);
}

static bool check_presence(const char *line, const struct test_case *c, uint64_t seen)
{
    for (int i = 0; i < KEY_COUNT; ++i) {
        const bool here = (seen & (uint64_t)1 << i) != 0;
        if (is_replaced(&keys[i], c)) {
            if (here)
                return trouble("%s and sizes exclude each other with kind=%s", keys[i].name, case_kind_name(c->kind));
        } else if ((keys[i].flags & REQUIRED) && (keys[i].ops & 1u << c->op) && !here)
            return trouble("\"%s\" lacks %s=", line, keys[i].name);
    }
    return true;
}

/* Scales in blocks of 128 rows of B are none of this kind's. */
static void set_recipe(struct test_case *c, uint64_t seen)
{
    const struct key *recipe = find_key(CASE_GEMM, "recipe");
    if (c->op == CASE_GEMM && c->kind == DG_GEMM_K_GROUPED && !(seen & (uint64_t)1 << (recipe - keys)))
        c->recipe[1] = 1;
}

bool case_parse(const char *line, struct test_case *c)
{
    char copy[LINE_BYTES];
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
    set_recipe(c, seen);
    return check_presence(line, c, seen) && check_case(c);
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
    const int64_t count = key->kind == LIST ? values[0] : key->count;
    for (int64_t i = 0; i < count && used < bytes; ++i)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, i ? "," : "",
                                 values[key->kind == LIST ? i + 1 : i]);
}

void case_print(const struct test_case *c, char name[CASE_NAME_BYTES])
{
    snprintf(name, CASE_NAME_BYTES, "%s %s", ops[c->op].name, ops[c->op].type);
    for (int i = 0; i < KEY_COUNT; ++i) {
        const int64_t *values = key_values_const(&keys[i], c);
        const size_t used = strlen(name);
        if (!(keys[i].ops & 1u << c->op) || is_replaced(&keys[i], c))
            continue;
        if ((keys[i].flags & ALWAYS) || !is_default(&keys[i], c))
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
             : key->kind == LIST  ? "N,N,..."
             : key->words         ? ""
                                  : numbers[key->count - 1]);
    for (const struct word *w = key->words; w && w->name; ++w) {
        const size_t used = strlen(left);
        snprintf(left + used, sizeof(left) - used, "%s%s", w == key->words ? "" : "|", w->name);
    }
    print_key(key, key->defaults, value, sizeof(value));
    const char *otherwise = key->flags & REQUIRED ? "required" : key->kind == LIST ? "drawn" : strchr(value, '=') + 1;
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
    printf("\nKinds: m, k and sizes\n"
           "  contiguous  m is a group's mean number of rows: each has 0.7 to 1.3 times as many, drawn from the seed, "
           "and\n"
           "              begins at an aligned row. In sizes, 100 is a group of 100 rows, 0 one without any, and -128 "
           "are\n"
           "              128 rows of no group, marked -1, then G, -2^31 and 2^31-1.\n"
           "  psum        likewise; in sizes, -3 is a group that ends 3 rows before it begins\n"
           "  masked      m is the rows that each group has room for; mean or sizes tell how many are in use\n"
           "  k_grouped   k is a group's mean K, drawn likewise and rounded up to a multiple of 128; sizes are taken\n"
           "              as they are\n"
           "With sizes m (k with k_grouped) is left out.\n"
           "\nExamples: gemm fp8 m=256 n=7168 k=2048 kind=contiguous groups=32\n"
           "          gemm fp8 n=512 k=1024 kind=psum groups=4 sizes=100,0,-3,300 alignment=64 tail=-20\n"
           "          gemm fp8 m=4096 n=7168 k=2048 out=bf16 recipe=1,128,128\n");
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
    char line[LINE_BYTES];
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
    char line[LINE_BYTES] = "";
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

static double count(int64_t size, int64_t gran)
{
    const int64_t groups = size / gran + (size % gran != 0);
    return (double)groups;
}

/* Bytes of scales; a packed one has a byte of each word, a whole word at least. */
static double scale_bytes(int64_t mn, int64_t k, int64_t gran_mn, int64_t gran_k, int64_t dtype)
{
    const double per_row = dtype == DG_INT32 ? count((int64_t)count(k, gran_k), 4) : count(k, gran_k);
    return 4.0 * count(mn, gran_mn) * per_row;
}

/* What one product has to do. */
struct load {
    double flops, a, b, d; /* bytes; those of D with C's */
};

static struct load load_of(const struct test_case *c, int64_t rows, int64_t k_count)
{
    const double m = (double)rows, n = (double)c->n, k = (double)k_count;
    const double d_accesses = c->c == CASE_C_NONE ? 1.0 : 2.0;
    return (struct load){2.0 * m * n * k, m * k + scale_bytes(rows, k_count, c->recipe[0], c->recipe[2], c->sfa),
                         n * k + scale_bytes(c->n, k_count, c->recipe[1], c->recipe[2], c->sfb),
                         m * n * (double)dg_dtype_size((dg_dtype)c->out) * d_accesses};
}

/* All products together: of a batch, or of spans, which have each a B of their own. */
static struct load gemm_load(const struct test_case *c)
{
    const double batch = c->batch ? (double)c->batch : 1.0;
    struct load sum = load_of(c, c->m, c->k);
    struct groups groups;
    sum.flops *= batch;
    sum.a *= c->broadcast == CASE_BROADCAST_A ? 1.0 : batch;
    sum.b *= c->broadcast == CASE_BROADCAST_B ? 1.0 : batch;
    sum.d *= batch;
    if (c->kind == DG_GEMM_DENSE)
        return sum;
    sum = (struct load){0.0, 0.0, 0.0, 0.0};
    if (!groups_make(&groups, c, (uint64_t)c->seed)) /* whoever runs the case will hear of it */
        return sum;
    for (int64_t i = 0; i < groups.count; ++i) {
        const struct span *span = &groups.spans[i];
        const struct load one = load_of(c, span->end - span->row, span->k);
        sum.flops += one.flops;
        sum.a += one.a;
        sum.b += span->end > span->row ? one.b : 0.0;
        sum.d += one.d;
    }
    groups_free(&groups);
    return sum;
}

double case_flops(const struct test_case *c)
{
    return c->op == CASE_GEMM ? gemm_load(c).flops : 0.0;
}

double case_bytes(const struct test_case *c)
{
    const double batch = c->batch ? (double)c->batch : 1.0, elements = (double)c->m * (double)c->k;
    if (c->op == CASE_GEMM) {
        const struct load load = gemm_load(c);
        return load.a + load.b + load.d;
    }
    if (c->op == CASE_QUANTIZE)
        return batch * (elements * (double)(dg_dtype_size((dg_dtype)c->in) + 1) +
                        scale_bytes(c->m, c->k, c->gran[0], c->gran[1], c->sf));
    return batch * (scale_bytes(c->m, c->k, c->gran[0], c->gran[1], c->from) +
                    scale_bytes(c->m, c->k, c->gran[0], c->gran[1], c->to));
}
