"""Every name that callers import, and what calling those without a kernel says."""

import importlib
import inspect
import unittest

import deep_gemm

NAMES = """
fp8_gemm_nt fp8_gemm_nn fp8_gemm_tn fp8_gemm_tt fp8_fp4_gemm_nt fp8_fp4_gemm_nn fp8_fp4_gemm_tn fp8_fp4_gemm_tt
m_grouped_fp8_gemm_nt_contiguous m_grouped_fp8_fp4_gemm_nt_contiguous m_grouped_fp8_gemm_nn_contiguous
m_grouped_fp8_fp4_gemm_nn_contiguous m_grouped_fp8_gemm_nt_masked m_grouped_fp8_fp4_gemm_nt_masked
fp8_m_grouped_gemm_nt_masked k_grouped_fp8_gemm_nt_contiguous k_grouped_fp8_gemm_tn_contiguous fp8_gemm_nt_skip_head_mid
bf16_gemm_nt bf16_gemm_nn bf16_gemm_tn bf16_gemm_tt m_grouped_bf16_gemm_nt_contiguous m_grouped_bf16_gemm_nn_contiguous
m_grouped_bf16_gemm_nt_masked bf16_m_grouped_gemm_nt_masked k_grouped_bf16_gemm_tn_contiguous cublaslt_gemm_nt
cublaslt_gemm_nn cublaslt_gemm_tn cublaslt_gemm_tt einsum fp8_einsum tf32_hc_prenorm_gemm fp8_fp4_mqa_logits
fp8_mqa_logits get_paged_mqa_logits_metadata fp8_fp4_paged_mqa_logits fp8_paged_mqa_logits

set_num_sms get_num_sms set_tc_util get_tc_util set_pdl get_pdl set_ignore_compile_dims set_block_size_multiple_of
set_mk_alignment_for_contiguous_layout get_mk_alignment_for_contiguous_layout get_m_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout get_theoretical_mk_alignment_for_contiguous_layout use_deterministic_algorithms
get_compile_mode set_compile_mode set_batch_invariant get_batch_invariant is_supported __version__

ceil_div align ceil_to_ue8m0 pack_ue8m0_to_int unpack_ue8m0_from_int per_token_cast_to_fp8 per_channel_cast_to_fp8
per_block_cast_to_fp8 per_custom_dims_cast_to_fp8 per_token_cast_to_fp4 transpose_packed_fp4 cast_back_from_fp4
cast_back_from_fp8 get_tma_aligned_size get_mn_major_tma_aligned_tensor get_mn_major_tma_aligned_packed_ue8m0_tensor
get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor transform_sf_into_required_layout init_dist uneven_all_gather
math layout _C envs
utils.math utils.layout utils.dist utils.dist.dist_print utils.per_token_cast_to_fp8 utils.per_block_cast_to_fp8
utils.ceil_div utils.align utils.get_tma_aligned_size utils.ceil_to_ue8m0 utils.math.per_token_cast_to_fp8
utils.math.per_block_cast_to_fp8 utils.math.ceil_div utils.math.align utils.math.ceil_to_ue8m0
utils.layout.get_tma_aligned_size utils.layout.get_mn_major_tma_aligned_tensor
utils.layout.transform_sf_into_required_layout utils.layout.get_mk_alignment_for_contiguous_layout

testing.bench testing.bench_kineto testing.empty_suppress testing.suppress_stdout_stderr testing.calc_diff
testing.count_bytes testing.assert_bitwise_equal testing.get_arch_major testing.test_filter testing.ignore_env
testing.numeric.calc_diff testing.utils.get_arch_major

mega.SymmBuffer mega.get_symm_buffer_for_mega_moe mega.transform_weights_for_mega_moe mega.fp8_fp4_mega_moe
mega.bf16_mega_moe SymmBuffer get_symm_buffer_for_mega_moe transform_weights_for_mega_moe fp8_fp4_mega_moe bf16_mega_moe
_C.get_symm_buffer_size_for_mega_moe _C.get_token_alignment_for_mega_moe _C.get_ring_limit_for_mega_moe
_C.get_mk_alignment_for_contiguous_layout envs.persistent_envs

legacy.m_grouped_bf16_gemm_nt_contiguous_tl legacy.m_grouped_bf16_gemm_nn_contiguous_tl
legacy.a_fused_m_grouped_bf16_gemm_nt_contiguous_tl legacy.a_fused_m_grouped_bf16_gemm_nn_contiguous_tl
legacy.a_fused_k_grouped_bf16_gemm_tn_contiguous_tl legacy.b_fused_k_grouped_bf16_gemm_tn_contiguous_tl
legacy.tune_options

gemm_fp8_fp8_bf16_nt m_grouped_gemm_fp8_fp8_bf16_nt_contiguous m_grouped_gemm_fp8_fp8_bf16_nt_masked
wgrad_gemm_fp8_fp8_fp32_nt k_grouped_wgrad_gemm_fp8_fp8_fp32_nt get_col_major_tma_aligned_tensor cell_div bench
bench_kineto calc_diff jit_kernels.utils.set_num_sms jit_kernels.gemm.gemm_fp8_fp8_bf16_nt jit.runtime.RuntimeCache
""".split()

