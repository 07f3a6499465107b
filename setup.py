"""The optional Cython kernel; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = "src/ketch/records/_kernel.pyx"


class OptionalBuildExt(build_ext):
    """Builds the kernel where there is a C compiler and says one sentence where there is none."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # every compiler and platform fails with an exception of its own
            print(f"ketch: no Cython kernel ({error}); the plain-Python one is used.", file=sys.stderr)


def extensions() -> list[Extension]:
    if not os.path.exists(KERNEL):
        return []
    kernel = Extension("ketch.records._kernel", [KERNEL], extra_compile_args=["-O3"])
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("ketch: Cython is missing; the plain-Python kernel is used.", file=sys.stderr)
        return []
    built: list[Extension] = cythonize([kernel], language_level=3)
    for extension in built:
        extension.optional = True  # after cythonize, which makes new ones without it
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuildExt})
