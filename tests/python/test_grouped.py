"""The grouped products on the CPU: each group has the bits of a dense product, and nothing else is written."""

import itertools
import unittest

import deep_gemm
import fake_tensor
import numpy as np
from common import BF16, BOUND, F16, F32, I32, cdiv, codes, error_of, mn_major, product, rng
from test_dlpack import Capsules, OldTorch, wrap

POISON = 12345.0


def align(x, y):
    return cdiv(x, y) * y


def bits(x):
    return x.view(np.uint16 if x.itemsize == 2 else np.uint32)


def scales(r, *shape):
    return (r.random(shape) + 0.1).astype(F32)


class Group:
    """a [rows, k] or [G, rows, k], b [G, n, k], their scales, d, and what d shall be."""

    def __init__(self, rows, groups, n=200, k=300, lead=(), dtype=BF16, seed=0):
        r, kg = rng(seed), cdiv(k, 128)
        self.a, self.sfa = codes(r, *lead, rows, k), scales(r, *lead, rows, kg)
        self.b, self.sfb = codes(r, groups, n, k), scales(r, groups, cdiv(n, 128), kg)
        self.d = np.full((*lead, rows, n), POISON, dtype)
        self.want = self.d.copy()

    def args(self):
        return (self.a, self.sfa), (self.b, self.sfb), self.d

    def expect(self, where, group):
        """The rows `where` of D are those of A times B[group]^T."""
        a, sfa, b, sfb = self.a[where], self.sfa[where], self.b[group], self.sfb[group]
        d = np.empty((len(a), b.shape[0]), self.d.dtype)
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d)
        if d.size > 64:
            assert error_of(d, product(a, sfa, b, sfb)) < BOUND[self.d.dtype.type]
        self.want[where] = d


class Grouped(unittest.TestCase):
    def judge(self, g):
        different = (bits(g.d) != bits(g.want)).any(-1)
        self.assertFalse(different.any(), f'rows {np.argwhere(different)[:4].tolist()}')


# ---- Rows in blocks --------------------------------------------------------------------------------------------------


def blocks(g, ids, alignment=128):
    for row in range(0, len(ids), alignment):
        if ids[row] >= 0:
            g.expect(slice(row, row + alignment), ids[row])


