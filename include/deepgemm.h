/*
 * deepgemm.h - FP8 matrix multiplication with fine-grained scaling, on NVIDIA Hopper GPUs and on CPUs.
 *
 * This header is the manual. It has three parts: the simple one (tensors, dg_gemm, dg_quantize_fp8), the context
 * (settings, questions to ask before a call), and the advanced one (precompiling, device descriptions, memory).
 *
 * The one operation everything here serves, in its canonical form:
 *
 *     D[M,N] = C[M,N] + A[M,K] @ B[N,K]^T          A, B: FP8 E4M3 with a scale for every group of 128 along K
 *
 * A and B are views: transposing one (NN, TN, TT) means swapping its shape and strides, nothing else.
 *
 * Numerics, the same on every device: for each group of 128 consecutive k, the products of the group are summed
 * (the group's partial sum), then added to an FP32 accumulator as
 *
 *     accumulator += (scale_a * scale_b) * partial_sum              scale_a * scale_b is rounded once, to FP32
 *
 * C is added in FP32, and the result is rounded once to D's type. Measured against the dequantised operands
 * multiplied in FP64, 1 - 2<x,y>/(<x,x>+<y,y>) stays below 5e-6 for a BF16 D and below 2e-6 for an FP16 or FP32 D
 * (over 64 elements or more; the one rounding of a single BF16 number may cost 7.6e-6).
 * Results are bitwise repeatable on one device with one configuration.
 *
 * Rules that hold for every function:
 *  - Every function that can fail returns a dg_status, and dg_last_error() tells the story in a sentence. A refused
 *    call has touched nothing: no output byte, no stream.
 *  - The library never prints unless an environment variable asks for it (docs/env.md), never exits, never aborts.
 *  - Pointers stay the caller's. No function keeps one after it returns, except that work queued on a stream
 *    reads its tensors until the stream has done it.
 *  - Functions may be called from any number of threads at once, on one context or several.
 *  - GPU work is asynchronous on the caller's stream; nothing allocates device memory or synchronises. CPU work is
 *    done when the function returns, and its stream argument is ignored.
 *  - A NULL dg_context means the process's default context, made on first use.
 */
#ifndef DEEPGEMM_H
#define DEEPGEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DG_API __attribute__((visibility("default")))
#else
#define DG_API
#endif

#define DG_VERSION_MAJOR 0
#define DG_VERSION_MINOR 1
#define DG_VERSION_PATCH 0

/* The version of the library that is loaded, as "0.1.0". Static storage. */
DG_API const char *dg_version(void);

/* ---- Status -------------------------------------------------------------------------------------------------- */

/*
 * One list makes the names, the pinned numbers and the short texts. Numbers never change their meaning. What a function
 * fails with is said at the function, with two names for what comes from outside:
 *   "the GPU's statuses"     200 to 260: about the driver, the device, and what runs on it
 *   "the kernels' statuses"  300 to 340: about compiling a kernel and loading it
 * Not repeated there: DG_ERROR_OUT_OF_MEMORY, where the host's or the device's memory runs out;
 * DG_ERROR_CONTEXT_DESTROYED of functions with a context argument (debug builds only); DG_ERROR_INTERNAL, which is a
 * mistake of the library.
 */
