/*
 * Multiply two random matrices in FP8 with fine-grained scales, on the first GPU if there is one, else on the CPU, and
 * compare with FP64. Build: cc gemm.c -ldeepgemm -lm
 */
#include <deepgemm.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { M = 96, N = 256, K = 1024, GROUPS = K / 128, BLOCKS = N / 128 };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != DG_SUCCESS) {                                                                                    \
            fprintf(stderr, "%s\n", dg_last_error());                                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void *to_device(int32_t device, const void *host, size_t bytes)
{
    void *data;
    TRY(dg_alloc(device, bytes, &data));
    if (host)
        TRY(dg_copy(data, device, host, DG_CPU, bytes, NULL));
    return data;
}

/* FP8 codes and scales of an FP32 matrix: one scale for gran_mn x 128 elements. */
static void quantize(int32_t device, const float *x, int64_t rows, int32_t gran_mn, dg_tensor *q, dg_tensor *sf)
{
    int64_t scale_rows = (rows + gran_mn - 1) / gran_mn;
    dg_quantize_args args = DG_QUANTIZE_ARGS_INIT;
    args.x = dg_matrix(to_device(device, x, (size_t)(rows * K) * 4), DG_FLOAT32, device, rows, K);
    args.q = *q = dg_matrix(to_device(device, NULL, (size_t)(rows * K)), DG_FLOAT8_E4M3, device, rows, K);
    args.sf = *sf =
        dg_matrix(to_device(device, NULL, (size_t)(scale_rows * GROUPS) * 4), DG_FLOAT32, device, scale_rows, GROUPS);
    args.gran_mn = gran_mn;
    args.gran_k = 128;
    TRY(dg_quantize_fp8(NULL, &args, NULL));
}

int main(void)
{
    static float a[M * K], b[N * K], d[M * N];
    int32_t gpus = 0, device = dg_device_count(&gpus) == DG_SUCCESS && gpus > 0 ? 0 : DG_CPU;
    for (int i = 0; i < M * K; ++i)
        a[i] = (float)(rand() % 2001 - 1000) / 1000;
    for (int i = 0; i < N * K; ++i)
        b[i] = (float)(rand() % 2001 - 1000) / 1000;

    dg_gemm_args args = DG_GEMM_ARGS_INIT;
    quantize(device, a, M, 1, &args.a, &args.sfa);
    quantize(device, b, N, 128, &args.b, &args.sfb);
    args.d = dg_matrix(to_device(device, NULL, sizeof d), DG_FLOAT32, device, M, N);
    TRY(dg_gemm(NULL, &args, NULL)); /* D = A @ B^T */
    TRY(dg_copy(d, DG_CPU, args.d.data, device, sizeof d, NULL));

    double difference = 0, norm = 0;
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            double exact = 0;
            for (int k = 0; k < K; ++k)
                exact += (double)a[i * K + k] * b[j * K + k];
            difference += (d[i * N + j] - exact) * (d[i * N + j] - exact);
            norm += exact * exact;
        }
    printf("%d x %d x %d on %s: relative difference %.4f (FP8 has 3 fraction bits)\n", M, N, K,
           device == DG_CPU ? "the CPU" : "the GPU", sqrt(difference / norm));
    return sqrt(difference / norm) < 0.05 ? 0 : 1;
}
