"""What importing touches, forks, threads, and leaks."""

import gc
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import deep_gemm
import numpy as np
from common import BF16, F32, F8, I32, Problem, error_of

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(deep_gemm.__file__)
WORKS = """
import numpy as np
from common import BF16, Problem, error_of
def works():
    p = Problem(64, 128, 256)
    d = p.out()
    deep_gemm.fp8_gemm_nt(*p.args(), d)
    return error_of(d, p.want()) < 5e-6
"""
HOOK = """
import sys, sysconfig
standard = sysconfig.get_path('stdlib')
seen = []
def hook(event, args):
    if event in ('open', 'subprocess.Popen', 'os.system', 'os.exec', 'socket.connect', 'ctypes.dlopen'):
        seen.append((event, str(args[0])))
sys.addaudithook(hook)
import deep_gemm
package = deep_gemm.__path__[0]
print([e for e in seen if not (e[0] == 'open' and (e[1].startswith(package) or e[1].startswith(standard + '/')))])
print([m for m in ('torch', 'numpy', 'ml_dtypes', 'ctypes', 'subprocess') if m in sys.modules])
print('libcuda' in open('/proc/self/maps').read() or 'libnvrtc' in open('/proc/self/maps').read())
"""


def python(code, env=None, path=(HERE,)):
    """The output of a new interpreter that finds what this one does."""
    whole = {
        **os.environ,
        'PYTHONPATH': os.pathsep.join([*path, *sys.path]),
        'PYTHONDONTWRITEBYTECODE': '1',
        **(env or {}),
    }
    whole = {k: v for k, v in whole.items() if v is not None}
    p = subprocess.run([sys.executable, '-c', code], env=whole, text=True, capture_output=True, timeout=120)
    if p.returncode:
        raise AssertionError(f'exit {p.returncode}: {p.stdout}{p.stderr}')
    return p.stdout


class Import(unittest.TestCase):
    def test_touches_nothing(self):
        self.assertEqual(python(HOOK).splitlines(), ['[]', '[]', 'False'])

    def test_bare_environment(self):
        bare = dict.fromkeys(('CUDA_HOME', 'CUDA_PATH', 'HOME', 'DG_NVRTC_PATH', 'DG_JIT_CACHE_DIR', 'VIRTUAL_ENV'))
        self.assertEqual(python('import deep_gemm' + WORKS + 'print(works())', {**bare, 'PATH': ''}), 'True\n')
        self.assertEqual(
            python('import deep_gemm' + WORKS + 'print(works())', {**bare, 'PATH': '/nonexistent'}), 'True\n'
        )

    def test_writes_nothing(self):
        python(
            'import deep_gemm' + WORKS + 'assert works(); deep_gemm.get_num_sms()',
            {'DG_JIT_CACHE_DIR': '/nonexistent/cache'},
        )

    def test_persistent_environment(self):
        code = (
            "import os, sys, types; m = types.ModuleType('x'); import importlib.util as u; "
            f"s = u.spec_from_file_location('envs', {PACKAGE + '/envs.py'!r}); "
            "source = s.loader.get_data(s.origin).decode().replace('persistent_envs = {}', "
            '\'persistent_envs = dict(DG_A="new", DG_B="new")\'); exec(source); '
            "print(os.environ['DG_A'], os.environ['DG_B'])"
        )
        self.assertEqual(python(code, {'DG_A': 'mine', 'DG_B': None}), 'mine new\n')

    def test_odd_search_paths(self):
        odd = "import sys; sys.path += ['a\\0b', '\\ud800', b'/x', None, 5]; import deep_gemm; print(deep_gemm.__version__)"
        self.assertEqual(python(odd).strip(), deep_gemm.__version__)


class Compiling(unittest.TestCase):
    """What torch.compile needs is made when torch._dynamo comes, and not before; here with a torch of two empty files."""

    def run_with(self, code):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, 'torch'))
            for name in ('__init__.py', '_dynamo.py'):
                open(os.path.join(folder, 'torch', name), 'w').close()
            return python(code, path=(folder, HERE))

    def test_dynamo_later(self):
        code = (
            'import sys, deep_gemm; made = []; finders = len(sys.meta_path); '
            'deep_gemm._on_import.register = lambda: made.append(sys.modules["torch._dynamo"].__name__); '
            'import torch; print(made); import torch._dynamo; print(made, finders - len(sys.meta_path))'
        )
        self.assertEqual(self.run_with(code), "[]\n['torch._dynamo'] 1\n")

    def test_dynamo_looked_for(self):
        """Whoever only looks whether it is there does not import it."""
        code = (
            'import sys, importlib.util, deep_gemm; made = []; '
            'deep_gemm._on_import.register = lambda: made.append(sys.modules["torch._dynamo"].__name__); '
            'print([importlib.util.find_spec("torch._dynamo").name for _ in range(2)], made); '
            'import torch._dynamo; importlib.reload(torch._dynamo); '
            'print(made, [f for f in sys.meta_path if type(f).__module__.startswith("deep_gemm")])'
        )
        self.assertEqual(self.run_with(code), "['torch._dynamo', 'torch._dynamo'] []\n['torch._dynamo'] []\n")

    def test_dynamo_before(self):
        code = (
            'import sys, types, torch._dynamo; sys.modules["deep_gemm._torch_ops"] = types.ModuleType("ops"); '
            'import deep_gemm; print(hasattr(deep_gemm, "_torch_ops") or "deep_gemm._torch_ops" in sys.modules, '
            '[f for f in sys.meta_path if type(f).__module__.startswith("deep_gemm")])'
        )
        self.assertEqual(self.run_with(code), 'True []\n')