#define DG_STATUS_LIST(X)                                                                                              \
    X(DG_SUCCESS, 0, "success")                                                                                        \
    X(DG_ERROR_INVALID_ARGUMENT, 100, "an argument is invalid")                                                        \
    X(DG_ERROR_WORKSPACE_TOO_SMALL, 120, "the workspace is too small")                                                 \
    X(DG_ERROR_OUT_OF_MEMORY, 130, "out of memory")                                                                    \
    X(DG_ERROR_CONTEXT_DESTROYED, 140, "the context has been destroyed")                                               \
    X(DG_ERROR_NO_DRIVER, 200, "no CUDA driver is installed")                                                          \
    X(DG_ERROR_DRIVER_TOO_OLD, 210, "the CUDA driver is too old")                                                      \
    X(DG_ERROR_NO_DEVICE, 220, "there is no such CUDA device")                                                         \
    X(DG_ERROR_UNSUPPORTED_ARCH, 230, "the device's architecture is not supported")                                    \
    X(DG_ERROR_CUDA, 240, "a CUDA driver call failed")                                                                 \
    X(DG_ERROR_EARLIER_CUDA, 250, "earlier work on the CUDA context had failed")                                       \
    X(DG_ERROR_FORKED, 260, "CUDA cannot be used in a process forked after its initialisation")                        \
    X(DG_ERROR_NO_COMPILER, 300, "no NVRTC library was found")                                                         \
    X(DG_ERROR_COMPILER_TOO_OLD, 310, "the NVRTC library is too old")                                                  \
    X(DG_ERROR_COMPILE, 320, "a kernel did not compile")                                                               \
    X(DG_ERROR_COMPILE_FORBIDDEN, 330, "the kernel is not cached and compiling is switched off")                       \
    X(DG_ERROR_CUBIN_TOO_NEW, 340, "the driver is too old for the compiled kernel")                                    \
    X(DG_ERROR_IO, 400, "a file could not be read or written")                                                         \
    X(DG_ERROR_INTERNAL, 900, "internal error: please report it")

typedef enum dg_status {
#define DG_X(name, number, text) name = number,
    DG_STATUS_LIST(DG_X)
#undef DG_X
} dg_status;

/* "DG_ERROR_NO_DEVICE", or "unknown dg_status" for a number that is none. Static storage. */
DG_API const char *dg_status_name(dg_status status);

/* The short text of a status, from the list above. Static storage. */
DG_API const char *dg_status_text(dg_status status);

/*
 * The sentence about the calling thread's latest failed call: operation, argument, what came, what was wanted. Empty
 * before the first failure. Valid until the same thread's next call into the library. A call that succeeds leaves it,
 * except dg_cache_directory, which tells why there is no cache.
 */
DG_API const char *dg_last_error(void);

/* ---- Tensors ------------------------------------------------------------------------------------------------- */

typedef enum dg_dtype {
    DG_DTYPE_NONE = 0, /* a tensor of this type is absent */
    DG_FLOAT32 = 1,
    DG_FLOAT16 = 2,
    DG_BFLOAT16 = 3,
    DG_FLOAT8_E4M3 = 4, /* the "fn" variant: no infinity, 0x7f and 0xff are NaN, largest value 448 */
    DG_INT32 = 10       /* of layouts; as a scale four UE8M0 exponents, the first in the lowest byte */
} dg_dtype;

/* Bytes of one element; 0 for DG_DTYPE_NONE and unknown values. */
DG_API size_t dg_dtype_size(dg_dtype dtype);

/* "float32", "bfloat16", "float8_e4m3", ...; "none" or "unknown" otherwise. Static storage. */
DG_API const char *dg_dtype_name(dg_dtype dtype);

#define DG_MAX_DIMS 4
#define DG_CPU (-1) /* dg_tensor.device: host memory. 0, 1, ...: memory of that CUDA device (driver ordinal) */

/*
 * A non-owning view of an array. Strides count elements, are not negative, and are free in dimensions of size 1.
 * data must be aligned to the element; it may be NULL when some size is 0, and in questions (dg_gemm_explain,
 * dg_is_supported, dg_precompile), where NULL stands for "some pointer aligned to 256 bytes".
 */
typedef struct dg_tensor {
    void *data;
    dg_dtype dtype;
    int32_t device;
    int32_t ndim;
    int32_t reserved; /* zero */
    int64_t shape[DG_MAX_DIMS];
    int64_t stride[DG_MAX_DIMS];
} dg_tensor;

/* A tensor that is absent, as an initialiser. */
#ifdef __cplusplus
#define DG_TENSOR_NONE                                                                                                 \
    {                                                                                                                  \
    }
