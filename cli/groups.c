#include "groups.h"

#include "program.h"
#include "random.h"

#include <inttypes.h>
#include <stdlib.h>

enum { SCALE_GROUP = 128, DEFAULT_ALIGNMENT = 128 };
static const int64_t most_room = 1 << 30; /* rows or K, as one case may have without groups */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t within(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

static int64_t blocks_of(int64_t k)
{
    return (k + SCALE_GROUP - 1) / SCALE_GROUP;
}

static int64_t aligned(const struct test_case *t, int64_t row)
{
    const int64_t alignment = t->alignment ? t->alignment : DEFAULT_ALIGNMENT;
    return (row + alignment - 1) / alignment * alignment;
}

/* ---- Dealing ----------------------------------------------------------------------------------------------------- */

/* 0.7 to 1.3 times the mean. */
static int64_t spread(int64_t mean, uint64_t bits)
{
    return (int64_t)((double)mean * (0.7 + 0.6 * (double)(bits >> 11) * 0x1p-53));
}

/* The size number `index`: rows, or K. */
static int64_t size_at(const struct test_case *t, uint64_t seed, int64_t index)
{
    const uint64_t bits = random_bits(seed ^ 0x517e5, (uint64_t)index);
    if (t->sizes[0] > 0)
        return t->sizes[1 + index % t->sizes[0]];
    if (t->kind == DG_GEMM_K_GROUPED)
        return blocks_of(spread(t->k, bits)) * SCALE_GROUP;
    if (t->kind == DG_GEMM_MASKED && t->mean == 0)
        return (int64_t)(bits % (uint64_t)(t->m + 1));
    return spread(t->kind == DG_GEMM_MASKED ? t->mean : t->m, bits);
}

/* Negative sizes are rows of no group, which are marked in one of these ways in turn (and by the number G). */
static int32_t no_group(const struct test_case *t, int64_t index)
{
    const int32_t marks[] = {-1, (int32_t)t->groups, INT32_MIN, INT32_MAX};
    return marks[index % 4];
}

static void mark(struct groups *g, int64_t row, int64_t end, int32_t number)
{
    for (; g->layout && row < end && row < g->room.layout; ++row)
        g->layout[row] = number;
}

/* Returns the rows behind the last group; the layout is written where there is one. */
static int64_t deal_contiguous(struct groups *g, const struct test_case *t, uint64_t seed)
{
    int64_t row = 0, group = 0, skipped = 0;
    for (int64_t i = 0; group < t->groups; ++i) {
        const int64_t size = size_at(t, seed, i), end = aligned(t, row + llabs(size));
        if (size < 0)
            mark(g, row, end, no_group(t, skipped++));
        else
            mark(g, row, row + size, (int32_t)group++);
        row = end;
    }
    return row;
}

static int64_t deal_psum(struct groups *g, const struct test_case *t, uint64_t seed)
{
    int64_t end = 0;
    for (int64_t i = 0; i < t->groups; ++i) {
        end = aligned(t, larger(end, 0)) + size_at(t, seed, i);
        mark(g, i, i + 1, (int32_t)end);
    }
    return aligned(t, larger(end, 0));
}

static void deal_counts(struct groups *g, const struct test_case *t, uint64_t seed)
{
    for (int64_t i = 0; i < t->groups; ++i)
        mark(g, i, i + 1, (int32_t)size_at(t, seed, i));
}

static void deal(struct groups *g, const struct test_case *t, uint64_t seed)
{
    mark(g, 0, g->room.layout, -1);
    if (t->kind == DG_GEMM_CONTIGUOUS)
        deal_contiguous(g, t, seed);
    else if (t->kind == DG_GEMM_PSUM)
        deal_psum(g, t, seed);
    else if (t->kind != DG_GEMM_DENSE)
        deal_counts(g, t, seed);
}

/* ---- Room -------------------------------------------------------------------------------------------------------- */

static void add_k(const struct test_case *t, struct group_room *room)
{
    room->k = room->k_blocks = 0;
    for (int64_t i = 0; i < t->groups; ++i) {
        const int64_t k = larger(size_at(t, (uint64_t)t->seed, i), 0);
        room->k += k;
        room->k_blocks += blocks_of(k);
    }
    room->k = larger(room->k + t->tail, 0);
    room->k_blocks += blocks_of(larger(t->tail, 0));
}

/* Of a psum case each end that lies before its beginning must leave the next beginning where it is: groups that share
   rows have no one result. */
static bool ends_in_order(const struct test_case *t)
{
    int64_t begin = 0;
    for (int64_t i = 0; i < t->groups; ++i) {
        const int64_t size = size_at(t, (uint64_t)t->seed, i);
        if (begin > 0 && begin + size > 0 && aligned(t, begin + size) < begin)
            return trouble("sizes: an end %" PRId64 " rows before its group makes two groups share rows", -size);
        if (begin > 0 && begin + size <= 0)
            return trouble("sizes: an end before all groups makes two groups share rows");
        begin = aligned(t, larger(begin + size, 0));
    }
    return true;
}

static bool has_rows_to_deal(const struct test_case *t)
{
    for (int64_t i = 1; i <= t->sizes[0]; ++i)
        if (t->sizes[i] >= 0)
            return true;
    return t->sizes[0] == 0 || trouble("sizes: all are negative, so no group gets any rows");
}

bool group_room(const struct test_case *t, struct group_room *room)
{
    struct groups none = {.layout = NULL};
    *room = (struct group_room){t->m, t->k, blocks_of(t->k), t->groups};
    if (t->kind == DG_GEMM_CONTIGUOUS) {
        if (!has_rows_to_deal(t))
            return false;
        room->rows = room->layout = larger(deal_contiguous(&none, t, (uint64_t)t->seed) + t->tail, 0);
    } else if (t->kind == DG_GEMM_PSUM) {
        if (!ends_in_order(t))
            return false;
        room->rows = larger(deal_psum(&none, t, (uint64_t)t->seed) + t->tail, 0);
    } else if (t->kind == DG_GEMM_K_GROUPED)
        add_k(t, room);
    return (room->rows <= most_room && room->k <= most_room) ||
           trouble("the groups add up to %" PRId64 " rows and K=%" PRId64 "; at most %" PRId64, room->rows, room->k,
                   most_room);
}

/* ---- The rules --------------------------------------------------------------------------------------------------- */

static void add(struct groups *g, const struct span *span)
{
    g->spans[g->count++] = *span;
}

static void read_contiguous(struct groups *g, const struct test_case *t)
{
    const int64_t rows = g->room.rows, block = aligned(t, 1);
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t group = g->layout[row], end = within(row + block, rows);
        struct span *last = g->count ? &g->spans[g->count - 1] : NULL;
        if (group < 0 || group >= t->groups)
            continue;
        if (last && last->group == group && last->end == row)
            last->end = last->zero_end = end;
        else
            add(g, &(struct span){0, group, row, end, end, 0, g->room.k, 0});
    }
}