class Forks(unittest.TestCase):
    def children(self, prepare):
        code = (
            'import deep_gemm, os'
            + WORKS
            + prepare
            + """
kids = []
for _ in range(3):
    kid = os.fork()
    if kid == 0:
        os._exit(0 if works() else 1)
    kids.append(kid)
print([os.waitpid(k, 0)[1] for k in kids], works())
"""
        )
        self.assertEqual(python(code), '[0, 0, 0] True\n')

    def test_after_import(self):
        self.children('')

    def test_after_use(self):
        self.children('assert works()')

    def test_with_a_thread(self):
        self.children(
            'import threading, time; threading.Thread(target=time.sleep, args=(30,), daemon=True).start(); works()'
        )


class Threads(unittest.TestCase):
    def test_gil_is_released(self):
        """While one thread multiplies on the CPU, another counts."""
        p = Problem(512, 1024, 2048)
        d, counted, done = p.out(), [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0.0005)

        thread = threading.Thread(target=count)
        thread.start()
        started = time.perf_counter()
        deep_gemm.fp8_gemm_nt(*p.args(), d)
        seconds, during = time.perf_counter() - started, counted[0]
        done.set()
        thread.join()
        self.assertGreater(during, 3, f'in {seconds} s')

    def test_many(self):
        """Threads with their own problems, and with settings that change meanwhile."""
        problems = [Problem(40 + i, 130, 260, seed=i) for i in range(4)]
        wants, bad = [p.want() for p in problems], []

        def work(i):
            for n in range(100):
                d = problems[i].out()
                deep_gemm.fp8_gemm_nt(*(list(pair) for pair in problems[i].args()), d)
                if n % 10 == 0 and error_of(d, wants[i]) > 5e-6:
                    bad.append((i, n))
                try:
                    deep_gemm.fp8_gemm_nt(*problems[i].args(), d, recipe=(i, i, i + 1))
                except RuntimeError as e:
                    if f'{{{i}, {i}, {i + 1}}}' not in str(e):  # another thread's sentence
                        bad.append(str(e))
                deep_gemm.set_num_sms(2 * n)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        deep_gemm.set_num_sms(0)
        self.assertEqual(bad, [])

    def test_list_that_shrinks(self):
        """A list may lose its tensors while the product is computed without the GIL."""
        p = Problem(256, 512, 1024)
        d, pair = p.out(), [p.a.copy(), p.sfa.copy()]
        thread = threading.Thread(target=lambda: (time.sleep(0.01), pair.clear(), gc.collect()))
        thread.start()
        deep_gemm.fp8_gemm_nt(pair, (p.b, p.sfb), d)
        thread.join()
        self.assertLess(error_of(d, p.want()), 5e-6)


class Leaks(unittest.TestCase):
    CALLS = 100000

    def test_calls(self):
        p = Problem(2, 8, 128)
        (a, b), d = p.args(), p.out()
        many, ids = tuple(x[None] for x in b), np.zeros(2, I32)
        objects = [a, b, d, *a, *b, *many, ids, type(d), None, True, d.dtype]
        small = np.zeros((0, 8), BF16)
        empty = (np.zeros((0, 128), F8), np.zeros((0, 1), F32))

        def refused(*args, **kwargs):
            try:
                deep_gemm.fp8_gemm_nt(*args, **kwargs)
            except (RuntimeError, TypeError):
                return
            raise AssertionError('accepted')

        def calls(n):
            for _ in range(n // 10):
                for _ in range(5):
                    deep_gemm.fp8_gemm_nt(empty, b, small, None, (1, 128, 128))
                deep_gemm.fp8_gemm_nt(a, list(b), d, recipe_a=(1, 128), recipe_b=(128, 128))
                deep_gemm.m_grouped_fp8_gemm_nt_contiguous(list(a), many, d, ids)
                deep_gemm.get_mn_major_tma_aligned_tensor(a[1])
                refused(a, b, d, recipe=(1, 2, 3))
                refused(a, b, d, no_such=1)
                refused(a, (b[0], 1), d)

        calls(2000)
        gc.collect()
        counts, before = [sys.getrefcount(x) for x in objects], self.resident()
        calls(self.CALLS)
        gc.collect()
        after = self.resident()
        for x, was in zip(objects, counts):
            self.assertLess(abs(sys.getrefcount(x) - was), self.CALLS // 100, f'references to {type(x)}')
        self.assertLess(after - before, 2 << 20, 'bytes resident')

    @staticmethod
    def resident():
        with open('/proc/self/statm') as f:
            return int(f.read().split()[1]) * resource.getpagesize()


class Program(unittest.TestCase):
    def test_info(self):
        """python -m deep_gemm tells what the program tells."""
        program = os.path.join(os.environ['BUILD'], 'deepgemm')
        ours = subprocess.run([sys.executable, '-m', 'deep_gemm'], text=True, capture_output=True, check=True).stdout
        theirs = subprocess.run([program, 'info'], text=True, capture_output=True, check=True).stdout
        self.assertEqual(ours.splitlines()[0], theirs.splitlines()[0])
        self.assertEqual(ours, theirs)

    def test_paths_in_any_encoding(self):
        env = {**os.environb, b'DG_NVRTC_PATH': b'/tmp/\xff', b'DG_JIT_CACHE_DIR': b'/tmp/\xff'}
        subprocess.run([sys.executable, '-m', 'deep_gemm'], env=env, stdout=subprocess.DEVNULL, check=True)
