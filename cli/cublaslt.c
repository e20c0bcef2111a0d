#include "cublaslt.h"

#include "gpu_abi.h"
#include "library.h"
#include "program.h"

#include <string.h>

enum { WORKSPACE_BYTES = 32 << 20 };

static struct {
    size_t (*cublasLtGetVersion)(void);
    const char *(*cublasLtGetStatusString)(int status);
    int (*cublasLtCreate)(void **handle);
    int (*cublasLtDestroy)(void *handle);
    int (*cublasLtMatmulDescCreate)(void **description, int compute_type, int scale_type);
    int (*cublasLtMatmulDescSetAttribute)(void *description, int attribute, const void *value, size_t bytes);
    int (*cublasLtMatmulDescDestroy)(void *description);
    int (*cublasLtMatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld);
    int (*cublasLtMatrixLayoutSetAttribute)(void *layout, int attribute, const void *value, size_t bytes);
    int (*cublasLtMatrixLayoutDestroy)(void *layout);
    int (*cublasLtMatmulPreferenceCreate)(void **preference);
    int (*cublasLtMatmulPreferenceSetAttribute)(void *preference, int attribute, const void *value, size_t bytes);
    int (*cublasLtMatmulPreferenceDestroy)(void *preference);
    int (*cublasLtMatmulAlgoGetHeuristic)(void *handle, void *description, void *a, void *b, void *c, void *d,
                                          void *preference, int wanted, struct abi_lt_heuristic *results, int *found);
    int (*cublasLtMatmul)(void *handle, void *description, const void *alpha, const void *a, void *a_layout,
                          const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,
                          void *d_layout, const struct abi_lt_algo *algo, void *workspace, size_t workspace_bytes,
                          void *stream);
} lt;

static struct {
    int32_t device;
    void *handle, *workspace, *one; /* `one` is 1.0f in device memory: the scale of A and of B */
} state;

static bool lt_ok(int status, const char *what)
{
    return status == 0 || trouble("%s: %s (%d)", what, lt.cublasLtGetStatusString(status), status);
}

#define LT(function, ...) lt_ok(lt.function(__VA_ARGS__), #function)

static bool load(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    void *library = library_open(names, "cublas");
#define SYMBOL(name) library_symbol(library, #name, (void *)&lt.name)
    return library && SYMBOL(cublasLtGetVersion) && SYMBOL(cublasLtGetStatusString) && SYMBOL(cublasLtCreate) &&
           SYMBOL(cublasLtDestroy) && SYMBOL(cublasLtMatmulDescCreate) && SYMBOL(cublasLtMatmulDescSetAttribute) &&
           SYMBOL(cublasLtMatmulDescDestroy) && SYMBOL(cublasLtMatrixLayoutCreate) &&
           SYMBOL(cublasLtMatrixLayoutSetAttribute) && SYMBOL(cublasLtMatrixLayoutDestroy) &&
           SYMBOL(cublasLtMatmulPreferenceCreate) && SYMBOL(cublasLtMatmulPreferenceSetAttribute) &&
           SYMBOL(cublasLtMatmulPreferenceDestroy) && SYMBOL(cublasLtMatmulAlgoGetHeuristic) && SYMBOL(cublasLtMatmul);
#undef SYMBOL
}

bool cublaslt_begin(int32_t device)
{
    const float one = 1.0f;
    state.device = device;
    return load() && LT(cublasLtCreate, &state.handle) && ok(dg_alloc(device, WORKSPACE_BYTES, &state.workspace)) &&
           ok(dg_alloc(device, sizeof(one), &state.one)) &&
           ok(dg_copy(state.one, device, &one, DG_CPU, sizeof(one), NULL));
}

void cublaslt_end(void)
{
    if (state.handle)
        lt.cublasLtDestroy(state.handle);
    if (state.workspace)
        dg_free(state.device, state.workspace);
    if (state.one)
        dg_free(state.device, state.one);
    memset(&state, 0, sizeof(state));
}

size_t cublaslt_version(void)
{
    return lt.cublasLtGetVersion ? lt.cublasLtGetVersion() : 0;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* A row-major [rows, cols] matrix is a column-major [cols, rows] one to cuBLAS. */
static bool make_layout(void **layout, const dg_tensor *t, int type)
{
    const int64_t *shape = t->shape + t->ndim - 2, *stride = t->stride + t->ndim - 2;
    if (stride[1] != 1 || stride[0] < shape[1])
        return trouble("cuBLASLt takes row-major matrices only");
    if (!LT(cublasLtMatrixLayoutCreate, layout, type, (uint64_t)shape[1], (uint64_t)shape[0], stride[0]))
        return false;
    if (t->ndim == 2)
        return true;
    const int32_t batch = (int32_t)t->shape[0];
    const int64_t offset = t->stride[0];
    return LT(cublasLtMatrixLayoutSetAttribute, *layout, ABI_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)) &&
           LT(cublasLtMatrixLayoutSetAttribute, *layout, ABI_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof(offset));
}

