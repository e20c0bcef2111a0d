"""What is refused, by which exception, in which words; and that nothing is touched then."""

import unittest

import deep_gemm
import ml_dtypes
import numpy as np
from common import BF16, F16, F32, F8, Problem, error_of


class Refusals(unittest.TestCase):
    def setUp(self):
        self.p = Problem(64, 128, 256)
        self.d = self.p.out()

    def refuses(self, call, kind, *words):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIs(type(caught.exception), kind)
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertTrue(np.isnan(self.d.astype(F32)).all(), 'd was written')
        deep_gemm.fp8_gemm_nt(*self.p.args(), self.p.out())  # the next one works

    def test_wrong_calls_are_type_errors(self):
        (a, b), d, f = self.p.args(), self.d, deep_gemm.fp8_gemm_nt
        calls = {
            "missing required argument 'a'": lambda: f(),
            "missing required argument 'b'": lambda: f(a),
            "missing required argument 'd'": lambda: f(a, b),
            "unexpected keyword argument 'no_such'": lambda: f(a, b, d, no_such=1),
            'takes at most 12 arguments (13 given)': lambda: f(
                a, b, d, None, None, None, None, 'nk', False, None, None, False, 3
            ),
            "multiple values for argument 'd'": lambda: f(a, b, d, d=d),
            "multiple values for argument 'a'": lambda: f(a, b, d, lhs=a),
            "argument 'd' must be a tensor, not NoneType": lambda: f(a, b, None),
            "argument 'd' must be a tensor, not str": lambda: f(a, b, 'd'),
            "argument 'a' must be a pair": lambda: f(a[:1], b, d),
            "argument 'b' must be a pair": lambda: f(a, (*b, 1), d),
            "argument 'a' must be a tensor, not int": lambda: f((1, 2), b, d),
            "argument 'sfa' must be a tensor, not NoneType": lambda: f((a[0], None), b, d),
            "argument 'a' must be a pair (tensor, scales)": lambda: f(a[0], b, d),
            "argument 'recipe' must be a tuple": lambda: f(a, b, d, recipe='1,128,128'),
        }
        for words, call in calls.items():
            with self.subTest(words=words):
                self.refuses(call, TypeError, words)
        for recipe in ((1, 128.5, 128), (1, None, 128), ['1', '128', '128']):
            self.refuses(
                lambda: f(a, b, d, recipe=recipe), TypeError, "argument 'recipe' must be a tuple of 3 integers"
            )

    def test_one_argument_by_two_names(self):
        call = deep_gemm.k_grouped_bf16_gemm_tn_contiguous
        self.refuses(lambda: call(1, 2, 3, ks_cpu=[1], ks=[2], grouped_layout=None), TypeError, 'by two names')

    def test_refused_arguments_are_runtime_errors(self):
        d, f, p = self.d, deep_gemm.fp8_gemm_nt, self.p
        x = lambda **change: f(
            (change.get('a', p.a), change.get('sfa', p.sfa)),
            (change.get('b', p.b), change.get('sfb', p.sfb)),
            change.get('d', d),
            **{k: v for k, v in change.items() if k in ('c', 'recipe', 'recipe_a', 'recipe_b', 'alpha')},
        )
        calls = [
            (dict(a=p.a.astype(BF16)), 'dg_gemm: a has the dtype bfloat16'),
            (dict(a=p.a.astype(ml_dtypes.float8_e5m2)), 'a is float8_e5m2; wanted'),
            (dict(b=p.b.astype(F32)), 'b has the dtype float32'),
            (dict(d=np.zeros((64, 128))), 'd is float64; wanted'),
            (dict(d=np.zeros((64, 128), np.int32)), 'd has the dtype int32'),
            (dict(sfa=p.sfa.astype(np.float64)), 'sfa is float64'),
            (dict(sfb=p.sfb.astype(F16)), 'sfb has the dtype float16'),
            (dict(sfa=p.sfa[:, :1]), 'wants [64, 2]'),
            (dict(sfb=np.zeros((2, 2), F32)), 'wants [1, 2]'),
            (dict(d=np.zeros((64, 127), BF16)), 'd of 127 columns'),
            (dict(b=p.b[:, :128]), 'K'),
            (dict(a=p.a[0]), 'a has 1 dimensions; wanted 2'),
            (dict(a=p.a[None, None, None, None]), 'a has 6 dimensions; wanted 4'),
            (dict(a=p.a[::-1]), 'stride'),
            (dict(c=np.zeros((64, 128), F32)), 'c is float32 but d is bfloat16'),
            (dict(c=np.zeros((63, 128), BF16)), 'c is [63, 128]'),
            (dict(recipe=(1, 1, 64)), 'recipe is {1, 1, 64}'),
            (dict(recipe=(1, 1, 128)), 'sfb is'),
            (dict(recipe=(7, 7, 7)), 'recipe is {7, 7, 7}'),
            (dict(recipe=(1 << 40, 7, 7)), 'recipe is {2147483647, 7, 7}'),
            (dict(recipe=(1 << 70, 7, -(1 << 70))), 'recipe is {2147483647, 7, 2147483647}'),
            (dict(recipe=(0, 0, 0)), 'recipe is {0, 0, 0}; wanted {1, 128, 128}'),
            (dict(recipe_a=(0, 0), recipe_b=(0, 0)), 'recipe is {0, 0, 0}; wanted {1, 128, 128}'),
            (dict(recipe=(1, 128)), 'recipe has 2 numbers; wanted 3'),
            (dict(recipe_a=(1, 128)), 'recipe_a and recipe_b'),
            (dict(recipe_b=(128, 128)), 'recipe_a and recipe_b'),
            (dict(recipe_a=(1, 128), recipe_b=(128, 64)), 'recipe_a and recipe_b'),
            (dict(recipe_a=(1, 128), recipe_b=(128, 128), recipe=(1, 1, 128)), 'recipe_a and recipe_b'),
            (dict(recipe_a=(1, 64), recipe_b=(1, 64)), 'recipe is {1, 1, 64}'),
            (dict(alpha=2.0), 'alpha is given'),
        ]
        for change, words in calls:
            with self.subTest(words=words):
                self.refuses(lambda: x(**change), RuntimeError, words)

    def test_memory_that_overlaps(self):
        p = self.p
        whole = np.zeros(64 * 256 + 64 * 128 * 2, np.uint8)
        a = whole[: 64 * 256].view(F8).reshape(64, 256)
        d = whole[64 * 128 : 64 * 128 + 64 * 128 * 2].view(BF16).reshape(64, 128)
        self.refuses(lambda: deep_gemm.fp8_gemm_nt((a, p.sfa), (p.b, p.sfb), d), RuntimeError, 'd')

    def test_read_only(self):
        (a, b), d = self.p.args(), self.p.out()
        for x in (*a, *b):
            x.flags.writeable = False
        deep_gemm.fp8_gemm_nt(a, b, d)  # inputs may be
        d.flags.writeable = False
        self.refuses(lambda: deep_gemm.fp8_gemm_nt(a, b, d), RuntimeError, 'fp8_gemm_nt: d is read-only')

    def test_odd_arrays(self):
        (a, b), d = self.p.args(), self.d
        table = np.zeros(64, [('x', F32), ('y', np.uint8)])
        self.refuses(
            lambda: deep_gemm.fp8_gemm_nt((a[0], table['x'][:, None]), b, d), RuntimeError, 'stride of 5 bytes'
        )
        swapped = self.p.sfa.astype('>f4')
        self.refuses(lambda: deep_gemm.fp8_gemm_nt((a[0], swapped), b, d), RuntimeError, 'swapped bytes')

        class Broken:
            __array_interface__ = dict(shape=(64, 128), typestr='<f4', version=3)
            dtype = np.dtype(F32)

        self.refuses(lambda: deep_gemm.fp8_gemm_nt(a, b, Broken()), TypeError, "['data'] is None; wanted")

        class Nameless:
            __array_interface__ = dict(shape=(64, 128), typestr='<f4', version=3, data=(0, False))
            dtype = 'f'

        self.refuses(
            lambda: deep_gemm.fp8_gemm_nt(a, b, Nameless()), TypeError, "its dtype is 'f'; wanted one with a name"
        )

    def test_absurd_interfaces(self):
        whole = dict(shape=(64, 128), typestr='<V2', version=3, data=(self.d.ctypes.data, False))

        def call(interface, dtype=self.d.dtype):
            x = type('Array', (), {'__array_interface__': interface, 'dtype': dtype})()
            return lambda: deep_gemm.fp8_gemm_nt(*self.p.args(), x)

        for interface in (None, 5, [whole]):
            self.refuses(call(interface), TypeError, "argument 'd': its __array_interface__ is", 'wanted a dict')
        for key, values in {
            'shape': (None, 5, 'ab', [64, 128], ('64', 128), (64.0, 128), (None, 128)),
            'strides': (5, 'ab', [256, 2], ('256', 2), (2.0, 2), (2,), (2, 2, 2)),
            'data': (None, 5, (), (1, 2, 3), ('x', False), (None, False)),
        }.items():
            for value in values:
                with self.subTest(key=key, value=value):
                    self.refuses(
                        call({**whole, key: value}), TypeError, f"argument 'd': its __array_interface__['{key}']"
                    )
        for key, value, words in (
            ('shape', (1 << 70, 128), 'd is [9223372036854775807, 128]'),
            ('shape', (-(1 << 70), 128), 'd has the size -9223372036854775808'),
            ('shape', (1 << 62, 1 << 62), 'beyond what can be addressed'),
            ('strides', (1 << 70, 2), 'd has a stride of 9223372036854775807 bytes'),
            ('strides', (-256, 2), 'd has the stride -128'),
            ('data', (1 << 70, False), 'd lies at 1180591620717411303424, which is no address'),
            ('data', (-2, False), 'd lies at -2, which is no address'),
            ('mask', np.ones((64, 128), bool), 'd has a mask'),
        ):
            with self.subTest(key=key, value=value):
                self.refuses(call({**whole, key: value}), RuntimeError, words)
        deep_gemm.fp8_gemm_nt(*self.p.args(), self.p.out())
        call({**whole, 'mask': None, 'strides': None})()
        self.assertLess(error_of(self.d, self.p.want()), 5e-6)

    def test_own_exceptions(self):
        """What an object's method raises for a reason of its own comes through."""

        class Raising:
            def __index__(self):
                raise KeyError('own')

        self.refuses(lambda: deep_gemm.fp8_gemm_nt(*self.p.args(), self.d, recipe=(1, Raising(), 128)), KeyError, 'own')

    def test_masked_arrays(self):
        masked = np.ma.masked_array(self.d, mask=True)
        self.refuses(
            lambda: deep_gemm.fp8_gemm_nt(*self.p.args(), masked),
            TypeError,
            "argument 'd' must be a tensor, not Masked",
        )

    def test_absurd_integers(self):
        huge = 1 << 70
        x, q, sf = self.p.sfa, self.p.a, self.p.sfa
        for call, words in (
            (lambda: deep_gemm.set_num_sms(huge), 'NUM_SMS is 9223372036854775807'),
            (lambda: deep_gemm.set_num_sms(-huge), 'NUM_SMS is -9223372036854775808'),
            (lambda: deep_gemm.set_tc_util(huge), 'TC_UTIL is'),
            (lambda: deep_gemm.device_info(huge), 'dg_device_query'),
            (lambda: deep_gemm.quantize_fp8(x, q, sf, huge, 1), 'gran_mn x gran_k is 2147483647 x 1'),
            (lambda: deep_gemm.quantize_fp8(x, q, sf, 0, 128), 'gran_mn x gran_k is 0 x 128; wanted 1 or more'),
            (lambda: deep_gemm.quantize_fp8(x, q, sf, 1, -128), 'gran_mn x gran_k is 1 x -128; wanted 1 or more'),
        ):
            self.refuses(call, RuntimeError, words)
        self.refuses(
            lambda: deep_gemm.device_info('x'), TypeError, "device_info() argument 'device' must be an integer"
        )

    def test_memory_that_the_interface_keeps(self):
        """What __array_interface__ returns may be all that refers to the memory."""

        class Fleeting:
            def __init__(self, x):
                self.x, self.dtype = x, x.dtype

            @property
            def __array_interface__(self):
                copy = self.x.copy()
                return {**copy.__array_interface__, 'keep': copy}

        (a, b), d = self.p.args(), self.p.out()
        deep_gemm.fp8_gemm_nt([Fleeting(x) for x in a], [Fleeting(x) for x in b], d)
        self.assertLess(error_of(d, self.p.want()), 5e-6)

    def test_is_supported(self):
        (a, b), d, ask = self.p.args(), self.d, deep_gemm.is_supported
        for function in ('fp8_gemm_nt', deep_gemm.fp8_gemm_nt, 'fp8_fp4_gemm_nt'):
            self.assertIs(ask(function), True)
            self.assertIs(ask(function, a, b, d), True)
            self.assertIs(ask(function, a, b, d=d, recipe=(1, 128, 128)), True)
            self.assertIs(ask(function, a, b, d, recipe=(1, 1, 64)), False)
            self.assertIn('recipe', deep_gemm.last_error())
            self.assertIs(ask(function, a, b, np.zeros((64, 128))), False)
            self.assertIs(ask(function, a, b, self.p.out(F16)), True)
        for name in ('SymmBuffer', 'legacy', '__version__', 'math', 'no_such_function'):
            self.assertIs(ask(name), False)
        self.assertIs(ask('gemm_fp8_fp8_bf16_nt', a, b, d), True)
        self.assertIs(ask('gemm_fp8_fp8_bf16_nt', a, b, d[:, :1]), False)
        self.assertIs(ask('per_token_cast_to_fp8', d, False), True)
        self.assertIs(ask('per_token_cast_to_fp8', zz=3), False)
        self.assertIs(ask('fp8_gemm_nn', a, (b[0].T, b[1].T), d), True)
        self.assertIs(ask('fp8_gemm_nn', a, b, d), False)
        self.assertIs(ask('bf16_gemm_nt'), False)
        self.assertIs(ask(deep_gemm.bf16_gemm_nt, 1, 2, 3), False)
        self.assertIs(ask('no_such_function'), False)
        self.assertIs(ask('per_token_cast_to_fp8'), True)
        self.assertRaises(TypeError, ask, 'fp8_gemm_nt', a, b)
        self.assertRaises(TypeError, ask, 'fp8_gemm_nt', a, b, 'd')
        self.assertTrue(np.isnan(d.astype(F32)).all())

    def test_settings(self):
        m = deep_gemm
        pairs = {
            'pdl': (True, False),
            'tc_util': (50, 100),
            'batch_invariant': (True, False),
            'mk_alignment_for_contiguous_layout': (64, 128),
            'num_sms': (24, 0),
            'compile_mode': (1, 0),
        }
        for name, (value, otherwise) in pairs.items():
            get, put = getattr(m, 'get_' + name), getattr(m, 'set_' + name)
            self.assertEqual(get(), otherwise)
            self.assertIs(type(get()), type(otherwise))
            self.assertIsNone(put(value))
            self.assertEqual(get(), value)
            put(otherwise)
        for call in (
            lambda: m.set_num_sms(-1),
            lambda: m.set_tc_util(101),
            lambda: m.set_mk_alignment_for_contiguous_layout(100),
        ):
            self.assertRaises(RuntimeError, call)
        for call in (
            lambda: m.set_num_sms(),
            lambda: m.set_num_sms('4'),
            lambda: m.set_pdl(True, False),
            lambda: m.get_pdl(1),
        ):
            self.assertRaises(TypeError, call)
        self.assertEqual((m.get_num_sms(), m.get_tc_util(), m.get_m_alignment_for_contiguous_layout()), (0, 100, 128))
        m.set_tc_util(0)
        m.set_tc_util(100)
        m.set_ignore_compile_dims(True)
        m.set_block_size_multiple_of((16, 32))
        m.use_deterministic_algorithms(True)