#else
#define DG_TENSOR_NONE                                                                                                 \
    {                                                                                                                  \
        0                                                                                                              \
    }
#endif

/* A row-major contiguous matrix [rows, cols]. */
static inline dg_tensor dg_matrix(void *data, dg_dtype dtype, int32_t device, int64_t rows, int64_t cols)
{
    dg_tensor t;
    t.data = data;
    t.dtype = dtype;
    t.device = device;
    t.ndim = 2;
    t.reserved = 0;
    t.shape[0] = rows;
    t.shape[1] = cols;
    t.shape[2] = t.shape[3] = 0;
    t.stride[0] = cols;
    t.stride[1] = 1;
    t.stride[2] = t.stride[3] = 0;
    return t;
}

/* The same elements with the last two dimensions swapped (ndim must be 2 or more). */
static inline dg_tensor dg_transposed(dg_tensor t)
{
    int32_t i = t.ndim - 2;
    int64_t shape = t.shape[i], stride = t.stride[i];
    t.shape[i] = t.shape[i + 1];
    t.stride[i] = t.stride[i + 1];
    t.shape[i + 1] = shape;
    t.stride[i + 1] = stride;
    return t;
}

/* ---- GEMM ---------------------------------------------------------------------------------------------------- */

typedef struct dg_context dg_context; /* see "Context" below */
typedef void *dg_stream; /* a CUstream or cudaStream_t; NULL is the default stream of the tensors' device */

typedef enum dg_gemm_kind {
    DG_GEMM_DENSE = 0,      /* one product, or with 3-D tensors one per batch entry */
    DG_GEMM_CONTIGUOUS = 1, /* rows of A in aligned blocks, each times the B that `layout` names; see below */
    DG_GEMM_PSUM = 2,       /* rows of A in groups, one for each B, whose ends `layout` holds */
    DG_GEMM_MASKED = 3,     /* a batch, of whose entries `layout` counts the rows that are in use */
    DG_GEMM_K_GROUPED = 4   /* columns of A and B in groups, whose sizes `layout` holds; a D for each */
} dg_gemm_kind;

typedef enum dg_gemm_flags {
    /* B is not written by any kernel that the stream got since it was last synchronised with or got a launch without
       PDL: weights, loaded long before. With DG_SETTING_PDL several kernels may be under way at once, not only the one
       right before, and the first of B is loaded before they have ended. B quantised two calls before is not constant.
     */
    DG_GEMM_B_CONSTANT = 1,
    /* DG_GEMM_PSUM: the rows of D between a group's end and the next aligned row become zeros. */
    DG_GEMM_ZERO_PADDING = 2
} dg_gemm_flags;

