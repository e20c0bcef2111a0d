"""Names of release 1."""

from ._C import fp8_gemm_nt, m_grouped_fp8_gemm_nt_contiguous, m_grouped_fp8_gemm_nt_masked
from .utils.layout import get_mn_major_tma_aligned_tensor
from .utils.math import ceil_div

cell_div = ceil_div
get_col_major_tma_aligned_tensor = get_mn_major_tma_aligned_tensor


def gemm_fp8_fp8_bf16_nt(lhs, rhs, out):
    """fp8_gemm_nt(lhs, rhs, out)"""
    fp8_gemm_nt(lhs, rhs, out)


def m_grouped_gemm_fp8_fp8_bf16_nt_contiguous(lhs, rhs, out, m_indices):
    """m_grouped_fp8_gemm_nt_contiguous(lhs, rhs, out, m_indices)"""
    m_grouped_fp8_gemm_nt_contiguous(lhs, rhs, out, m_indices)


def m_grouped_gemm_fp8_fp8_bf16_nt_masked(lhs, rhs, out, masked_m, expected_m):
    """m_grouped_fp8_gemm_nt_masked(lhs, rhs, out, masked_m, expected_m)"""
    m_grouped_fp8_gemm_nt_masked(lhs, rhs, out, masked_m, expected_m)


def _by_rows(x, scales):
    """Scales [mn, ceil(k / 128)], also of those that are given transposed."""
    mn, k = x.shape
    return scales if tuple(scales.shape) == (mn, ceil_div(k, 128)) else scales.T


def wgrad_gemm_fp8_fp8_fp32_nt(lhs, rhs, out):
    """out += lhs @ rhs^T, for lhs [m, k], rhs [n, k] and float32 out [m, n], with scales of 1 x 128 on both sides:
    [m, ceil(k / 128)] or transposed, [n, ceil(k / 128)] or transposed."""
    a, b = ((x, _by_rows(x, scales)) for x, scales in (lhs, rhs))
    fp8_gemm_nt(a, b, out, c=out, recipe=(1, 1, 128))


def k_grouped_wgrad_gemm_fp8_fp8_fp32_nt(lhs, rhs, out, batch_sizes):
    """out[g] += lhs_g @ rhs_g^T, where lhs and rhs are flat: the matrices [m, k] and [n, k] of each k in batch_sizes,
    one behind the other. Scales are [sum of ceil(k / 128), m] and [the same, n]. A call for each group."""
    (a, sfa), (b, sfb) = lhs, rhs
    a, b, (m, n) = a.reshape(-1), b.reshape(-1), out.shape[1:]
    first = row = 0
    for d, k in zip(out, batch_sizes):
        end, last = first + k, row + ceil_div(k, 128)
        wgrad_gemm_fp8_fp8_fp32_nt(
            (a[first * m : end * m].reshape(m, k), sfa[row:last].T),
            (b[first * n : end * n].reshape(n, k), sfb[row:last].T),
            d,
        )
        first, row = end, last
