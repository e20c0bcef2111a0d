/* Launcher of kernels/sm90/fp8_gemm_skinny.cu. */
#include "cuda/tensormap.h"
#include "ops/gemm_row.h"
#include "ops/strided.h"

#include <stdio.h>
#include <string.h>

/* Where sm90_fp8_gemm_1d2d is expected to be faster. */
static struct text refuse_slower(const struct gemm_problem *p, const struct gemm_terms *terms)
{
    struct text out = {""};
    struct gemm_skinny_plan skinny;
    struct gemm_1d2d_plan other = {0};
    if (!gemm_skinny_choose(p, terms->device, terms->num_sms, &skinny)) {
        snprintf(out.s, sizeof out.s, "no tile fits into %d bytes of shared memory",
                 (int)terms->device->smem_bytes_per_block);
        return out;
    }
    if (p->m <= GEMM_SKINNY_ALWAYS)
        return out;
    gemm_1d2d_choose(p, terms->device, terms->num_sms, &other);
    if (other.cycles < skinny.cycles)
        snprintf(out.s, sizeof out.s, "%.1f us are expected, and %.1f of sm90_fp8_gemm_1d2d", skinny.cycles / 1700,
                 other.cycles / 1700);
    return out;
}

static struct text refusal(const struct gemm_problem *p, const struct gemm_terms *terms)
{
    struct text out = gemm_1d2d_refusal(p, terms->device, terms->batch_invariant); /* it takes what that kernel takes */
    if (out.s[0])
        return out;
    if (p->groups.kind != GEMM_KIND_DENSE)
        snprintf(out.s, sizeof out.s, "it is for dense products");
    else if (terms->batch_invariant)
        snprintf(out.s, sizeof out.s, "how K is split depends on M, which batch_invariant rules out");
    else if (p->m > GEMM_SKINNY_MOST_ROWS)
        snprintf(out.s, sizeof out.s, "M is %lld; it takes %d at most", (long long)p->m, (int)GEMM_SKINNY_MOST_ROWS);
    else
        out = refuse_slower(p, terms);
    return out;
}

void gemm_skinny_shape(struct gemm_plan *plan)
{
    plan->grid = (uint32_t)plan->skinny.grid;
    plan->threads = GEMM_SKINNY_THREADS;
    plan->cluster = (uint32_t)plan->skinny.config.splits;
    plan->smem_bytes = plan->skinny.config.smem_bytes;
}

static void plan(const struct gemm_problem *p, const struct gemm_terms *terms, struct gemm_plan *out)
{
    gemm_skinny_choose(p, terms->device, terms->num_sms, &out->skinny);
    gemm_skinny_shape(out);
}

static void spec(const struct gemm_problem *p, const struct gemm_plan *plan, struct kernel_spec *out)
{
    (void)p;
    const struct gemm_skinny_config *config = &plan->skinny.config;
    config_header(gemm_skinny_fields, gemm_skinny_field_count, (const int32_t *)config, out->config,
                  sizeof out->config);
    out->request = (struct jit_request){.kernel = gemm_row_sm90_fp8_gemm_skinny.name, .config = out->config};
    out->request.wgmma[0] = (struct jit_wgmma){.type = "e4m3", .n = config->block_m};
    out->request.wgmma_count = 1;
}

static void line(const struct gemm_plan *plan, char *out, size_t bytes)
{
    const struct gemm_skinny_plan *s = &plan->skinny;
    config_line(gemm_skinny_fields, gemm_skinny_field_count, (const int32_t *)&s->config, out, bytes);
    size_t used = strlen(out);
    snprintf(out + used, bytes - used, " grid=%d tiles=%d predicted_us=%.1f", (int)s->grid, (int)s->tiles,
             s->cycles / 1700);
}

static dg_status bind(const struct gemm_problem *p, const struct gemm_plan *plan, const struct driver *driver,
                      union gemm_kernel_args *args)
{
    const struct gemm_skinny_plan *s = &plan->skinny;
    const struct gemm_skinny_config *c = &s->config;
    struct gemm_skinny_args *out = &args->skinny;
    memset(out, 0, sizeof *out);
    CHECK(tensormap_encode(driver, &out->a, &p->a, s->a_box_rows, SCALE_GROUP, SCALE_GROUP));
    CHECK(tensormap_encode(driver, &out->b, &p->b, GEMM_SKINNY_BLOCK_N, SCALE_GROUP, SCALE_GROUP));
    if (c->sfa_tma) {
        const struct matrix columns = gemm_1d2d_scale_columns(p);
        CHECK(tensormap_encode(driver, &out->scales, &columns, c->sfa_packed ? 1 : c->step, c->block_m, 0));
    }
    out->sfa = strided_of(&p->sfa);
    out->sfb = strided_of(&p->sfb);
    if (p->has_c)
        out->c = strided_of(&p->c);
    out->out = strided_of(&p->d);
    out->m_tiles = s->m_tiles;
    out->n_tiles = s->n_tiles;
    out->tiles = s->tiles;
    out->m = (int32_t)p->m;
    out->n = (int32_t)p->n;
    out->k_blocks = (int32_t)ceil_div(p->k, SCALE_GROUP);
    out->load_bytes = (uint32_t)s->load_bytes;
    out->b_early = plan->b_early;
    return DG_SUCCESS;
}

const struct gemm_row gemm_row_sm90_fp8_gemm_skinny = {
    .name = "sm90_fp8_gemm_skinny", .refusal = refusal, .plan = plan, .spec = spec, .line = line, .bind = bind};