/*
 * Arguments of dg_gemm. Start from DG_GEMM_ARGS_INIT; zero is the default of every field. `size` tells which version
 * of the struct the caller was compiled with: smaller (older) and larger (newer, with zeros in the part this library
 * does not know) ones are accepted.
 *
 *   a    [M,K] or [batch,M,K], FLOAT8_E4M3, any strides. Fastest when K is contiguous and the other strides and the
 *        pointer are multiples of 16 bytes; everything else is computed by a slower kernel.
 *   b    [N,K] or [batch,N,K], likewise.
 *   sfa  A's scales, one per row and group of 128 k: FLOAT32 [M, ceil(K/128)], or packed UE8M0, INT32
 *        [M, ceil(K/512)] with the four consecutive groups of each word in its bytes, first in the lowest. A UE8M0
 *        byte e stands for 2^(e-127), 255 for NaN. Any strides; never copied. A leading batch dimension as in a.
 *   sfb  B's scales, one per 128x128 block: FLOAT32 [ceil(N/128), ceil(K/128)] or INT32 [ceil(N/128), ceil(K/512)].
 *   d    [M,N] or [batch,M,N], BFLOAT16, FLOAT16 or FLOAT32. An FP16 result beyond 65504 becomes an infinity.
 *        Shares no element with a, b, sfa or sfb; no two of its indices share an element.
 *   c    optional: shape and dtype of d, and either d itself (same data, same strides) or disjoint from it.
 *   recipe  the scale granularity {gran_m, gran_n, gran_k}: {1,128,128}, or {1,1,128} where B too has a scale per row
 *        and group: sfb is then [N, ceil(K/128)], or INT32 [N, ceil(K/512)]. {0,0,0} means {1,128,128}, and {1,1,128}
 *        with DG_GEMM_K_GROUPED.
 *   workspace  device scratch of at least the bytes that dg_gemm_explain tells (most problems: none), aligned to 256
 *        bytes, and used until the stream has done the call. Its contents need no preparation.
 *   num_sms  upper bound on the SMs to use; 0: the context's DG_SETTING_NUM_SMS.
 *   flags  of dg_gemm_flags, or 0.
 *   layout, alignment, expected_m  of the grouped kinds, below; else zeros.
 *
 * M, N, K and batch may be 0: with M, N or batch 0 nothing is done; with K 0 D becomes C, or zeros. The last group of
 * K and the last blocks of N may be partial. All tensors lie on one device.
 *
 * Grouped kinds, for mixtures of experts. `layout` is an INT32 vector of any stride, of which the device alone knows
 * the values: they may be other ones each time that a captured graph is launched. G is the number of groups. Numbers
 * that make no sense (said below) never make a call read or write outside its tensors.
 *
 *   DG_GEMM_CONTIGUOUS  a [M,K], b [G,N,K], d [M,N], sfa [M,..], sfb [G,..], layout [M]. Rows come in blocks of
 *        `alignment` (the last may be cut short): the first row's number in layout names the group of the whole block.
 *        A negative number there, or one of G or more, skips the block, whose rows of D stay untouched. Other rows'
 *        numbers are not looked at: a row marked -1 in a block that is not skipped is computed like its neighbours.
 *   DG_GEMM_PSUM  tensors as before, layout [G]: group g's rows begin where the one before it ended, rounded up to a
 *        multiple of `alignment` (the first: at 0), and end before row layout[g]. Rows between groups and behind the
 *        last stay untouched, or see DG_GEMM_ZERO_PADDING. An end before the beginning makes an empty group; one
 *        beyond M counts as M.
 *   DG_GEMM_MASKED  a [G,M,K], b [G,N,K], d [G,M,N], sfa and sfb likewise, layout [G]: of group g the first layout[g]
 *        rows are computed (none if negative, M at most), and the others stay untouched.
 *   DG_GEMM_K_GROUPED  d [G,M,N] (c too), D[g] = C[g] + A_g @ B_g^T, layout [G] the K of each group. a is [M, sum of
 *        K] and b [N, sum of K], group after group along K; or both are flat vectors, [M * sum of K] and
 *        [N * sum of K], in which each group is a row-major matrix of its own, [M, K_g] and [N, K_g]. Scales, one per
 *        row and group of 128, are [M, sum of ceil(K_g/128)] and [N, the same]; FLOAT32. A group with K 0 gives C, or
 *        zeros. A negative K counts as 0, and what exceeds the sum's or the scales' room is cut off.
 *
 *   alignment   rows, 8, 16 or a multiple of 32 up to 256; 0: the context's DG_SETTING_CONTIGUOUS_ALIGNMENT.
 *   expected_m  a hint: rows of a typical group (PSUM, MASKED); 0: unknown. Changes speed only.
 */
typedef struct dg_gemm_args {
    size_t size;
    dg_gemm_kind kind;
    int32_t recipe[3];
    dg_tensor a, b, sfa, sfb, c, d;
    void *workspace;
    size_t workspace_bytes;
    int32_t num_sms;
    uint32_t flags; /* of dg_gemm_flags */
    dg_tensor layout;
    int32_t alignment;
    int32_t expected_m;
} dg_gemm_args;

