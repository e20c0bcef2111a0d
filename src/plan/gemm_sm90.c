#include "plan/gemm_sm90.h"

#include "plan/tma_rules.h"
#include "shared/base.h"

#include <stdio.h>
#include <string.h>

const struct config_field gemm_1d2d_fields[] = {GEMM_1D2D_CONFIG(CONFIG_NAMES)};
const size_t gemm_1d2d_field_count = sizeof gemm_1d2d_fields / sizeof *gemm_1d2d_fields;

enum {
    WARPGROUP = 128,
    WARPGROUP_ROWS = 64, /* of D: the M of every wgmma */
    MAX_STAGES = 12,     /* more than any latency needs; keeps the barrier array small */
    SCALE_SPANS = 3,     /* as in the kernel */
    TILES_AHEAD = 4,     /* likewise, of grouped kinds */
    MAX_BLOCK_N = 192,   /* 64 x N sums of a warpgroup and half as many partial ones: 3/4 N registers a thread */
};

/* Products m * n * k from which the power limit decides how fast the clock runs. */
static const double LONG_PRODUCTS = 2.3e11;

/* ---- Groups -------------------------------------------------------------------------------------------------- */

static bool grouped(const struct gemm_problem *p)
{
    return p->groups.kind != GEMM_KIND_DENSE;
}

/* Groups of any size, which the device alone knows. */
static bool scattered(const struct gemm_problem *p)
{
    return p->groups.kind == GEMM_KIND_PSUM || p->groups.kind == GEMM_KIND_MASKED;
}

/* Rows of a typical span, as far as they are known: a mask's and an end's are not. */
static int64_t span_rows(const struct gemm_problem *p)
{
    const struct gemm_groups *g = &p->groups;
    switch (g->kind) {
    case GEMM_KIND_CONTIGUOUS:
        return min_i64(g->alignment, p->m);
    case GEMM_KIND_PSUM:
        return min_i64(p->expected_m > 0 ? p->expected_m : ceil_div(p->m, g->groups), p->m);
    case GEMM_KIND_MASKED:
        return p->expected_m > 0 ? min_i64(p->expected_m, p->m) : p->m;
    default:
        return p->m;
    }
}

/* Units of rows of tiles that there may be at most. */
static int64_t most_units(const struct gemm_problem *p, int64_t unit_rows)
{
    const struct gemm_groups *g = &p->groups;
    if (g->kind == GEMM_KIND_PSUM) /* each group begins a unit, and ends somewhere in one */
        return ceil_div(p->m, unit_rows) + g->groups;
    return g->spans * ceil_div(g->kind == GEMM_KIND_CONTIGUOUS ? min_i64(g->alignment, p->m) : p->m, unit_rows);
}

/* Units that are to be expected. Sizes of groups scatter: taken as spread evenly round the typical one, by 30 %. */
static double expected_units(const struct gemm_problem *p, int64_t unit_rows)
{
    const int64_t rows = span_rows(p), most = most_units(p, unit_rows);
    double units = 0;
    if (p->groups.kind == GEMM_KIND_CONTIGUOUS && unit_rows >= 2 * rows) /* blocks join, but for each group's last */
        return (double)min_i64(ceil_div(p->m, unit_rows) + p->groups.groups / 2, most);
    if (p->groups.kind == GEMM_KIND_DENSE || p->groups.kind == GEMM_KIND_CONTIGUOUS)
        return (double)most;
    for (int64_t percent = 70; percent <= 130; percent += 10)
        units += (double)ceil_div(min_i64(max_i64(rows * percent / 100, 1), p->m), unit_rows) / 7;
    return units * (double)p->groups.spans < (double)most ? units * (double)p->groups.spans : (double)most;
}

/* Of all groups, or entries of the batch. */
static double expected_rows(const struct gemm_problem *p)
{
    const int64_t most = p->groups.kind == GEMM_KIND_CONTIGUOUS || p->groups.kind == GEMM_KIND_PSUM ? p->m : INT64_MAX;
    return (double)min_i64(p->groups.spans * span_rows(p), most);
}

/* ---- What the kernel can take -------------------------------------------------------------------------------- */

/* A's rows as TMA would address them if there were more than one: batch invariance wants the same answer for M = 1. */
static struct text refuse_a(const struct gemm_problem *p, bool batch_invariant)
{
    struct matrix a = p->a;
    if (batch_invariant && a.rows == 1) {
        a.rows = 2;
        a.row_stride = p->a_row_stride;
    }
    return tma_refusal("a", &a);
}

