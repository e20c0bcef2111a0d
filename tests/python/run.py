"""run.py [MODULE...]: the unittest modules of this folder, each in a process of its own; a line for each failure, and a
last line that counts."""

import os
import re
import subprocess
import sys
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
COUNT = re.compile(r'^\w+: (\d+) passed, (\d+) failed$', re.M)
SECONDS = 300


class Result(unittest.TestResult):
    """Tests that are skipped have failed."""

    passed = failed = 0

    def tell(self, test, error):
        self.failed += 1
        text = ''.join(traceback.format_exception(*error)) if isinstance(error, tuple) else error
        print(f'FAIL {test}\n{text}', flush=True)

    addFailure = addError = tell

    def addSkip(self, test, reason):
        self.tell(test, f'skipped: {reason}')

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.tell(subtest, error)

    def startTest(self, test):
        super().startTest(test)
        self.failed_before = self.failed

    def stopTest(self, test):
        super().stopTest(test)
        self.passed += self.failed == self.failed_before


def run_here(module):
    sys.path.insert(0, HERE)
    result = Result()
    unittest.defaultTestLoader.loadTestsFromName(module).run(result)
    print(f'{module}: {result.passed} passed, {result.failed} failed')


def environment(module):
    """Tests of the GPU's side run on a driver without a GPU."""
    extra = {'DG_CUDA_DRIVER_PATH': os.environ['FAKE_CUDA_LIBRARY']} if module == 'test_fake_gpu' else {}
    return {**os.environ, **extra}


def run_apart(module):
    """(passed, failed) of a module; a process that crashes, hangs or does not count has failed once more."""
    command = [sys.executable, os.path.abspath(__file__), '--here', module]
    try:
        p = subprocess.run(
            command,
            env=environment(module),
            text=True,
            timeout=SECONDS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired as e:
        print(f'FAIL {module}: no end in {SECONDS} s\n{(e.stdout or b"").decode()}')
        return 0, 1
    print(p.stdout, end='', flush=True)
    count = COUNT.search(p.stdout)
    if count is None or p.returncode:
        print(f'FAIL {module}: exit code {p.returncode}')
    passed, failed = map(int, count.groups()) if count else (0, 0)
    return passed, failed + (count is None or p.returncode != 0)


def main(modules):
    modules = modules or sorted(f[:-3] for f in os.listdir(HERE) if f.startswith('test_') and f.endswith('.py'))
    counts = [run_apart(module) for module in modules]
    passed, failed = map(sum, zip(*counts))
    print(f'python: {passed} passed, {failed} failed')
    return failed > 0


if __name__ == '__main__':
    if sys.argv[1:2] == ['--here']:
        run_here(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:]))
