/* The 56 dense problems of bench/shapes/dense.txt, whose plans are pinned by tests/golden/gemm_h200.txt. */
#ifndef TESTS_GOLDEN_SHAPES_H
#define TESTS_GOLDEN_SHAPES_H

#include <stdint.h>

static const int64_t golden_nk[][2] = {{2112, 7168},  {576, 7168},  {24576, 1536}, {32768, 512},
                                       {7168, 16384}, {4096, 7168}, {7168, 2048}};
static const int64_t golden_m[] = {1, 16, 64, 128, 256, 1024, 4096, 8192};

#endif