class Contiguous(Grouped):
    LAYOUTS = {
        'full': [0] * 128 + [2] * 128,
        'padded': [0] * 100 + [-1] * 28 + [1] * 128 + [2] * 77,
        'skipped': [-1] * 128 + [0] * 128 + [-1] * 256 + [2] * 3 + [-1] * 125,
        'tail': [1] * 50 + [-1] * 250,
        'short': [2] * 5,
        'one row': [1],
        'nothing': [-1] * 300,
    }

    def test_layouts_and_types(self):
        for (name, ids), dtype in itertools.product(self.LAYOUTS.items(), (BF16, F16, F32)):
            with self.subTest(layout=name, dtype=dtype.__name__):
                g = Group(len(ids), 3, dtype=dtype)
                self.assertIsNone(deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*g.args(), np.array(ids, I32)))
                blocks(g, ids)
                self.judge(g)

    def test_alignments(self):
        ids = [0] * 60 + [-1] * 4 + [1] * 32 + [-1] * 32 + [2] * 70
        try:
            for alignment in (8, 32, 64, 128):
                deep_gemm.set_mk_alignment_for_contiguous_layout(alignment)
                g = Group(len(ids), 3)
                deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*g.args(), np.array(ids, I32))
                blocks(g, ids, alignment)
                self.judge(g)
        finally:
            deep_gemm.set_mk_alignment_for_contiguous_layout(128)

    def test_forms(self):
        """All names and spellings; B transposed; lists; strides of d; layouts of scales."""
        ids = np.array([0] * 128 + [2] * 72, I32)
        t = lambda b: tuple(np.ascontiguousarray(x.swapaxes(1, 2)) for x in b)
        m = deep_gemm
        calls = {
            'fp4': lambda a, b, d: m.m_grouped_fp8_fp4_gemm_nt_contiguous(a, b, d, ids),
            'extension': lambda a, b, d: m._C.m_grouped_fp8_fp4_gemm_nt_contiguous(a, b, d, ids),
            'm_indices': lambda a, b, d: m.m_grouped_fp8_gemm_nt_contiguous(a, b, d, m_indices=ids, compiled_dim=''),
            'lists': lambda a, b, d: m.m_grouped_fp8_gemm_nt_contiguous(list(a), list(b), d, ids),
            'all': lambda a, b, d: m.m_grouped_fp8_gemm_nt_contiguous(
                a, b, d, ids, (1, 128, 128), (1, 128), (128, 128), 'nk', True, False, True, None, None
            ),
            'nn': lambda a, b, d: m.m_grouped_fp8_gemm_nn_contiguous(a, t(b), d, ids),
            'nn fp4': lambda a, b, d: m.m_grouped_fp8_fp4_gemm_nn_contiguous(
                a, t(b), d, ids, None, None, None, 'nk', False, False, True, None
            ),
            'release 1': lambda a, b, d: m.m_grouped_gemm_fp8_fp8_bf16_nt_contiguous(a, b, d, m_indices=ids),
            'MN-major scales': lambda a, b, d: m.m_grouped_fp8_gemm_nt_contiguous(
                (a[0], mn_major(a[1])), (b[0], mn_major(b[1])), d, ids
            ),
        }
        for name, call in calls.items():
            with self.subTest(call=name):
                g = Group(200, 3)
                wide = np.full((200, 260), POISON, BF16)
                g.d = wide[:, 30:230]
                self.assertIsNone(call(*g.args()))
                blocks(g, ids)
                g.d = g.d.copy()
                self.judge(g)
                self.assertTrue((wide[:, :30] == BF16(POISON)).all() and (wide[:, 230:] == BF16(POISON)).all())

    def test_rows_of_scales_for_b(self):
        ids, r = np.array([1] * 128 + [0] * 32, I32), rng(3)
        g = Group(160, 2)
        g.sfb = scales(r, 2, 200, 3)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*g.args(), ids, recipe=(1, 1, 128))
        for rows, group in ((slice(0, 128), 1), (slice(128, 160), 0)):
            d = np.empty((g.a[rows].shape[0], 200), BF16)
            deep_gemm.fp8_gemm_nt((g.a[rows], g.sfa[rows]), (g.b[group], g.sfb[group]), d, recipe=(1, 1, 128))
            g.want[rows] = d
        self.judge(g)

    def test_empty(self):
        for rows, groups in ((0, 3), (0, 0), (40, 0)):
            g = Group(rows, groups)
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*g.args(), np.zeros(rows, I32))
            self.judge(g)
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*g.args(), np.zeros(groups, I32), use_psum_layout=True)


class PrefixSums(Grouped):
    COUNTS = ((100, 0, 1, 200, 128), (0, 130, 0, 127, 0), (1,) * 5, (0,) * 5)

    def check(self, counts, alignment, zeros, call, extra=40):
        ends, end = [], 0
        for count in counts:
            end = align(end, alignment) + count
            ends.append(end)
        g = Group(align(end, alignment) + extra, len(counts))
        call(*g.args(), np.array(ends, I32))
        for group, (count, end) in enumerate(zip(counts, ends)):
            if count:
                g.expect(slice(end - count, end), group)
            if zeros:
                g.want[end : align(end, alignment)] = 0
        self.judge(g)

    def test_groups_and_gaps(self):
        nt, nn = deep_gemm.m_grouped_fp8_gemm_nt_contiguous, deep_gemm.m_grouped_fp8_gemm_nn_contiguous
        t = lambda b: tuple(x.swapaxes(1, 2) for x in b)
        calls = {
            True: [
                lambda *args: nt(*args, use_psum_layout=True),
                lambda *args: nt(*args, use_psum_layout=True, expected_m_for_psum_layout=-1),
                lambda a, b, d, ends: nn(a, t(b), d, ends, use_psum_layout=True),
            ],
            False: [
                lambda *args: nt(*args, use_psum_layout=True, ensure_zero_padding=False),
                lambda *args: nt(
                    *args, use_psum_layout=True, ensure_zero_padding=False, expected_m_for_psum_layout=1 << 70
                ),
            ],
        }
        for zeros, counts in itertools.product((True, False), self.COUNTS):
            for i, call in enumerate(calls[zeros]):
                with self.subTest(counts=counts, zeros=zeros, call=i):
                    self.check(counts, 128, zeros, call)

    def test_alignments(self):
        try:
            for alignment in (8, 16, 64):
                deep_gemm.set_mk_alignment_for_contiguous_layout(alignment)
                for zeros in (True, False):
                    self.check(
                        (20, 0, 1, 33, 64),
                        alignment,
                        zeros,
                        lambda *args: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
                            *args, use_psum_layout=True, ensure_zero_padding=zeros
                        ),
                    )
        finally:
            deep_gemm.set_mk_alignment_for_contiguous_layout(128)


