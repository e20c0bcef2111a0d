"""Functions that callers know and that have no kernel here yet. They take their arguments as they will later, so that a
wrong call is a TypeError now too, and raise RuntimeError. is_supported() knows their names.

Where releases have called an argument differently, both keywords are taken.
"""

import functools

NAMES = set()


def _without_kernel(what, **synonyms):
    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            named = {synonyms.get(name, name): value for name, value in kwargs.items()}
            if len(named) < len(kwargs):
                raise TypeError(f'{function.__name__}() got one argument by two names')
            function(*args, **named)
            raise RuntimeError(f'{function.__name__}: no kernel for {what} yet')

        NAMES.add(function.__name__)
        call.__doc__ = f'No kernel for {what} yet: raises RuntimeError.'
        return call

    return decorate


_DIMS = {'compiled_dim': 'compiled_dims'}
_KS = {**_DIMS, 'ks': 'ks_cpu', 'ks_tensor': 'grouped_layout'}
_SPANS = {'ks': 'cu_seq_len_k_start', 'ke': 'cu_seq_len_k_end'}


# ---- FP8 -------------------------------------------------------------------------------------------------------------


@_without_kernel('FP8 GEMM with split heads', **_DIMS)
def fp8_gemm_nt_skip_head_mid(a, b, d, head_splits, recipe=None, compiled_dims='nk', disable_ue8m0_cast=False): ...


# ---- BF16 ------------------------------------------------------------------------------------------------------------


@_without_kernel('BF16 GEMM', **_DIMS)
def bf16_gemm_nt(a, b, d, c=None, compiled_dims='nk', alpha=None): ...


@_without_kernel('BF16 GEMM', **_DIMS)
def bf16_gemm_nn(a, b, d, c=None, compiled_dims='nk', alpha=None): ...


@_without_kernel('BF16 GEMM', **_DIMS)
def bf16_gemm_tn(a, b, d, c=None, compiled_dims='mn', alpha=None): ...


@_without_kernel('BF16 GEMM', **_DIMS)
def bf16_gemm_tt(a, b, d, c=None, compiled_dims='mn', alpha=None): ...


@_without_kernel('grouped BF16 GEMM', m_indices='grouped_layout', **_DIMS)
def m_grouped_bf16_gemm_nt_contiguous(
    a,
    b,
    d,
    grouped_layout,
    compiled_dims='nk',
    use_psum_layout=False,
    ensure_zero_padding=True,
    expected_m_for_psum_layout=None,
    alpha=None,
): ...


@_without_kernel('grouped BF16 GEMM', m_indices='grouped_layout', **_DIMS)
def m_grouped_bf16_gemm_nn_contiguous(
    a, b, d, grouped_layout, compiled_dims='nk', use_psum_layout=False, ensure_zero_padding=True, alpha=None
): ...


@_without_kernel('masked grouped BF16 GEMM', **_DIMS)
def m_grouped_bf16_gemm_nt_masked(a, b, d, masked_m, expected_m, compiled_dims='nk', alpha=None): ...


@_without_kernel('k-grouped BF16 GEMM', **_KS)
def k_grouped_bf16_gemm_tn_contiguous(
    a, b, d, ks_cpu, grouped_layout, c=None, compiled_dims='mn', use_psum_layout=False, alpha=None
): ...


# ---- Others that multiply --------------------------------------------------------------------------------------------


@_without_kernel('GEMM by cuBLASLt')
def cublaslt_gemm_nt(a, b, d, c=None): ...


@_without_kernel('GEMM by cuBLASLt')
def cublaslt_gemm_nn(a, b, d, c=None): ...


@_without_kernel('GEMM by cuBLASLt')
def cublaslt_gemm_tn(a, b, d, c=None): ...


@_without_kernel('GEMM by cuBLASLt')
def cublaslt_gemm_tt(a, b, d, c=None): ...


@_without_kernel('einsum')
def einsum(expr, a, b, d, c=None, use_cublaslt=False): ...


@_without_kernel('FP8 einsum')
def fp8_einsum(expr, a, b, d, c=None, recipe=(1, 128, 128)): ...


@_without_kernel('hyper-connections')
def tf32_hc_prenorm_gemm(a, b, d, sqr_sum, num_splits=None): ...


