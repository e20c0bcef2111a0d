"""Builds the wheel: one extension that holds the library, of the sources in sources.mk. No CUDA, torch or NumPy needed."""

import os
import re
from glob import glob

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


def sources():
    with open('sources.mk') as file:
        text = file.read().replace('\\\n', ' ')
    lists = {name: values.split() for name, values in re.findall(r'^(\w+) = (.*)$', text, re.M)}
    return lists['PYTHON_SOURCES'] + lists['LIB_SOURCES'] + lists['LIB_ASSEMBLY']


def depends():
    """What the sources include, so that a second build in the same tree sees every change."""
    patterns = ('python/ext/*.h', 'include/*.h', 'src/**/*.[hd]*', 'kernels/**/*')
    files = [file for pattern in patterns for file in glob(pattern, recursive=True) if os.path.isfile(file)]
    return ['python/ext/exports.map', 'sources.mk', *files]


class BuildWithAssembly(build_ext):
    """Compilers of setuptools do not know .S files, though cc does."""

    def build_extensions(self):
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
            depends=depends(),
            py_limited_api=True,
        )
    ],
    cmdclass={'build_ext': BuildWithAssembly, 'bdist_wheel': OneWheel},
)
