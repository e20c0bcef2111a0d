"""deep_gemm.utils on NumPy arrays, against the documented arithmetic."""

import inspect
import itertools
import unittest

import deep_gemm
import numpy as np
from common import BF16, F16, F32, F8, cdiv, mn_major, rng
from deep_gemm.utils import layout, math


def powers(x):
    """The smallest powers of two that are not below x."""
    f, e = np.frexp(x)
    return np.ldexp(F32(1), e - (f == 0.5)).astype(F32)


def want_cast(x, gran_mn, gran_k, rounded):
    m, n = x.shape
    rows, cols = cdiv(m, gran_mn), cdiv(n, gran_k)
    whole = np.zeros((rows * gran_mn, cols * gran_k), F32)
    whole[:m, :n] = x
    groups = whole.reshape(rows, gran_mn, cols, gran_k)
    sf = np.maximum(abs(groups).max((1, 3)), F32(1e-4)) * (F32(1) / F32(448))
    sf = powers(sf) if rounded else sf
    q = (groups * (F32(1) / sf)[:, None, :, None]).astype(F8).reshape(whole.shape)[:m, :n]
    return q, sf


def same_bits(x, y):
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


class Casts(unittest.TestCase):
    def same(self, got, want):
        for x, y in zip(got, want):
            self.assertTrue(same_bits(np.ascontiguousarray(x), np.ascontiguousarray(y)))

    def test_fp8(self):
        casts = {
            'token': (lambda x, u, g: math.per_token_cast_to_fp8(x, u, gran_k=g), lambda g: (1, g)),
            'block': (lambda x, u, g: math.per_block_cast_to_fp8(x, u, g), lambda g: (g, g)),
            'channel': (lambda x, u, g: math.per_channel_cast_to_fp8(x, u, g), lambda g: (g, 1)),
        }
        for dtype, (name, (cast, gran)), rounded, (m, n, g) in itertools.product(
            (BF16, F16, F32, np.float64),
            casts.items(),
            (False, True),
            ((128, 128, 128), (256, 200, 128), (64, 96, 32), (384, 1000, 128)),
        ):
            with self.subTest(dtype=dtype.__name__, cast=name, rounded=rounded, m=m, n=n, g=g):
                x = (rng(m + n).standard_normal((m, n)) * 3).astype(F32).astype(dtype)
                q, sf = cast(x, rounded, g)
                self.assertTrue(q.flags.c_contiguous)
                self.same((q, sf), want_cast(x.astype(F32), *gran(g), rounded))

    def test_odd_sizes_and_strides(self):
        x = (rng().standard_normal((40, 600)) * 3).astype(F32)
        for y in (x[1:38:3, 5:333], x[:37, ::2], x.T[3:, :]):
            with self.subTest(shape=y.shape, strides=y.strides):
                self.same(math.per_token_cast_to_fp8(y, False), want_cast(y, 1, 128, False))
                self.same(math.per_block_cast_to_fp8(y, True), want_cast(y, 128, 128, True))

    def test_any_array(self):
        """Backwards, and with swapped bytes: the same as their copies in order."""
        x = (rng().standard_normal((128, 256)) * 3).astype(F32)
        casts = {
            'token': lambda y: math.per_token_cast_to_fp8(y, True),
            'token of 32': lambda y: math.per_token_cast_to_fp8(y, False, 32),
            'packed': lambda y: math.per_token_cast_to_fp8(y, True, 128, True),
            'block': lambda y: math.per_block_cast_to_fp8(y, False),
            'channel': lambda y: math.per_channel_cast_to_fp8(y, False),
            'dims': lambda y: math.per_custom_dims_cast_to_fp8(y, (0,), False),
            'fp4': lambda y: math.per_token_cast_to_fp4(y, False),
        }
        for name, cast in casts.items():
            for y in (x[::-1], x[:, ::-1], x[::-1, ::-2], x.T[::-1, :].T, x.astype('>f4'), x.astype('>f8')[::-1]):
                with self.subTest(cast=name, strides=y.strides, order=y.dtype.str):
                    self.same(cast(y), cast(np.ascontiguousarray(y, y.dtype.newbyteorder('='))))
        sf = np.array([[1, 2, 4, 0.5]], '>f4')
        packed = math.pack_ue8m0_to_int(sf)
        self.assertEqual(packed.tolist(), [[0x7E81807F]])
        self.assertTrue((math.unpack_ue8m0_from_int(packed.astype('>i4')) == sf).all())

    def test_refusals(self):
        x, x3 = rng().standard_normal((64, 256)).astype(F32), np.zeros((2, 4, 8), F32)
        q, sf = math.per_token_cast_to_fp8(x, False)
        q4, sf4 = math.per_token_cast_to_fp4(x, False)
        of_gran = {
            'token': lambda g: math.per_token_cast_to_fp8(x, False, g),
            'block': lambda g: math.per_block_cast_to_fp8(x, False, g),
            'channel': lambda g: math.per_channel_cast_to_fp8(x, False, g),
            'fp4': lambda g: math.per_token_cast_to_fp4(x, False, g),
            'back': lambda g: math.cast_back_from_fp8(q, sf, g),
            'back from fp4': lambda g: math.cast_back_from_fp4(q4, sf4, g),
        }
        for (name, cast), gran in itertools.product(of_gran.items(), (0, -1, -128, -(1 << 70))):
            with self.subTest(cast=name, gran=gran):
                self.assertRaisesRegex(RuntimeError, f'gran_k is {gran}; wanted 1 or more', cast, gran)
        for (name, cast), gran in itertools.product(of_gran.items(), ('128', None, (1, 128))):
            with self.subTest(cast=name, gran=gran):
                self.assertRaises(TypeError, cast, gran)
        for cast in (
            lambda y: math.per_token_cast_to_fp8(y, False),
            lambda y: math.per_block_cast_to_fp8(y, False),
            lambda y: math.per_channel_cast_to_fp8(y, False),
            lambda y: math.per_token_cast_to_fp4(y, False),
            lambda y: math.cast_back_from_fp8(y.astype(F8), sf),
            lambda y: math.cast_back_from_fp4(y.astype(np.int8), sf),
        ):
            for y in (x3, x[0], np.array(1, F32)):
                with self.assertRaisesRegex(RuntimeError, r'x is \[.*\]; wanted \[m, n\]'):
                    cast(y)
        for call in (
            lambda: math.cast_back_from_fp8(q, sf[:, :1]),
            lambda: math.cast_back_from_fp8(q, sf[:5]),
            lambda: math.cast_back_from_fp4(q4, sf4[:, 0]),
        ):
            self.assertRaisesRegex(RuntimeError, r'\[64, 256\] in groups of 128 wants \[64, 2\]', call)

    def test_groups_larger_than_all(self):
        """One scale, and no memory for what is not there."""
        x, huge = rng().standard_normal((6, 40)).astype(F32), 1 << 70
        self.same(math.per_token_cast_to_fp8(x, False, huge), want_cast(x, 1, 40, False))
        self.same(math.per_block_cast_to_fp8(x, False, huge), want_cast(x, 6, 40, False))
        self.same(math.per_token_cast_to_fp4(x, False, huge), math.per_token_cast_to_fp4(x, False, 40))
        for back, pair in (
            (math.cast_back_from_fp8, math.per_token_cast_to_fp8(x, False, huge)),
            (math.cast_back_from_fp4, math.per_token_cast_to_fp4(x, False, huge)),
        ):
            self.assertTrue((back(*pair, huge) == back(*pair, 40)).all())

    def test_zero_and_tiny_groups(self):
        x = rng().standard_normal((256, 512)).astype(F32)
        x[0], x[1, 128:256], x[2], x[3], x[128:, :128] = 0, 0, 1e-30, 1e30, 1e-39
        for rounded, cast in itertools.product((False, True), (math.per_token_cast_to_fp8, math.per_block_cast_to_fp8)):
            q, sf = cast(x, rounded)
            self.assertTrue(np.isfinite(sf).all() and (sf > 0).all() and np.isfinite(q.astype(F32)).all())
            self.assertTrue((q[0].astype(F32) == 0).all() and (q[128:, :128].astype(F32) == 0).all())
            self.assertTrue(not rounded or (sf.view(np.int32) & 0x7FFFFF == 0).all())

    def test_packed(self):
        for n in (512, 600, 1024):
            for gran in (128, 32):
                x = rng(n).standard_normal((9, n)).astype(BF16)
                q, sf = math.per_token_cast_to_fp8(x, True, gran, use_packed_ue8m0=True)
                want, plain = math.per_token_cast_to_fp8(x, True, gran)
                self.assertTrue(
                    same_bits(q, want) and sf.dtype == np.int32 and sf.shape == (9, cdiv(plain.shape[1], 4))
                )
                self.assertTrue((math.unpack_ue8m0_from_int(sf)[:, : plain.shape[1]] == plain).all())
        with self.assertRaises(RuntimeError):
            math.per_token_cast_to_fp8(x, False, use_packed_ue8m0=True)

    def test_custom_dims(self):
        x = rng().standard_normal((4, 5, 6)).astype(F32)
        q, sf = math.per_custom_dims_cast_to_fp8(x, (0, 2), False)
        want = np.maximum(abs(x).max(1, keepdims=True), F32(1e-4)) * (F32(1) / F32(448))
        self.assertTrue(same_bits(sf, want.squeeze()) and same_bits(q, (x * (F32(1) / want)).astype(F8)))

    def test_ue8m0(self):
        x = np.array([1, 1.5, 2, 3, -3, 0, 1e-45, 2.0**-126, 3e38, 448, np.inf], F32)
        want = np.array([1, 2, 2, 4, 4, 2.0**-126, 2.0**-126, 2.0**-126, 2.0**127, 512, 2.0**127], F32)
        self.assertTrue(same_bits(math.ceil_to_ue8m0(x), want))
        self.assertTrue((math.unpack_ue8m0_from_int(math.pack_ue8m0_to_int(want[:8])) == want[:8]).all())
        self.assertEqual(math.pack_ue8m0_to_int(np.array([[1, 2, 4, 0.5]], F32)).tolist(), [[0x7E81807F]])
        for bad in (np.ones((2, 3), F32), np.full((2, 4), 1.5, F32), np.ones((2, 4), np.float64), np.array(1, F32)):
            with self.assertRaises(RuntimeError):
                math.pack_ue8m0_to_int(bad)
        for bad in (np.ones((2, 4), F32), np.array(1, np.int32)):
            with self.assertRaises(RuntimeError):
                math.unpack_ue8m0_from_int(bad)
        for scalar in (np.array(3, F32), np.array(3, '>f4'), np.array(3, np.float64), x[3, ...]):
            self.assertTrue(same_bits(math.ceil_to_ue8m0(scalar), np.array(4, F32)))

    def test_nothing(self):
        packed, sf = math.per_token_cast_to_fp4(np.zeros((0, 128), F32), False)
        self.assertEqual((packed.shape, sf.shape), ((0, 64), (0, 1)))
        for shape in ((0, 4), (4, 0), (0, 4, 4)):
            y = np.zeros(shape, F32)
            self.assertIs(layout.get_mn_major_tma_aligned_tensor(y), y)

    def test_fp4(self):
        values = np.array([0, 0.25, 0.2501, 0.75, 0.76, 1.25, 1.75, 2.5, 2.51, 3.5, 5, 5.1, 6, -0.25, -0.3, -6], F32)
        want = np.array([0, 0, 0.5, 0.5, 1, 1, 1.5, 2, 3, 3, 4, 6, 6, 0, -0.5, -6], F32)
        packed, sf = math.per_token_cast_to_fp4(values[None], False, gran_k=16)
        self.assertTrue(packed.dtype == np.int8 and packed.shape == (1, 8) and sf.tolist() == [[1.0]])
        self.assertTrue((math.cast_back_from_fp4(packed, sf, gran_k=16) == want).all())
        self.assertEqual(packed.view(np.uint8)[0].tolist(), [0x00, 0x11, 0x22, 0x43, 0x55, 0x76, 0x07, 0xF9])
        x = rng().standard_normal((6, 200)).astype(BF16)
        packed, sf = math.per_token_cast_to_fp4(x, True, 32, use_packed_ue8m0=True)
        back = math.cast_back_from_fp4(packed, sf, 32, use_packed_ue8m0=True)
        self.assertLess(deep_gemm.calc_diff(x.astype(F32), back), 0.02)
        turned = math.transpose_packed_fp4(packed)
        self.assertEqual(turned.shape, (200, 3))
        self.assertTrue((math.transpose_packed_fp4(turned) == packed).all())
        ones = np.ones((200, 1), F32)
        self.assertTrue(
            (math.cast_back_from_fp4(turned, ones) == math.cast_back_from_fp4(packed, ones[:6], 200).T).all()
        )

    def test_cast_back_from_fp8(self):
        x = rng().standard_normal((5, 300)).astype(F32)
        for packed in (False, True):
            q, sf = math.per_token_cast_to_fp8(x, packed, 128, packed)
            self.assertLess(deep_gemm.calc_diff(x, math.cast_back_from_fp8(q, sf, use_packed_ue8m0=packed)), 1e-3)

    def test_signatures(self):
        """Callers ask inspect which arguments there are."""
        want = {
            'per_token_cast_to_fp8': ['x', 'use_ue8m0', 'gran_k', 'use_packed_ue8m0'],
            'per_channel_cast_to_fp8': ['x', 'use_ue8m0', 'gran_k'],
            'per_block_cast_to_fp8': ['x', 'use_ue8m0', 'gran_k'],
            'per_custom_dims_cast_to_fp8': ['x', 'dims', 'use_ue8m0'],
            'per_token_cast_to_fp4': ['x', 'use_ue8m0', 'gran_k', 'use_packed_ue8m0'],
            'cast_back_from_fp4': ['packed', 'sf', 'gran_k', 'use_packed_ue8m0'],
        }
        for name, names in want.items():
            self.assertEqual(list(inspect.signature(getattr(math, name)).parameters), names)