static void read_psum(struct groups *g, const struct test_case *t)
{
    const int64_t rows = g->room.rows;
    int64_t before = 0;
    for (int64_t i = 0; i < t->groups; ++i) {
        const int64_t row = aligned(t, before), end = within(g->layout[i], rows);
        if (end >= row)
            add(g,
                &(struct span){0, i, row, end, t->zero_padding ? within(aligned(t, end), rows) : end, 0, g->room.k, 0});
        before = end;
    }
}

static void read_masked(struct groups *g, const struct test_case *t)
{
    for (int64_t i = 0; i < t->groups; ++i) {
        const int64_t end = within(g->layout[i], t->m);
        add(g, &(struct span){i, i, 0, end, end, 0, t->k, 0});
    }
}

static void read_k_groups(struct groups *g, const struct test_case *t)
{
    int64_t begin = 0, block = 0;
    for (int64_t i = 0; i < t->groups; ++i) {
        const int64_t room = (g->room.k_blocks - block) * SCALE_GROUP, left = g->room.k - begin;
        const int64_t k = within(g->layout[i], left < room ? left : room);
        add(g, &(struct span){i, i, 0, t->m, t->m, begin, k, block});
        begin += k;
        block += blocks_of(k);
    }
}

static void read_batch(struct groups *g, const struct test_case *t)
{
    const int64_t batches = t->batch ? t->batch : 1;
    for (int64_t i = 0; i < batches; ++i)
        add(g, &(struct span){i, i, 0, t->m, t->m, 0, t->k, 0});
}

/* No kind has more spans. */
static int64_t most_spans(const struct groups *g, const struct test_case *t)
{
    if (t->kind == DG_GEMM_CONTIGUOUS)
        return g->room.rows / aligned(t, 1) + 1;
    return t->kind != DG_GEMM_DENSE ? t->groups : t->batch ? t->batch : 1;
}

bool groups_make(struct groups *g, const struct test_case *t, uint64_t seed)
{
    static void (*const readers[])(struct groups *, const struct test_case *) = {[DG_GEMM_DENSE] = read_batch,
                                                                                 [DG_GEMM_CONTIGUOUS] = read_contiguous,
                                                                                 [DG_GEMM_PSUM] = read_psum,
                                                                                 [DG_GEMM_MASKED] = read_masked,
                                                                                 [DG_GEMM_K_GROUPED] = read_k_groups};
    *g = (struct groups){.layout = NULL};
    if (!group_room(t, &g->room))
        return false;
    g->layout = get_memory((size_t)g->room.layout * sizeof(*g->layout));
    if (g->layout)
        deal(g, t, seed);
    g->spans = g->layout ? get_memory((size_t)most_spans(g, t) * sizeof(*g->spans)) : NULL;
    if (g->spans == NULL) {
        groups_free(g);
        return false;
    }
    readers[t->kind](g, t);
    return true;
}

void groups_free(struct groups *g)
{
    free(g->layout);
    free(g->spans);
    *g = (struct groups){.layout = NULL};
}
