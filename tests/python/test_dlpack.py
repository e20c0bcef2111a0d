"""Tensors that come by DLPack: its table of C functions, and capsules of both kinds. The producers are made up
(fake_tensor.c), of NumPy's memory; one is real."""

import ctypes
import re
import types
import unittest
import unittest.mock

import deep_gemm
import fake_tensor
import numpy as np
from common import BF16, BOUND, F32, F8, I32, Problem, error_of, mn_major, strided

CPU, CUDA, PINNED, MANAGED, ROCM = 1, 2, 3, 13, 10
TYPES = {
    np.dtype(F8): (10, 8, 1),
    np.dtype(F32): (2, 32, 1),
    np.dtype(BF16): (4, 16, 1),
    np.dtype(I32): (0, 32, 1),
    np.dtype(np.float16): (2, 16, 1),
}


def wrap(x, kind=fake_tensor.Tensor, device=(CPU, 0), strides=True, dtype=None, offset=0):
    t = kind(
        x.ctypes.data - offset,
        x.shape,
        tuple(s // x.itemsize for s in x.strides) if strides else None,
        dtype or TYPES[x.dtype],
        device,
    )
    return t


class Capsules:
    """A producer that has __dlpack__ only; `style` says how much of the protocol it knows."""

    def __init__(self, x, style='new', flags=0, major=1, offset=0, device=(CPU, 0)):
        self.x, self.tensor = x, wrap(x, device=device, offset=offset)
        self.style, self.flags, self.major, self.offset = style, flags, major, offset
        self.device, self.asked = device, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        if self.style != 'new' and 'max_version' in keywords or self.style == 'bare' and keywords:
            raise TypeError('unexpected keyword')
        self.asked.append(keywords)
        if self.style == 'new':
            self.capsule = fake_tensor.versioned(self.tensor, self.flags, self.major, self.offset)
        else:
            self.capsule = fake_tensor.old(self.tensor, self.offset)
        return self.capsule


class OldTorch:
    """As torch's tensors were before they had the table."""

    def __init__(self, x, device=('cpu', None), dtype=None):
        self.x, self.dtype, self.shape = x, 'torch.' + (dtype or x.dtype.name), x.shape
        self.device = types.SimpleNamespace(type=device[0], index=device[1])

    def stride(self):
        return tuple(s // x.itemsize for s in x.strides) if (x := self.x).size else (0,) * x.ndim

    def data_ptr(self):
        return self.x.ctypes.data

    def __dlpack__(self, **keywords):
        raise BufferError('float8 types are not supported by dlpack')

    def __dlpack_device__(self):
        return CPU, 0


class PythonDeleter:
    """A producer whose deleter is Python's, which must not meet the exception that is on its way."""

    class Managed(ctypes.Structure):
        _fields_ = [
            *((name, ctypes.c_uint32) for name in ('major', 'minor')),
            ('context', ctypes.c_void_p),
            ('deleter', ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
            ('flags', ctypes.c_uint64),
            ('data', ctypes.c_void_p),
            *((name, ctypes.c_int32) for name in ('device_type', 'device_id', 'ndim')),
            *((name, ctypes.c_uint8) for name in ('code', 'bits')),
            ('lanes', ctypes.c_uint16),
            ('shape', ctypes.POINTER(ctypes.c_int64)),
            ('strides', ctypes.POINTER(ctypes.c_int64)),
            ('byte_offset', ctypes.c_uint64),
        ]

    READ_ONLY = 1

    def __init__(self, x):
        self.x, self.deleted = x, 0
        shape, strides = (ctypes.c_int64 * 2)(*x.shape), (ctypes.c_int64 * 2)(x.shape[1], 1)
        deleter = dict(self.Managed._fields_)['deleter'](self.delete)
        code, bits, lanes = TYPES[x.dtype]
        self.managed = self.Managed(
            1, 0, None, deleter, self.READ_ONLY, x.ctypes.data, CPU, 0, 2, code, bits, lanes, shape, strides, 0
        )

    def delete(self, managed):
        self.deleted += len([managed])

    def __dlpack_device__(self):
        return CPU, 0

    def __dlpack__(self, **keywords):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b'dltensor_versioned', None)


class Products(unittest.TestCase):
    def judge(self, make, problem=None):
        """A product whose every tensor comes from make(array)."""
        p = problem or Problem(33, 140, 300)
        d = p.out()
        made = [make(x) for x in (p.a, p.sfa, p.b, p.sfb, d)]
        before = fake_tensor.counts()
        deep_gemm.fp8_gemm_nt((made[0], made[1]), (made[2], made[3]), made[4])
        after = fake_tensor.counts()
        self.assertLess(error_of(d, p.want()), BOUND[BF16])
        return made, [y - x for x, y in zip(before, after)]

    def test_table(self):
        self.assertEqual(self.judge(wrap)[1], [0, 0, 0])  # nothing handed out, no question about streams

    def test_refusals_survive_deleters(self):
        p = Problem()
        d = PythonDeleter(p.out())
        self.assertRaisesRegex(RuntimeError, 'd is read-only', deep_gemm.fp8_gemm_nt, *p.args(), d)
        self.assertEqual(d.deleted, 1)

    def test_devices_that_are_none(self):
        p = Problem()
        for d in (wrap(p.out(), device=(CUDA, -1)), OldTorch(p.out(), device=('cuda', -1))):
            self.assertRaisesRegex(RuntimeError, 'CUDA device -1', deep_gemm.fp8_gemm_nt, *p.args(), d)
        self.assertRaises(TypeError, deep_gemm.fp8_gemm_nt, *p.args(), OldTorch(p.out(), device=(5, None)))

    def test_streams_of_subclasses(self):
        stream = types.SimpleNamespace(cuda_stream=4660)
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(current_stream=lambda device: stream))
        base = type('Tensor', (), {'__module__': 'torch'})
        derived = type('Weight', (base,), {'__module__': 'vllm.parameter'})
        with unittest.mock.patch.dict('sys.modules', torch=torch):
            self.assertEqual(deep_gemm._streams.current_stream(base(), 0), 4660)
            self.assertEqual(deep_gemm._streams.current_stream(derived(), 0), 4660)

    def test_table_contiguous_without_strides(self):
        self.judge(lambda x: wrap(x, strides=False))

    def test_table_of_owners(self):
        """One without the function that fills a tensor: what it hands out is given back."""
        self.assertEqual(self.judge(lambda x: wrap(x, fake_tensor.ManagedOnly))[1], [5, 5, 0])

    def test_older_table_behind_a_newer(self):
        self.judge(lambda x: wrap(x, fake_tensor.Newer))

    def test_newer_table_alone(self):
        p = Problem()
        self.assertRaisesRegex(
            TypeError,
            'must be a tensor, not Foreign',
            deep_gemm.fp8_gemm_nt,
            *p.args(),
            wrap(p.out(), fake_tensor.Foreign),
        )

    def test_subclasses(self):
        class Parameter(fake_tensor.Tensor):
            pass

        self.judge(lambda x: wrap(x, Parameter))

    def test_byte_offset(self):
        self.judge(lambda x: Capsules(x, offset=16))
        self.judge(lambda x: Capsules(x, 'old', offset=32))

    def test_capsules(self):
        for style, name in (('new', 'used_dltensor_versioned'), ('old', 'used_dltensor'), ('bare', 'used_dltensor')):
            with self.subTest(style=style):
                made, counts = self.judge(lambda x: Capsules(x, style))
                self.assertEqual(counts, [5, 5, 0])
                self.assertTrue(all(name in repr(x.capsule) for x in made))
                want = {'new': {'stream': None, 'max_version': (1, 3)}, 'old': {'stream': None}, 'bare': {}}[style]
                self.assertTrue(all(x.asked == [want] for x in made))
                del made
        self.assertEqual(fake_tensor.counts()[0], fake_tensor.counts()[1])

    def test_old_torch(self):
        self.judge(OldTorch)
        self.judge(lambda x: OldTorch(strided(x, (1, x.shape[0] + 2)) if x.dtype == F32 else x))

    def test_mixed(self):
        kinds = iter((wrap, lambda x: x, Capsules, lambda x: Capsules(x, 'old'), wrap))
        self.judge(lambda x: next(kinds)(x))

    def test_pinned_memory_is_the_hosts(self):
        self.judge(lambda x: wrap(x, device=(PINNED, 0)))

    def test_real_producer(self):
        """tvm_ffi's tensors; they cannot be made of NumPy's FP8, so the scales only."""
        import tvm_ffi

        self.judge(lambda x: tvm_ffi.from_dlpack(x) if x.dtype == F32 else x)

    def test_numpy_by_dlpack(self):
        class Array:
            def __init__(self, x):
                self.x = x

            def __dlpack__(self, **keywords):
                return self.x.__dlpack__(**keywords)

            def __dlpack_device__(self):
                return self.x.__dlpack_device__()

        self.judge(lambda x: Array(x) if x.dtype == F32 else x)


class Strides(unittest.TestCase):
    def test_of_dimensions_of_size_1(self):
        """They are free: producers put anything there."""
        for m, n, k in ((1, 1, 128), (1, 200, 128), (5, 1, 100), (1, 140, 300)):
            p = Problem(m, n, k)
            d = p.out()

            def odd(x):
                strides = tuple(s // x.itemsize if size > 1 else 977 for s, size in zip(x.strides, x.shape))
                return fake_tensor.Tensor(x.ctypes.data, x.shape, strides, TYPES[x.dtype], (CPU, 0))

            deep_gemm.fp8_gemm_nt((odd(p.a), odd(p.sfa)), (odd(p.b), odd(p.sfb)), odd(d))
            self.assertLess(error_of(d, p.want()), 8e-6)

    def test_aligned_scales_of_size_1(self):
        for shape, strides in (((1, 7), (1, 4)), ((1, 7), (99, 4)), ((133, 1), (1, 5)), ((1, 133, 7), (3, 1, 136))):
            x = np.zeros(4096, F32)
            t = fake_tensor.Tensor(x.ctypes.data, shape, strides, (2, 32, 1), (CPU, 0))
            self.assertIs(deep_gemm.get_mn_major_tma_aligned_tensor(t), t)

    def test_empty_tensors_without_memory(self):
        none = lambda *shape: fake_tensor.Tensor(0, shape, None, (10, 8, 1), (CPU, 0))
        scale = lambda *shape: fake_tensor.Tensor(0, shape, None, (2, 32, 1), (CPU, 0))
        p = Problem(64, 32, 0)
        d = p.out()
        deep_gemm.fp8_gemm_nt((none(64, 0), scale(64, 0)), (none(32, 0), scale(1, 0)), wrap(d))
        self.assertTrue((d == 0).all())
        p = Problem(64, 32, 128)
        deep_gemm.fp8_gemm_nt(
            (none(0, 128), scale(0, 1)), (p.b, p.sfb), fake_tensor.Tensor(0, (0, 32), None, (4, 16, 1), (CPU, 0))
        )


class Refusals(unittest.TestCase):
    def refuses(self, d, kind, words):
        p = Problem()
        with self.assertRaisesRegex(kind, words):
            deep_gemm.fp8_gemm_nt(*p.args(), d)
        self.assertEqual(fake_tensor.counts()[0], fake_tensor.counts()[1])

    def test_types(self):
        out = Problem().out()
        for code, text in (
            ((2, 64, 1), 'd is float64;'),
            ((1, 8, 1), 'd is uint8;'),
            ((12, 8, 1), 'd is float8_e5m2;'),
            ((17, 4, 2), 'd is float4_e2m1fn x2;'),
            ((4, 16, 2), 'd is bfloat16 x2;'),
            ((6, 8, 1), 'd is bool;'),
            ((99, 8, 1), 'd is of an unknown type;'),
            ((14, 8, 1), 'd is float8_e8m0fnu;'),
        ):
            with self.subTest(text=text):
                self.refuses(wrap(out, dtype=code), RuntimeError, 'fp8_gemm_nt: ' + text)
                self.assertIs(deep_gemm.is_supported('fp8_gemm_nt', *Problem().args(), wrap(out, dtype=code)), False)

    def test_devices(self):
        out = Problem().out()
        self.refuses(wrap(out, device=(ROCM, 0)), RuntimeError, "d lies on a device of DLPack's type 10")
        self.refuses(wrap(out, device=(CUDA, 3)), RuntimeError, 'dg_gemm: ')  # the others are on the CPU

    def test_old_torch(self):
        out = Problem().out()
        self.refuses(OldTorch(out, dtype='float8_e5m2'), RuntimeError, 'd is float8_e5m2;')
        self.refuses(OldTorch(out, ('meta', None)), RuntimeError, 'd lies on the device meta')
        self.refuses(OldTorch(out[None, None, None]), RuntimeError, 'd has 5 dimensions')
        self.refuses(OldTorch(out, ('cuda', 0)), RuntimeError, 'dg_gemm: ')
        self.refuses(OldTorch(out, ('cuda', None)), TypeError, "argument 'd': its device.index is None; wanted an int")
        self.refuses(OldTorch(out, ('cuda', 1 << 70)), RuntimeError, 'd lies on CUDA device')

    def test_old_torch_absurdities(self):
        out = Problem().out()
        for attribute, value, kind, words in (
            ('shape', (1 << 70, 256), RuntimeError, 'd is .9223372036854775807, 256.'),
            ('shape', (-64, 256), RuntimeError, 'd has the size -64'),
            ('shape', ('a', 256), TypeError, "argument 'd': its shape is .'a', 256.; wanted a tuple of 2 integers"),
            ('shape', 'ab', TypeError, "argument 'd': its shape is 'ab'; wanted a tuple"),
            ('shape', None, TypeError, "argument 'd': its shape is None"),
            ('stride', lambda: (1 << 70, 1), RuntimeError, 'beyond what can be addressed'),
            (
                'stride',
                lambda: (1,),
                TypeError,
                r"argument 'd': its stride\(\) is \(1,\); wanted a tuple of 2 integers",
            ),
            ('stride', lambda: (1.5, 1), TypeError, "argument 'd': its stride"),
            ('data_ptr', lambda: 1 << 70, RuntimeError, 'd lies at 1180591620717411303424, which is no address'),
            ('data_ptr', lambda: -2, RuntimeError, 'd lies at -2'),
            ('data_ptr', lambda: 'x', TypeError, "argument 'd': its data_ptr.* is 'x'; wanted an address"),
        ):
            with self.subTest(attribute=attribute, words=words):
                d = OldTorch(out)
                setattr(d, attribute, value)
                self.refuses(d, kind, words)

    def test_read_only(self):
        p = Problem()
        self.refuses(Capsules(p.out(), flags=1), RuntimeError, 'd is read-only')
        d = p.out()
        deep_gemm.fp8_gemm_nt((Capsules(p.a, flags=1), p.sfa), (p.b, p.sfb), Capsules(d, flags=2))
        self.assertLess(error_of(d, p.want()), BOUND[BF16])
        fake_tensor.set_flags(1)
        try:
            self.refuses(wrap(d, fake_tensor.ManagedOnly), RuntimeError, 'd is read-only')
        finally:
            fake_tensor.set_flags(0)

    def test_dimensions(self):
        self.refuses(
            fake_tensor.Tensor(0, (1, 1, 1, 1, 1), None, (4, 16, 1), (CPU, 0)), RuntimeError, 'd has 5 dimensions'
        )

    def test_producers_that_fail(self):
        self.refuses(fake_tensor.Tensor(0, None, None, (4, 16, 1), (CPU, 0)), BufferError, 'no memory')

        class Failing(Capsules):
            def __dlpack__(self, **keywords):
                raise ValueError('requires grad')

        self.refuses(Failing(Problem().out()), ValueError, 'requires grad')

    def test_junk(self):
        """What is no capsule and no device is told by its argument and its value."""
        out = Problem().out()

        def producer(capsule, device=(CPU, 0)):
            return type('P', (), {'__dlpack__': lambda self, **k: capsule, '__dlpack_device__': lambda self: device})()

        foreign = ctypes.pythonapi.PyCapsule_New
        foreign.restype, foreign.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        for capsule in (None, 42, 'dltensor', (1, 2), foreign(out.ctypes.data, b'tensor', None)):
            with self.subTest(capsule=capsule):
                words = "argument 'd': its __dlpack__.. is " + re.escape(repr(capsule)) + '; wanted a capsule'
                self.refuses(producer(capsule), TypeError, words)
        for device in (None, 'cpu', 1, [1, 0], (), (1,), (1, 0, 0), ('cpu', 0), (1, None), (1.0, 0)):
            with self.subTest(device=device):
                words = "argument 'd': its __dlpack_device__.. is " + re.escape(repr(device)) + '; wanted a tuple of 2'
                self.refuses(producer(None, device), TypeError, words)
        for number in (-1, 1 << 31, 1 << 70):
            self.refuses(producer(None, (CUDA, number)), RuntimeError, 'd lies on CUDA device .* which is none')
        self.refuses(producer(None, (1 << 70, 0)), TypeError, 'its __dlpack__')

    def test_only_keywords_are_asked_for_anew(self):
        """A TypeError of the producer's own is the answer."""

        class Refusing(Capsules):
            words = ''

            def __dlpack__(self, **keywords):
                self.asked.append(keywords)
                raise TypeError(self.words)

        for words, times in (
            ("'NoneType' object is not iterable", 1),
            ('requires grad', 1),
            ("__dlpack__() got an unexpected keyword argument 'max_version'", 3),
            ('__dlpack__() takes no keyword arguments', 3),
            ('__dlpack__(): incompatible function arguments. The following argument types are supported:', 3),
        ):
            d = Refusing(Problem().out())
            d.words = words
            self.refuses(d, TypeError, re.escape(words))
            self.assertEqual(len(d.asked), times, words)

    def test_absurd_sizes(self):
        huge = 1 << 62
        for shape, strides, words in (
            ((-64, 128), None, 'has the size -64'),
            ((64, 128), (-128, 1), 'has the stride -128'),
            ((64, 128), (huge, 1), 'beyond what can be addressed'),
            ((huge, huge), None, 'beyond what can be addressed'),
            ((0, -1), None, 'has the size -1'),
        ):
            with self.subTest(shape=shape, strides=strides):
                self.refuses(fake_tensor.Tensor(256, shape, strides, (4, 16, 1), (CPU, 0)), RuntimeError, words)
        aligned = lambda *shape: deep_gemm._C.is_mn_major_aligned(
            fake_tensor.Tensor(256, shape, None, (2, 32, 1), (CPU, 0))
        )
        for shape in ((-64, 128), (0, -1), (huge, huge), (huge, 2, 2), (-1, 4, 4)):
            with self.subTest(shape=shape):
                self.assertRaisesRegex(RuntimeError, 'wanted 0 or more|cannot be addressed', aligned, *shape)

    def test_major_version(self):
        self.refuses(Capsules(Problem().out(), major=2), BufferError, 'DLPack 1 was asked for, and 2 came')

    def test_used_capsule(self):
        x = Capsules(Problem().out())
        x.__dict__['capsule'] = fake_tensor.versioned(x.tensor, 0, 1, 0)

        class Again:
            __dlpack_device__ = lambda self: (CPU, 0)
            __dlpack__ = lambda self, **keywords: x.capsule

        p = Problem()
        deep_gemm.fp8_gemm_nt(*p.args(), Again())
        self.refuses(Again(), TypeError, 'used_dltensor_versioned.*; wanted a capsule of DLPack, not used before')
