# The one source list: the Makefile and setup.py read it. One "NAME = values" per line group, no make functions.

LIB_SOURCES = \
	src/core/check.c src/core/context.c src/core/env.c src/core/hash.c src/core/log.c src/core/status.c \
	src/core/tensor.c

LIB_ASSEMBLY =

# What src/jit/embed.S includes, so that make rebuilds it.
KERNEL_SOURCES =

CLI_SOURCES =

# Test programs that need no GPU: tests/unit/test_<name>.c each.
UNIT_TESTS = core
