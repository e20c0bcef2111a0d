"""deep_gemm: FP8 matrix multiplication with fine-grained scales, on NVIDIA Hopper GPUs and on CPUs.

Takes tensors of any framework that speaks DLPack, and NumPy arrays with the types of ml_dtypes. GPU work is queued on
the caller's current stream. Wrong calls raise TypeError; arguments that the library refuses raise RuntimeError with its
sentence. `python -m deep_gemm` tells what is here.

The names are those of DeepGEMM's releases 1 to 2.8. What has no kernel yet is there too and raises RuntimeError;
is_supported(name) tells.
"""

import sys as _sys

from . import envs  # first: it is about the environment that the library finds
from . import _C, _on_import, _packages, _streams, _unbuilt, _workspace, jit, jit_kernels, legacy, mega, testing, utils
from ._C import (
    cache_directory,
    compiler,
    device_count,
    device_info,
    fp8_gemm_nn,
    fp8_gemm_nt,
    fp8_gemm_tn,
    fp8_gemm_tt,
    get_batch_invariant,
    get_num_sms,
    get_pdl,
    get_tc_util,
    k_grouped_fp8_gemm_nt_contiguous,
    k_grouped_fp8_gemm_tn_contiguous,
    last_error,
    m_grouped_fp8_gemm_nn_contiguous,
    m_grouped_fp8_gemm_nt_contiguous,
    m_grouped_fp8_gemm_nt_masked,
    quantize_fp8,
    set_batch_invariant,
    set_num_sms,
    set_pdl,
    set_tc_util,
    transform_scale,
)
from ._unbuilt import (
    bf16_gemm_nn,
    bf16_gemm_nt,
    bf16_gemm_tn,
    bf16_gemm_tt,
    cublaslt_gemm_nn,
    cublaslt_gemm_nt,
    cublaslt_gemm_tn,
    cublaslt_gemm_tt,
    einsum,
    fp8_einsum,
    fp8_fp4_mqa_logits,
    fp8_fp4_paged_mqa_logits,
    fp8_gemm_nt_skip_head_mid,
    fp8_mqa_logits,
    fp8_paged_mqa_logits,
    get_paged_mqa_logits_metadata,
    k_grouped_bf16_gemm_tn_contiguous,
    m_grouped_bf16_gemm_nn_contiguous,
    m_grouped_bf16_gemm_nt_contiguous,
    m_grouped_bf16_gemm_nt_masked,
    tf32_hc_prenorm_gemm,
)
from ._v1 import (
    cell_div,
    gemm_fp8_fp8_bf16_nt,
    get_col_major_tma_aligned_tensor,
    k_grouped_wgrad_gemm_fp8_fp8_fp32_nt,
    m_grouped_gemm_fp8_fp8_bf16_nt_contiguous,
    m_grouped_gemm_fp8_fp8_bf16_nt_masked,
    wgrad_gemm_fp8_fp8_fp32_nt,
)
from .mega import *
from .settings import (
    get_compile_mode,
    set_block_size_multiple_of,
    set_compile_mode,
    set_ignore_compile_dims,
    use_deterministic_algorithms,
)
from .support import is_supported
from .testing import bench, bench_kineto, calc_diff
from .utils import *
from .version import __version__

# ---- Other names of the same functions -------------------------------------------------------------------------------
fp8_fp4_gemm_nt, fp8_fp4_gemm_nn, fp8_fp4_gemm_tn, fp8_fp4_gemm_tt = fp8_gemm_nt, fp8_gemm_nn, fp8_gemm_tn, fp8_gemm_tt
m_grouped_fp8_fp4_gemm_nt_contiguous = m_grouped_fp8_gemm_nt_contiguous
m_grouped_fp8_fp4_gemm_nn_contiguous = m_grouped_fp8_gemm_nn_contiguous
m_grouped_fp8_fp4_gemm_nt_masked = fp8_m_grouped_gemm_nt_masked = m_grouped_fp8_gemm_nt_masked
bf16_m_grouped_gemm_nt_masked = m_grouped_bf16_gemm_nt_masked

# Callers look for them in the extension itself too, which had all of them once.
for _name in _unbuilt.NAMES:
    setattr(_C, _name, getattr(_unbuilt, _name))
for _name in ('nt_contiguous', 'nn_contiguous', 'nt_masked'):
    setattr(_C, 'm_grouped_fp8_fp4_gemm_' + _name, getattr(_C, 'm_grouped_fp8_gemm_' + _name))
_C.get_mn_major_tma_aligned_tensor = get_mn_major_tma_aligned_tensor
_C.transform_sf_into_required_layout = transform_sf_into_required_layout

_C.set_stream_hook(_streams.current_stream)
_C.set_workspace_hook(_workspace.beside)
# torch brings NVRTC in packages of its own; this only says where they would be.
_C.set_packages(_packages.folders(_sys.path))
_on_import.watch()