static bool contiguous_columns(const struct matrix *m)
{
    return m->cols == 1 || m->col_stride == 1;
}

static struct text refuse_sizes(const struct gemm_problem *p, const dg_device_info *device)
{
    struct text out = {""};
    struct gemm_1d2d_plan plan;
    const int64_t tiles = most_units(p, 64) * ceil_div(p->n, 16);
    if (p->m > INT32_MAX - 512 || p->n > INT32_MAX - 512 || p->k > INT32_MAX - 512 || p->groups.spans > INT32_MAX / 2 ||
        tiles > INT32_MAX / 2) /* the kernel counts on to the tile that a block would have had next */
        snprintf(out.s, sizeof out.s, "M, N or K exceeds 31 bits, or the number of tiles 30");
    else if (!gemm_1d2d_plan_tile(p, device, 1, 64, 32, 1, 1, &plan)) /* the smallest tile */
        snprintf(out.s, sizeof out.s, "no tile fits into %d bytes of shared memory", (int)device->smem_bytes_per_block);
    return out;
}

struct text gemm_1d2d_refusal(const struct gemm_problem *p, const dg_device_info *device, bool batch_invariant)
{
    struct text out = {""};
    if (device->arch != 90)
        snprintf(out.s, sizeof out.s, "needs compute capability 9.0; the device has %d.%d", (int)device->arch / 10,
                 (int)device->arch % 10);
    else if (p->groups.kind == GEMM_KIND_K_GROUPED)
        snprintf(out.s, sizeof out.s, "K is grouped");
    else if (p->sfb_rows)
        snprintf(out.s, sizeof out.s, "B has a scale for each row");
    else if (p->k == 0)
        snprintf(out.s, sizeof out.s, "K is 0");
    else if (!contiguous_columns(&p->d) || (p->has_c && !contiguous_columns(&p->c)))
        snprintf(out.s, sizeof out.s, "d's or c's columns are not contiguous");
    if (out.s[0] == '\0')
        out = refuse_a(p, batch_invariant);
    if (out.s[0] == '\0')
        out = tma_refusal("b", &p->b);
    return out.s[0] == '\0' ? refuse_sizes(p, device) : out;
}

/* ---- One configuration --------------------------------------------------------------------------------------- */

static int32_t gcd128(int32_t n)
{
    int32_t low = n & -n; /* the largest power of two that divides n */
    return low < SCALE_GROUP ? low : SCALE_GROUP;
}

/* A tile may touch at most two 128-blocks of N, since the kernel keeps two scales of B. */
static bool tile_exists(int32_t block_m, int32_t block_n)
{
    if (block_n > MAX_BLOCK_N || (block_m > SCALE_GROUP && block_n > SCALE_GROUP))
        return false; /* not enough registers */
    if (block_m == 256 && SCALE_GROUP % block_n != 0)
        return false; /* two slices times two scales: no registers either, and half the speed when tried */
    return block_n <= SCALE_GROUP + gcd128(block_n);
}

static int32_t store_columns(int32_t block_n, int32_t element)
{
    int32_t cols = 128 / element;
    while (block_n % cols != 0)
        cols /= 2;
    return cols;
}

/* Per row of A and span. */
static int32_t sfa_words(const struct gemm_1d2d_config *c)
{
    return c->sfa_packed ? 1 : c->span;
}

/* Mirrors struct smem of the kernel, which checks the sum (static_assert on SMEM_BYTES). */
static int32_t smem_bytes(const struct gemm_1d2d_config *c, int32_t element, int32_t stages)
{
    const int32_t stage = (c->block_m + c->block_n) * SCALE_GROUP + 2 * 8; /* operands, barriers */
    const int32_t span = sfa_words(c) * c->block_m * 4 + (c->sfb_packed ? 1 : c->span) * 2 * 4 + 2 * 8;
    const int32_t tiles = c->kind == GEMM_KIND_DENSE ? 0 : TILES_AHEAD * (6 * 4 + 2 * 8);
    int32_t staging = c->tma_store ? c->warpgroups * 2 * WARPGROUP_ROWS * c->store_cols * element : 0;
    return (int32_t)round_up(stages * stage + SCALE_SPANS * span + tiles + staging, 128);
}

/* As many stages as fit; rather narrower stores, whose staging buffers are smaller, than fewer than four stages. */
static bool fit_stages(struct gemm_1d2d_config *c, int32_t element, int32_t limit)
{
    if (c->tma_store && c->store_cols * element > 32 && smem_bytes(c, element, 4) > limit)
        c->store_cols /= 2;
    for (c->stages = MAX_STAGES; c->stages >= 3; --c->stages) {
        c->smem_bytes = smem_bytes(c, element, c->stages);
        if (c->smem_bytes <= limit)
            return true;
    }
    return false;
}

