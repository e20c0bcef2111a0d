"""Operands and judgement for the tests: everything in NumPy, the references in float64."""

import ml_dtypes
import numpy as np

F8, BF16, F16, F32, I32 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16, np.float16, np.float32, np.int32
BOUND = {BF16: 5e-6, F16: 2e-6, F32: 2e-6}


def cdiv(a, b):
    return -(-a // b)


def rng(seed=0):
    return np.random.default_rng(seed)


def codes(r, *shape):
    return r.standard_normal(shape).astype(F8)


def spread(sf, gran_mn, gran_k, mn, k):
    """One scale for every element, float64."""
    return sf.astype(np.float64).repeat(gran_mn, -2)[..., :mn, :].repeat(gran_k, -1)[..., :k]


def product(a, sfa, b, sfb, c=None, gran_n=128):
    """C + A @ B^T of operands [..., m, k] and [..., n, k] in float64."""
    (m, k), n = a.shape[-2:], b.shape[-2]
    x = a.astype(np.float64) * spread(sfa, 1, 128, m, k)
    y = b.astype(np.float64) * spread(sfb, gran_n, 128, n, k)
    d = x @ y.swapaxes(-1, -2)
    return d if c is None else d + c.astype(np.float64)


class Problem:
    """a [m, k], b [n, k], their scales, and the product."""

    def __init__(self, m=64, n=256, k=512, seed=0, batch=()):
        r = rng(seed)
        self.m, self.n, self.k = m, n, k
        self.a, self.b = codes(r, *batch, m, k), codes(r, *batch, n, k)
        self.sfa = (r.random((*batch, m, cdiv(k, 128))) + 0.1).astype(F32)
        self.sfb = (r.random((*batch, cdiv(n, 128), cdiv(k, 128))) + 0.1).astype(F32)
        self.batch = batch

    def want(self, c=None):
        return product(self.a, self.sfa, self.b, self.sfb, c)

    def out(self, dtype=BF16):
        with np.errstate(invalid='ignore'):
            return np.full((*self.batch, self.m, self.n), np.nan, dtype)

    def args(self):
        return (self.a, self.sfa), (self.b, self.sfb)


def diff(x, y):
    x, y = x.astype(np.float64), y.astype(np.float64)
    both = (x * x + y * y).sum()
    return 1 - 2 * (x * y).sum() / both if both else 0.0


def error_of(d, want):
    """The contract's measure; 1 where something is not finite."""
    return diff(d, want) if np.isfinite(d.astype(np.float64)).all() else 1.0


def strided(x, strides):
    """The same values with these strides, counted in elements; NaN or 0x7f between them."""
    size = 1 + sum((n - 1) * s for n, s in zip(x.shape, strides))
    whole = (
        np.full(size, 0x7F, np.uint8).view(F8)
        if x.dtype == F8
        else np.full(size, 0x7FFF, np.uint16).view(x.dtype)
        if x.itemsize == 2
        else np.full(size, -1, np.int32).view(x.dtype)
    )
    view = np.lib.stride_tricks.as_strided(whole, x.shape, [s * x.itemsize for s in strides])
    view[...] = x
    return view


def mn_major(sf):
    """MN-major with columns of a multiple of 4."""
    *lead, mn, k = sf.shape
    whole = np.full((*lead, k, cdiv(mn, 4) * 4), np.nan, sf.dtype)
    view = whole[..., :mn].swapaxes(-1, -2)
    view[...] = sf
    return view


def pack(sf):
    """float32 powers of two to four exponent bytes a word."""
    e = (sf.view(np.int32) >> 23).astype(np.uint8)
    padded = np.zeros((*e.shape[:-1], cdiv(e.shape[-1], 4) * 4), np.uint8)
    padded[..., : e.shape[-1]] = e
    return padded.view(np.int32)
