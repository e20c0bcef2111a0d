/*
 * What the `layout` of a grouped case holds, and what it asks for: the rules of deepgemm.h, said once more apart from
 * the library that is judged by them.
 */
#ifndef CLI_GROUPS_H
#define CLI_GROUPS_H

#include "cases.h"

/* Sizes that follow from a case alone; they stay when other numbers are dealt. */
struct group_room {
    int64_t rows;        /* of one entry of D, and of A */
    int64_t k, k_blocks; /* columns of A and of its scales */
    int64_t layout;      /* elements; 0: there is none */
};

/* Rows of D that are one product with one B, over one range of K. A dense problem has a span for each batch entry. */
struct span {
    int64_t batch;      /* entry of D */
    int64_t group;      /* entry of B */
    int64_t row, end;   /* computed */
    int64_t zero_end;   /* rows from `end` to here become zeros */
    int64_t k_begin, k; /* columns of A and B */
    int64_t k_block;    /* the first of their scales */
};

struct groups {
    struct group_room room;
    int32_t *layout;
    struct span *spans; /* in the order of D's rows; neighbouring blocks of one group are one span */
    int64_t count;
};

/* false, and a sentence, where no tensor could hold the groups. */
bool group_room(const struct test_case *test, struct group_room *room);

/* Deal the rows (or K) out from a seed, the case's own or another one: layout and spans. */
bool groups_make(struct groups *groups, const struct test_case *test, uint64_t seed);
void groups_free(struct groups *groups);

#endif