class Layouts(unittest.TestCase):
    def lies_right(self, y, x):
        mn, k = x.shape[-2:]
        al = cdiv(mn, 4) * 4
        self.assertTrue((y == x).all() and y.dtype == x.dtype)
        for size, stride, want in zip(y.shape, y.strides, (k * al, 1, al)[-x.ndim :]):
            self.assertTrue(size == 1 or stride == 4 * want)

    def test_mn_major(self):
        for lead, mn, k in itertools.product(((), (1,), (3,)), (1, 2, 3, 5, 128, 133), (1, 7, 56)):
            with self.subTest(lead=lead, mn=mn, k=k):
                x = (rng().random((*lead, mn, k)) + 0.1).astype(F32)
                y = layout.get_mn_major_tma_aligned_tensor(x)
                self.lies_right(y, x)
                self.assertIs(layout.get_mn_major_tma_aligned_tensor(y), y)

    def test_the_same_object(self):
        x = rng().random((133, 7)).astype(F32)
        y = layout.get_mn_major_tma_aligned_tensor(x)
        for recipe in ((1, 128), [1, 128]):
            self.assertIs(layout.transform_sf_into_required_layout(y, 133, 7 * 128, recipe), y)
        self.assertIs(
            deep_gemm.transform_sf_into_required_layout(
                sf=y, mn=133, k=896, recipe=(1, 128, 128), num_groups=None, is_sfa=True
            ),
            y,
        )
        self.lies_right(layout.transform_sf_into_required_layout(x, 133, 896, (1, 128, 128), is_sfa=True), x)
        w = rng().random((3, 5, 7)).astype(F32)
        for mn in (513, 640):
            self.assertIs(layout.transform_sf_into_required_layout(w, mn, 896, (1, 128, 128), 3, is_sfa=False), w)

    def test_transform_refuses(self):
        x = rng().random((64, 4)).astype(F32)
        f = layout.transform_sf_into_required_layout
        for call in (
            lambda: f(x, 65, 512, (1, 128)),
            lambda: f(x, 64, 640, (1, 128)),
            lambda: f(x, 64, 512, (1, 128, 128)),
            lambda: f(x, 64, 512, (1, 128), is_sfa=True),
            lambda: f(x, 64, 512, (1, 32)),
            lambda: f(x, 64, 512, (1, 128), num_groups=2),
            lambda: f(x.astype(np.float64), 64, 512, (1, 128)),
        ):
            with self.assertRaises(RuntimeError):
                call()
        aligned = layout.get_mn_major_tma_aligned_tensor(x)
        for call, words in (
            (lambda: f(aligned, 64, 512, (1, 128), psum_layout=np.zeros(4, np.int32)), 'no kernel for psum_layout'),
            (lambda: f(x.astype(F16), 64, 512, (1, 128)), 'sf is float16; wanted float32, or int32'),
            (lambda: f(x.astype(BF16), 64, 512, (1, 128)), 'sf is bfloat16; wanted float32, or int32'),
            (lambda: f(x, 64, 512, (0, 0)), r'recipe is \(0, 0\).*wanted 1 x 128 or 128 x 128'),
            (lambda: f(x, 64, 512, (1, 0)), r'recipe is \(1, 0\).*wanted 1 x 128 or 128 x 128'),
            (lambda: f(x, 64, 512, (0, 0, 0), is_sfa=True), r'recipe is \(0, 0, 0\)'),
        ):
            with self.subTest(words=words):
                self.assertRaisesRegex(RuntimeError, words, call)

    def test_refusals(self):
        one, packed = layout.get_mn_major_tma_aligned_tensor, layout.get_mn_major_tma_aligned_packed_ue8m0_tensor
        x = np.ones((64, 4), F32)
        for dtype in (F16, BF16):
            for y in (x.astype(dtype), np.asfortranarray(x.astype(dtype))):  # as they would lie right
                self.assertRaisesRegex(RuntimeError, f'sf is {y.dtype.name}; wanted float32', one, y)
            self.assertRaisesRegex(RuntimeError, 'wanted float32', packed, x.astype(dtype))
        for f in (one, packed):
            for y in (x[0], np.array(1, F32), x[None, None]):
                self.assertRaisesRegex(RuntimeError, 'wanted .mn, k.', f, y)
            self.assertRaisesRegex(RuntimeError, 'strides are 0 or more', f, x[::-1])
            self.assertRaisesRegex(RuntimeError, 'swapped bytes', f, x.astype('>f4'))

    def test_packed(self):
        f = layout.get_mn_major_tma_aligned_packed_ue8m0_tensor
        for lead, mn, k in itertools.product(((), (3,)), (1, 3, 4, 133), (4, 5, 8)):
            e = rng().integers(-20, 20, (*lead, mn, k))
            x = np.ldexp(F32(1), e).astype(F32)
            y = f(x)
            self.assertEqual((y.dtype, y.shape), (np.int32, (*lead, mn, cdiv(k, 4))))
            self.assertTrue((np.ascontiguousarray(y).view(np.uint8)[..., :k] == e + 127).all())
            self.lies_right(y, y.copy())
            self.assertIs(layout.get_mn_major_tma_aligned_tensor(y), y)
            self.lies_right(layout.get_mn_major_tma_aligned_tensor(np.ascontiguousarray(y)), y)
        self.assertEqual(np.ascontiguousarray(f(np.full((4, 4), 1.5, F32))).view(np.uint8).tolist(), [[128] * 4] * 4)

    def test_sizes(self):
        self.assertEqual([layout.get_tma_aligned_size(x, 4) for x in (0, 1, 4, 5)], [0, 4, 4, 8])
        self.assertEqual([layout.get_tma_aligned_size(x, 1) for x in (1, 17)], [16, 32])
        self.assertEqual((math.ceil_div(7, 2), math.align(7, 4), deep_gemm.cell_div(8, 3)), (4, 8, 3))
        self.assertEqual(layout.get_theoretical_mk_alignment_for_contiguous_layout(), 128)
        self.assertEqual(layout.get_theoretical_mk_alignment_for_contiguous_layout(64, num_groups=4), 64)
