#include "plan/gemm_skinny.h"

#include "plan/gemm_sm90.h"
#include "plan/tma_rules.h"
#include "shared/base.h"

const struct config_field gemm_skinny_fields[] = {GEMM_SKINNY_CONFIG(CONFIG_NAMES)};
const size_t gemm_skinny_field_count = sizeof gemm_skinny_fields / sizeof *gemm_skinny_fields;

enum {
    ROWS = GEMM_SKINNY_BLOCK_N,
    PITCH = ROWS + 4, /* floats of a token's sums in shared memory */
    MAX_BLOCK_M = 128,
    LEAST_STAGES = 2,
    MAX_STAGES = 16,   /* keeps the barrier array small */
    SM_BYTES = 233472, /* of shared memory on an SM, of which each block takes RESERVED more than it asks for */
    RESERVED = 1024,
    SM_REGISTERS = 65536,
    OTHER_REGISTERS = 64, /* of a thread, beside sums and products */
};

/* ---- One configuration --------------------------------------------------------------------------------------- */

static bool registers_suffice(const struct gemm_skinny_tile *t)
{
    const int32_t there = SM_REGISTERS / (GEMM_SKINNY_THREADS * t->blocks_per_sm) / 8 * 8;
    const int32_t wanted = t->block_m / 2 * (1 + t->step) + OTHER_REGISTERS;
    return wanted <= (there < 255 ? there : 255);
}

/* Mirrors struct smem of the kernel, which checks the sum (static_assert on SMEM_BYTES). */
static int32_t smem_bytes(const struct gemm_skinny_config *c, int32_t stages)
{
    int32_t stage = c->step * (c->block_m + ROWS) * SCALE_GROUP;             /* operands */
    stage += (int32_t)round_up(c->step * c->block_m * 4, 128) + c->step * 4; /* scales */
    stage += 2 * 8;                                                          /* barriers */
    return (int32_t)round_up(stages * stage + c->block_m * PITCH * 4, 128);
}

/* As many stages as fit, up to half of the steps that a block takes: more were measured to come later, not sooner. */
static bool fit_stages(struct gemm_skinny_config *c, int32_t limit, int32_t steps)
{
    const int32_t half = (steps + 1) / 2;
    const int32_t most = half < LEAST_STAGES ? LEAST_STAGES : half > MAX_STAGES ? MAX_STAGES : half;
    for (c->stages = most; c->stages >= LEAST_STAGES; --c->stages) {
        c->smem_bytes = smem_bytes(c, c->stages);
        if (c->smem_bytes <= limit)
            return true;
    }
    return false;
}

static bool vector_stores(const struct matrix *d)
{
    const uintptr_t bytes = 4 * dg_dtype_size(d->dtype);
    return (uintptr_t)d->data % bytes == 0 && d->row_stride % 4 == 0 && d->batch_stride % 4 == 0;
}

/* What the problem decides. */
static struct gemm_skinny_config config_of(const struct gemm_problem *p)
{
    const struct matrix scale_columns = gemm_1d2d_scale_columns(p);
    return (struct gemm_skinny_config){
        .d_type = (int32_t)p->d.dtype,
        .has_c = p->has_c,
        .sfa_tma = tma_refusal("sfa", &scale_columns).s[0] == '\0',
        .sfa_packed = p->sfa_packed,
        .sfb_packed = p->sfb_packed,
        .d_vector = vector_stores(&p->d),
    };
}

/*
 * What cuOccupancyMaxActiveClusters tells on an H200 of 132 SMs with one block on each: clusters do not cross the
 * borders between groups of SMs, which leaves some idle. A cluster that has to wait doubles the time.
 */
static int32_t clusters_at_once(int32_t num_sms, int32_t size)
{
    static const int32_t on_132[] = {0, 132, 66, 39, 30, 22, 17, 15, 15};
    const bool known = size >= 0 && size < (int32_t)(sizeof on_132 / sizeof *on_132);
    return known ? (int32_t)((int64_t)on_132[size] * num_sms / 132) : 0;
}

/* Split, a cluster does one tile: there are no more of them than run at once. */
static bool fill_grid(const struct gemm_problem *p, int32_t num_sms, struct gemm_skinny_plan *plan)
{
    const struct gemm_skinny_config *c = &plan->config;
    const int64_t slots = (int64_t)num_sms * c->blocks_per_sm;
    plan->m_tiles = (int32_t)ceil_div(p->m, c->block_m);
    plan->n_tiles = (int32_t)ceil_div(p->n, ROWS);
    const int64_t tiles = p->batch * plan->m_tiles * plan->n_tiles;
    if (tiles > INT32_MAX / 2) /* the kernel counts on to the tile that a block would have had next */
        return false;
    plan->tiles = (int32_t)tiles;
    if (c->splits > 1 && plan->tiles > clusters_at_once(num_sms, c->splits) * c->blocks_per_sm)
        return false;
    plan->grid = c->splits * (int32_t)min_i64(plan->tiles, slots / c->splits);
    return true;
}