#define DG_GEMM_ARGS_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(dg_gemm_args), DG_GEMM_DENSE, {0, 0, 0}, DG_TENSOR_NONE, DG_TENSOR_NONE, DG_TENSOR_NONE,                \
            DG_TENSOR_NONE, DG_TENSOR_NONE, DG_TENSOR_NONE, NULL, 0, 0, 0, DG_TENSOR_NONE, 0, 0                        \
    }

/*
 * D = C + A @ B^T on the tensors' device. On a GPU: queued on `stream`, whose own CUDA context is used (for the NULL
 * stream the device's primary context), whatever context the calling thread has current. The first call of a
 * configuration loads its kernel from the cache or compiles it (under a second); a later one costs a launch. Safe
 * under CUDA-graph capture, the first call too. On a GPU before Hopper, from compute capability 7.5 on, a plain kernel
 * computes the same.
 *
 * Fails with DG_ERROR_INVALID_ARGUMENT, DG_ERROR_WORKSPACE_TOO_SMALL, the GPU's statuses and
 * the kernels'. Errors of the kernel itself come from a later call on the CUDA context, as DG_ERROR_EARLIER_CUDA.
 */
DG_API dg_status dg_gemm(dg_context *context, const dg_gemm_args *args, dg_stream stream);

/* ---- Quantisation -------------------------------------------------------------------------------------------- */

/*
 * Arguments of dg_quantize_fp8: groups of gran_mn x gran_k elements of x get one scale each.
 *
 *   x    [M,K] or [batch,M,K], FLOAT32, FLOAT16 or BFLOAT16, any strides.
 *   q    shape of x, FLOAT8_E4M3, any strides.
 *   sf   FLOAT32 [ceil(M/gran_mn), ceil(K/gran_k)], or INT32 (packed UE8M0) with ceil(ceil(K/gran_k)/4) columns,
 *        whose unused bytes become zero; any strides, so it can be written in the layout that dg_scale_layout tells.
 *   {gran_mn, gran_k}  {1,128} for activations, {128,128} for weights, {128,1} per channel; 0 means 1 and 128.
 *   round_scale  non-zero: round scales up to a power of two (UE8M0). Always so when sf is INT32.
 *
 * For each group, in FP32: amax = max |x|, but at least 1e-4; scale = amax * (1 / 448), rounded up to a power of two
 * (with an exponent byte of 1 to 254) if asked; q = E4M3(x * (1 / scale)), to nearest even. Hence a group of zeros or
 * denormals gets the scale 1e-4 * (1 / 448) and stays finite. A group with a NaN gets the scale NaN and NaN codes
 * (0x7f); one with an infinity the scale infinity, 0x7f where x is infinite, and zeros (of x's sign) elsewhere. Rounded
 * scales are finite always: such groups get 2^127, 0x7f where x is NaN or infinite, and E4M3(x * 2^-127) elsewhere,
 * which is zero up to |x| = 2^117.
 */
typedef struct dg_quantize_args {
    size_t size;
    dg_tensor x, q, sf;
    int32_t gran_mn, gran_k;
    int32_t round_scale;
    int32_t reserved; /* zero */
} dg_quantize_args;

#define DG_QUANTIZE_ARGS_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(dg_quantize_args), DG_TENSOR_NONE, DG_TENSOR_NONE, DG_TENSOR_NONE, 0, 0, 0, 0                           \
    }

/* Fails with DG_ERROR_INVALID_ARGUMENT, the GPU's statuses and the kernels'. */
DG_API dg_status dg_quantize_fp8(dg_context *context, const dg_quantize_args *args, dg_stream stream);

/* ---- Scale layouts ------------------------------------------------------------------------------------------- */

