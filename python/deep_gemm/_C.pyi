from collections.abc import Callable, Sequence
from typing import Any

Tensor = Any  # of torch, NumPy, CuPy, JAX: whatever speaks DLPack
Pair = tuple[Tensor, Tensor] | list[Tensor]  # a tensor and its scales

version: str

def fp8_gemm_nt(
    a: Pair,
    b: Pair,
    d: Tensor,
    c: Tensor | None = None,
    recipe: Sequence[int] | None = None,
    recipe_a: Sequence[int] | None = None,
    recipe_b: Sequence[int] | None = None,
    compiled_dims: str = 'nk',
    disable_ue8m0_cast: bool = False,
    alpha: None = None,
    epilogue: None = None,
    b_constant: bool = False,
) -> None: ...
def fp8_gemm_nn(
    a: Pair,
    b: Pair,
    d: Tensor,
    c: Tensor | None = None,
    recipe: Sequence[int] | None = None,
    recipe_a: Sequence[int] | None = None,
    recipe_b: Sequence[int] | None = None,
    compiled_dims: str = 'nk',
    disable_ue8m0_cast: bool = False,
    alpha: None = None,
    epilogue: None = None,
    b_constant: bool = False,
) -> None: ...
def fp8_gemm_tn(
    a: Pair,
    b: Pair,
    d: Tensor,
    c: Tensor | None = None,
    recipe: Sequence[int] | None = None,
    recipe_a: Sequence[int] | None = None,
    recipe_b: Sequence[int] | None = None,
    compiled_dims: str = 'mn',
    disable_ue8m0_cast: bool = False,
    alpha: None = None,
    epilogue: None = None,
    b_constant: bool = False,
) -> None: ...
def fp8_gemm_tt(
    a: Pair,
    b: Pair,
    d: Tensor,
    c: Tensor | None = None,
    recipe: Sequence[int] | None = None,
    recipe_a: Sequence[int] | None = None,
    recipe_b: Sequence[int] | None = None,
    compiled_dims: str = 'mn',
    disable_ue8m0_cast: bool = False,
    alpha: None = None,
    epilogue: None = None,
    b_constant: bool = False,
) -> None: ...
def m_grouped_fp8_gemm_nt_contiguous(
    a: Pair,
    b: Pair,
    d: Tensor,
    grouped_layout: Tensor,
    recipe: Sequence[int] | None = None,
    recipe_a: Sequence[int] | None = None,
    recipe_b: Sequence[int] | None = None,
    compiled_dims: str = 'nk',
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    alpha: None = None,
) -> None: ...
def m_grouped_fp8_gemm_nn_contiguous(
    a: Pair,
    b: Pair,
    d: Tensor,
    grouped_layout: Tensor,
    recipe: Sequence[int] | None = None,
    recipe_a: Sequence[int] | None = None,
    recipe_b: Sequence[int] | None = None,
    compiled_dims: str = 'nk',
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    alpha: None = None,
) -> None: ...
def m_grouped_fp8_gemm_nt_masked(
    a: Pair,
    b: Pair,
    d: Tensor,
    masked_m: Tensor,
    expected_m: int,
    recipe: Sequence[int] | None = None,
    recipe_a: Sequence[int] | None = None,
    recipe_b: Sequence[int] | None = None,
    compiled_dims: str = 'nk',
    disable_ue8m0_cast: bool = False,
    alpha: None = None,
    enable_overlap: bool = False,
    max_block_n: int = 256,
    signal: None = None,
) -> None: ...
def k_grouped_fp8_gemm_nt_contiguous(
    a: Pair,
    b: Pair,
    d: Tensor,
    ks_cpu: Sequence[int] | None,
    grouped_layout: Tensor,
    c: Tensor | None = None,
    recipe: Sequence[int] | None = (1, 1, 128),
    compiled_dims: str = 'mn',
    use_psum_layout: bool = False,
    alpha: None = None,
) -> None: ...
def k_grouped_fp8_gemm_tn_contiguous(
    a: Pair,
    b: Pair,
    d: Tensor,
    ks_cpu: Sequence[int] | None,
    grouped_layout: Tensor,
    c: Tensor | None = None,
    recipe: Sequence[int] | None = (1, 1, 128),
    compiled_dims: str = 'mn',
    use_psum_layout: bool = False,
    alpha: None = None,
) -> None: ...
def gemm_is_supported(function: str, /, *args: Any, **kwargs: Any) -> bool: ...
def quantize_fp8(
    x: Tensor, q: Tensor, sf: Tensor, gran_mn: int = 1, gran_k: int = 128, round_scale: bool = False
) -> None: ...
def transform_scale(src: Tensor, dst: Tensor, round_scale: bool = False) -> None: ...
def is_mn_major_aligned(sf: Tensor) -> bool: ...
def get_num_sms() -> int: ...
def set_num_sms(num_sms: int) -> None: ...
def get_pdl() -> bool: ...
def set_pdl(enable: bool) -> None: ...
def get_tc_util() -> int: ...
def set_tc_util(tc_util: int) -> None: ...
def get_batch_invariant() -> bool: ...
def set_batch_invariant(enable: bool) -> None: ...
def get_mk_alignment_for_contiguous_layout() -> int: ...
def set_mk_alignment_for_contiguous_layout(alignment: int) -> None: ...
def device_count() -> int: ...
def device_info(device: int) -> dict[str, Any]: ...
def compiler() -> tuple[int, str]: ...
def set_packages(folders: str) -> None: ...
def cache_directory() -> str: ...
def last_error() -> str: ...
def set_stream_hook(function: Callable[[Tensor, int], int] | None) -> None: ...
def set_workspace_hook(function: Callable[[Tensor, int], Tensor | None] | None) -> None: ...
