/*
 * spans.h - tiles of D where the device alone knows how many rows each group has.
 *
 * A warp that looks for tiles keeps a window of 32 spans (shared/gemm_groups.h), one a lane. Rows of tiles are counted
 * in units of `unit_rows` rows through all spans. As tiles are taken in strips, a window moves on and back by a
 * step, seldom more. Blocks of rows that are lower than a tile make one together where they are neighbours of one
 * group.
 */
#ifndef COMMON_SPANS_H
#define COMMON_SPANS_H

#include "common/ptx.h"
#include "shared/gemm_groups.h"

/* A struct gemm_span in half the registers: the warp has few. */
struct row_span {
    int32_t batch, group, row, end, zero_end;
};

struct span_window {
    int32_t first;         /* the number of lane 0's span */
    int32_t before, units; /* of the spans before the window; in the window */
    int32_t own, end;      /* this lane's units; the window's up to them */
    struct row_span span;  /* this lane's */
};

/* A lane's span number `index`, if there is one; its units. */
DEVICE_FN int32_t span_units(const struct gemm_groups *groups, int32_t index, int32_t unit_rows, struct row_span *out)
{
    struct gemm_span span = gemm_span_begin(groups);
    if (index < groups->spans)
        gemm_span_read(groups, index, &span);
    else
        span.zero_end = span.row;
    out->batch = (int32_t)span.batch;
    out->group = (int32_t)span.group;
    out->row = (int32_t)span.row;
    out->end = (int32_t)span.end;
    out->zero_end = (int32_t)span.zero_end;
    return (out->zero_end - out->row + unit_rows - 1) / unit_rows;
}

/* Whether several spans fit into a unit, which only blocks of rows do. */
DEVICE_FN int spans_join(const struct gemm_groups *groups, int32_t unit_rows)
{
    return groups->kind == GEMM_KIND_CONTIGUOUS && 2 * (int32_t)groups->alignment <= unit_rows;
}

/* Blocks of one group in a row become units of as many as fit, as far as the window reaches. */
DEVICE_FN void span_window_join(struct span_window *window, const struct gemm_groups *groups, int32_t unit_rows)
{
    const int32_t lane = (int32_t)lane_index(), alignment = (int32_t)groups->alignment, most = unit_rows / alignment;
    const int32_t group = window->own > 0 ? window->span.group : -1 - lane; /* an empty block is like no other */
    const int32_t left = (int32_t)exchange_from((uint32_t)group, (uint32_t)lane - 1 & 31);
    const uint32_t heads = vote_ballot(lane == 0 || group != left);
    const uint32_t later = lane < 31 ? heads >> (lane + 1) : 0;
    const int32_t position = lane - highest_bit(heads << (31 - lane) >> (31 - lane));
    const int32_t behind = later ? lane + 1 + lowest_bit(later) : 32;
    const int32_t blocks = behind - lane < most ? behind - lane : most;
    if (position % most != 0)
        window->own = 0;
    if (window->own > 0) {
        const int32_t end = window->span.row + blocks * alignment;
        window->span.end = window->span.zero_end = end < (int32_t)groups->rows ? end : (int32_t)groups->rows;
    }
}

/* Spans first, first + 1, ...; `before` is the caller's to know. */
DEVICE_FN void span_window_read(struct span_window *window, const struct gemm_groups *groups, int32_t first,
                                int32_t unit_rows)
{
    const uint32_t lane = lane_index();
    window->first = first;
    window->own = span_units(groups, first + (int32_t)lane, unit_rows, &window->span);
    if (spans_join(groups, unit_rows))
        span_window_join(window, groups, unit_rows);
    window->end = window->own;
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = exchange_from((uint32_t)window->end, lane - distance & 31);
        window->end += lane >= distance ? (int32_t)other : 0;
    }
    window->units = (int32_t)exchange_from((uint32_t)window->end, 31);
}

/* The units of all spans. Loads of several windows are under way at once. */
DEVICE_FN int32_t count_units(const struct gemm_groups *groups, int32_t unit_rows)
{
    int32_t units = 0;
    struct span_window window;
#pragma unroll 4
    for (int32_t first = 0; first < groups->spans; first += 32) {
        window.own = span_units(groups, first + (int32_t)lane_index(), unit_rows, &window.span);
        if (spans_join(groups, unit_rows))
            span_window_join(&window, groups, unit_rows);
        units += window.own;
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
        units += (int32_t)exchange_xor((uint32_t)units, mask);
    return units;
}

DEVICE_FN struct span_window span_window_begin(const struct gemm_groups *groups, int32_t unit_rows)
{
    struct span_window window;
    window.before = 0;
    span_window_read(&window, groups, 0, unit_rows);
    return window;
}

/* Moves the window to where unit `unit` is; true in the lane whose span has it. The unit must exist. */
DEVICE_FN int span_window_seek(struct span_window *window, const struct gemm_groups *groups, int32_t unit_rows,
                               int32_t unit)
{
#pragma unroll 1
    while (unit >= window->before + window->units) {
        window->before += window->units;
        span_window_read(window, groups, window->first + 32, unit_rows);
    }
#pragma unroll 1
    while (unit < window->before) {
        span_window_read(window, groups, window->first - 32, unit_rows);
        window->before -= window->units;
    }
    const int32_t within = unit - window->before;
    return within < window->end && within >= window->end - window->own;
}

/* The first row of a unit of this lane's span. */
DEVICE_FN int32_t span_window_row(const struct span_window *window, int32_t unit_rows, int32_t unit)
{
    return window->span.row + (unit - window->before - (window->end - window->own)) * unit_rows;
}

#endif
