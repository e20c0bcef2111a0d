"""Comparing results."""

from .._arrays import library_of

__all__ = ['assert_bitwise_equal', 'calc_diff', 'count_bytes']


def calc_diff(x, y):
    """1 - 2<x,y> / (<x,x> + <y,y>) in float64; 0.0 for two zeros."""
    x, y = (library_of(t).cast(t, 'float64') for t in (x, y))
    both = (x * x + y * y).sum()
    return 0.0 if both == 0 else 1 - 2 * (x * y).sum() / both


def count_bytes(*tensors) -> int:
    """Bytes of all elements of tensors, and of those in tuples and lists; None counts nothing."""
    total = 0
    for t in tensors:
        if isinstance(t, (tuple, list)):
            total += count_bytes(*t)
        elif t is not None:
            total += t.nbytes
    return total


def assert_bitwise_equal(x, y, label: str = ''):
    """AssertionError unless x and y have the same shape, type and bits."""
    lib = library_of(x)
    assert x.shape == y.shape and x.dtype == y.dtype, f'{label}: {x.shape} {x.dtype} beside {y.shape} {y.dtype}'
    differ = int((lib.bits(x, 'uint8') != lib.bits(y, 'uint8')).sum())
    assert differ == 0, f'{label}: {differ} bytes differ'