/* `plan` has what the problem decides. */
static bool plan_tile(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms,
                      const struct gemm_skinny_tile *tile, struct gemm_skinny_plan *plan)
{
    const int32_t steps = (int32_t)ceil_div(ceil_div(p->k, SCALE_GROUP), tile->step);
    if (!registers_suffice(tile) || tile->splits > steps || p->m > GEMM_SKINNY_MOST_ROWS)
        return false;
    if (tile->blocks_per_sm > 1 && num_sms < device->num_sms)
        return false; /* whoever spares SMs for others wants one block on each of the rest */
    struct gemm_skinny_config *c = &plan->config;
    c->block_m = tile->block_m;
    c->step = tile->step;
    c->splits = tile->splits;
    c->blocks_per_sm = tile->blocks_per_sm;
    int32_t limit = SM_BYTES / tile->blocks_per_sm - RESERVED;
    if (limit > device->smem_bytes_per_block)
        limit = device->smem_bytes_per_block;
    if (!fill_grid(p, num_sms, plan))
        return false;
    const int32_t in_a_row = plan->tiles > plan->grid / c->splits ? 2 : 1; /* tiles, whose steps the ring takes alike */
    if (!fit_stages(c, limit, in_a_row * (int32_t)ceil_div(steps, c->splits)))
        return false;
    plan->a_box_rows = (int32_t)min_i64(c->block_m, p->m);
    plan->load_bytes = c->step * (plan->a_box_rows + ROWS) * SCALE_GROUP;
    if (c->sfa_tma)
        plan->load_bytes += c->block_m * 4 * (c->sfa_packed ? 1 : c->step);
    plan->cycles = gemm_skinny_predict(&gemm_skinny_costs, p, num_sms, plan);
    return true;
}

bool gemm_skinny_plan_tile(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms,
                           const struct gemm_skinny_tile *tile, struct gemm_skinny_plan *plan)
{
    *plan = (struct gemm_skinny_plan){.config = config_of(p)};
    return plan_tile(p, device, num_sms, tile, plan);
}

/* ---- The cost model ------------------------------------------------------------------------------------------ */

const struct gemm_skinny_costs gemm_skinny_costs = {
#define COST(name, value, what) .name = value,
#include "plan/gemm_skinny_costs.def"
#undef COST
};

/* One step in one block; `on_sm` blocks share what the L2 cache delivers to their SM. */
static double step_cycles(const struct gemm_skinny_costs *cost, const struct gemm_skinny_plan *plan, double on_sm)
{
    const struct gemm_skinny_config *c = &plan->config;
    const double math = cost->step_least + c->step * (cost->step_group + cost->step_row * c->block_m);
    const double l2 = on_sm * c->step * (plan->a_box_rows + ROWS) * SCALE_GROUP / cost->l2_bytes;
    return math > l2 ? math : l2;
}

double gemm_skinny_predict(const struct gemm_skinny_costs *cost, const struct gemm_problem *p, int32_t num_sms,
                           const struct gemm_skinny_plan *plan)
{
    const struct gemm_skinny_config *c = &plan->config;
    const double m = (double)p->m, n = (double)p->n, k = (double)p->k, grid = plan->grid, splits = c->splits;
    const double steps = (double)ceil_div(ceil_div(ceil_div(p->k, SCALE_GROUP), c->step), c->splits);
    const double waves = (double)ceil_div(plan->tiles, plan->grid / c->splits);
    const double spread = grid / num_sms, on_sm = spread > 1 ? spread : 1;
    const double tile = cost->tile + cost->tile_row * c->block_m;
    const double step = step_cycles(cost, plan, on_sm), compute = waves * (steps * step + tile);

    const double in_flight = grid * c->stages * c->step * ROWS * SCALE_GROUP / cost->latency;
    const double rate = in_flight < cost->hbm_bytes ? in_flight : cost->hbm_bytes;
    const double memory = (double)p->batch * (n * k + m * k + m * n * (double)dg_dtype_size(p->d.dtype)) / rate;

    double fixed = cost->fill + cost->fill_block * spread + cost->last_step * step;
    if (c->splits > 1)
        fixed += cost->meet + cost->meet_block * splits + cost->reduce * c->block_m * (splits - 1) / splits;
    return compute > memory ? fixed + compute + cost->beside * memory : fixed + memory + cost->beside * compute;
}

bool gemm_skinny_tile_at(int32_t index, struct gemm_skinny_tile *tile)
{
    static const int32_t block_ms[] = {8, 16, 24, 32, 48, 64, 96, 128};
    const int32_t counts[] = {8, 3, 8, 2};
    int32_t digit[4];
    for (int i = 0; i < 4; ++i) {
        digit[i] = index % counts[i];
        index /= counts[i];
    }
    *tile = (struct gemm_skinny_tile){block_ms[digit[0]], 1 << digit[1], 1 + digit[2], 1 + digit[3]};
    return index == 0;
}

bool gemm_skinny_worth_a_try(const struct gemm_problem *p, const struct gemm_skinny_tile *tile)
{
    const bool narrow = tile->block_m * 2 < p->m && tile->block_m < MAX_BLOCK_M;
    return !narrow && (tile->block_m < 2 * p->m || tile->block_m == 8);
}

bool gemm_skinny_choose(const struct gemm_problem *p, const dg_device_info *device, int32_t num_sms,
                        struct gemm_skinny_plan *plan)
{
    struct gemm_skinny_tile tile;
    struct gemm_skinny_plan candidate = {.config = config_of(p)};
    plan->cycles = 1e300;
    for (int32_t i = 0; gemm_skinny_tile_at(i, &tile); ++i)
        if (gemm_skinny_worth_a_try(p, &tile) && plan_tile(p, device, num_sms, &tile, &candidate) &&
            candidate.cycles < plan->cycles)
            *plan = candidate;
    return plan->cycles < 1e300;
}