/* Strips so high that the operands of the tiles in flight are as few bytes as possible. */
static void choose_strips(struct gemm_sched *s, int32_t in_flight, int32_t rows, int32_t cols)
{
    int64_t best = INT64_MAX;
    for (int32_t along_n = 0; along_n < 2; ++along_n)
        for (int32_t strip = 1; strip <= 16; ++strip) {
            int64_t across = min_i64(strip, along_n ? s->n_tiles : s->m_tiles);
            int64_t along = min_i64(ceil_div(in_flight, across), along_n ? s->m_tiles : s->n_tiles);
            int64_t bytes = along_n ? across * cols + along * rows : across * rows + along * cols;
            if (bytes < best) {
                best = bytes;
                s->strip = strip;
                s->strip_along_n = along_n;
            }
        }
}

struct matrix gemm_1d2d_scale_columns(const struct gemm_problem *p)
{
    struct matrix columns = p->sfa;
    columns.rows = p->sfa.cols;
    columns.row_stride = p->sfa.col_stride;
    columns.cols = p->sfa.rows;
    columns.col_stride = p->sfa.row_stride;
    return columns;
}

/*
 * Two products at once where registers allow: a thread of a lone math warpgroup has 255 and one of two has 232, less 40
 * for everything but sums; else products of half the columns. Three warpgroups hide one another's promotions, and lose
 * with halves.
 */
static void choose_parts(struct gemm_1d2d_config *c)
{
    const int32_t room = c->warpgroups == 1 ? 208 : 192, sums = c->block_m / (64 * c->warpgroups) * c->block_n / 2;
    c->part_n = c->block_n;
    c->partials = c->warpgroups < 3 ? 2 : 1;
    if (c->partials == 2 && sums + c->block_n > room)
        c->part_n = c->block_n / 2;
    /* Also how many groups a round of the kernel's loop has: the longer, the fewer pauses, and the more text. */
    c->span = sums / (c->part_n / 2) > 2 ? 2 : 4;
}

static void fill_config(const struct gemm_problem *p, struct gemm_1d2d_config *c)
{
    int32_t element = (int32_t)dg_dtype_size(p->d.dtype);
    c->kind = p->groups.kind;
    c->warpgroups = c->block_m == 192 ? 3 : c->block_m == 64 ? 1 : 2;
    choose_parts(c);
    c->d_type = (int32_t)p->d.dtype;
    c->has_c = p->has_c;
    const struct matrix scale_columns = gemm_1d2d_scale_columns(p);
    c->sfa_tma = tma_refusal("sfa", &scale_columns).s[0] == '\0';
    c->sfa_packed = p->sfa_packed;
    c->sfb_packed = p->sfb_packed;
    /* TMA loads fill with zeros from the exact end of a row, but stores whole units of 16 bytes. */
    bool whole_units = p->n * element % 16 == 0;
    c->tma_store = whole_units && tma_refusal("d", &p->d).s[0] == '\0';
    c->store_cols = c->tma_store ? store_columns(c->block_n, element) : 0;
}

/* A tile higher than a block of rows would often be filled by one; up to 128 rows blocks join. */
static bool fits_spans(const struct gemm_problem *p, int32_t unit_rows)
{
    return p->groups.kind != GEMM_KIND_CONTIGUOUS || unit_rows <= max_i64(2 * WARPGROUP_ROWS, p->groups.alignment);
}

static void plan_tiles(const struct gemm_problem *p, int32_t num_sms, struct gemm_1d2d_plan *plan)
{
    const struct gemm_1d2d_config *c = &plan->config;
    const int32_t rows = c->block_m * c->cluster_m, cols = c->block_n * c->cluster_n;
    struct gemm_sched *s = &plan->sched;
    s->n_tiles = (int32_t)ceil_div(p->n, cols);
    const int64_t clusters = min_i64(num_sms / plan->cluster, most_units(p, rows) * s->n_tiles);
    if (grouped(p)) {
        /* Neighbours in a strip may have the same B: at least a few of them, and several groups do no harm. */
        s->m_tiles = (int32_t)(expected_units(p, rows) + 0.5);
        choose_strips(s, (int32_t)clusters, rows, cols);
        s->strip = s->strip_along_n || s->strip < 4 ? 4 : s->strip;
        s->strip_along_n = 0;
        s->tiles = s->m_tiles * s->n_tiles;
        plan->b_once = expected_rows(p) * 1.3 <= (double)(rows * p->groups.groups);
    } else {
        s->m_tiles = (int32_t)ceil_div(p->m, rows);
        s->tiles = (int32_t)p->batch * s->m_tiles * s->n_tiles;
        choose_strips(s, (int32_t)clusters, rows, cols);
        plan->b_once = s->m_tiles <= 2;
    }
    plan->grid = (int32_t)clusters * plan->cluster;
}

