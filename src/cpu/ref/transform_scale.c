/* dg_transform_scale, as deepgemm.h defines it: copies scales, packs them into UE8M0 or unpacks them. */
#include "cpu/ref/element.h"
#include "cpu/ref/ref.h"

static bool find_unpackable(const struct transform_problem *p, int64_t *batch, int64_t *row, int64_t *col)
{
    for (*batch = 0; *batch < p->batch; ++*batch)
        for (*row = 0; *row < p->mn; ++*row)
            for (*col = 0; *col < p->k_groups; ++*col)
                if (!float_is_ue8m0(element_read(&p->src, *batch, *row, *col)))
                    return true;
    return false;
}

static void pack_word(const struct transform_problem *p, int64_t batch, int64_t row, int64_t col)
{
    uint32_t word = 0; /* bytes beyond the last group stay zero */
    for (int64_t i = 0; i < 4 && 4 * col + i < p->k_groups; ++i) {
        float scale = element_read(&p->src, batch, row, 4 * col + i);
        if (p->round_scale)
            scale = round_up_to_ue8m0(scale);
        word |= (uint32_t)float_to_ue8m0(scale) << (8 * i);
    }
    *element_word(&p->dst, batch, row, col) = word;
}

static void transform_element(const struct transform_problem *p, int64_t batch, int64_t row, int64_t col)
{
    if (p->dst_packed)
        pack_word(p, batch, row, col);
    else if (p->src_packed)
        element_write(&p->dst, batch, row, col, element_scale(&p->src, batch, row, col));
    else /* as words, so that every NaN keeps its bits */
        *element_word(&p->dst, batch, row, col) = *element_word(&p->src, batch, row, col);
}

bool ref_transform_scale(const struct transform_problem *problem, int64_t *batch, int64_t *row, int64_t *col)
{
    const struct transform_problem *p = problem;
    if (p->dst_packed && !p->round_scale && find_unpackable(p, batch, row, col))
        return false;
    for (int64_t b = 0; b < p->batch; ++b)
        for (int64_t r = 0; r < p->mn; ++r)
            for (int64_t c = 0; c < p->dst.cols; ++c)
                transform_element(p, b, r, c);
    return true;
}
