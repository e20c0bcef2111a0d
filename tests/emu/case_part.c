/*
 * Tests of the emulation's parts: "part FILE FUNCTION [threads=64] [blocks=1] [cluster=1] [smem=16384]" runs a function
 * of tests/emu/kernels/FILE.cu, which looks at the results itself.
 */
#include "tests/emu/case.h"

#include "core/context.h"
#include "core/status.h"
#include "cuda/tensormap.h"
#include "jit/sources.h"
#include "ops/kernel.h"
#include "tests/emu/kernels/part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char kernel[64], config[256];
static struct tensor *in, *out, *map;

static void read_source(const char *file)
{
    char path[128];
    snprintf(path, sizeof path, "tests/emu/kernels/%s.cu", file);
    sources_replace(kernel, case_read(path));
    sources_replace("part.h", case_read("tests/emu/kernels/part.h"));
}

static void prepare(const char *line)
{
    char file[32] = "", function[64] = "";
    sscanf(line, "part %31s %63s", file, function);
    snprintf(kernel, sizeof kernel, "part_%s", file);
    snprintf(config, sizeof config, "#define PART %s\n#define VARIANT %s\n", kernel, function);
    read_source(file);
    in = tensor_make("in", DG_FLOAT32, 0, PART_ROWS, PART_COLS, LAYOUT_ROWS, 16, 0);
    out = tensor_make("out", DG_FLOAT32, 0, PART_ROWS, PART_COLS, LAYOUT_ROWS, 16, 0);
    map = tensor_make("map", DG_FLOAT32, 0, 1, 32, LAYOUT_ROWS, 128, 0);
    out->output = out->anything = map->output = map->anything = true;
    TENSOR_FOR_EACH(in, b, r, c)
    {
        tensor_set(in, b, r, c, (float)(r * PART_COLS + c));
        tensor_set(out, b, r, c, 0);
    }
}

static struct matrix matrix_at(const struct tensor *t)
{
    return matrix_of(&t->device);
}

static dg_status bind(const struct driver *driver, struct part_args *args)
{
    const struct matrix from = matrix_at(in), to = matrix_at(out);
    memset(args, 0, sizeof *args);
    CHECK(tensormap_encode(driver, &args->in128, &from, 8, 32, 128));
    CHECK(tensormap_encode(driver, &args->in64, &from, 8, 16, 64));
    CHECK(tensormap_encode(driver, &args->in32, &from, 8, 8, 32));
    CHECK(tensormap_encode(driver, &args->plain, &from, 8, 32, 0));
    CHECK(tensormap_encode(driver, &args->out128, &to, 8, 32, 128));
    args->in = (uint64_t)(uintptr_t)in->device.data;
    args->out = (uint64_t)(uintptr_t)out->device.data;
    args->map = (uint64_t)(uintptr_t)map->device.data;
    memcpy(map->device_memory, &args->plain, sizeof args->plain);
    return DG_SUCCESS;
}

static struct jit_request request_of(void)
{
    struct jit_request request = {.kernel = kernel, .config = config};
    if (strcmp(kernel, "part_wgmma") == 0) {
        request.wgmma[0] = (struct jit_wgmma){.type = "e4m3", .n = 16};
        request.wgmma[1] = (struct jit_wgmma){.type = "bf16", .n = 16};
        request.wgmma[2] = (struct jit_wgmma){.type = "tf32", .n = 16};
        request.wgmma[3] = (struct jit_wgmma){.type = "e4m3", .n = 16, .a_in_registers = true};
        request.wgmma_count = 4;
    }
    return request;
}

static dg_status launch(const struct cuda_scope *scope, const char *line)
{
    const int32_t smem_bytes = (int32_t)case_number(line, "smem", 16384);
    struct jit_request request = request_of();
    struct cuda_launch launch = {.grid = {(uint32_t)case_number(line, "blocks", 1), 1, 1},
                                 .threads = (uint32_t)case_number(line, "threads", 64),
                                 .cluster = (uint32_t)case_number(line, "cluster", 1)};
    struct part_args args;
    dg_context *context;
    CHECK(context_resolve(NULL, &context));
    CHECK(kernel_get(context, scope, &request, smem_bytes, &launch.kernel));
    CHECK(bind(scope->driver, &args));
    return cuda_launch(scope, &launch, &args, NULL);
}

static dg_status run(const char *line, bool on_device)
{
    struct cuda_scope scope;
    if (!on_device)
        return DG_SUCCESS;
    operation_begin("part");
    CHECK(cuda_enter(0, NULL, &scope));
    const dg_status status = launch(&scope, line);
    cuda_leave(&scope);
    return status;
}

const struct operation part_operation = {"part", NULL, prepare, run};