/* Rows beyond M, or a group's, are not worth loading: their products are never stored. Where the device knows how many
   there are, it loads a tile of A in as many boxes as it needs; many small ones would hold up the loading thread. */
static int32_t a_box_rows(const struct gemm_problem *p, int32_t block_m)
{
    const int64_t rows = min_i64(block_m, round_up(p->m, 8));
    switch (p->groups.kind) {
    case GEMM_KIND_DENSE:
        return (int32_t)rows;
    case GEMM_KIND_CONTIGUOUS:
        return (int32_t)min_i64(rows, p->groups.alignment >= block_m ? block_m : p->groups.alignment > 32 ? 64 : 32);
    default:
        return (int32_t)min_i64(rows, span_rows(p) > 32 ? 64 : span_rows(p) > 16 ? 32 : 16);
    }
}

bool gemm_1d2d_plan_tile(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms, int32_t block_m,
                         int32_t block_n, int32_t cluster_m, int32_t cluster_n, struct gemm_1d2d_plan *plan)
{
    int32_t cluster = cluster_m * cluster_n;
    if (!tile_exists(block_m, block_n) || cluster > num_sms || !fits_spans(p, block_m * cluster_m))
        return false;
    *plan = (struct gemm_1d2d_plan){.cluster = cluster};
    struct gemm_1d2d_config *c = &plan->config;
    c->block_m = block_m;
    c->block_n = block_n;
    c->cluster_m = cluster_m;
    c->cluster_n = cluster_n;
    fill_config(p, c);
    if (!fit_stages(c, (int32_t)dg_dtype_size(p->d.dtype), device->smem_bytes_per_block))
        return false;

    plan_tiles(p, num_sms, plan);
    plan->threads = (c->warpgroups + 1) * WARPGROUP;
    plan->a_box_rows = cluster_n > 1 ? block_m / cluster_n : a_box_rows(p, block_m);
    plan->b_box_rows = block_n / cluster_m;
    plan->load_bytes = block_n * SCALE_GROUP;
    if (cluster_n > 1 || !grouped(p))
        plan->load_bytes += plan->a_box_rows * cluster_n * SCALE_GROUP;
    plan->scale_box_rows = sfa_words(c);
    plan->cycles = gemm_1d2d_predict(&gemm_1d2d_costs, p, plan);
    return true;
}

/* ---- The cost model ------------------------------------------------------------------------------------------ */

const struct gemm_1d2d_costs gemm_1d2d_costs = {
#define COST(name, value, what) .name = value,
#include "plan/gemm_sm90_costs.def"
#undef COST
};

/* What promotion, mostly hidden, adds to a step's wgmmas: a fixed part, and one for each column. */
static double promotion_cycles(const struct gemm_1d2d_costs *cost, const struct gemm_1d2d_config *c)
{
    switch (c->block_m) {
    case 64:
        return cost->promotion_64 + cost->promotion_column_64 * c->block_n;
    case 128:
        return cost->promotion_128 + cost->promotion_column_128 * c->block_n;
    case 192:
        return cost->promotion_192 + cost->promotion_column_192 * c->block_n;
    default:
        return cost->promotion_256 + cost->promotion_column_256 * c->block_n;
    }
}

static double max_f64(double x, double y)
{
    return x > y ? x : y;
}

/* Rows of A that a block loads in a step. */
static double a_rows(const struct gemm_problem *p, const struct gemm_1d2d_plan *plan)
{
    const int32_t rows = plan->a_box_rows;
    if (plan->config.cluster_n > 1 || !grouped(p))
        return rows;
    return (double)min_i64(plan->config.block_m, round_up(span_rows(p), rows));
}

/* What is computed of tiles of 256 rows, whose second slices of 64 are left out where they have none: half at least. */
static double filled(const struct gemm_problem *p, const struct gemm_1d2d_plan *plan)
{
    const int32_t unit_rows = 256 * plan->config.cluster_m;
    if (!grouped(p) || plan->config.block_m != 256)
        return 1;
    return max_f64(0.5,
                   expected_units(p, WARPGROUP_ROWS) * WARPGROUP_ROWS / (expected_units(p, unit_rows) * unit_rows));
}

