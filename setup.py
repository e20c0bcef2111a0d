"""Builds the wheel: one extension that holds the library, of the sources in sources.mk. No CUDA, torch or NumPy needed."""

import re
import tempfile

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

scratch = tempfile.TemporaryDirectory()  # for this process


def sources():
    with open('sources.mk') as file:
        text = file.read().replace('\\\n', ' ')
    lists = {name: values.split() for name, values in re.findall(r'^(\w+) = (.*)$', text, re.M)}
    return lists['PYTHON_SOURCES'] + lists['LIB_SOURCES'] + lists['LIB_ASSEMBLY']


class BuildElsewhere(build):
    """Not in build/: what an earlier version has left there would be part of the wheel."""

    def initialize_options(self):
        super().initialize_options()
        self.build_base = scratch.name


class BuildWithAssembly(build_ext):
    """Compilers of setuptools do not know .S files, though cc does. Built anew always: what the files include may have
    changed."""

    def build_extensions(self):
        self.force = True
        self.compiler.src_extensions = [*self.compiler.src_extensions, '.S']
        super().build_extensions()


class OneWheel(bdist_wheel):
    """For CPython 3.10 and later."""

    def finalize_options(self):
        self.py_limited_api = 'cp310'
        super().finalize_options()


setup(
    ext_modules=[
        Extension(
            'deep_gemm._C',
            sources(),
            include_dirs=['include', 'src', '.'],
            define_macros=[('_GNU_SOURCE', None)],
            extra_compile_args=['-std=c11', '-O2', '-g0', '-fvisibility=hidden'],
            extra_link_args=['-Wl,-z,noexecstack,-z,nodelete', '-Wl,--version-script=python/ext/exports.map'],
            libraries=['dl', 'm', 'pthread'],
            py_limited_api=True,
        )
    ],
    cmdclass={'build': BuildElsewhere, 'build_ext': BuildWithAssembly, 'bdist_wheel': OneWheel},
)
