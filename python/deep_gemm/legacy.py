"""Kernels for earlier GPUs, which were written in Triton: the names, for those who import them. No kernel yet."""

from ._unbuilt import (
    a_fused_k_grouped_bf16_gemm_tn_contiguous_tl,
    a_fused_m_grouped_bf16_gemm_nn_contiguous_tl,
    a_fused_m_grouped_bf16_gemm_nt_contiguous_tl,
    b_fused_k_grouped_bf16_gemm_tn_contiguous_tl,
    m_grouped_bf16_gemm_nn_contiguous_tl,
    m_grouped_bf16_gemm_nt_contiguous_tl,
)

tune_options = None
