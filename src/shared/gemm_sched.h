/*
 * gemm_sched.h - the order in which persistent blocks take output tiles, for the dense kinds.
 *
 * Tiles are counted in units of clusters (a cluster of two blocks takes two neighbouring tiles at once). Within one
 * batch entry they are taken in strips of `strip` tiles, so that the tiles in flight at one time form a block of about
 * equal height and width, whose operands the L2 cache holds:
 *
 *     strips along m (strip_along_n = 0), strip = 2:      n ->   0 2 4 6 |  then the next two rows of tiles
 *                                                         m      1 3 5 7 |
 *
 * The host proves that every tile is taken exactly once (tests/unit/test_sched.c).
 */
#ifndef SHARED_GEMM_SCHED_H
#define SHARED_GEMM_SCHED_H

#include "shared/base.h"

struct gemm_sched {
    int32_t m_tiles, n_tiles; /* of one batch entry */
    int32_t tiles;            /* of all batch entries */
    int32_t strip;            /* height of a strip in tiles, >= 1 */
    int32_t strip_along_n;    /* strips are columns of tiles instead of rows */
};

struct gemm_tile {
    int32_t batch, m, n;
};

/* Tile number `index` of 0 .. tiles-1. */
SHARED_FN struct gemm_tile gemm_sched_tile(const struct gemm_sched *s, int32_t index)
{
    const int32_t across = s->strip_along_n ? s->n_tiles : s->m_tiles; /* the dimension that is cut into strips */
    const int32_t along = s->strip_along_n ? s->m_tiles : s->n_tiles;
    /* Divisions are slow, and hold up a block's first load: not where it is clear what comes out. */
    const int32_t batch = s->tiles == across * along ? 0 : index / (across * along);
    const int32_t in_batch = index - batch * (across * along);
    const int32_t strip = s->strip >= across ? 0 : in_batch / (s->strip * along);
    const int32_t in_strip = in_batch - strip * (s->strip * along);
    const int32_t left = across - strip * s->strip;
    const int32_t height = left < s->strip ? left : s->strip; /* the last strip may be lower */
    const int32_t step = height == 1 ? in_strip : in_strip / height;
    const int32_t row = strip * s->strip + in_strip - step * height;
    struct gemm_tile tile;
    tile.batch = batch;
    tile.m = s->strip_along_n ? step : row;
    tile.n = s->strip_along_n ? row : step;
    return tile;
}

#endif
