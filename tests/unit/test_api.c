/* What a user of the public header can get wrong: a status and a sentence each, and untouched outputs. */
#include "deepgemm.h"
#include "tests/test.h"

enum { M = 5, N = 130, K = 300, KG = 3, NB = 2 };

static unsigned char a_data[M * K], b_data[N * K];
static float sfa_data[M * KG], sfb_data[NB * KG], c_data[M * N], d_data[M * N];

static dg_gemm_args good_args(void)
{
    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    args.a = dg_matrix(a_data, DG_FLOAT8_E4M3, DG_CPU, M, K);
    args.b = dg_matrix(b_data, DG_FLOAT8_E4M3, DG_CPU, N, K);
    args.sfa = dg_matrix(sfa_data, DG_FLOAT32, DG_CPU, M, KG);
    args.sfb = dg_matrix(sfb_data, DG_FLOAT32, DG_CPU, NB, KG);
    args.d = dg_matrix(d_data, DG_FLOAT32, DG_CPU, M, N);
    return args;
}

/* dg_gemm and dg_is_supported refuse alike, with the words in the sentence, and D keeps its bytes. */
static void expect_refused(const dg_gemm_args *args, const char *words)
{
    memset(d_data, 0x5a, sizeof d_data);
    EXPECT_REFUSED(dg_gemm(NULL, args, NULL), DG_ERROR_INVALID_ARGUMENT, words);
    EXPECT_TEXT(dg_last_error(), "dg_gemm: ");
    for (size_t i = 0; i < sizeof d_data; ++i)
        EXPECT(((unsigned char *)d_data)[i] == 0x5a);
    EXPECT(!dg_is_supported(NULL, args) || strstr(words, "NULL"));
}

TEST(good_arguments_are_accepted)
{
    dg_gemm_args args = good_args();
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    EXPECT(dg_is_supported(NULL, &args));
}

TEST(missing_and_mistyped_tensors)
{
    dg_gemm_args args = good_args();
    args.a.dtype = DG_DTYPE_NONE;
    expect_refused(&args, "a is missing");
    args = good_args();
    args.a.dtype = DG_BFLOAT16;
    expect_refused(&args, "a has the dtype bfloat16");
    args = good_args();
    args.sfb.dtype = DG_FLOAT16;
    expect_refused(&args, "sfb has the dtype float16");
    args = good_args();
    args.d.dtype = DG_FLOAT8_E4M3;
    expect_refused(&args, "d has the dtype float8_e4m3");
    args = good_args();
    args.d.dtype = (dg_dtype)77;
    expect_refused(&args, "unknown (77)");
    args = good_args();
    args.b.data = NULL;
    expect_refused(&args, "b.data is NULL");
    args = good_args();
    args.c = dg_matrix(c_data, DG_DTYPE_NONE, DG_CPU, M, N); /* a forgotten dtype */
    expect_refused(&args, "c has data 0x");
    args.c.data = NULL;
    expect_refused(&args, "2 dimensions, but the dtype DG_DTYPE_NONE");
}

TEST(wrong_ranks_and_shapes)
{
    dg_gemm_args args = good_args();
    args.a.ndim = 3;
    expect_refused(&args, "a has 3 dimensions; wanted 2");
    args = good_args();
    args.d.ndim = 1000000;
    expect_refused(&args, "d has 1000000 dimensions");
    args = good_args();
    args.d.ndim = -1;
    expect_refused(&args, "d has -1 dimensions");
    args = good_args();
    args.a.shape[0] = M - 1;
    expect_refused(&args, "a is [4, 300] float8_e4m3");
    args = good_args();
    args.b.shape[1] = K - 1;
    expect_refused(&args, "wants [130, 300]");
    args = good_args();
    args.sfa.shape[1] = 2;
    expect_refused(&args, "sfa is [5, 2] float32 with strides [3, 1]; K=300 with 128-wide groups wants [5, 3]");
    args = good_args();
    args.sfb.shape[0] = 1;
    expect_refused(&args, "N=130, K=300 with 128x128 blocks wants [2, 3]");
    args = good_args();
    args.sfa.dtype = DG_INT32;
    expect_refused(&args, "four to a word, wants [5, 1]");
    args = good_args();
    args.a.shape[0] = -5;
    expect_refused(&args, "size -5 in dimension 0");
    args = good_args();
    args.b.stride[0] = -300;
    expect_refused(&args, "stride -300");
}

