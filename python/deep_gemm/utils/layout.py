"""Layouts of scales, and what is said about them."""

from .. import _C
from .._arrays import library_of
from .._C import get_mk_alignment_for_contiguous_layout, set_mk_alignment_for_contiguous_layout
from .._unbuilt import get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
from .math import align, ceil_div

__all__ = [
    'get_k_alignment_for_contiguous_layout',
    'get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor',
    'get_m_alignment_for_contiguous_layout',
    'get_mk_alignment_for_contiguous_layout',
    'get_mn_major_tma_aligned_packed_ue8m0_tensor',
    'get_mn_major_tma_aligned_tensor',
    'get_theoretical_mk_alignment_for_contiguous_layout',
    'get_tma_aligned_size',
    'set_mk_alignment_for_contiguous_layout',
    'transform_sf_into_required_layout',
]

get_m_alignment_for_contiguous_layout = get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout

TMA_BYTES = 16
WORD_BYTES = 4  # of a scale, float32 or packed
MOST_ALIGNMENT = 128  # of groups' rows


def get_theoretical_mk_alignment_for_contiguous_layout(expected_m=None, num_groups=None) -> int:
    """The alignment that wastes least on groups of about expected_m rows: the smallest that holds as many, 128 at most.
    128 where expected_m is None or no number of rows."""
    if expected_m is None or expected_m < 1:
        return MOST_ALIGNMENT
    return next((rows for rows in (8, 16, 32, 64) if expected_m <= rows), MOST_ALIGNMENT)


def get_tma_aligned_size(x: int, element_size: int) -> int:
    """x elements rounded up to a multiple of 16 bytes."""
    return align(x, TMA_BYTES // element_size)


def _empty_mn_major(like, shape, dtype):
    lib = library_of(like)
    *lead, mn, k = shape
    whole = lib.empty(like, (*lead, k, get_tma_aligned_size(mn, WORD_BYTES)), dtype)
    return lib.transposed(whole[..., :mn])


def get_mn_major_tma_aligned_tensor(sf):
    """float32 scales [mn, k] or [groups, mn, k] with strides (1, align(mn, 4)), as GPUs read them fastest. `sf` itself
    when it lies so already (strides of dimensions of size 1 do not matter)."""
    if _C.is_mn_major_aligned(sf):
        return sf
    out = _empty_mn_major(sf, sf.shape, library_of(sf).dtype_name(sf))
    _C.transform_scale(sf, out)
    return out


def get_mn_major_tma_aligned_packed_ue8m0_tensor(sf, psum_layout=None):
    """float32 scales [..., mn, k] as int32 [..., mn, ceil(k / 4)]: four exponent bytes a word, MN-major and aligned.
    Scales that are no powers of two are rounded up to one."""
    if psum_layout is not None:
        raise RuntimeError('get_mn_major_tma_aligned_packed_ue8m0_tensor: no kernel for psum_layout yet')
    if len(sf.shape) not in (2, 3):
        raise RuntimeError(
            f'get_mn_major_tma_aligned_packed_ue8m0_tensor: sf is {list(sf.shape)}; wanted [mn, k] or [groups, mn, k]'
        )
    out = _empty_mn_major(sf, (*sf.shape[:-1], ceil_div(sf.shape[-1], 4)), 'int32')
    _C.transform_scale(sf, out, round_scale=True)
    return out


def _granularity(recipe, is_sfa):
    """(gran_mn, gran_k) of a recipe (gran_m, gran_n, gran_k) with is_sfa, or of such a pair without."""
    if len(recipe) == 3 and is_sfa is not None:
        return recipe[0] if is_sfa else recipe[1], recipe[2]
    if len(recipe) == 2 and is_sfa is None:
        return tuple(recipe)
    raise RuntimeError(
        f'transform_sf_into_required_layout: recipe is {tuple(recipe)} and is_sfa {is_sfa}; wanted three '
        'numbers and which operand, or two numbers and None'
    )


def _check_scales(sf, mn, k, gran_mn, gran_k, num_groups, packed):
    cols = ceil_div(k, gran_k * 4 if packed else gran_k)
    want = (ceil_div(mn, gran_mn), cols) if num_groups is None else (num_groups, ceil_div(mn, gran_mn), cols)
    if tuple(sf.shape) != want:
        raise RuntimeError(
            f'transform_sf_into_required_layout: sf is {list(sf.shape)}; mn={mn}, k={k} with groups of '
            f'{gran_mn} x {gran_k} wants {list(want)}'
        )


def transform_sf_into_required_layout(
    sf, mn, k, recipe, num_groups=None, is_sfa=None, disable_ue8m0_cast=False, psum_layout=None
):
    """Scales as the GEMMs read them fastest; `sf` itself when nothing has to change. Scales of 1 x 128 become MN-major
    and aligned; those of 128 x 128 stay as they are."""
    if psum_layout is not None:
        raise RuntimeError('transform_sf_into_required_layout: no kernel for psum_layout yet')
    gran_mn, gran_k = _granularity(recipe, is_sfa)
    if gran_k != 128 or gran_mn not in (1, 128):
        raise RuntimeError(
            f'transform_sf_into_required_layout: recipe is {tuple(recipe)}, which says groups of {gran_mn} x {gran_k}; '
            'wanted 1 x 128 or 128 x 128'
        )
    dtype = library_of(sf).dtype_name(sf)
    if dtype not in ('float32', 'int32'):
        raise RuntimeError(
            f'transform_sf_into_required_layout: sf is {dtype}; wanted float32, or int32 of four UE8M0 bytes each'
        )
    _check_scales(sf, mn, k, gran_mn, gran_k, num_groups, dtype == 'int32')
    return get_mn_major_tma_aligned_tensor(sf) if gran_mn == 1 else sf
