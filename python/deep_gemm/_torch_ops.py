"""The main functions as torch.library operators with fake implementations, and what torch.compile puts into its graphs
in place of ours: the operators torch.ops.deep_gemm.*. Imported as soon as torch._dynamo is (see _on_import.py)."""

import torch

from . import _C
from .utils import layout, math

_library = torch.library.Library('deep_gemm', 'FRAGMENT')


def _define(schema, function, fake):
    name = schema.partition('(')[0]
    _library.define(schema)
    _library.impl(name, function, 'CompositeExplicitAutograd')
    torch.library.register_fake('deep_gemm::' + name, fake, lib=_library)
    return getattr(torch.ops.deep_gemm, name)


# ---- GEMMs -----------------------------------------------------------------------------------------------------------


def _add_gemm(gemm):
    """The operator takes tensors, not pairs of them."""

    def run(a, sfa, b, sfb, d, c=None, recipe=None, recipe_a=None, recipe_b=None, b_constant=False):
        gemm((a, sfa), (b, sfb), d, c, recipe, recipe_a, recipe_b, b_constant=b_constant)

    def fake(a, sfa, b, sfb, d, c=None, recipe=None, recipe_a=None, recipe_b=None, b_constant=False):
        return None

    operator = _define(
        gemm.__name__ + '(Tensor a, Tensor sfa, Tensor b, Tensor sfb, Tensor(d!) d, Tensor? c=None, '
        'int[]? recipe=None, int[]? recipe_a=None, int[]? recipe_b=None, bool b_constant=False) -> ()',
        run,
        fake,
    )

    def traced(
        a,
        b,
        d,
        c=None,
        recipe=None,
        recipe_a=None,
        recipe_b=None,
        compiled_dims='nk',
        disable_ue8m0_cast=False,
        alpha=None,
        epilogue=None,
        b_constant=False,
    ):
        if alpha is not None or epilogue is not None:
            raise RuntimeError('this library has no kernel for alpha and epilogue')
        operator(a[0], a[1], b[0], b[1], d, c, recipe, recipe_a, recipe_b, bool(b_constant))

    torch.compiler.substitute_in_graph(gemm, skip_signature_check=True)(traced)


for _gemm in (_C.fp8_gemm_nt, _C.fp8_gemm_nn, _C.fp8_gemm_tn, _C.fp8_gemm_tt):
    _add_gemm(_gemm)


# ---- Casts -----------------------------------------------------------------------------------------------------------

_cast_to_fp8 = math._cast_to_fp8


def _fake_cast(x, use_ue8m0, gran_mn, gran_k, packed=False):
    rows, cols = math.ceil_div(x.shape[0], gran_mn), math.ceil_div(x.shape[1], gran_k)
    sf = (rows, math.ceil_div(cols, 4)) if packed else (rows, cols)
    return (
        x.new_empty(x.shape, dtype=torch.float8_e4m3fn),
        x.new_empty(sf, dtype=torch.int32 if packed else torch.float32),
    )


_cast = _define(
    'cast_to_fp8(Tensor x, bool use_ue8m0, int gran_mn, int gran_k, bool packed=False) -> (Tensor, Tensor)',
    _cast_to_fp8,
    _fake_cast,
)


@torch.compiler.substitute_in_graph(_cast_to_fp8)
def _traced_cast(x, use_ue8m0, gran_mn, gran_k, packed=False):
    return _cast(x, use_ue8m0, gran_mn, gran_k, packed)


# ---- Layouts: an operator returns new memory always ------------------------------------------------------------------

_aligned = layout.get_mn_major_tma_aligned_tensor


def _new_mn_major(sf):
    *lead, mn, k = sf.shape
    return sf.new_empty((*lead, k, layout.get_tma_aligned_size(mn, 4)))[..., :mn].transpose(-1, -2)


def _run_mn_major(sf):
    out = _new_mn_major(sf)
    _C.transform_scale(sf, out)
    return out


_mn_major = _define('mn_major_tma_aligned(Tensor sf) -> Tensor', _run_mn_major, _new_mn_major)


@torch.compiler.substitute_in_graph(_aligned)
def _traced_mn_major(sf):
    return _mn_major(sf)
