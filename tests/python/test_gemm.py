"""fp8_gemm_{nt,nn,tn,tt} on the CPU against float64."""

import itertools
import unittest

import deep_gemm
import numpy as np
from common import BF16, BOUND, F16, F32, F8, Problem, cdiv, error_of, mn_major, pack, product, rng, strided

SHAPES = [(1, 1, 1), (1, 128, 128), (7, 24, 96), (64, 256, 512), (133, 300, 1000), (3, 576, 130)]


class Gemm(unittest.TestCase):
    def judge(self, d, want):
        self.assertLess(error_of(d, want), 8e-6 if d.size < 64 else BOUND[d.dtype.type])

    def test_shapes_and_types(self):
        for (m, n, k), dtype in itertools.product(SHAPES, (BF16, F16, F32)):
            with self.subTest(m=m, n=n, k=k, dtype=dtype.__name__):
                p = Problem(m, n, k)
                d = p.out(dtype)
                self.assertIsNone(deep_gemm.fp8_gemm_nt(*p.args(), d))
                self.judge(d, p.want())

    def test_accumulates(self):
        p = Problem(33, 200, 384)
        for dtype in (BF16, F16, F32):
            c = rng(1).standard_normal((33, 200)).astype(dtype)
            with self.subTest(dtype=dtype.__name__, c='apart'):
                d, before = p.out(dtype), c.copy()
                deep_gemm.fp8_gemm_nt(*p.args(), d, c)
                self.judge(d, p.want(before))
                self.assertTrue((c == before).all())
            with self.subTest(dtype=dtype.__name__, c='d'):
                d = c.copy()
                deep_gemm.fp8_gemm_nt(*p.args(), d, c=d)
                self.judge(d, p.want(before))

    def test_scales_for_rows_of_b(self):
        """Recipe (1, 1, 128), packed too; c is d, apart, and not there; transposed."""
        ask = dict(recipe=(1, 1, 128)), dict(recipe_a=(1, 128), recipe_b=(1, 128))
        for (m, n, k), keywords in itertools.product(SHAPES, ask):
            with self.subTest(m=m, n=n, k=k, **keywords):
                p, c = Problem(m, n, k), rng(1).standard_normal((m, n)).astype(F32)
                sfb = np.exp2(rng(2).integers(-3, 3, (n, cdiv(k, 128)))).astype(F32)
                want = lambda c=None: product(p.a, p.sfa, p.b, sfb, c, 1)
                for scales in (sfb, mn_major(sfb), pack(sfb)):
                    d, e, f = p.out(F32), c.copy(), p.out()
                    deep_gemm.fp8_gemm_nt((p.a, p.sfa), (p.b, scales), d, c=c, **keywords)
                    deep_gemm.fp8_gemm_nt((p.a, p.sfa), [p.b, scales], e, e, **keywords)
                    deep_gemm.fp8_gemm_nn((p.a, p.sfa), (p.b.T, scales.T), f, **keywords)
                    self.judge(d, want(c))
                    self.assertTrue((d == e).all())
                    self.judge(f, want())
        p, c = Problem(64, 32, 0), rng().standard_normal((64, 32)).astype(F32)
        for d in (p.out(F32), c):
            deep_gemm.fp8_gemm_nt((p.a, p.sfa), (p.b, np.zeros((32, 0), F32)), d, c, (1, 1, 128))
            self.assertTrue((d == c).all())

    def test_forms(self):
        """Transposed operands and scales, under both names; as stored, and as views of what is K-major."""
        p = Problem(40, 136, 300)
        t = lambda pair, how: tuple(how(x.T) for x in pair)
        for how in (np.ascontiguousarray, lambda x: x):
            a, b, at, bt = (p.a, p.sfa), (p.b, p.sfb), t((p.a, p.sfa), how), t((p.b, p.sfb), how)
            for kind, x, y in (('nt', a, b), ('nn', a, bt), ('tn', at, bt), ('tt', at, b)):
                for stem in ('fp8_gemm_', 'fp8_fp4_gemm_'):
                    d = p.out()
                    getattr(deep_gemm, stem + kind)(x, y, d)
                    self.judge(d, p.want())

    def test_strides(self):
        p = Problem(19, 70, 260)
        for name, shape in (('a', p.a.shape), ('b', p.b.shape)):
            rows, cols = shape
            for s in ((cols + 1, 1), (cols + 16, 1), (1, rows), (1, rows + 3), (2 * cols + 2, 2), (3, 3 * rows + 1)):
                with self.subTest(operand=name, strides=s):
                    x, d = strided(getattr(p, name), s), p.out()
                    deep_gemm.fp8_gemm_nt((x if name == 'a' else p.a, p.sfa), (x if name == 'b' else p.b, p.sfb), d)
                    self.judge(d, p.want())

    def test_strides_of_d_and_c(self):
        p = Problem(19, 70, 260)
        for s in ((75, 1), (1, 19), (2, 41), (141, 2)):
            with self.subTest(strides=s):
                d = strided(np.full((19, 70), np.nan, F32), s)
                whole = d.base if d.base is not None else d
                c = strided(rng(2).standard_normal((19, 70)).astype(F32), s)
                deep_gemm.fp8_gemm_nt(*p.args(), d, c)
                self.judge(d, p.want(c))
                self.assertIs(d.base if d.base is not None else d, whole)

    def test_nothing_outside_d(self):
        p = Problem(19, 70, 260)
        whole = np.full((30, 90), 12345.0, F32)
        deep_gemm.fp8_gemm_nt(*p.args(), whole[5:24, 10:80])
        self.judge(whole[5:24, 10:80], p.want())
        whole[5:24, 10:80] = 12345.0
        self.assertTrue((whole == 12345.0).all())

    def test_scale_layouts(self):
        p = Problem(62, 300, 1024)
        first = None
        forms = lambda s: {
            'row-major': s,
            'MN-major': mn_major(s),
            'unpadded': np.ascontiguousarray(s.T).T,
            'inner stride': strided(s, (2 * s.shape[1], 2)),
            'long rows': strided(s, (s.shape[1] + 3, 1)),
            'wide': strided(s, (1, s.shape[0] + 9)),
        }
        for (x, sfa), (y, sfb) in itertools.product(forms(p.sfa).items(), forms(p.sfb).items()):
            with self.subTest(sfa=x, sfb=y):
                d = p.out()
                deep_gemm.fp8_gemm_nt((p.a, sfa), (p.b, sfb), d)
                first = d if first is None else first
                self.judge(d, p.want())
                self.assertTrue((d.view(np.uint16) == first.view(np.uint16)).all())

    def test_packed_scales(self):
        for k in (128, 500, 1024, 1280):
            p = Problem(33, 260, k)
            p.sfa, p.sfb = (np.exp2(np.floor(np.log2(s))).astype(F32) for s in (p.sfa, p.sfb))
            for a, b in itertools.product((p.sfa, pack(p.sfa), mn_major(pack(p.sfa))), (p.sfb, pack(p.sfb))):
                with self.subTest(k=k, a=a.dtype, b=b.dtype):
                    d = p.out()
                    try:
                        deep_gemm.fp8_gemm_nt((p.a, a), (p.b, b), d)
                    except RuntimeError as e:
                        self.fail(str(e))
                    self.judge(d, p.want())

    def test_batches(self):
        p = Problem(17, 140, 256, batch=(3,))
        d = p.out()
        deep_gemm.fp8_gemm_nt(*p.args(), d)
        self.judge(d, p.want())

    def test_empty(self):
        for m, n, k in ((0, 64, 256), (64, 0, 256), (0, 0, 0), (64, 32, 0)):
            with self.subTest(m=m, n=n, k=k):
                p = Problem(m, n, k)
                d = p.out()
                deep_gemm.fp8_gemm_nt(*p.args(), d)
                self.assertTrue((d == 0).all())
        p, c = Problem(64, 32, 0), rng().standard_normal((64, 32)).astype(F32)
        d = p.out(F32)
        deep_gemm.fp8_gemm_nt(*p.args(), d, c)
        self.assertTrue((d == c).all())

    def test_keywords(self):
        p = Problem()
        (a, b), ab = p.args(), dict(recipe_a=(1, 128), recipe_b=(128, 128))
        calls = {
            'lists': lambda d: deep_gemm.fp8_gemm_nt(list(a), list(b), d),
            'None by position': lambda d: deep_gemm.fp8_gemm_nt(a, b, d, None),
            'all keywords': lambda d: deep_gemm.fp8_gemm_nt(
                d=d,
                b=b,
                a=a,
                c=None,
                recipe=None,
                recipe_a=None,
                recipe_b=None,
                compiled_dims='nk',
                disable_ue8m0_cast=True,
                alpha=None,
                epilogue=None,
            ),
            'recipe': lambda d: deep_gemm.fp8_gemm_nt(a, b, d, recipe=(1, 128, 128)),
            'recipe as list': lambda d: deep_gemm.fp8_gemm_nt(a, b, d, recipe=[1, 128, 128]),
            'pairs': lambda d: deep_gemm.fp8_gemm_nt(a, b, d, **ab),
            'both': lambda d: deep_gemm.fp8_gemm_nt(a, b, d, recipe=(1, 128, 128), **ab),
            'compiled_dim': lambda d: deep_gemm.fp8_gemm_nt(a, b, d, compiled_dim=''),
            'release 1': lambda d: deep_gemm.gemm_fp8_fp8_bf16_nt(lhs=a, rhs=b, out=d),
        }
        for name, call in calls.items():
            with self.subTest(call=name):
                d = p.out()
                self.assertIsNone(call(d))
                self.judge(d, p.want())
