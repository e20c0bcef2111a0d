"""The GPU's side without a GPU: tensors of NumPy's memory that say they lie on a CUDA device, and the fake driver,
which writes launches down."""

import os
import sys
import tempfile
import threading
import time
import unittest

import deep_gemm
import fake_tensor
import numpy as np
from common import BF16, F32, I32, Problem
from test_dlpack import CUDA, Capsules, wrap
from test_process import python

fake_tensor.open_driver(os.environ['DG_CUDA_DRIVER_PATH'])


memory = []  # of devices: stays, so that none of it becomes another device's


def device_array(x, device=0):
    """A copy of x in the device's memory, aligned as device memory is."""
    whole = np.empty(x.nbytes + 256, np.uint8)
    start = -whole.ctypes.data % 256
    y = whole[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    y[...] = x
    memory.append(whole)
    fake_tensor.own(y.ctypes.data, y.nbytes, device)
    return y


def on_gpu(x, device=0, kind=fake_tensor.Tensor):
    return wrap(device_array(x, device), kind, (CUDA, device))


KERNEL = 'sm90_fp8_gemm_skinny'  # of OnGpu's problem, which has few rows


class OnGpu:
    """A problem whose tensors lie on a GPU."""

    def __init__(self, m=64, n=256, k=512, device=0, make=on_gpu):
        self.problem = p = Problem(m, n, k)
        self.d = p.out()
        self.arrays = [p.a, p.sfa, p.b, p.sfb, self.d]
        a, sfa, b, sfb, d = (make(x, device) for x in self.arrays)
        self.args = (a, sfa), (b, sfb), d


def new_launches(call):
    before = fake_tensor.launch_count()
    call()
    return fake_tensor.launches(before)


class Launches(unittest.TestCase):
    def setUp(self):
        fake_tensor.set_stream(0)

    def test_stream_of_the_table(self):
        g = OnGpu()
        for _ in range(2):  # cold and warm
            for stream in (0, fake_tensor.new_stream(0), fake_tensor.new_stream(0)):
                fake_tensor.set_stream(stream)
                asked = fake_tensor.counts()[2]
                (launch,) = new_launches(lambda: deep_gemm.fp8_gemm_nt(*g.args))
                self.assertEqual(launch, (KERNEL, 0, stream))
                self.assertEqual(fake_tensor.counts()[2] - asked, 1)

    def test_device_of_the_tensors(self):
        for device in (1, 0, 1):
            g = OnGpu(device=device)
            (launch,) = new_launches(lambda: deep_gemm.fp8_gemm_nt(*g.args))
            self.assertEqual(launch, (KERNEL, device, 0))

    def test_owners(self):
        g = OnGpu(make=lambda x, device: on_gpu(x, device, fake_tensor.ManagedOnly))
        before = fake_tensor.counts()
        self.assertEqual(len(new_launches(lambda: deep_gemm.fp8_gemm_nt(*g.args))), 1)
        self.assertEqual([y - x for x, y in zip(before, fake_tensor.counts())], [5, 5, 1])

    def test_stream_of_capsules(self):
        """Their producers are told the stream, which the package's hook has found."""
        made = []

        def capsules(x, device):
            made.append(Capsules(device_array(x, device), device=(CUDA, device)))
            return made[-1]

        g, stream, asked = OnGpu(make=capsules), fake_tensor.new_stream(0), []
        for handle in (stream, 0):
            try:
                deep_gemm._C.set_stream_hook(lambda tensor, device: (asked.append((tensor, device)), handle)[1])
                (launch,) = new_launches(lambda: deep_gemm.fp8_gemm_nt(*g.args))
            finally:
                deep_gemm._C.set_stream_hook(deep_gemm._streams.current_stream)
            self.assertEqual(launch, (KERNEL, 0, handle))
            self.assertEqual(asked.pop(), (made[0], 0))
            self.assertEqual(asked, [])
            self.assertEqual([x.asked.pop()['stream'] for x in made], [handle or 1] * 5)
        (launch,) = new_launches(lambda: deep_gemm.fp8_gemm_nt(*g.args))
        self.assertEqual(launch, (KERNEL, 0, 0))

    def test_hook_that_fails(self):
        def fails(tensor, device):
            raise KeyError('stream')

        g = OnGpu(make=lambda x, device: Capsules(x, device=(CUDA, device)))
        deep_gemm._C.set_stream_hook(fails)
        try:
            self.assertRaises(KeyError, deep_gemm.fp8_gemm_nt, *g.args)
        finally:
            deep_gemm._C.set_stream_hook(deep_gemm._streams.current_stream)

    def test_constant_weights(self):
        """They are loaded early with the keyword, where kernels may overlap."""
        g = OnGpu()
        fake_tensor.keep_arguments(True)
        try:
            for pdl in (False, True):
                deep_gemm.set_pdl(pdl)
                for constant in (False, True):
                    deep_gemm.fp8_gemm_nt(*g.args, b_constant=constant)
                    self.assertEqual(fake_tensor.loads_b_early(), pdl and constant)
                deep_gemm.fp8_gemm_nt(*g.args)
                self.assertFalse(fake_tensor.loads_b_early())
        finally:
            deep_gemm.set_pdl(False)
            fake_tensor.keep_arguments(False)

    def test_mixed_devices(self):
        for i in range(5):
            g = OnGpu()
            flat = [*g.args[0], *g.args[1], g.args[2]]
            flat[i] = wrap(g.arrays[i])
            with self.assertRaisesRegex(RuntimeError, 'CPU|cpu'):
                deep_gemm.fp8_gemm_nt(tuple(flat[:2]), tuple(flat[2:4]), flat[4])

    def test_scale_functions(self):
        x, q = np.zeros((64, 256), BF16), np.zeros((64, 256), Problem().a.dtype)
        sf, out = np.zeros((64, 2), F32), np.zeros((2, 64), F32)
        stream = fake_tensor.new_stream(0)
        fake_tensor.set_stream(stream)
        quantize = new_launches(lambda: deep_gemm.quantize_fp8(on_gpu(x), on_gpu(q), on_gpu(sf)))
        transform = new_launches(lambda: deep_gemm.transform_scale(on_gpu(sf), wrap_transposed(out)))
        self.assertEqual(quantize + transform, [('quantize_fp8', 0, stream), ('transform_scale', 0, stream)])

    def test_sms(self):
        self.assertEqual(deep_gemm.get_num_sms(), 132)
        self.assertRaisesRegex(RuntimeError, 'num_sms is 133; cuda:0 has 132 SMs', deep_gemm.set_num_sms, 133)
        try:
            deep_gemm.set_num_sms(131)
            self.assertEqual(deep_gemm.get_num_sms(), 131)
            g = OnGpu()
            self.assertEqual(len(new_launches(lambda: deep_gemm.fp8_gemm_nt(*g.args))), 1)
        finally:
            deep_gemm.set_num_sms(0)
        self.assertEqual(deep_gemm.testing.get_arch_major(), 9)


class Grouped(unittest.TestCase):
    """One launch a call, on the caller's stream, with numbers that the host does not look at."""

    def setUp(self):
        fake_tensor.set_stream(0)
        self.asked = []  # for workspaces: (tensor, bytes)

        def beside(tensor, size):
            self.asked.append((tensor, size))
            return on_gpu(np.zeros(-(-size // 4), I32), self.device)

        deep_gemm._C.set_workspace_hook(beside)
        self.addCleanup(deep_gemm._C.set_workspace_hook, deep_gemm._workspace.beside)

    def calls(self, device=0):
        """{function: its arguments}"""
        self.device = device
        p, q, k = Problem(256, 256, 512), Problem(16, 256, 512, batch=(4,)), Problem(64, 256, 512)
        put = lambda *arrays: tuple(on_gpu(x, device) for x in arrays)
        b, nonsense = put(q.b, q.sfb), np.full(256, 7, I32)
        (flat,), (layout,), (counts,) = put(np.zeros((2, 64, 256), F32)), put(nonsense), put(nonsense[:4])
        k_pairs = [put(x.reshape(-1), np.ones((len(x), 4), F32)) for x in (k.a, k.b)]
        return {
            'm_grouped_fp8_gemm_nt_contiguous': (put(p.a, p.sfa), b, *put(p.out()), layout),
            'm_grouped_fp8_gemm_nt_masked': (put(q.a, q.sfa), b, *put(q.out()), counts, 8),
            'k_grouped_fp8_gemm_nt_contiguous': (*k_pairs, flat, [512, 0], *put(nonsense[:2])),
        }

    def launches_on(self, device, stream, call):
        fake_tensor.set_stream(stream)
        launches = new_launches(call)
        self.assertEqual({launch[1:] for launch in launches}, {(device, stream)})
        self.assertTrue(all('gemm_' in kernel for kernel, _, _ in launches[-1:]))

    def test_launches(self):
        for device in (0, 1):
            for name, args in self.calls(device).items():
                with self.subTest(function=name, device=device):
                    function = getattr(deep_gemm, name)
                    self.assertTrue(deep_gemm.is_supported(name, *args))
                    for stream in (0, fake_tensor.new_stream(device)) * 2:
                        self.launches_on(device, stream, lambda: function(*args))
        b, (ends,) = self.calls()['m_grouped_fp8_gemm_nt_contiguous'][:3], (on_gpu(np.full(4, 7, I32)),)
        psum = lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*b, ends, use_psum_layout=True)
        self.launches_on(0, 0, psum)

    def test_mixed_devices(self):
        for name, at, count in (
            ('m_grouped_fp8_gemm_nt_contiguous', 3, 256),
            ('m_grouped_fp8_gemm_nt_masked', 3, 4),
            ('k_grouped_fp8_gemm_nt_contiguous', 4, 2),
        ):
            args = list(self.calls()[name])
            args[at] = np.ones(count, I32)
            with self.subTest(function=name), self.assertRaisesRegex(RuntimeError, 'layout'):
                getattr(deep_gemm, name)(*args)

    def test_workspaces(self):
        """d's framework is asked for one, in every call that wants one and no other; who has none is told the bytes."""
        for name, args in self.calls().items():
            for _ in range(3):
                self.asked.clear()
                getattr(deep_gemm, name)(*args)
                self.assertLessEqual(len(self.asked), name.startswith('k'))
                self.assertTrue(all(tensor is args[2] and size > 0 for tensor, size in self.asked))
            if self.asked:
                for hook in (lambda tensor, size: None, lambda tensor, size: wrap(np.zeros(size, I32))):
                    deep_gemm._C.set_workspace_hook(hook)
                    with self.assertRaisesRegex(RuntimeError, f'{name}: .* workspace of {self.asked[0][1]} bytes'):
                        getattr(deep_gemm, name)(*args)


def wrap_transposed(x):
    y = device_array(x)
    return fake_tensor.Tensor(y.ctypes.data, y.shape[::-1], (1, y.shape[1]), (2, 32, 1), (CUDA, 0))


COLD = """
import threading, time
from test_fake_gpu import OnGpu, deep_gemm
def naps(*args):
    threads = [threading.Thread(target=deep_gemm.fp8_gemm_nt, args=args) for _ in range(2)]
    for thread in threads:
        thread.start()
    count = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
        count += 1
    return count
g = OnGpu()
print(naps(*g.args))
"""


class Others(unittest.TestCase):
    def test_run_while_a_kernel_is_compiled(self):
        """Two threads want a kernel that is nowhere yet, and a third one does not wait for it."""
        with tempfile.TemporaryDirectory() as cache:
            count = int(python(COLD, {'DG_JIT_CACHE_DIR': cache}))
            self.assertGreater(len(os.listdir(cache)), 0, 'it was compiled')
        self.assertGreater(count, 20)

    def test_wait_for_a_launch(self):
        """Who launches what was launched before keeps the GIL: its return would cost more."""
        g, counted, done = OnGpu(), [0], threading.Event()
        deep_gemm.fp8_gemm_nt(*g.args)

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0.0001)

        thread, interval = threading.Thread(target=count), sys.getswitchinterval()
        thread.start()
        sys.setswitchinterval(100)  # seconds, for which nobody has to hand the GIL over
        try:
            before = counted[0]
            for _ in range(2000):
                deep_gemm.fp8_gemm_nt(*g.args)
            self.assertEqual(counted[0], before)
        finally:
            sys.setswitchinterval(interval)
            done.set()
            thread.join()


class Cost(unittest.TestCase):
    CALLS = 20000

    def nanoseconds(self, call, *args):
        best = 1e9
        for _ in range(7):
            started = time.perf_counter_ns()
            for _ in range(self.CALLS):
                call(*args)
            best = min(best, (time.perf_counter_ns() - started) / self.CALLS)
        return best

    def test_warm_call(self):
        """Far from what a machine does, but a lost cache shows."""
        g = OnGpu()
        deep_gemm.fp8_gemm_nt(*g.args)
        whole, empty = self.nanoseconds(deep_gemm.fp8_gemm_nt, *g.args), self.nanoseconds(lambda a, b, d: None, *g.args)
        one = self.nanoseconds(deep_gemm._C.is_mn_major_aligned, g.args[0][1])
        print(
            f'a warm fp8_gemm_nt on the fake driver: {whole:.0f} ns; with one tensor and no work: {one:.0f} ns; '
            f'an empty Python function: {empty:.0f} ns'
        )
        self.assertLess(whole, 20000)
