"""Asking before a call."""

import inspect

from . import _C, _unbuilt

# The functions that the library answers for, by all their names.
_GEMMS = {
    stem + kind: 'fp8_gemm_' + kind for stem in ('fp8_gemm_', 'fp8_fp4_gemm_') for kind in ('nt', 'nn', 'tn', 'tt')
}
_GEMMS |= {
    stem + kind: 'm_grouped_fp8_gemm_' + kind
    for stem in ('m_grouped_fp8_gemm_', 'm_grouped_fp8_fp4_gemm_')
    for kind in ('nt_contiguous', 'nn_contiguous', 'nt_masked')
}
_GEMMS |= {name: name for name in ('k_grouped_fp8_gemm_nt_contiguous', 'k_grouped_fp8_gemm_tn_contiguous')}
_GEMMS |= {
    'fp8_m_grouped_gemm_nt_masked': 'm_grouped_fp8_gemm_nt_masked',
    'gemm_fp8_fp8_bf16_nt': 'fp8_gemm_nt',
    'm_grouped_gemm_fp8_fp8_bf16_nt_contiguous': 'm_grouped_fp8_gemm_nt_contiguous',
    'm_grouped_gemm_fp8_fp8_bf16_nt_masked': 'm_grouped_fp8_gemm_nt_masked',
}


def _takes(function, args, kwargs):
    if not args and not kwargs:
        return True
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def is_supported(function, *args, **kwargs) -> bool:
    """Whether a function of this package (itself, or its name) has a kernel; with arguments, whether it would take
    them. Where the library would refuse, last_error() has its reason."""
    name = function if isinstance(function, str) else function.__name__
    if name in _unbuilt.NAMES or name == 'bf16_m_grouped_gemm_nt_masked':  # that name is another's alias
        return False
    if name in _GEMMS and (args or kwargs):
        return _C.gemm_is_supported(_GEMMS[name], *args, **kwargs)
    import deep_gemm

    found = getattr(deep_gemm, name, None)
    return inspect.isroutine(found) and _takes(found, args, kwargs)
