/*
 * Cases: one line of text for one problem, the same for all commands, and printed as its name.
 *
 *     gemm fp8 m=4096 n=7168 k=2048 out=bf16 recipe=1,128,128 [batch= c= major= sfa= sfb= ...]
 *     gemm fp8 m=256 n=7168 k=2048 out=bf16 recipe=1,128,128 kind=contiguous groups=32 [sizes= tail= alignment= ...]
 *     quantize fp8 m=4096 k=7168 in=bf16 gran=1,128 sf=fp32 [...]
 *     transform scale m=4096 k=7168 from=fp32 to=ue8m0 gran=1,128 [...]
 *
 * `deepgemm help cases` prints what each key means, from the table in cases.c.
 */
#ifndef CLI_CASES_H
#define CLI_CASES_H

#include "deepgemm.h"

enum case_op { CASE_GEMM, CASE_QUANTIZE, CASE_TRANSFORM };

/* Where C lies: nowhere, in a tensor of its own, or in D. */
enum case_c { CASE_C_NONE, CASE_C_SEPARATE, CASE_C_IS_D };

/* How scales lie: MN-major with aligned columns (dg_scale_layout), row-major, MN-major with columns that are not a
   multiple of 16 bytes apart, and with steps in both dimensions. */
enum case_scales { CASE_SF_MN, CASE_SF_ROW, CASE_SF_MN_UNALIGNED, CASE_SF_STRIDED };

/* Which dimensions of A and B are contiguous, in this order. */
enum case_major { CASE_MAJOR_KK, CASE_MAJOR_MK, CASE_MAJOR_KN, CASE_MAJOR_MN };

/* D's contiguous dimension: columns, rows, or none (a column stride of 2). */
enum case_d_layout { CASE_D_ROW, CASE_D_COL, CASE_D_STEP };

/* Where the batch dimension lies in A and D: outermost, or between the rows' stride and the columns'. */
enum case_batch_layout { CASE_BATCH_OUTER, CASE_BATCH_INNER };

enum case_broadcast { CASE_BROADCAST_NONE, CASE_BROADCAST_A, CASE_BROADCAST_B };

enum { CASE_MOST_SIZES = 64 };

/* All numbers, so that one table of keys can read and print them. Enumerations are those above and dg_dtype. */
struct test_case {
    int64_t op;
    int64_t m, n, k;
    int64_t batch;             /* 0: matrices; else the size of a leading dimension */
    int64_t out, in, from, to; /* element types: of D; of x; of a transform's scales */
    int64_t recipe[3], gran[2];
    int64_t c, major, d_layout, batch_layout, broadcast;
    int64_t sfa, sfb, sf; /* DG_FLOAT32 or DG_INT32 (UE8M0) */
    int64_t sfa_layout, sfb_layout, sf_layout;
    int64_t lda, ldb, ldd;              /* elements between the end of a row (or column) and the next */
    int64_t shift;                      /* A, B and D begin this many elements after an aligned address */
    int64_t kind, groups;               /* dg_gemm_kind; groups.h tells what the numbers here mean */
    int64_t sizes[1 + CASE_MOST_SIZES]; /* a list: its length, then its numbers */
    int64_t mean, tail, alignment, zero_padding, expected_m, flat, layout_step;
    int64_t beside_ns;
    int64_t round; /* round scales up to powers of two */
    int64_t num_sms;
    int64_t seed;
};

enum { CASE_NAME_BYTES = 1536 }; /* the longest list of sizes, and every other key */

/* Read one line; false leaves a sentence in trouble_text(). */
bool case_parse(const char *line, struct test_case *c);

/* The canonical line: the keys that are always there, then those that are not at their default. */
void case_print(const struct test_case *c, char name[CASE_NAME_BYTES]);

/* "contiguous", of a dg_gemm_kind. */
const char *case_kind_name(int64_t kind);

/* What `deepgemm help cases` says. */
void case_help(void);

/* A growing list of cases. */
struct case_list {
    struct test_case *items;
    int64_t count, space;
};

bool case_list_add(struct case_list *list, const struct test_case *c);
void case_list_free(struct case_list *list);

/* Cases, or patterns of them, from arguments; one may be one quoted argument or several, since each begins with its
   operation's name. */
bool case_list_arguments(struct case_list *list, int count, char **words);

/* Cases from a file: one, or a pattern, a line; # begins a comment. The sentence about a bad line names file and line.
 */
bool case_list_file(struct case_list *list, const char *path);

/*
 * Cases from a pattern in which {a|b|c} stands for each of its alternatives: "gemm fp8 m={1|64} {n=576 k=7168|n=7168
 * k=2048}" is four cases.
 */
bool case_list_pattern(struct case_list *list, const char *pattern);

/* What the hardware has to do for one call: floating-point operations (two per product) and bytes read and written. Of
   groups only the rows (or K) that are in use count, and the B of those that have any. */
double case_flops(const struct test_case *c);
double case_bytes(const struct test_case *c);

#endif