# ---- Rows in a matrix for each group ---------------------------------------------------------------------------------


class Masked(Grouped):
    COUNTS = {1: (1, 0, 1), 8: (8, 3, 0), 65: (65, 64, 0), 200: (1, 129, 200)}

    def check(self, most, counts, call):
        g = Group(most, len(counts), lead=(len(counts),))
        self.assertIsNone(call(*g.args(), np.array(counts, I32)))
        for group, count in enumerate(counts):
            if count:
                g.expect((group, slice(0, count)), group)
        self.judge(g)

    def test_counts(self):
        f = deep_gemm.m_grouped_fp8_gemm_nt_masked
        for most, counts in self.COUNTS.items():
            for expected in (0, 1, most, 4096, -5, 1 << 70):
                with self.subTest(most=most, expected=expected):
                    self.check(most, counts, lambda *args: f(*args, expected))
            self.check(most, (0,) * 3, lambda *args: f(*args, 0))

    def test_forms(self):
        m = deep_gemm
        calls = {
            'fp4': lambda a, b, d, c: m.m_grouped_fp8_fp4_gemm_nt_masked(a, b, d, c, 8),
            'release 2': lambda a, b, d, c: m.fp8_m_grouped_gemm_nt_masked(a, b, d, masked_m=c, expected_m=8),
            'release 1': lambda a, b, d, c: m.m_grouped_gemm_fp8_fp8_bf16_nt_masked(a, b, d, c, 8),
            'lists': lambda a, b, d, c: m.m_grouped_fp8_gemm_nt_masked(list(a), list(b), d, c, 8),
            'all': lambda a, b, d, c: m.m_grouped_fp8_gemm_nt_masked(
                a, b, d, c, 8, None, (1, 128), (128, 128), 'nk', False, None, False, 256, None
            ),
            'SGLang': lambda a, b, d, c: m.m_grouped_fp8_gemm_nt_masked(
                a, b, d, c, 8, compiled_dims='', enable_overlap=False, max_block_n=160, signal=None
            ),
            'MN-major scales': lambda a, b, d, c: m.m_grouped_fp8_gemm_nt_masked((a[0], mn_major(a[1])), b, d, c, 8),
        }
        for name, call in calls.items():
            with self.subTest(call=name):
                self.check(33, (30, 0, 7), call)

    def test_empty(self):
        for most, groups in ((0, 2), (8, 0)):
            g = Group(most, groups, lead=(groups,))
            deep_gemm.m_grouped_fp8_gemm_nt_masked(*g.args(), np.zeros(groups, I32), 1)


# ---- Groups along K --------------------------------------------------------------------------------------------------


