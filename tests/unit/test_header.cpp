// The public header also serves C++: this file only has to compile and link.
#include "deepgemm.h"

int main()
{
    dg_gemm_args gemm = DG_GEMM_ARGS_INIT;
    dg_quantize_args quantize = DG_QUANTIZE_ARGS_INIT;
    dg_transform_scale_args transform = DG_TRANSFORM_SCALE_ARGS_INIT;
    dg_precompile_args precompile = DG_PRECOMPILE_ARGS_INIT;
    dg_device_info info = DG_DEVICE_INFO_INIT;
    if (gemm.size != sizeof gemm || quantize.size != sizeof quantize || transform.size != sizeof transform ||
        precompile.size != sizeof precompile || info.size != sizeof info || gemm.num_sms || info.arch)
        return 1;
    dg_tensor t = dg_matrix(nullptr, DG_FLOAT32, DG_CPU, 2, 3);
    return dg_transposed(t).shape[0] == 3 && dg_version()[0] == '0' ? 0 : 1;
}
