/*
 * gemm_groups.h - what a product consists of, and the one place where a grouped kind's `layout` is read. The CPU
 * reference and the kernels all ask here, so they cannot disagree about a corner.
 *
 * A product is cut into spans: neighbouring rows of D that share one B.
 *
 *     dense       one span a batch entry
 *     contiguous  one for each block of `alignment` rows; empty where the block's first row names no group
 *     psum        one a group, empty ones too
 *     masked      one a group: of its entry of the batch the rows that are in use
 *     k-grouped   one a group: an entry of D's batch, and a range of K
 *
 * Nonsense in `layout` gives spans that are empty or cut short, never one outside the tensors.
 */
#ifndef SHARED_GEMM_GROUPS_H
#define SHARED_GEMM_GROUPS_H

#include "shared/base.h"

/* The numbers of enum dg_gemm_kind (checked in plan/gemm_problem.c), for #if in kernels. */
#define GEMM_KIND_DENSE 0
#define GEMM_KIND_CONTIGUOUS 1
#define GEMM_KIND_PSUM 2
#define GEMM_KIND_MASKED 3
#define GEMM_KIND_K_GROUPED 4

struct gemm_groups {
    int32_t kind;
    int32_t zero_padding;  /* psum */
    int64_t spans;         /* how many */
    int64_t groups;        /* entries of B */
    int64_t rows;          /* of one entry of D */
    int64_t k, k_blocks;   /* k-grouped: room for all groups' K, and for their scales; else K and ceil(K / 128) */
    int64_t alignment;     /* contiguous and psum */
    uint64_t layout;       /* address of int32 */
    int64_t layout_stride; /* elements */
};

struct gemm_span {
    int64_t batch;      /* entry of D, and of A and its scales where they have several */
    int64_t group;      /* entry of B and its scales where they have several */
    int64_t row, end;   /* first row, and the one behind the last */
    int64_t zero_end;   /* rows from `end` to here become zeros */
    int64_t k_begin, k; /* the range of K */
    int64_t k_block;    /* of its scales, the first */
};

SHARED_FN int64_t gemm_layout_at(const struct gemm_groups *g, int64_t index)
{
    return ((const int32_t *)g->layout)[index * g->layout_stride];
}

SHARED_FN int64_t gemm_clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

SHARED_FN int64_t gemm_aligned(const struct gemm_groups *g, int64_t row)
{
    return (row + g->alignment - 1) / g->alignment * g->alignment;
}

SHARED_FN void gemm_span_contiguous(const struct gemm_groups *g, int64_t index, struct gemm_span *span)
{
    const int64_t row = index * g->alignment, group = gemm_layout_at(g, row);
    span->row = row;
    span->group = group;
    span->end = group < 0 || group >= g->groups ? row : gemm_clamp(row + g->alignment, 0, g->rows);
    span->zero_end = span->end;
}

SHARED_FN void gemm_span_psum(const struct gemm_groups *g, int64_t index, struct gemm_span *span)
{
    const int64_t before = index == 0 ? 0 : gemm_clamp(gemm_layout_at(g, index - 1), 0, g->rows);
    const int64_t row = gemm_aligned(g, before), end = gemm_clamp(gemm_layout_at(g, index), 0, g->rows);
    span->group = index;
    span->row = row;
    span->end = end < row ? row : end;
    span->zero_end = end < row || !g->zero_padding ? span->end : gemm_clamp(gemm_aligned(g, end), 0, g->rows);
}

SHARED_FN void gemm_span_masked(const struct gemm_groups *g, int64_t index, struct gemm_span *span)
{
    span->batch = span->group = index;
    span->end = span->zero_end = gemm_clamp(gemm_layout_at(g, index), 0, g->rows);
}

/* K's ranges lie one behind the other: the span before must be the one that `span` held. */
SHARED_FN void gemm_span_k_grouped(const struct gemm_groups *g, int64_t index, struct gemm_span *span)
{
    const int64_t wanted = gemm_layout_at(g, index);
    span->batch = index;
    span->k_begin += span->k;
    span->k_block += (span->k + SCALE_GROUP - 1) / SCALE_GROUP;
    const int64_t room = (g->k_blocks - span->k_block) * SCALE_GROUP, left = g->k - span->k_begin;
    span->k = gemm_clamp(wanted, 0, left < room ? left : room);
}

/* Before the first span. */
SHARED_FN struct gemm_span gemm_span_begin(const struct gemm_groups *g)
{
    struct gemm_span span;
    span.batch = span.group = span.row = 0;
    span.end = span.zero_end = g->rows;
    span.k_begin = span.k_block = 0;
    span.k = g->kind == GEMM_KIND_K_GROUPED ? 0 : g->k;
    return span;
}

/* Span number `index` of 0 .. spans-1. */
SHARED_FN void gemm_span_read(const struct gemm_groups *g, int64_t index, struct gemm_span *span)
{
    switch (g->kind) {
    case GEMM_KIND_CONTIGUOUS:
        gemm_span_contiguous(g, index, span);
        break;
    case GEMM_KIND_PSUM:
        gemm_span_psum(g, index, span);
        break;
    case GEMM_KIND_MASKED:
        gemm_span_masked(g, index, span);
        break;
    case GEMM_KIND_K_GROUPED:
        gemm_span_k_grouped(g, index, span);
        break;
    default:
        span->batch = span->group = index;
    }
}

/*
 * Walks spans and their tiles in order. Tiles are counted through all spans; in each span those of one row of tiles
 * are neighbours.
 */
struct gemm_cursor {
    int64_t index;  /* of the span in hand */
    int64_t before; /* tiles of the spans before it */
    int64_t tiles;  /* of it */
    struct gemm_span span;
};

SHARED_FN struct gemm_cursor gemm_cursor_begin(const struct gemm_groups *g)
{
    struct gemm_cursor cursor;
    cursor.index = -1;
    cursor.before = cursor.tiles = 0;
    cursor.span = gemm_span_begin(g);
    return cursor;
}

/* Move on to the span that has tile number `tile`, no less than any asked for before; 0 when there is none. */
SHARED_FN int gemm_cursor_seek(const struct gemm_groups *g, struct gemm_cursor *cursor, int64_t tile, int64_t tile_rows,
                               int64_t tiles_across)
{
    while (tile >= cursor->before + cursor->tiles) {
        cursor->before += cursor->tiles;
        cursor->index += 1;
        if (g->kind == GEMM_KIND_DENSE && cursor->tiles > 0) { /* all alike: no need to count */
            const int64_t skipped = (tile - cursor->before) / cursor->tiles;
            cursor->before += skipped * cursor->tiles;
            cursor->index += skipped;
        }
        if (cursor->index >= g->spans)
            return 0;
        gemm_span_read(g, cursor->index, &cursor->span);
        cursor->tiles = (cursor->span.zero_end - cursor->span.row + tile_rows - 1) / tile_rows * tiles_across;
    }
    return 1;
}

#endif
