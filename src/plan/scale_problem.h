/* Checked dg_quantize_fp8 and dg_transform_scale calls, and where scales may lie. Pure. */
#ifndef PLAN_SCALE_PROBLEM_H
#define PLAN_SCALE_PROBLEM_H

#include "core/check.h"

struct quantize_problem {
    int32_t device;
    int32_t gran_mn, gran_k;
    bool round_scale, packed; /* packed: sf is INT32, four k groups to a word */
    int64_t batch, m, k;
    int64_t mn_groups, k_groups;
    struct matrix x, q, sf;
};

struct transform_problem {
    int32_t device;
    bool round_scale;
    bool src_packed, dst_packed;
    int64_t batch, mn, k_groups; /* of the unpacked side */
    struct matrix src, dst;
};

dg_status quantize_problem_make(const dg_quantize_args *args, enum null_data null_data,
                                struct quantize_problem *problem);
dg_status transform_problem_make(const dg_transform_scale_args *args, enum null_data null_data,
                                 struct transform_problem *problem);

/* Whether there is nothing to do. */
static inline bool quantize_problem_empty(const struct quantize_problem *p)
{
    return p->batch == 0 || p->m == 0 || p->k == 0;
}

static inline bool transform_problem_empty(const struct transform_problem *p)
{
    return p->batch == 0 || p->mn == 0 || p->k_groups == 0;
}

/* dg_scale_layout, without naming an operation. */
dg_status scale_layout(int64_t mn, int64_t k, int32_t gran_mn, int32_t gran_k, dg_dtype scale_dtype, int64_t batch,
                       dg_tensor *layout, size_t *bytes);

/* The wanted shape of scales: rows ceil(mn/gran_mn), columns ceil(k/gran_k), or a quarter of these when packed. */
int64_t scale_columns(int64_t k, int32_t gran_k, bool packed);

#endif