class KGroups:
    """Groups of K: [m, k] and [n, k] each, with scales of 1 x 128."""

    def __init__(self, m, n, ks, dtype=F32):
        r = rng(len(ks))
        self.m, self.n, self.ks = m, n, ks
        self.a, self.b = ([codes(r, mn, k) for k in ks] for mn in (m, n))
        self.sfa, self.sfb = ([scales(r, mn, cdiv(k, 128)) for k in ks] for mn in (m, n))
        self.c = (r.standard_normal((len(ks), m, n)) * 16).astype(dtype)
        self.d = np.full_like(self.c, POISON)
        self.layout = np.array(ks, I32)

    def flat(self, shape=(-1,)):
        """For _nt_: scales are views of [groups of 128, mn]."""
        join = lambda parts: np.concatenate([x.reshape(-1) for x in parts]).reshape(shape)
        sf = lambda parts: np.ascontiguousarray(np.concatenate(parts, 1).T)
        return (join(self.a), sf(self.sfa).T), (join(self.b), sf(self.sfb).T)

    def tall(self):
        """For _tn_."""
        t = lambda parts: np.ascontiguousarray(np.concatenate(parts, 1).T)
        return (t(self.a), t(self.sfa)), (t(self.b), t(self.sfb))

    def want(self, c):
        out = np.empty_like(self.d)
        for g, d in enumerate(out):
            pairs = (self.a[g], self.sfa[g]), (self.b[g], self.sfb[g])
            deep_gemm.fp8_gemm_nt(*pairs, d, None if c is None else c[g], recipe=(1, 1, 128))
        return out


class AlongK(unittest.TestCase):
    KS = ((128, 256, 0, 384), (0, 128, 0), (100, 1, 0, 300), (0, 0), (512,))

    def same(self, x, y):
        self.assertTrue((bits(x) == bits(y)).all())

    def test_groups(self):
        nt, tn = deep_gemm.k_grouped_fp8_gemm_nt_contiguous, deep_gemm.k_grouped_fp8_gemm_tn_contiguous
        for ks, dtype in itertools.product(self.KS, (F32, BF16)):
            for f, form in ((nt, KGroups.flat), (tn, KGroups.tall)):
                with self.subTest(ks=ks, dtype=dtype.__name__, function=f.__name__):
                    p = KGroups(40, 72, ks, dtype)
                    args, c = form(p), p.c.copy()
                    self.assertIsNone(f(*args, p.d, list(ks), p.layout))
                    self.same(p.d, p.want(None))
                    f(*args, p.d, tuple(ks), p.layout, c)
                    self.same(p.d, p.want(p.c))
                    self.same(c, p.c)
                    f(*args, c, None, p.layout, c=c)
                    self.same(c, p.want(p.c))

    def test_dense_agrees(self):
        """What the groups are compared with has the bits' sense: float64 says so."""
        p = KGroups(40, 72, (300,))
        want = product(p.a[0], p.sfa[0], p.b[0], p.sfb[0], gran_n=1)
        self.assertLess(error_of(p.want(None)[0], want), BOUND[F32])

    def test_the_host_list_is_a_hint(self):
        ks = (128, 256, 0, 384)
        for host in ([768, 0, 0, 0], (0,) * 4, [10**30, 'x', None, -5], None):
            p = KGroups(24, 40, ks)
            deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*p.flat(), p.d, host, p.layout)
            self.same(p.d, p.want(None))

    def test_forms(self):
        f, ks = deep_gemm.k_grouped_fp8_gemm_nt_contiguous, (128, 0, 256)
        calls = {
            'old keywords': lambda p, a, b: f(a, b, p.d, ks=list(ks), ks_tensor=p.layout, c=None),
            'new keywords': lambda p, a, b: f(
                a, b, p.d, ks_cpu=ks, grouped_layout=p.layout, recipe=(1, 1, 128), compiled_dims='mn'
            ),
            'all': lambda p, a, b: f(a, b, p.d, ks, p.layout, None, (1, 1, 128), 'mn', False, None),
            'no recipe': lambda p, a, b: f(list(a), list(b), p.d, ks, p.layout, recipe=None, compiled_dim=''),
            'MN-major scales': lambda p, a, b: f((a[0], mn_major(a[1])), (b[0], mn_major(b[1])), p.d, ks, p.layout),
            'row-major scales': lambda p, a, b: f(
                (a[0], np.ascontiguousarray(a[1])), (b[0], np.ascontiguousarray(b[1])), p.d, ks, p.layout
            ),
        }
        for shape in ((-1,), (8, -1), (2, 4, -1), (1, -1, 1)):
            for name, call in calls.items():
                with self.subTest(call=name, shape=shape):
                    p = KGroups(24, 40, ks)
                    self.assertIsNone(call(p, *p.flat(shape)))
                    self.same(p.d, p.want(None))

    def test_empty(self):
        for m, n, ks in ((0, 8, (128,)), (8, 0, (128,)), (8, 8, ())):
            p = KGroups(m, n, ks or (128,))
            p.d, p.layout = p.d[: len(ks)], p.layout[: len(ks)]
            deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*p.flat(), p.d, list(ks), p.layout)

    def test_release_1(self):
        ks = (128, 0, 384)
        p = KGroups(24, 40, ks)
        flat, out = p.flat(), p.c.copy()
        deep_gemm.k_grouped_wgrad_gemm_fp8_fp8_fp32_nt(*((x, sf.T) for x, sf in flat), out, list(ks))
        self.same(out, p.want(p.c))
        for transposed in (False, True):
            out = p.c[2].copy()
            sf = (lambda x: np.ascontiguousarray(x.T)) if transposed else lambda x: x
            deep_gemm.wgrad_gemm_fp8_fp8_fp32_nt((p.a[2], sf(p.sfa[2])), (p.b[2], sf(p.sfb[2])), out)
            self.same(out, p.want(p.c)[2])


