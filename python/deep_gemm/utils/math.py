"""Casts between floating-point types and FP8 or FP4 with scales. torch tensors in, torch tensors out; NumPy likewise,
where strides may be negative and bytes in either order.

In all of them: amax = the largest |x| of a group, but at least 1e-4; scale = amax * (1 / largest code), rounded up to a
power of two where `use_ue8m0` asks; code = x * (1 / scale), to nearest even.
"""

import operator

from .. import _C
from .._arrays import library_of

__all__ = [
    'align',
    'cast_back_from_fp4',
    'cast_back_from_fp8',
    'ceil_div',
    'ceil_to_ue8m0',
    'pack_ue8m0_to_int',
    'per_block_cast_to_fp8',
    'per_channel_cast_to_fp8',
    'per_custom_dims_cast_to_fp8',
    'per_token_cast_to_fp4',
    'per_token_cast_to_fp8',
    'transpose_packed_fp4',
    'unpack_ue8m0_from_int',
]

FP8_MAX = 448.0
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FP4_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
SMALLEST_AMAX = 1e-4


def ceil_div(x: int, y: int) -> int:
    """x / y, rounded up."""
    return (x + y - 1) // y


def align(x: int, y: int) -> int:
    """x rounded up to a multiple of y."""
    return ceil_div(x, y) * y


def _check(ok, sentence):
    if not ok:
        raise RuntimeError(sentence)


def _check_matrix(function, x, gran_k):
    if len(x.shape) != 2:
        raise RuntimeError(f'{function}: x is {list(x.shape)}; wanted [m, n]')
    if operator.index(gran_k) < 1:
        raise RuntimeError(f'{function}: gran_k is {gran_k}; wanted 1 or more')


# ---- Scales as powers of two -----------------------------------------------------------------------------------------


def ceil_to_ue8m0(x):
    """|x| rounded up to a power of two with an exponent byte of 1 to 254, as float32."""
    lib = library_of(x)
    bits = lib.bits(lib.cast(abs(x), 'float32'), 'int32')
    exponent = ((bits >> 23) & 0xFF) + lib.cast((bits & 0x7FFFFF) != 0, 'int32')
    return lib.bits(lib.clip(exponent, 1, 254) << 23, 'float32')


def pack_ue8m0_to_int(x):
    """float32 powers of two [..., k] (k % 4 == 0) to their exponent bytes, four to an int32 [..., k / 4]."""
    lib = library_of(x)
    _check(
        lib.dtype_name(x) == 'float32' and len(x.shape) > 0 and x.shape[-1] % 4 == 0,
        f'pack_ue8m0_to_int: x is {tuple(x.shape)} {lib.dtype_name(x)}; wanted float32 with a multiple of 4 columns',
    )
    bits = lib.bits(x, 'int32')
    _check(bool(((bits & 0x7FFFFF) == 0).all()), 'pack_ue8m0_to_int: x has values that are no powers of two')
    return lib.bits(lib.cast(bits >> 23, 'uint8'), 'int32')


def unpack_ue8m0_from_int(packed):
    """int32 [..., k] to the float32 powers of two that its bytes stand for [..., 4 k]."""
    lib = library_of(packed)
    _check(
        lib.dtype_name(packed) == 'int32' and len(packed.shape) > 0,
        f'unpack_ue8m0_from_int: packed is {tuple(packed.shape)} {lib.dtype_name(packed)}; wanted int32 with columns',
    )
    return lib.bits(lib.cast(lib.bits(packed, 'uint8'), 'int32') << 23, 'float32')


def _scale(lib, amax, largest, use_ue8m0):
    scale = lib.clip(amax, SMALLEST_AMAX) * (1.0 / largest)
    return ceil_to_ue8m0(scale) if use_ue8m0 else scale


# ---- FP8 -------------------------------------------------------------------------------------------------------------

# What the library's kernels do, and do exactly so.
_BACKED_GROUPS = ((1, 128), (128, 128), (128, 1))
_BACKED_TYPES = ('float32', 'bfloat16', 'float16')


def _padded(lib, x, rows, cols):
    if tuple(x.shape) == (rows, cols):
        return x
    padded = lib.zeros(x, (rows, cols), lib.dtype_name(x))
    padded[: x.shape[0], : x.shape[1]] = x
    return padded