TEST(wrong_alignment_and_device)
{
    dg_gemm_args args = good_args();
    args.sfa.data = (char *)sfa_data + 1;
    expect_refused(&args, "must be aligned to its element, 4 bytes");
    args = good_args();
    args.sfa.device = 0;
    expect_refused(&args, "sfa is on CUDA device 0 but d is on the CPU");
    args = good_args();
    args.d.device = 0;
    expect_refused(&args, "a is on the CPU but d is on CUDA device 0");
    args = good_args();
    args.b.device = -3;
    expect_refused(&args, "b.device is -3");
}

TEST(overlaps)
{
    static union {
        unsigned char bytes[M * 2048];
        float floats[1];
    } shared;
    dg_gemm_args args = good_args();
    /* One buffer with rows of 2048 bytes: A in the first 300 of each, D behind it. That is allowed. */
    args.a = dg_matrix(shared.bytes, DG_FLOAT8_E4M3, DG_CPU, M, K);
    args.a.stride[0] = 2048;
    args.d = dg_matrix(shared.bytes + 512, DG_FLOAT32, DG_CPU, M, N);
    args.d.stride[0] = 512;
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    args.d.data = shared.bytes + 296; /* 4 bytes too far to the left */
    expect_refused(&args, "d shares elements with a");
    args = good_args();
    args.d.stride[0] = N - 1;
    expect_refused(&args, "with which elements may share memory");
    args = good_args();
    args.c = args.d; /* C is D */
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    args.c = dg_matrix(d_data + 1, DG_FLOAT32, DG_CPU, M, N - 1);
    args.c.shape[1] = N;
    args.c.stride[0] = N;
    expect_refused(&args, "c overlaps d without being d");
    args = good_args();
    args.c = dg_matrix(c_data, DG_BFLOAT16, DG_CPU, M, N);
    expect_refused(&args, "c is bfloat16 but d is float32");
}

TEST(other_fields)
{
    dg_gemm_args args = good_args();
    args.recipe[0] = 1, args.recipe[1] = 1, args.recipe[2] = 64;
    expect_refused(&args, "recipe is {1, 1, 64}");
    args = good_args();
    args.kind = (dg_gemm_kind)9;
    expect_refused(&args, "kind is 9");
    args = good_args();
    args.num_sms = -1;
    expect_refused(&args, "num_sms is -1");
    args = good_args();
    args.workspace = d_data;
    args.workspace_bytes = 16;
    if ((uintptr_t)d_data % 256 == 0)
        args.workspace = (char *)d_data + 8;
    expect_refused(&args, "workspace is");
    args = good_args();
    args.flags = 6;
    expect_refused(&args, "flags is 0x6");
    args = good_args();
    args.sfb.reserved = 7;
    expect_refused(&args, "sfb.reserved is 7");
    args = good_args();
    args.size = 3;
    expect_refused(&args, "dg_gemm_args.size is 3");
    EXPECT_REFUSED(dg_gemm(NULL, NULL, NULL), DG_ERROR_INVALID_ARGUMENT, "dg_gemm_args is NULL");
}

