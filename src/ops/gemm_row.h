/*
 * The implementations of dg_gemm: one row each, best first. A row answers three questions without touching a device
 * (can it take the problem, how, with which kernel) and then either launches a kernel or runs on the CPU.
 */
#ifndef OPS_GEMM_ROW_H
#define OPS_GEMM_ROW_H

#include "ops/kernel.h"
#include "plan/gemm_skinny.h"
#include "plan/gemm_sm90.h"
#include "shared/gemm_args.h"

struct gemm_row;

/* How a row would do a problem. */
struct gemm_plan {
    const struct gemm_row *row;
    struct gemm_1d2d_plan sm90; /* the rows' own parts */
    struct gemm_skinny_plan skinny;
    uint32_t grid, threads, cluster;
    int32_t smem_bytes;
    size_t workspace_bytes;
    bool b_early; /* of each call, not of the problem: kernels may load B while the kernel before still runs */
};

/* Room for any row's kernel argument. */
union gemm_kernel_args {
    struct gemm_1d2d_args sm90;
    struct gemm_skinny_args skinny;
    struct gemm_simple_args simple;
};

/* Where and on what terms a problem is to run. */
struct gemm_terms {
    const dg_device_info *device; /* NULL: the CPU */
    int32_t num_sms;              /* that may be used; of a GPU */
    bool batch_invariant;
};

struct gemm_row {
    const char *name; /* of the kernel file, its symbol and the bench label */

    /* Why the row cannot or should not take the problem, empty when it is to. */
    struct text (*refusal)(const struct gemm_problem *p, const struct gemm_terms *terms);

    /* CUDA rows: choose a configuration, name its kernel, describe both on a line, fill the kernel's argument. */
    void (*plan)(const struct gemm_problem *p, const struct gemm_terms *terms, struct gemm_plan *plan);
    void (*spec)(const struct gemm_problem *p, const struct gemm_plan *plan, struct kernel_spec *spec);
    void (*line)(const struct gemm_plan *plan, char *out, size_t bytes);
    dg_status (*bind)(const struct gemm_problem *p, const struct gemm_plan *plan, const struct driver *driver,
                      union gemm_kernel_args *args);

    /* CPU rows. */
    void (*run)(const struct gemm_problem *p);
};

extern const struct gemm_row gemm_row_sm90_fp8_gemm_skinny;
extern const struct gemm_row gemm_row_sm90_fp8_gemm_1d2d;
extern const struct gemm_row gemm_row_gemm_simple;
extern const struct gemm_row gemm_row_gemm_ref;

/* Copy the launch's shape from the row's own part of a plan: for tests and tuning, which fill that part themselves. */
void gemm_1d2d_shape(struct gemm_plan *plan);
void gemm_skinny_shape(struct gemm_plan *plan);

/*
 * The first row that takes the problem. `refused`, if not NULL, receives a line "row: reason" for each one passed
 * over. There is always a row for the CPU; on a GPU DG_ERROR_UNSUPPORTED_ARCH is the one failure.
 */
dg_status gemm_select(const struct gemm_problem *p, const struct gemm_terms *terms, const struct gemm_row **row,
                      char *refused, size_t bytes);

#endif