static int data_type(dg_dtype dtype)
{
    return dtype == DG_FLOAT8_E4M3 ? ABI_R_8F_E4M3
           : dtype == DG_BFLOAT16  ? ABI_R_16BF
           : dtype == DG_FLOAT16   ? ABI_R_16F
                                   : ABI_R_32F;
}

/* D^T = B A^T in column-major terms, whose first operand is B read transposed: cuBLAS's TN layout. */
static bool make_description(struct cublaslt_plan *p)
{
    const int32_t transposed = ABI_OP_T;
    const int8_t fast_accumulation = 0;
    const size_t workspace = WORKSPACE_BYTES;
    return LT(cublasLtMatmulDescCreate, &p->description, ABI_COMPUTE_32F, ABI_R_32F) &&
           LT(cublasLtMatmulDescSetAttribute, p->description, ABI_DESC_TRANSA, &transposed, sizeof(transposed)) &&
           LT(cublasLtMatmulDescSetAttribute, p->description, ABI_DESC_FAST_ACCUM, &fast_accumulation,
              sizeof(fast_accumulation)) &&
           LT(cublasLtMatmulDescSetAttribute, p->description, ABI_DESC_A_SCALE_POINTER, &state.one,
              sizeof(state.one)) &&
           LT(cublasLtMatmulDescSetAttribute, p->description, ABI_DESC_B_SCALE_POINTER, &state.one,
              sizeof(state.one)) &&
           LT(cublasLtMatmulPreferenceCreate, &p->preference) &&
           LT(cublasLtMatmulPreferenceSetAttribute, p->preference, ABI_PREF_MAX_WORKSPACE_BYTES, &workspace,
              sizeof(workspace));
}

static bool choose_algorithm(struct cublaslt_plan *p)
{
    struct abi_lt_heuristic result;
    int found = 0;
    if (!LT(cublasLtMatmulAlgoGetHeuristic, state.handle, p->description, p->b_layout, p->a_layout, p->d_layout,
            p->d_layout, p->preference, 1, &result, &found))
        return false;
    if (found == 0)
        return trouble("cuBLASLt offers no algorithm");
    memcpy(p->algo, &result.algo, sizeof(p->algo));
    return true;
}

bool cublaslt_plan_make(struct cublaslt_plan *p, const dg_gemm_args *args)
{
    *p = (struct cublaslt_plan){.a = args->a.data, .b = args->b.data, .d = args->d.data};
    if (args->c.dtype != DG_DTYPE_NONE || args->kind != DG_GEMM_DENSE)
        return trouble("the baseline is without %s", args->kind != DG_GEMM_DENSE ? "groups" : "C");
    return make_description(p) && make_layout(&p->a_layout, &args->a, ABI_R_8F_E4M3) &&
           make_layout(&p->b_layout, &args->b, ABI_R_8F_E4M3) &&
           make_layout(&p->d_layout, &args->d, data_type(args->d.dtype)) && choose_algorithm(p);
}

void cublaslt_plan_free(struct cublaslt_plan *p)
{
    if (p->description)
        lt.cublasLtMatmulDescDestroy(p->description);
    if (p->preference)
        lt.cublasLtMatmulPreferenceDestroy(p->preference);
    void *layouts[] = {p->a_layout, p->b_layout, p->d_layout};
    for (int i = 0; i < 3; ++i)
        if (layouts[i])
            lt.cublasLtMatrixLayoutDestroy(layouts[i]);
    memset(p, 0, sizeof(*p));
}

bool cublaslt_run(void *plan, dg_stream stream)
{
    const struct cublaslt_plan *p = plan;
    const float alpha = 1.0f, beta = 0.0f;
    struct abi_lt_algo algo;
    memcpy(&algo, p->algo, sizeof(algo));
    return LT(cublasLtMatmul, state.handle, p->description, &alpha, p->b, p->b_layout, p->a, p->a_layout, &beta, p->d,
              p->d_layout, p->d, p->d_layout, &algo, state.workspace, WORKSPACE_BYTES, stream);
}