def _by_arithmetic(lib, x, use_ue8m0, gran_mn, gran_k):
    m, n = x.shape
    gran_mn, gran_k = min(gran_mn, max(m, 1)), min(gran_k, max(n, 1))  # the same groups, and less padding
    rows, cols = ceil_div(m, gran_mn), ceil_div(n, gran_k)
    groups = _padded(lib, x, rows * gran_mn, cols * gran_k).reshape(rows, gran_mn, cols, gran_k)
    amax = lib.amax(lib.cast(abs(groups), 'float32'), (1, 3))
    sf = _scale(lib, amax, FP8_MAX, use_ue8m0)
    q = lib.cast(groups * (1.0 / sf)[:, None, :, None], 'float8_e4m3fn').reshape(rows * gran_mn, cols * gran_k)
    return lib.contiguous(q[:m, :n]), sf


def _cast_to_fp8(x, use_ue8m0, gran_mn, gran_k, packed=False):
    lib = library_of(x)
    _check_matrix('cast to FP8', x, min(gran_mn, gran_k))
    m, n = x.shape
    rows, cols = ceil_div(m, gran_mn), ceil_div(n, gran_k)
    if (gran_mn, gran_k) not in _BACKED_GROUPS or lib.dtype_name(x) not in _BACKED_TYPES:
        q, sf = _by_arithmetic(lib, x, use_ue8m0, gran_mn, gran_k)
        return q, pack_ue8m0_to_int(_padded(lib, sf, rows, align(cols, 4))) if packed else sf
    q = lib.empty(x, (m, n), 'float8_e4m3fn')
    sf = lib.empty(x, (rows, ceil_div(cols, 4)), 'int32') if packed else lib.empty(x, (rows, cols), 'float32')
    _C.quantize_fp8(lib.plain(x), q, sf, gran_mn, gran_k, use_ue8m0)
    return q, sf


def per_token_cast_to_fp8(x, use_ue8m0: bool = False, gran_k: int = 128, use_packed_ue8m0: bool = False):
    """x [m, n] to (float8_e4m3fn [m, n], float32 [m, ceil(n / gran_k)]): a scale for every gran_k elements of a row.
    With use_packed_ue8m0 the scales are int32 of four exponent bytes each."""
    _check(use_ue8m0 or not use_packed_ue8m0, 'per_token_cast_to_fp8: packed scales are powers of two: use_ue8m0')
    return _cast_to_fp8(x, use_ue8m0, 1, gran_k, use_packed_ue8m0)


def per_channel_cast_to_fp8(x, use_ue8m0: bool, gran_k: int = 128):
    """x [m, n] to (float8_e4m3fn [m, n], float32 [m / gran_k, n]): a scale for every gran_k elements of a column."""
    if len(x.shape) == 2 and gran_k > 0 and x.shape[0] % gran_k != 0:
        raise RuntimeError(f'per_channel_cast_to_fp8: m is {x.shape[0]}; wanted a multiple of {gran_k}')
    return _cast_to_fp8(x, use_ue8m0, gran_k, 1)


def per_block_cast_to_fp8(x, use_ue8m0: bool = False, gran_k: int = 128):
    """x [m, n] to (float8_e4m3fn [m, n], float32 [ceil(m / gran_k), ceil(n / gran_k)]): a scale for every square."""
    return _cast_to_fp8(x, use_ue8m0, gran_k, gran_k)


def per_custom_dims_cast_to_fp8(x, dims, use_ue8m0: bool):
    """x to (float8_e4m3fn of its shape, float32): a scale for every index of the dimensions `dims`."""
    lib = library_of(x)
    others = tuple(i for i in range(len(x.shape)) if i not in dims)
    sf = _scale(lib, lib.amax(lib.cast(abs(x), 'float32'), others, True), FP8_MAX, use_ue8m0)
    return lib.cast(x * (1.0 / sf), 'float8_e4m3fn'), sf.squeeze()