# ---- MQA logits ------------------------------------------------------------------------------------------------------
# logits_dtype None stands for torch.float32.


@_without_kernel('MQA logits', **_SPANS)
def fp8_fp4_mqa_logits(
    q,
    kv,
    weights,
    cu_seq_len_k_start,
    cu_seq_len_k_end,
    clean_logits=True,
    max_seqlen_k=0,
    logits_dtype=None,
    indices=None,
): ...


@_without_kernel('MQA logits', **_SPANS)
def fp8_mqa_logits(q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, clean_logits=True, max_seqlen_k=0): ...


@_without_kernel('paged MQA logits', block_size='block_kv')
def get_paged_mqa_logits_metadata(context_lens, block_kv, num_sms, indices=None): ...


@_without_kernel('paged MQA logits', fused_kv_cache='kv_cache')
def fp8_fp4_paged_mqa_logits(
    q,
    kv_cache,
    weights,
    context_lens,
    block_table,
    schedule_meta,
    max_context_len,
    clean_logits=False,
    logits_dtype=None,
    indices=None,
): ...


@_without_kernel('paged MQA logits', fused_kv_cache='kv_cache')
def fp8_paged_mqa_logits(
    q, kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len, clean_logits=False, indices=None
): ...


# ---- Layouts ---------------------------------------------------------------------------------------------------------


@_without_kernel('packed scales of k groups', ks='ks_cpu', ks_tensor='grouped_layout')
def get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
    sf, grouped_layout, ks_cpu, gran_k, k_alignment=128, use_psum_layout=False
): ...


# ---- Mixture of experts over several GPUs ----------------------------------------------------------------------------


@_without_kernel('mega MoE')
def get_symm_buffer_for_mega_moe(
    group,
    num_experts,
    num_max_tokens_per_rank,
    num_topk,
    hidden,
    intermediate_hidden,
    use_fp8_dispatch=None,
    mma_type='fp8xfp4',
    activation='swiglu',
): ...


@_without_kernel('mega MoE')
def transform_weights_for_mega_moe(l1_weights, l2_weights, activation='swiglu'): ...


@_without_kernel('mega MoE')
def fp8_fp4_mega_moe(
    y,
    l1_weights,
    l2_weights,
    sym_buffer,
    cumulative_local_expert_recv_stats=None,
    recipe=(1, 1, 32),
    activation='swiglu',
    activation_clamp=None,
    fast_math=True,
): ...


@_without_kernel('mega MoE')
def bf16_mega_moe(
    y,
    l1_weights,
    l2_weights,
    sym_buffer,
    cumulative_local_expert_recv_stats=None,
    activation='swiglu',
    activation_clamp=None,
    fast_math=True,
): ...


@_without_kernel('mega MoE')
def fp8_mega_moe(*args, **kwargs): ...


@_without_kernel('mega MoE')
def mega_moe_pre_dispatch_sm90(*args, **kwargs): ...


@_without_kernel('mega MoE')
def get_token_alignment_for_mega_moe(*args, **kwargs): ...


@_without_kernel('mega MoE')
def get_ring_limit_for_mega_moe(*args, **kwargs): ...


@_without_kernel('mega MoE')
def get_symm_buffer_size_for_mega_moe(*args, **kwargs): ...


# ---- Triton kernels for earlier GPUs (deep_gemm.legacy) --------------------------------------------------------------


@_without_kernel('grouped BF16 GEMM')
def m_grouped_bf16_gemm_nt_contiguous_tl(*args, **kwargs): ...


@_without_kernel('grouped BF16 GEMM')
def m_grouped_bf16_gemm_nn_contiguous_tl(*args, **kwargs): ...


@_without_kernel('grouped BF16 GEMM')
def a_fused_m_grouped_bf16_gemm_nt_contiguous_tl(*args, **kwargs): ...


@_without_kernel('grouped BF16 GEMM')
def a_fused_m_grouped_bf16_gemm_nn_contiguous_tl(*args, **kwargs): ...


@_without_kernel('k-grouped BF16 GEMM')
def a_fused_k_grouped_bf16_gemm_tn_contiguous_tl(*args, **kwargs): ...


@_without_kernel('k-grouped BF16 GEMM')
def b_fused_k_grouped_bf16_gemm_tn_contiguous_tl(*args, **kwargs): ...