class Producers(unittest.TestCase):
    def test_all_kinds(self):
        """Every way to show memory, in lists, with all arguments that there are."""
        makes = (
            wrap,
            lambda x: wrap(x, fake_tensor.ManagedOnly),
            Capsules,
            lambda x: Capsules(x, 'old'),
            OldTorch,
            lambda x: x,
        )
        for i, make in enumerate(makes):
            with self.subTest(producer=i):
                p = KGroups(24, 40, (128, 0, 256))
                pairs = p.flat()  # stay: what is made of them does not keep them
                a, b = ([make(x) for x in pair] for pair in pairs)
                d, c, layout = make(p.d), make(p.c), make(p.layout)
                before = fake_tensor.counts()
                deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, [0] * 3, layout, c)
                handed_out, deleted, _ = (y - x for x, y in zip(before, fake_tensor.counts()))
                self.assertEqual(handed_out, deleted)
                self.assertTrue((bits(p.d) == bits(p.want(p.c))).all())


# ---- What is refused -------------------------------------------------------------------------------------------------


class Refusals(unittest.TestCase):
    def refuses(self, d, call, kind, *words):
        before = d.copy()
        with self.assertRaises(kind) as caught:
            call()
        self.assertIs(type(caught.exception), kind)
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertTrue((bits(d) == bits(before)).all(), 'd was written')

    def test_contiguous(self):
        f, g = deep_gemm.m_grouped_fp8_gemm_nt_contiguous, Group(256, 2)
        ids, name = np.array([0] * 128 + [1] * 128, I32), 'm_grouped_fp8_gemm_nt_contiguous: grouped_layout '
        a, b, d = g.args()
        calls = [
            (lambda: f(a, b, d, ids.astype(np.int64)), name + 'is int64'),
            (lambda: f(a, b, d, ids.astype(F32)), name + 'is float32 of 1 dimensions; wanted an int32 vector'),
            (lambda: f(a, b, d, ids.reshape(2, 128)), name + 'is int32 of 2 dimensions; wanted an int32 vector'),
            (lambda: f(a, b, d, ids[:255]), name + 'has 255 numbers; wanted 256, one for each row of d'),
            (lambda: f(a, b, d, ids.repeat(2)[::2]), name + 'has the stride 2; wanted a contiguous vector'),
            (lambda: f(a, b, d, ids, use_psum_layout=True), name + 'has 256 numbers; wanted 2, one for each group'),
            (lambda: f(a, b, d, ids, recipe=(1, 1, 128)), 'sfb is'),
            (lambda: f(a, b, d, ids, recipe=(1, 1, 64)), 'recipe is {1, 1, 64}'),
            (lambda: f(a, b, d, ids, alpha=1.0), 'alpha is given'),
            (lambda: f(a, b, d[None], ids), 'd has 3 dimensions'),
            (lambda: f(a, (b[0][0], b[1][0]), d, ids), 'b has 2 dimensions'),
            (lambda: f(a, b, np.zeros((256, 199), BF16), ids), 'd of 199 columns'),
        ]
        for call, words in calls:
            with self.subTest(words=words):
                self.refuses(d, call, RuntimeError, words)
        wrong = [
            (lambda: f(a, b, d), "missing required argument 'grouped_layout' (pos 4)"),
            (lambda: f(a, b, d, None), "'grouped_layout' must be a tensor, not NoneType"),
            (lambda: f(a, b, d, ids, m_indices=ids), "multiple values for argument 'grouped_layout'"),
            (lambda: f(a, b, d, [0] * 256), "'grouped_layout' must be a tensor, not list"),
            (lambda: f(a[0], b, d, ids), "argument 'a' must be a pair"),
            (lambda: f(*[None] * 14), 'takes at most 13 arguments (14 given)'),
            (lambda: f(a, b, d, ids, expected_m_for_psum_layout='x'), "expected_m_for_psum_layout' must be an int"),
            (
                lambda: deep_gemm.m_grouped_fp8_gemm_nn_contiguous(a, b, d, ids, expected_m_for_psum_layout=3),
                "unexpected keyword argument 'expected_m_for_psum_layout'",
            ),
        ]
        for call, words in wrong:
            with self.subTest(words=words):
                self.refuses(d, call, TypeError, words)

    def test_masked(self):
        f, g, name = deep_gemm.m_grouped_fp8_gemm_nt_masked, Group(16, 3, lead=(3,)), 'm_grouped_fp8_gemm_nt_masked: '
        counts = np.array([1, 2, 3], I32)
        a, b, d = g.args()
        calls = [
            (lambda: f(a, b, d, counts[:2], 1), name + 'masked_m has 2 numbers; wanted 3, one for each group of d'),
            (lambda: f(a, b, d, counts.astype(np.int64), 1), name + 'masked_m is int64'),
            (lambda: f(a, b, d, counts, 1, enable_overlap=True), name + 'enable_overlap is true'),
            (lambda: f(a, b, d, counts, 1, signal=counts), name + 'signal is given'),
            (lambda: f(a, (b[0][:2], b[1][:2]), d, counts, 1), 'b is [2, 200, 300]'),
            (lambda: f((a[0][0], a[1][0]), b, d, counts, 1), 'a has 2 dimensions'),
        ]
        for call, words in calls:
            with self.subTest(words=words):
                self.refuses(d, call, RuntimeError, words)
        self.refuses(d, lambda: f(a, b, d, counts), TypeError, "missing required argument 'expected_m' (pos 5)")
        self.refuses(d, lambda: f(a, b, d, counts, None), TypeError, "argument 'expected_m' must be an integer")

    def test_along_k(self):
        nt, tn = deep_gemm.k_grouped_fp8_gemm_nt_contiguous, deep_gemm.k_grouped_fp8_gemm_tn_contiguous
        p, name = KGroups(24, 40, (128, 256)), 'k_grouped_fp8_gemm_nt_contiguous: '
        (a, b), d, ks = p.flat(), p.d, [128, 256]
        tall = p.tall()[0]
        calls = [
            (lambda: nt(a, b, d, [384], p.layout), name + 'ks_cpu has 1 numbers; wanted 2, one for each group of d'),
            (lambda: nt(a, b, d, ks, p.layout[:1]), name + 'grouped_layout has 1 numbers; wanted 2'),
            (lambda: nt(a, b, d, ks, p.layout, use_psum_layout=True), name + 'use_psum_layout is true'),
            (lambda: nt((tall[0].T, a[1]), b, d, ks, p.layout), name + 'a is not contiguous'),
            (lambda: nt((a[0][:-1], a[1]), b, d, ks, p.layout), 'a is [9215]'),
            (lambda: nt((a[0], a[1][:, :2]), b, d, ks, p.layout), 'sfa is [24, 2]'),
            (lambda: nt(a, b, d, ks, p.layout, recipe=(1, 128, 128)), 'recipe is {1, 128, 128}; wanted {1, 1, 128}'),
            (lambda: nt(a, b, d, ks, p.layout, c=p.c[:1]), 'c is [1, 24, 40]'),
            (lambda: nt(a, b, d, ks, p.layout, c=p.c.astype(BF16)), 'c is bfloat16 but d is float32'),
            (lambda: nt(a, b, d[0], ks, p.layout), 'd has 2 dimensions'),
            (
                lambda: tn(a, b, d, ks, p.layout),
                'k_grouped_fp8_gemm_tn_contiguous: a has 1 dimensions; wanted 2, the first of them the sum of K',
            ),
        ]
        for call, words in calls:
            with self.subTest(words=words):
                self.refuses(d, call, RuntimeError, words)
        self.refuses(d, lambda: nt(a, b, d, p.layout, ks), TypeError, "'ks_cpu' must be a list or tuple")
        self.refuses(d, lambda: nt(a, b, d, ks), TypeError, "missing required argument 'grouped_layout' (pos 5)")
        self.refuses(
            d, lambda: nt(a, b, d, ks, ks=ks, ks_tensor=p.layout), TypeError, "multiple values for argument 'ks_cpu'"
        )

    def test_is_supported(self):
        ask, g, ids = deep_gemm.is_supported, Group(256, 2), np.zeros(256, I32)
        for name in (
            'm_grouped_fp8_gemm_nt_contiguous',
            'm_grouped_fp8_fp4_gemm_nt_contiguous',
            'm_grouped_gemm_fp8_fp8_bf16_nt_contiguous',
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous,
        ):
            self.assertIs(ask(name), True)
            self.assertIs(ask(name, *g.args(), ids), True)
            self.assertIs(ask(name, *g.args(), ids[1:]), False)
            self.assertRaises(TypeError, ask, name, *g.args())
        m, counts = Group(16, 3, lead=(3,)), np.ones(3, I32)
        for name in ('m_grouped_fp8_gemm_nt_masked', 'fp8_m_grouped_gemm_nt_masked'):
            self.assertIs(ask(name, *m.args(), counts, expected_m=0), True)
            self.assertIs(ask(name, *m.args(), counts, 0, enable_overlap=True), False)
        p = KGroups(24, 40, (128, 256))
        self.assertIs(ask('k_grouped_fp8_gemm_nt_contiguous', *p.flat(), p.d, [1, 2], p.layout), True)
        self.assertIs(ask('k_grouped_fp8_gemm_tn_contiguous', *p.flat(), p.d, [1, 2], p.layout), False)
        self.assertIs(ask('k_grouped_fp8_gemm_tn_contiguous', *p.tall(), p.d, [1, 2], p.layout), True)
        self.assertIs(ask('fp8_gemm_nt_skip_head_mid'), False)
        self.assertTrue((g.d == BF16(POISON)).all() and (p.d == POISON).all())


class Alignment(unittest.TestCase):
    def test_names(self):
        m = deep_gemm
        for get in (m.get_m_alignment_for_contiguous_layout, m.get_k_alignment_for_contiguous_layout):
            self.assertEqual(get(), 128)

    def test_theoretical(self):
        ask = deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout
        for rows, want in {
            None: 128,
            -1: 128,
            0: 128,
            1: 8,
            8: 8,
            9: 16,
            17: 32,
            64: 64,
            65: 128,
            5000: 128,
        }.items():
            self.assertEqual(ask(rows), want)
            self.assertEqual(ask(expected_m=rows, num_groups=8), want)
        self.assertEqual(ask(), 128)


class Workspace(unittest.TestCase):
    def test_beside(self):
        beside = deep_gemm._workspace.beside
        x = beside(np.zeros(3, F32), 1001)
        self.assertEqual((x.dtype, x.nbytes), (I32, 1004))
        self.assertIsNone(beside(object(), 1001))