# Calls with a right number of arguments, under every spelling that releases have had.
UNBUILT = {
    'm_grouped_bf16_gemm_nt_contiguous': [
        lambda f: f(1, 2, 3, 4),
        lambda f: f(1, 2, 3, m_indices=4),
        lambda f: f(
            a=1,
            b=2,
            d=3,
            grouped_layout=4,
            compiled_dims='nk',
            use_psum_layout=False,
            ensure_zero_padding=True,
            expected_m_for_psum_layout=None,
        ),
    ],
    'm_grouped_bf16_gemm_nn_contiguous': [lambda f: f(1, 2, 3, 4, compiled_dim='')],
    'fp8_gemm_nt_skip_head_mid': [lambda f: f(1, 2, 3, 4, None, 'nk', False)],
    'k_grouped_bf16_gemm_tn_contiguous': [
        lambda f: f(1, 2, 3, [4], 5, 6, 'mn'),
        lambda f: f(1, 2, 3, ks=[4], ks_tensor=5, c=None),
        lambda f: f(1, 2, 3, ks_cpu=[4], grouped_layout=5),
    ],
    'bf16_gemm_nt': [lambda f: f(1, 2, 3), lambda f: f(1, 2, 3, c=None, compiled_dims='nk')],
    'm_grouped_bf16_gemm_nt_masked': [lambda f: f(1, 2, 3, 4, 5)],
    'fp8_mqa_logits': [
        lambda f: f(1, 2, 3, 4, 5),
        lambda f: f(1, 2, 3, ks=4, ke=5, clean_logits=True),
        lambda f: f(1, 2, 3, cu_seq_len_k_start=4, cu_seq_len_k_end=5, max_seqlen_k=0),
    ],
    'fp8_paged_mqa_logits': [lambda f: f(1, 2, 3, 4, 5, 6, 7, clean_logits=False)],
    'get_paged_mqa_logits_metadata': [lambda f: f(1, 64, 132), lambda f: f(context_lens=1, block_kv=64, num_sms=132)],
    'tf32_hc_prenorm_gemm': [lambda f: f(1, 2, 3, 4, 5), lambda f: f(1, 2, 3, 4, num_splits=None)],
    'fp8_einsum': [lambda f: f('bhr,hdr->bhd', 1, 2, 3, recipe=(1, 128, 128))],
    'einsum': [lambda f: f('bmk,bnk->mn', 1, 2, 3, c=None, use_cublaslt=False)],
    'get_symm_buffer_for_mega_moe': [lambda f: f(*range(6)), lambda f: f(*range(6), use_fp8_dispatch=True)],
}


def find(name):
    x, path = deep_gemm, 'deep_gemm'
    for part in name.split('.'):
        path += '.' + part
        x = getattr(x, part) if hasattr(x, part) else importlib.import_module(path)
    return x


class Names(unittest.TestCase):
    def test_all_are_there(self):
        for name in NAMES:
            with self.subTest(name=name):
                find(name)

    def test_the_old_extension(self):
        self.assertIs(importlib.import_module('deep_gemm_cpp').fp8_gemm_nt, deep_gemm.fp8_gemm_nt)

    def test_all_are_described(self):
        for name in NAMES:
            x = find(name)
            if callable(x):
                with self.subTest(name=name):
                    self.assertTrue(x.__doc__)
                    self.assertTrue(inspect.signature(x))

    def test_without_kernel(self):
        for name, calls in UNBUILT.items():
            function = getattr(deep_gemm, name)
            self.assertFalse(deep_gemm.is_supported(name))
            for call in calls:
                with self.subTest(name=name):
                    with self.assertRaises(RuntimeError) as caught:
                        call(function)
                    self.assertRegex(str(caught.exception), 'no kernel for .* yet')
            for call in (lambda f: f(), lambda f: f(*range(6), no_such=1), lambda f: f(*range(20))):
                self.assertRaises(TypeError, call, function)

    def test_every_gemm_answers(self):
        """Whoever has no kernel says so when called, and is_supported agrees."""
        for name in NAMES:
            if (
                '.' in name
                or not any(word in name for word in ('gemm_', 'mqa', 'einsum', 'mega'))
                or 'alignment' in name
            ):
                continue
            function = getattr(deep_gemm, name)
            built = deep_gemm.is_supported(name)
            parameters = inspect.signature(function).parameters.values()
            values = [object() for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
            with self.subTest(name=name), self.assertRaises(TypeError if built else RuntimeError):
                function(*values)

    def test_version(self):
        self.assertGreaterEqual(tuple(map(int, deep_gemm.__version__.split('+')[0].split('.'))), (2, 6, 1))
        self.assertTrue(deep_gemm.__version__.endswith(deep_gemm._C.version))
