#include "jit/wgmma_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct operand_type {
    const char *name;
    int k;
    /* 16-bit operands may be transposed on the way from shared memory, and say by an immediate each that they are not;
       other types have no such operands. */
    bool has_transpose;
};

static const struct operand_type TYPES[] = {{"e4m3", 32, false}, {"bf16", 16, true}, {"tf32", 8, false}};

static const struct operand_type *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; ++i)
        if (name && strcmp(TYPES[i].name, name) == 0)
            return &TYPES[i];
    return NULL;
}

static dg_status check_shape_exists(const struct jit_wgmma *shape)
{
    if (!find_type(shape->type))
        return fail(DG_ERROR_INTERNAL, "wgmma: type is \"%s\"; e4m3, bf16 or tf32 is wanted",
                    shape->type ? shape->type : "(null)");
    if (shape->n < 8 || shape->n > 256 || shape->n % 8 != 0)
        return fail(DG_ERROR_INTERNAL, "wgmma: n=%d; a multiple of 8 from 8 to 256 is wanted", shape->n);
    return DG_SUCCESS;
}

static bool same_shape(const struct jit_wgmma *x, const struct jit_wgmma *y)
{
    return strcmp(x->type, y->type) == 0 && x->n == y->n && x->a_in_registers == y->a_in_registers;
}

static bool written_before(const struct jit_wgmma *shapes, int32_t index)
{
    for (int32_t i = 0; i < index; ++i)
        if (same_shape(&shapes[i], &shapes[index]))
            return true;
    return false;
}

/* "prefix<first>suffix, prefix<first+1>suffix, ...", eight to a line. */
static void write_list(FILE *out, const char *prefix, int first, int count, const char *suffix, const char *new_line)
{
    for (int i = 0; i < count; ++i) {
        const char *separator = i == 0 ? "" : i % 8 == 0 ? new_line : ", ";
        fprintf(out, "%s%s%d%s", separator, prefix, first + i, suffix);
    }
}

static void write_signature(FILE *out, const struct jit_wgmma *shape, const struct operand_type *type)
{
    fprintf(out, "static __device__ __forceinline__ void wgmma_m64n%dk%d_%s", shape->n, type->k, type->name);
    fprintf(out, "%s, uint64_t desc_b, int accumulate)\n",
            shape->a_in_registers ? "_rs(float *d, const uint32_t *a" : "(float *d, uint64_t desc_a");
}

/* Operands are numbered: the accumulators, A (one descriptor or four registers), B's descriptor, accumulate. */
static void write_instruction(FILE *out, const struct jit_wgmma *shape, const struct operand_type *type)
{
    const int accumulators = shape->n / 2;
    const int a_count = shape->a_in_registers ? 4 : 1;
    const int b = accumulators + a_count;
    fprintf(out, "        \"setp.ne.b32 p, %%%d, 0;\\n\"\n", b + 1);
    fprintf(out, "        \"wgmma.mma_async.sync.aligned.m64n%dk%d.f32.%s.%s\\n\"\n", shape->n, type->k, type->name,
            type->name);
    fprintf(out, "        \"{");
    write_list(out, "%", 0, accumulators, "", ",\\n\"\n        \"");
    fprintf(out, "},\\n\"\n        \"%s", shape->a_in_registers ? "{" : "");
    write_list(out, "%", accumulators, a_count, "", ", ");
    fprintf(out, "%s, %%%d, p, 1, 1", shape->a_in_registers ? "}" : "", b);
    if (type->has_transpose) /* A in registers has a fixed layout, so then only B has the immediate */
        fprintf(out, shape->a_in_registers ? ", 0" : ", 0, 0");
    fprintf(out, ";\\n\"\n");
}

static void write_function(FILE *out, const struct jit_wgmma *shape)
{
    const struct operand_type *type = find_type(shape->type);
    write_signature(out, shape, type);
    fprintf(out, "{\n    asm volatile(\n        \"{\\n\"\n        \".reg .pred p;\\n\"\n");
    write_instruction(out, shape, type);
    fprintf(out, "        \"}\"\n        : ");
    write_list(out, "\"+f\"(d[", 0, shape->n / 2, "])", ",\n          ");
    fprintf(out, "\n        : ");
    if (shape->a_in_registers)
        write_list(out, "\"r\"(a[", 0, 4, "])", ", ");
    else
        fprintf(out, "\"l\"(desc_a)");
    fprintf(out, ", \"l\"(desc_b), \"r\"(accumulate));\n}\n");
}

dg_status wgmma_text(const struct jit_wgmma *shapes, int32_t count, char **text)
{
    size_t bytes;
    FILE *out;
    *text = NULL;
    for (int32_t i = 0; i < count; ++i)
        CHECK(check_shape_exists(&shapes[i]));
    out = open_memstream(text, &bytes);
    if (!out)
        return fail(DG_ERROR_OUT_OF_MEMORY, "no memory for the text of wgmma.h");
    fprintf(out,
            "/* PTX ISA, \"Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async\". A false predicate p\n"
            "   overwrites the accumulators; the ones after it leave the signs of A and B as they are. */\n");
    if (count > 0)
        fprintf(out, "#include \"shared/base.h\"\n");
    for (int32_t i = 0; i < count; ++i)
        if (!written_before(shapes, i))
            write_function(out, &shapes[i]);
    if (fclose(out) != 0) {
        free(*text);
        *text = NULL;
        return fail(DG_ERROR_OUT_OF_MEMORY, "no memory for the text of wgmma.h");
    }
    return DG_SUCCESS;
}