/*
 * Tells the layout in which scales are read fastest: MN-major, with the column stride rounded up to 16 bytes (what
 * TMA could load). Every other layout is accepted in place too.
 *
 *   mn, k           size of the scaled matrix, >= 0
 *   gran_mn, gran_k its granularity, >= 1; scale_dtype: DG_FLOAT32 or DG_INT32 (packed UE8M0, four k groups a word)
 *   batch           0: a matrix; else the size of the leading dimension
 *   layout          receives dtype, ndim, shape and stride; data NULL, device DG_CPU
 *   bytes           receives the bytes to allocate (may be NULL)
 *
 * Fails with DG_ERROR_INVALID_ARGUMENT.
 */
DG_API dg_status dg_scale_layout(int64_t mn, int64_t k, int32_t gran_mn, int32_t gran_k, dg_dtype scale_dtype,
                                 int64_t batch, dg_tensor *layout, size_t *bytes);

/*
 * Copies scales between layouts and types: FLOAT32 to FLOAT32 (strides), FLOAT32 [mn,kg] to INT32 [mn,ceil(kg/4)]
 * (packing) and back (unpacking, exact). A leading batch dimension may be there in both. src and dst share no
 * element.
 *   round_scale  when packing: 0 refuses a value that is not a power of two in 2^-127..2^127 (on a GPU, where nobody
 *                can be told in time, its byte becomes 255, NaN); 1 rounds up to a power of two as quantisation does:
 *                the magnitude counts, bytes are 1 to 254, and NaN becomes 254.
 */
typedef struct dg_transform_scale_args {
    size_t size;
    dg_tensor src, dst;
    int32_t round_scale;
    int32_t reserved; /* zero */
} dg_transform_scale_args;

#define DG_TRANSFORM_SCALE_ARGS_INIT                                                                                   \
    {                                                                                                                  \
        sizeof(dg_transform_scale_args), DG_TENSOR_NONE, DG_TENSOR_NONE, 0, 0                                          \
    }

/* Fails with DG_ERROR_INVALID_ARGUMENT, the GPU's statuses and the kernels'. */
DG_API dg_status dg_transform_scale(dg_context *context, const dg_transform_scale_args *args, dg_stream stream);

/* ---- Context ------------------------------------------------------------------------------------------------- */

/*
 * Makes a context, which is a set of settings; kernels and devices are kept per process. Touches no GPU. Fails with
 * DG_ERROR_INVALID_ARGUMENT or DG_ERROR_OUT_OF_MEMORY.
 */
DG_API dg_status dg_context_create(dg_context **context);

/*
 * Frees a context; NULL is ignored. Work already queued goes on; no other thread may be using the context. In debug
 * builds (make DEBUG=1) a later call with it returns DG_ERROR_CONTEXT_DESTROYED.
 */
DG_API void dg_context_destroy(dg_context *context);

typedef enum dg_setting {
    DG_SETTING_NUM_SMS = 1,              /* SMs a kernel may use; 0 (default) all. More than the device has: all */
    DG_SETTING_PDL = 2,                  /* 1: launch with programmatic dependent launch; default 0 */
    DG_SETTING_TC_UTIL = 3,              /* percent of the tensor cores to use, 1 to 100 (default): kernels leave the
                                            rest of the SMs to others */
    DG_SETTING_CONTIGUOUS_ALIGNMENT = 4, /* row alignment of groups in contiguous layouts: 8, 16 or a multiple of 32
                                            up to 256; default 128 */
    DG_SETTING_BATCH_INVARIANT = 5,      /* 1: a row's bits do not depend on M, nor which kernel computes it; A's row
                                            stride counts even when M is 1. Default 0 */
    DG_SETTING_COMPILE = 6               /* 0: never compile; a kernel that is in no cache is an error. Default 1 */
} dg_setting;

/* Takes effect on later calls from any thread. A value out of range is refused and changes nothing. Both fail with
   DG_ERROR_INVALID_ARGUMENT. */
DG_API dg_status dg_set(dg_context *context, dg_setting setting, int64_t value);
DG_API dg_status dg_get(dg_context *context, dg_setting setting, int64_t *value);

