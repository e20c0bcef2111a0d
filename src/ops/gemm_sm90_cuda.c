/* Launcher of kernels/sm90/fp8_gemm_1d2d.cu. */
#include "cuda/tensormap.h"
#include "ops/gemm_row.h"
#include "ops/strided.h"

#include <stdio.h>
#include <string.h>

static struct text refusal(const struct gemm_problem *p, const struct gemm_terms *terms)
{
    return gemm_1d2d_refusal(p, terms->device, terms->batch_invariant);
}

void gemm_1d2d_shape(struct gemm_plan *plan)
{
    plan->grid = (uint32_t)plan->sm90.grid;
    plan->threads = (uint32_t)plan->sm90.threads;
    plan->cluster = (uint32_t)plan->sm90.cluster;
    plan->smem_bytes = plan->sm90.config.smem_bytes;
}

static void plan(const struct gemm_problem *p, const struct gemm_terms *terms, struct gemm_plan *out)
{
    gemm_1d2d_choose(p, terms->device, terms->num_sms, &out->sm90);
    gemm_1d2d_shape(out);
}

static void spec(const struct gemm_problem *p, const struct gemm_plan *plan, struct kernel_spec *out)
{
    (void)p;
    const struct gemm_1d2d_config *config = &plan->sm90.config;
    config_header(gemm_1d2d_fields, gemm_1d2d_field_count, (const int32_t *)config, out->config, sizeof out->config);
    out->request = (struct jit_request){.kernel = gemm_row_sm90_fp8_gemm_1d2d.name, .config = out->config};
    out->request.wgmma[0] = (struct jit_wgmma){.type = "e4m3", .n = config->part_n};
    out->request.wgmma_count = 1;
}

static void line(const struct gemm_plan *plan, char *out, size_t bytes)
{
    const struct gemm_1d2d_plan *s = &plan->sm90;
    config_line(gemm_1d2d_fields, gemm_1d2d_field_count, (const int32_t *)&s->config, out, bytes);
    size_t used = strlen(out);
    snprintf(out + used, bytes - used, " grid=%d tiles=%d strip=%d%s predicted_us=%.1f", (int)s->grid,
             (int)s->sched.tiles, (int)s->sched.strip, s->sched.strip_along_n ? "n" : "m", s->cycles / 1700);
}

static dg_status bind(const struct gemm_problem *p, const struct gemm_plan *plan, const struct driver *driver,
                      union gemm_kernel_args *args)
{
    const struct gemm_1d2d_plan *s = &plan->sm90;
    struct gemm_1d2d_args *out = &args->sm90;
    memset(out, 0, sizeof *out);
    CHECK(tensormap_encode(driver, &out->a, &p->a, s->a_box_rows, SCALE_GROUP, SCALE_GROUP));
    CHECK(tensormap_encode(driver, &out->b, &p->b, s->b_box_rows, SCALE_GROUP, SCALE_GROUP));
    if (s->config.tma_store) {
        int32_t row_bytes = s->config.store_cols * (int32_t)dg_dtype_size(p->d.dtype);
        CHECK(tensormap_encode(driver, &out->d, &p->d, 64, s->config.store_cols, row_bytes));
    }
    if (s->config.sfa_tma) {
        const struct matrix columns = gemm_1d2d_scale_columns(p);
        CHECK(tensormap_encode(driver, &out->scales, &columns, s->scale_box_rows, s->config.block_m, 0));
    }
    out->sfa = strided_of(&p->sfa);
    out->sfb = strided_of(&p->sfb);
    if (p->has_c)
        out->c = strided_of(&p->c);
    out->out = strided_of(&p->d);
    out->sched = s->sched;
    out->m = (int32_t)p->m;
    out->n = (int32_t)p->n;
    out->k_blocks = (int32_t)ceil_div(p->k, SCALE_GROUP);
    out->load_bytes = (uint32_t)s->load_bytes;
    out->b_early = plan->b_early && p->groups.kind == GEMM_KIND_DENSE; /* else the first B is not known so early */
    out->b_once = s->b_once;
    out->a_box_rows = s->a_box_rows;
    out->groups = p->groups;
    return DG_SUCCESS;
}

const struct gemm_row gemm_row_sm90_fp8_gemm_1d2d = {
    .name = "sm90_fp8_gemm_1d2d", .refusal = refusal, .plan = plan, .spec = spec, .line = line, .bind = bind};
