"""Names of release 1."""

from . import _unbuilt
from ._C import fp8_gemm_nt
from .utils.layout import get_mn_major_tma_aligned_tensor
from .utils.math import ceil_div

cell_div = ceil_div
get_col_major_tma_aligned_tensor = get_mn_major_tma_aligned_tensor
k_grouped_wgrad_gemm_fp8_fp8_fp32_nt = _unbuilt.k_grouped_wgrad_gemm_fp8_fp8_fp32_nt
wgrad_gemm_fp8_fp8_fp32_nt = _unbuilt.wgrad_gemm_fp8_fp8_fp32_nt


def gemm_fp8_fp8_bf16_nt(lhs, rhs, out):
    """fp8_gemm_nt(lhs, rhs, out)"""
    fp8_gemm_nt(lhs, rhs, out)


def m_grouped_gemm_fp8_fp8_bf16_nt_contiguous(lhs, rhs, out, m_indices):
    """m_grouped_fp8_gemm_nt_contiguous(lhs, rhs, out, m_indices)"""
    _unbuilt.m_grouped_fp8_fp4_gemm_nt_contiguous(lhs, rhs, out, m_indices)


def m_grouped_gemm_fp8_fp8_bf16_nt_masked(lhs, rhs, out, masked_m, expected_m):
    """m_grouped_fp8_gemm_nt_masked(lhs, rhs, out, masked_m, expected_m)"""
    _unbuilt.m_grouped_fp8_fp4_gemm_nt_masked(lhs, rhs, out, masked_m, expected_m)
