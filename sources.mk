# The one source list. One "NAME = values" per line group, no make functions, so that other builders can read it too.

LIB_SOURCES = \
	src/core/check.c src/core/context.c src/core/env.c src/core/hash.c src/core/log.c src/core/status.c \
	src/core/tensor.c \
	src/plan/config_text.c src/plan/gemm_problem.c src/plan/gemm_skinny.c src/plan/gemm_sm90.c \
	src/plan/scale_problem.c src/plan/tma_rules.c \
	src/jit/cache.c src/jit/compile.c src/jit/dump.c src/jit/entry.c src/jit/jit.c src/jit/key.c src/jit/nvrtc.c \
	src/jit/pack.c src/jit/pack_file.c src/jit/publish.c src/jit/sources.c src/jit/wgmma_text.c \
	src/cuda/device.c src/cuda/driver.c src/cuda/launch.c src/cuda/memory.c src/cuda/module.c src/cuda/tensormap.c \
	src/cpu/convert.c src/cpu/threads.c src/cpu/ref/gemm.c src/cpu/ref/quantize.c src/cpu/ref/transform_scale.c \
	src/ops/device_preset.c src/ops/gemm.c src/ops/gemm_memo.c src/ops/gemm_row.c src/ops/gemm_simple_cuda.c \
	src/ops/gemm_skinny_cuda.c src/ops/gemm_sm90_cuda.c \
	src/ops/kernel.c src/ops/precompile.c src/ops/quantize.c src/ops/scale.c

LIB_ASSEMBLY = src/jit/embed.S

CLI_SOURCES = \
	cli/main.c cli/array.c cli/bench.c cli/bench_chain.c cli/bench_host.c cli/cases.c cli/cublaslt.c cli/cupti.c cli/expect.c \
	cli/gpu.c cli/groups.c cli/info.c cli/judge.c cli/library.c cli/matmul.c cli/npy.c cli/number.c cli/nvml.c cli/operand.c \
	cli/parallel.c cli/precompile.c cli/problem.c cli/program.c cli/random.c cli/report.c cli/safetensors.c \
	cli/selftest.c cli/selftest_system.c cli/selftest_table.c cli/timer.c cli/tune.c cli/tune_fit.c cli/tune_sweep.c

# Test programs that need no GPU: tests/unit/test_<name>.c each.
UNIT_TESTS = core sched groups plan cpu quantize api driver cuda memory gemm scale jit jit_nvrtc jit_cache jit_pack compile cli judge

# The emulated GPU and its tests, one program: build/emu/emu.
EMU_SOURCES = \
	tests/emu/main.c tests/emu/suite.c tests/emu/mutate.c \
	tests/emu/case.c tests/emu/case_gemm.c tests/emu/case_scale.c tests/emu/case_part.c \
	tests/emu/clock.c tests/emu/copy.c tests/emu/fibre.c tests/emu/mbarrier.c tests/emu/memory.c tests/emu/numbers.c \
	tests/emu/report.c tests/emu/sched.c tests/emu/smem.c tests/emu/sync.c tests/emu/tma.c tests/emu/wgmma.c

# The Python extension deep_gemm._C, which holds the library too.
PYTHON_SOURCES = \
	python/ext/arguments.c python/ext/call.c python/ext/gemm.c python/ext/gemm_grouped.c python/ext/hooks.c \
	python/ext/machine.c python/ext/module.c python/ext/producer.c python/ext/scale.c python/ext/setting.c \
	python/ext/view.c python/ext/view_array.c python/ext/view_capsule.c python/ext/view_torch.c python/ext/workspace.c