/* One K group of 128 in one block: bound by tensor cores and promotion, or by what L2 delivers. */
static double group_cycles(const struct gemm_1d2d_costs *cost, const struct gemm_problem *p,
                           const struct gemm_1d2d_plan *plan)
{
    const struct gemm_1d2d_config *c = &plan->config;
    const double n = c->block_n, part = c->part_n;
    const double wgmma = n / part * max_f64(part / 2, cost->wgmma_least + part / 4);
    double math = (c->block_m / 64.0 * 4 * wgmma + promotion_cycles(cost, c)) * filled(p, plan);
    const double l2 = (a_rows(p, plan) + n / c->cluster_m) * SCALE_GROUP / cost->l2_bytes;
    if (SCALE_GROUP % c->block_n != 0)
        math += cost->split_column * n;
    if (plan->cluster > 1)
        math += cost->cluster_group;
    const double length = expected_rows(p) * (double)p->n * (double)p->k / LONG_PRODUCTS;
    const double traffic =
        cost->traffic + cost->traffic_long * (length < 1 ? length : 1) + (grouped(p) ? cost->groups_traffic : 0);
    return max_f64(math, l2) + traffic * l2;
}

/* B comes from memory again where tiles of a group, of different heights, drift apart. */
static bool loads_again(const struct gemm_problem *p, const struct gemm_1d2d_config *c)
{
    return scattered(p) && expected_units(p, c->block_m * c->cluster_m) > 1.5 * (double)p->groups.groups;
}

double gemm_1d2d_predict(const struct gemm_1d2d_costs *cost, const struct gemm_problem *p,
                         const struct gemm_1d2d_plan *plan)
{
    const struct gemm_1d2d_config *c = &plan->config;
    const double k_blocks = (double)ceil_div(p->k, SCALE_GROUP);
    const double waves = (double)ceil_div(plan->sched.tiles, plan->grid / plan->cluster);
    const double tile = cost->tile + cost->tile_element * c->block_m * c->block_n;
    const double compute = cost->fill + waves * (k_blocks * group_cycles(cost, p, plan) + tile);

    const double element = (double)dg_dtype_size(p->d.dtype), m = expected_rows(p), n = (double)p->n;
    const double b_rows = (double)(grouped(p) ? p->groups.groups : p->batch) * n;
    const double bytes = (m + b_rows) * (double)p->k + m * n * element * (p->has_c ? 2 : 1);
    const double again = loads_again(p, c) ? cost->groups_again * b_rows * (double)p->k / cost->hbm_bytes : 0;
    const double share = plan->grid / 99.0; /* three quarters of the SMs reach full bandwidth */
    const double memory = cost->fill + bytes / cost->hbm_bytes / (share < 1 ? share : 1);
    return again +
           (compute > memory ? compute + cost->memory_beside * memory : memory + cost->compute_beside * compute);
}

bool gemm_1d2d_tile_at(int32_t index, struct gemm_1d2d_tile *tile)
{
    enum { ROWS = 4, WIDTHS = MAX_BLOCK_N / 16, CLUSTERS = 3 };
    static const int32_t clusters[CLUSTERS][2] = {{1, 1}, {2, 1}, {1, 2}};
    const int32_t *cluster = clusters[index % CLUSTERS];
    const int32_t width = index / CLUSTERS % WIDTHS, rows = index / CLUSTERS / WIDTHS;
    *tile = (struct gemm_1d2d_tile){64 * (1 + rows), 16 * (1 + width), cluster[0], cluster[1]};
    return rows < ROWS;
}

/* Not tiles so high that groups, which scatter by 30 %, hardly fill them. */
static bool worth_a_try(const struct gemm_problem *p, const struct gemm_1d2d_tile *t)
{
    return !scattered(p) || t->block_m * t->cluster_m <= round_up(span_rows(p) * 13 / 10 + 1, WARPGROUP_ROWS);
}

void gemm_1d2d_choose(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms,
                      struct gemm_1d2d_plan *plan)
{
    struct gemm_1d2d_tile t;
    struct gemm_1d2d_plan candidate;
    const int32_t least_n = p->n > 16 ? 32 : 16;
    plan->cycles = 1e300;
    for (int32_t i = 0; gemm_1d2d_tile_at(i, &t); ++i)
        if (t.block_n >= least_n && worth_a_try(p, &t) &&
            gemm_1d2d_plan_tile(p, device, num_sms, t.block_m, t.block_n, t.cluster_m, t.cluster_n, &candidate) &&
            candidate.cycles < plan->cycles)
            *plan = candidate;
}