/* ---- Questions before a call --------------------------------------------------------------------------------- */

/*
 * What the library knows about a device when it chooses a configuration. dg_device_preset knows "h100", "h200", "h20"
 * and "gh200" by name, so that plans and kernels can be made on a machine without any of them.
 */
typedef struct dg_device_info {
    size_t size;
    char name[64];
    int32_t arch; /* compute capability: 90 for Hopper */
    int32_t num_sms;
    int64_t memory_bytes;
    int64_t l2_bytes;
    int32_t smem_bytes_per_block; /* the opt-in limit of dynamic shared memory */
    int32_t driver_version;       /* 13000 for CUDA 13.0; 0 in presets */
} dg_device_info;

#define DG_DEVICE_INFO_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(dg_device_info), {0}, 0, 0, 0, 0, 0, 0                                                                  \
    }

/* Fails with DG_ERROR_INVALID_ARGUMENT for another name. */
DG_API dg_status dg_device_preset(const char *name, dg_device_info *info);

/* The number of CUDA devices; a failure with one of the GPU's statuses (and *count 0) tells why there is none. */
DG_API dg_status dg_device_count(int32_t *count);

/* Fails with DG_ERROR_INVALID_ARGUMENT and the GPU's statuses. */
DG_API dg_status dg_device_query(int32_t device, dg_device_info *info);

/*
 * What dg_gemm would do with the same arguments (data pointers may be NULL): the implementation, its configuration
 * line, the scratch it wants, and for each better implementation why it was passed over.
 */
typedef struct dg_explanation {
    size_t size;
    size_t workspace_bytes;
    char row[64];                     /* name of the implementation: kernel file, symbol, bench label */
    char config[512];                 /* its configuration and launch on one line; empty on the CPU */
    char refused[1024];               /* "row: reason" lines of the rows that came before */
    dg_tensor sfa_layout, sfb_layout; /* the fastest layouts, see dg_scale_layout */
} dg_explanation;

/*
 * target: NULL for the tensors' own device; else plan for that description, whatever hardware is here. Fails with
 * DG_ERROR_INVALID_ARGUMENT, and without a target with the GPU's statuses.
 */
DG_API dg_status dg_gemm_explain(dg_context *context, const dg_gemm_args *args, const dg_device_info *target,
                                 dg_explanation *explanation);

/* Whether dg_gemm would accept these arguments on this machine; dg_last_error() tells why not. Compiles nothing. */
DG_API bool dg_is_supported(dg_context *context, const dg_gemm_args *args);

/* ---- Advanced: precompiling ---------------------------------------------------------------------------------- */

typedef void (*dg_progress_fn)(void *user, int64_t done, int64_t total, const char *what);

/*
 * Compiles, without launching, every kernel that dg_gemm would want for `gemm`, dg_quantize_fp8 for `quantize` and
 * dg_transform_scale for `transform`, and stores them in the cache. Each of the three may be NULL, but not all. M of
 * `gemm` and `quantize` runs over m_min..m_max (both 0: their own M; 2^40 at most); the kernel of `transform` does not
 * depend on sizes. Needs no GPU when `target` is given. Stores in *compiled and *cached (both may be NULL) how many
 * distinct kernels had to be compiled and how many were there already.
 *
 * `pack` names a file that gets these kernels too, besides those that it holds already. It is made if there is none,
 * left alone if it has them all, and else replaced whole, with the permissions that it had; a symbolic link stays, and
 * what it leads to is written. Where the environment variable DG_PACK names packs (':' between several), their kernels
 * are used without a cache, a compiler or a writable file system, also when DG_SETTING_COMPILE is 0: by calls with the
 * types and layouts that were asked for here, and with a driver as new as the kernels' compiler. Such a file is code,
 * to be trusted like a library. A kernel is found there only if this library would compile the same text: another
 * version's pack is passed over kernel by kernel, as is what is damaged (DG_JIT_DEBUG tells).
 *
 * Fails with DG_ERROR_INVALID_ARGUMENT, the kernels' statuses, without a target the GPU's, and
 * with DG_ERROR_IO when the pack cannot be written or its place holds another file; without a pack, when a kernel
 * could not be stored in the cache. This process then has the kernels in memory.
 */
