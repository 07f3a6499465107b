"""What a C compiler makes: the Cython kernel and the append module. All else is in pyproject.toml."""

from __future__ import annotations

import glob
import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = "src/ketch/records/_kernel.pyx"
MODULE = "src/ketch/embedded/csrc"

WITHOUT = {
    "ketch.records._kernel": "no Cython kernel ({}); the plain-Python one is used.",
    "ketch.embedded._append": "no append module ({}); appends are transactions.",
}


class OptionalBuildExt(build_ext):
    """Builds what it can where there is a C compiler, and says one sentence for each part where there is none."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # every compiler and platform fails with an exception of its own
            print("ketch:", WITHOUT[ext.name].format(error), file=sys.stderr)


def kernel() -> list[Extension]:
    if not os.path.exists(KERNEL):
        return []
    headers = glob.glob("src/ketch/records/*.h")
    extension = Extension("ketch.records._kernel", [KERNEL], depends=headers, extra_compile_args=["-O3"])
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("ketch: Cython is missing; the plain-Python kernel is used.", file=sys.stderr)
        return []
    built: list[Extension] = cythonize([extension], language_level=3)
    return built


def module() -> list[Extension]:
    """No extension of Python but a library that Redis or Valkey loads; it is built and installed in the same way."""
    source = f"{MODULE}/append.c"
    if not os.path.exists(source):
        return []
    arguments = ["-std=c99", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden"]
    headers = sorted(glob.glob(f"{MODULE}/*.h"))
    return [Extension("ketch.embedded._append", [source], depends=headers, extra_compile_args=arguments)]


extensions = kernel() + module()
for one in extensions:
    one.optional = True  # after cythonize, which makes new ones without it

setup(ext_modules=extensions, cmdclass={"build_ext": OptionalBuildExt})
