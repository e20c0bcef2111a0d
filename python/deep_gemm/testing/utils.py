"""Switches for tests."""

import functools
import os

from .. import _C

__all__ = ['get_arch_major', 'ignore_env', 'test_filter']


def get_arch_major() -> int:
    """The first number of the GPU's compute capability: 9 for Hopper."""
    return _C.device_info(0)['arch'] // 10


def test_filter(condition):
    """Decorates a test that runs only when condition() holds."""

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            if condition():
                return test(*args, **kwargs)
            print(f'{test.__name__}: left out here')

        return run

    return decorate


test_filter.__test__ = False  # pytest, it is none


def ignore_env(name: str, condition):
    """Decorates a function that does not see the environment variable when condition() holds."""

    def decorate(function):
        @functools.wraps(function)
        def run(*args, **kwargs):
            saved = os.environ.pop(name, None) if condition() else None
            try:
                return function(*args, **kwargs)
            finally:
                if saved is not None:
                    os.environ[name] = saved

        return run

    return decorate
