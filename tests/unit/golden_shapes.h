/* The 56 dense problems of bench/shapes/dense.txt and the 36 grouped by rows of bench/shapes/grouped.txt, whose plans
   are pinned by tests/golden/gemm_h200.txt. */
#ifndef TESTS_GOLDEN_SHAPES_H
#define TESTS_GOLDEN_SHAPES_H

#include "deepgemm.h"

static const int64_t golden_nk[][2] = {{2112, 7168},  {576, 7168},  {24576, 1536}, {32768, 512},
                                       {7168, 16384}, {4096, 7168}, {7168, 2048}};
static const int64_t golden_m[] = {1, 16, 64, 128, 256, 1024, 4096, 8192};

struct golden_group {
    dg_gemm_kind kind;
    int32_t groups, rows; /* in each, at the mean */
};
static const struct golden_group golden_groups[] = {
    {DG_GEMM_CONTIGUOUS, 4, 8192}, {DG_GEMM_CONTIGUOUS, 8, 4096}, {DG_GEMM_CONTIGUOUS, 32, 256},
    {DG_GEMM_MASKED, 32, 192},     {DG_GEMM_MASKED, 6, 1024},     {DG_GEMM_MASKED, 32, 20},
    {DG_GEMM_MASKED, 6, 20},       {DG_GEMM_MASKED, 16, 64},      {DG_GEMM_MASKED, 64, 4}};
static const int64_t golden_group_nk[][2] = {{6144, 7168}, {7168, 3072}, {4096, 7168}, {7168, 2048}};

#endif
