#include "ops/gemm_row.h"

#include "cpu/ref/ref.h"

#include <stdio.h>
#include <string.h>

static const struct gemm_row *const rows[] = {
    &gemm_row_sm90_fp8_gemm_skinny,
    &gemm_row_sm90_fp8_gemm_1d2d,
    &gemm_row_gemm_simple,
    &gemm_row_gemm_ref,
};

dg_status gemm_select(const struct gemm_problem *p, const struct gemm_terms *terms, const struct gemm_row **row,
                      char *refused, size_t bytes)
{
    struct text reason = {""};
    size_t used = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        if ((terms->device == NULL) != (rows[i]->run != NULL))
            continue; /* a row of the other kind of device */
        reason = rows[i]->refusal(p, terms);
        if (reason.s[0] == '\0') {
            *row = rows[i];
            return DG_SUCCESS;
        }
        if (refused && used < bytes)
            used += (size_t)snprintf(refused + used, bytes - used, "%s: %s\n", rows[i]->name, reason.s);
    }
    return fail(DG_ERROR_UNSUPPORTED_ARCH, "%s: no implementation takes it on %s: %s", gemm_problem_text(p).s,
                terms->device ? terms->device->name : "the CPU", reason.s);
}

/* ---- The CPU reference --------------------------------------------------------------------------------------- */

static struct text ref_refusal(const struct gemm_problem *p, const struct gemm_terms *terms)
{
    (void)p, (void)terms;
    return (struct text){""};
}

const struct gemm_row gemm_row_gemm_ref = {.name = "gemm_ref", .refusal = ref_refusal, .run = ref_gemm};