typedef struct dg_precompile_args {
    size_t size;
    const dg_gemm_args *gemm; /* strides as for the largest M; data pointers are taken for well aligned ones */
    int64_t m_min, m_max;
    const dg_device_info *target; /* NULL: the device of the tensors, one for all */
    dg_progress_fn progress;      /* may be NULL; called from the calling thread, while planning with total 0 */
    void *user;
    const char *pack;                         /* NULL: none */
    const dg_quantize_args *quantize;         /* strides and data as in gemm */
    const dg_transform_scale_args *transform; /* likewise */
} dg_precompile_args;

#define DG_PRECOMPILE_ARGS_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(dg_precompile_args), NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL                                     \
    }

DG_API dg_status dg_precompile(dg_context *context, const dg_precompile_args *args, int64_t *compiled, int64_t *cached);

/*
 * Reads a pack of kernels whole and checks it. *kernels receives their number and *bytes the file's size (both may be
 * NULL). Fails with DG_ERROR_INVALID_ARGUMENT, or DG_ERROR_IO and the reason when it is no sound pack. One of which
 * single kernels are damaged is used for the others: *kernels is then the number of these, and *bytes as ever.
 */
DG_API dg_status dg_pack_query(const char *path, int64_t *kernels, int64_t *bytes);

/*
 * The directory of the kernel cache on disk, or "" when there is none; why, if so, in dg_last_error(). `buffer`
 * receives at most `bytes` bytes including the terminating zero; DG_ERROR_INVALID_ARGUMENT when that is too little.
 */
DG_API dg_status dg_cache_directory(char *buffer, size_t bytes);

/*
 * Which NVRTC would compile: *version is 13000 for 13.0; `path` (may be NULL) receives where it was found. Fails with
 * DG_ERROR_NO_COMPILER, DG_ERROR_COMPILER_TOO_OLD (before 12.3), or DG_ERROR_INVALID_ARGUMENT when path is too small.
 */
DG_API dg_status dg_compiler_query(int32_t *version, char *path, size_t bytes);

/*
 * Names the folders in which a Python that has loaded this library looks for packages (sys.path), ':' between them:
 * NVRTC is then searched in their nvidia-cuda-nvrtc packages before those of other Pythons. Replaces what was named
 * before; NULL names none. Looks at no file yet, and changes nothing once NVRTC is loaded. Fails with
 * DG_ERROR_OUT_OF_MEMORY.
 */
DG_API dg_status dg_compiler_packages(const char *folders);

/* ---- Advanced: memory without the CUDA toolkit --------------------------------------------------------------- */

/*
 * Small helpers so that a program needs no CUDA headers to use a GPU through this library. They are plain wrappers of
 * the driver (for DG_CPU, of the C library), in the device's primary context. Memory is aligned to 256 bytes; 0 bytes
 * are NULL, which dg_free accepts. All fail with DG_ERROR_INVALID_ARGUMENT and the GPU's
 * statuses.
 */
DG_API dg_status dg_alloc(int32_t device, size_t bytes, void **data);
DG_API dg_status dg_free(int32_t device, void *data);
/*
 * Copies between any two devices or the host and returns when it is done; `stream`'s earlier work is waited for (of
 * two GPUs' default streams, both). Refuses a stream that is being captured, as does dg_synchronize.
 */
DG_API dg_status dg_copy(void *dst, int32_t dst_device, const void *src, int32_t src_device, size_t bytes,
                         dg_stream stream);
/* Waits until the stream (NULL: the default stream) has done its work; returns an error of that work, if any. */
DG_API dg_status dg_synchronize(int32_t device, dg_stream stream);

#ifdef __cplusplus
}
#endif

#endif