def _scaled(function, lib, values, sf, gran_k, packed):
    m, n = values.shape
    sf, cols = unpack_ue8m0_from_int(sf) if packed else sf, ceil_div(n, gran_k)
    if len(sf.shape) != 2 or sf.shape[0] not in (1, m) or sf.shape[1] < cols:
        raise RuntimeError(f'{function}: sf is {list(sf.shape)}; [{m}, {n}] in groups of {gran_k} wants [{m}, {cols}]')
    return values * sf[:, lib.count(values, n) // min(gran_k, max(n, 1))]


def cast_back_from_fp8(x, sf, gran_k: int = 128, use_packed_ue8m0: bool = False):
    """What per_token_cast_to_fp8's result stands for, float32 [m, n]."""
    lib = library_of(x)
    _check_matrix('cast_back_from_fp8', x, gran_k)
    return _scaled('cast_back_from_fp8', lib, lib.cast(x, 'float32'), sf, gran_k, use_packed_ue8m0)


# ---- FP4 (E2M1): two codes a byte, the first in the low half ---------------------------------------------------------


def _fp4_codes(lib, x):
    """Values halfway between two codes become the smaller one; zeros have no sign."""
    size = abs(x)
    code = sum(lib.cast(size > midpoint, 'uint8') for midpoint in FP4_MIDPOINTS)
    return code | (lib.cast((x < 0) & (code != 0), 'uint8') << 3)


def _pack_fp4(lib, codes):
    pairs = codes.reshape(codes.shape[0], codes.shape[1] // 2, 2)
    return lib.bits(pairs[..., 0] | (pairs[..., 1] << 4), 'int8')


def _unpack_fp4(lib, packed):
    raw = lib.bits(packed, 'uint8')
    codes = lib.empty(packed, (raw.shape[0], raw.shape[1], 2), 'uint8')
    codes[..., 0] = raw & 15
    codes[..., 1] = raw >> 4
    return codes.reshape(raw.shape[0], 2 * raw.shape[1])


def per_token_cast_to_fp4(x, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False):
    """x [m, n] to (int8 [m, n / 2], float32 [m, ceil(n / gran_k)] or packed int32): E2M1 codes, two a byte."""
    lib = library_of(x)
    _check_matrix('per_token_cast_to_fp4', x, gran_k)
    m, n = x.shape
    gran_k = min(gran_k, max(n, 1))
    _check(n % 2 == 0, f'per_token_cast_to_fp4: n is {n}; wanted an even number')
    _check(use_ue8m0 or not use_packed_ue8m0, 'per_token_cast_to_fp4: packed scales are powers of two: use_ue8m0')
    cols = ceil_div(n, gran_k)
    groups = _padded(lib, x, m, cols * gran_k).reshape(m, cols, gran_k)
    sf = _scale(lib, lib.amax(lib.cast(abs(groups), 'float32'), (2,)), FP4_VALUES[-1], use_ue8m0)
    codes = _fp4_codes(lib, groups * (1.0 / sf)[:, :, None]).reshape(m, cols * gran_k)
    packed = lib.contiguous(_pack_fp4(lib, codes)[:, : n // 2])
    return packed, pack_ue8m0_to_int(_padded(lib, sf, m, align(cols, 4))) if use_packed_ue8m0 else sf


def transpose_packed_fp4(a):
    """int8 [m, n / 2] to int8 [n, m / 2]: the transposed matrix of codes."""
    lib = library_of(a)
    _check(
        lib.dtype_name(a) == 'int8' and len(a.shape) == 2 and a.shape[0] % 2 == 0,
        f'transpose_packed_fp4: a is {tuple(a.shape)} {lib.dtype_name(a)}; wanted int8 with an even number of rows',
    )
    return _pack_fp4(lib, lib.contiguous(lib.transposed(_unpack_fp4(lib, a))))


def cast_back_from_fp4(packed, sf, gran_k: int = 128, use_packed_ue8m0: bool = False):
    """What per_token_cast_to_fp4's result stands for, float32 [m, n]."""
    lib = library_of(packed)
    _check_matrix('cast_back_from_fp4', packed, gran_k)
    codes = lib.cast(_unpack_fp4(lib, packed), 'int64')
    values = lib.table(packed, FP4_VALUES + tuple(-v for v in FP4_VALUES))[codes]
    return _scaled('cast_back_from_fp4', lib, values, sf, gran_k, use_packed_ue8m0)