TEST(older_and_newer_argument_structs)
{
    union {
        dg_gemm_args args;
        unsigned char bytes[sizeof(dg_gemm_args) + 64];
    } larger = {good_args()};
    larger.args.size = sizeof larger;
    EXPECT_OK(dg_gemm(NULL, &larger.args, NULL));
    larger.bytes[sizeof larger - 1] = 1;
    EXPECT_REFUSED(dg_gemm(NULL, &larger.args, NULL), DG_ERROR_INVALID_ARGUMENT, "newer library");
    dg_gemm_args older = good_args();
    older.size = offsetof(dg_gemm_args, workspace);
    older.num_sms = -1; /* beyond the older struct: not looked at */
    EXPECT_OK(dg_gemm(NULL, &older, NULL));
}

TEST(empty_problems_do_nothing)
{
    dg_gemm_args args = good_args();
    memset(d_data, 0x5a, sizeof d_data);
    args.a.shape[0] = args.sfa.shape[0] = args.d.shape[0] = 0;
    args.a.data = args.sfa.data = args.d.data = NULL;
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    EXPECT(dg_is_supported(NULL, &args));
    args.a.device = args.b.device = args.sfa.device = args.sfb.device = args.d.device = 0; /* no driver is asked */
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    EXPECT(dg_is_supported(NULL, &args));
    args = good_args();
    args.b.shape[0] = args.sfb.shape[0] = args.d.shape[1] = 0;
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    EXPECT(((unsigned char *)d_data)[0] == 0x5a);
    args = good_args(); /* K = 0: zeros */
    args.a.shape[1] = args.b.shape[1] = args.sfa.shape[1] = args.sfb.shape[1] = 0;
    EXPECT_OK(dg_gemm(NULL, &args, NULL));
    for (int i = 0; i < M * N; ++i)
        EXPECT(d_data[i] == 0.0f);
}

TEST(explanations)
{
    dg_gemm_args args = good_args();
    dg_explanation e = {.size = sizeof e};
    dg_device_info target = DG_DEVICE_INFO_INIT;
    EXPECT_OK(dg_gemm_explain(NULL, &args, NULL, &e));
    EXPECT(strcmp(e.row, "gemm_ref") == 0 && e.workspace_bytes == 0);
    EXPECT_OK(dg_device_preset("h200", &target));
    args.a.shape[1] = args.b.shape[1] = 288; /* rows of 300 bytes: TMA cannot */
    EXPECT_OK(dg_gemm_explain(NULL, &args, &target, &e));
    EXPECT(strcmp(e.row, "gemm_simple") == 0);
    EXPECT_TEXT(e.refused, "sm90_fp8_gemm_1d2d: a's row stride is 300 bytes");
    args.a = dg_matrix(NULL, DG_FLOAT8_E4M3, DG_CPU, M, 304);
    args.b = dg_matrix(NULL, DG_FLOAT8_E4M3, DG_CPU, N, 304);
    EXPECT_OK(dg_gemm_explain(NULL, &args, &target, &e));
    EXPECT(strcmp(e.row, "sm90_fp8_gemm_skinny") == 0 && e.refused[0] == '\0');
    EXPECT_TEXT(e.config, "block_m=8");
    EXPECT(e.sfa_layout.shape[0] == M && e.sfa_layout.shape[1] == KG && e.sfa_layout.stride[0] == 1 &&
           e.sfa_layout.stride[1] == 8);
    EXPECT_REFUSED(dg_gemm_explain(NULL, &args, &target, NULL), DG_ERROR_INVALID_ARGUMENT, "explanation is NULL");
    e.size = 0;
    EXPECT_REFUSED(dg_gemm_explain(NULL, &args, &target, &e), DG_ERROR_INVALID_ARGUMENT,
                   "dg_gemm_explain: dg_explanation.size is 0");
    target.num_sms = 0;
    EXPECT_REFUSED(dg_gemm_explain(NULL, &args, &target, &e), DG_ERROR_INVALID_ARGUMENT, "num_sms 0");
    EXPECT_REFUSED(dg_device_preset("b200", &target), DG_ERROR_INVALID_ARGUMENT, "wanted h100, h200, h20 or gh200");
}
