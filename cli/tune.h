/*
 * What `deepgemm tune` is made of: it times configurations of the kernels and fits the cost models that choose among
 * them. It is the one command that looks inside the library, whose planning the public API does not show.
 */
#ifndef CLI_TUNE_H
#define CLI_TUNE_H

#include "cases.h"

#include "ops/gemm_row.h"

#include <stdio.h>

/* One configuration of a kernel, as far as it may be chosen. */
struct tune_tile {
    const struct gemm_row *row; /* NULL: what the library chooses */
    struct gemm_1d2d_tile sm90; /* of sm90_fp8_gemm_1d2d; else zeros */
    struct gemm_skinny_tile skinny;
};

/* Whether it is one of those that the library chooses among. */
bool tune_tile_exists(const struct tune_tile *tile);

/* The plan of that tile, or false when it does not exist for the problem. */
bool tune_plan(const struct gemm_problem *p, const dg_device_info *device, const struct tune_tile *tile,
               struct gemm_plan *plan);

double tune_cycles(const struct gemm_plan *plan); /* predicted */

/* Another text for a kernel, to compare with the library's own. */
struct tune_variant {
    const char *name;
    char *text;
};

enum { TUNE_MAX_TILES = 1024, TUNE_MAX_VARIANTS = 32, TUNE_MAX_CANDIDATES = 4096 };

struct tune_sweep {
    struct case_list cases;
    int32_t device;
    struct tune_tile tiles[TUNE_MAX_TILES];
    int tile_count;
    struct tune_variant variants[TUNE_MAX_VARIANTS]; /* of the tiles' one kernel */
    int variant_count; /* 0: the library's own; times tiles, TUNE_MAX_CANDIDATES at most */
    int64_t rounds, reps;
    double prune; /* tiles that are predicted to take that many times the least predicted time are left out */
    FILE *csv;
};

/*
 * Times every tile for every case, beside cuBLASLt, and writes a line of CSV for each. All that sum in the same order
 * must give the same bits.
 */
bool tune_sweep(struct tune_sweep *sweep);

/*
 * Reads what sweeps have written of plain cases (later lines replace earlier ones of the same tile), and fits in so
 * many steps. A plain case is one that m, n and k tell all of: what the cost models are compared by.
 */
struct tune_fit {
    const char *paths[16];
    int path_count;
    struct case_list favourites; /* whose choice counts three times */
    int64_t steps;
    const char *directory; /* where the constants go; NULL: nowhere */
};
bool tune_fit(const struct tune_fit *fit);

#endif
