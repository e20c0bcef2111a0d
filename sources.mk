# The one source list: the Makefile and setup.py read it. One "NAME = values" per line group, no make functions.

LIB_SOURCES = \
	src/core/check.c src/core/context.c src/core/env.c src/core/hash.c src/core/log.c src/core/status.c \
	src/core/tensor.c src/plan/config_text.c src/plan/device_preset.c src/plan/gemm_problem.c src/plan/gemm_sm90.c \
	src/plan/scale_problem.c src/plan/tma_rules.c src/cpu/convert.c src/cpu/threads.c src/cpu/ref/gemm.c \
	src/cpu/ref/quantize.c src/cpu/ref/transform_scale.c

LIB_ASSEMBLY =

# What src/jit/embed.S includes, so that make rebuilds it.
KERNEL_SOURCES = \
	src/shared/base.h src/shared/gemm_args.h src/shared/gemm_sched.h src/shared/scale_args.h

CLI_SOURCES =

# Test programs that need no GPU: tests/unit/test_<name>.c each.
UNIT_TESTS = core sched plan cpu
