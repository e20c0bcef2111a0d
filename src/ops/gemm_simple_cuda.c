/* Launcher of kernels/any/gemm_simple.cu: whatever the other rows refuse. */
#include "ops/gemm_row.h"
#include "ops/strided.h"

#include <stdio.h>
#include <string.h>

enum { TILE = 64, THREADS = 256, BLOCKS_PER_SM = 2 };

static struct text refusal(const struct gemm_problem *p, const struct gemm_terms *terms)
{
    struct text out = {""};
    const dg_device_info *device = terms->device;
    (void)p;
    if (device->arch < 75)
        snprintf(out.s, sizeof out.s, "needs compute capability 7.5 or more; the device has %d.%d",
                 (int)device->arch / 10, (int)device->arch % 10);
    return out;
}

static void plan(const struct gemm_problem *p, const struct gemm_terms *terms, struct gemm_plan *out)
{
    const int64_t rows = p->groups.kind == GEMM_KIND_DENSE ? p->m : TILE; /* a grouped kind's are not known here */
    const int64_t tiles = ceil_div(rows, TILE) * ceil_div(p->n, TILE) * p->groups.spans;
    /* The kernel loops over what is left. */
    out->grid = (uint32_t)min_i64(tiles, (int64_t)terms->num_sms * BLOCKS_PER_SM);
    out->threads = THREADS;
    out->cluster = 1;
}

static void spec(const struct gemm_problem *p, const struct gemm_plan *plan, struct kernel_spec *out)
{
    (void)plan;
    snprintf(out->config, sizeof out->config,
             "#define D_TYPE %d\n#define HAS_C %d\n#define SFA_PACKED %d\n#define SFB_PACKED %d\n#define SFB_ROWS %d\n",
             (int)p->d.dtype, p->has_c, p->sfa_packed, p->sfb_packed, p->sfb_rows);
    out->request = (struct jit_request){.kernel = gemm_row_gemm_simple.name, .config = out->config};
}

static void line(const struct gemm_plan *plan, char *out, size_t bytes)
{
    snprintf(out, bytes, "block_m=%d block_n=%d grid=%u", TILE, TILE, plan->grid);
}

static dg_status bind(const struct gemm_problem *p, const struct gemm_plan *plan, const struct driver *driver,
                      union gemm_kernel_args *args)
{
    (void)plan, (void)driver;
    struct gemm_simple_args *out = &args->simple;
    memset(out, 0, sizeof *out);
    out->a = strided_of(&p->a);
    out->b = strided_of(&p->b);
    out->sfa = strided_of(&p->sfa);
    out->sfb = strided_of(&p->sfb);
    if (p->has_c)
        out->c = strided_of(&p->c);
    out->out = strided_of(&p->d);
    out->groups = p->groups;
    out->n = p->n;
    out->a_flat = p->a_flat;
    out->b_flat = p->b_flat;
    return DG_SUCCESS;
}

const struct gemm_row gemm_row_gemm_simple = {
    .name = "gemm_simple", .refusal = refusal, .plan = plan, .spec = spec, .line = line, .bind = bind};
