"""What a C compiler makes: the Cython kernels and the append module. All else is in pyproject.toml."""

from __future__ import annotations

import glob
import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNELS = {f"ketch.{name}._kernel": f"src/ketch/{name}/_kernel.pyx" for name in ("metrics", "records", "wire")}
LANE = {"ketch.lane._kernel": "src/ketch/lane/_kernel.pyx"}
MODULE = "src/ketch/append_module/csrc"
REQUIRED = os.environ.get("KETCH_REQUIRE_NATIVE", "") not in ("", "0")

WITHOUT = {
    **{name: f"no Cython kernel {name} ({{}}); the plain-Python one is used." for name in KERNELS},
    "ketch.lane._kernel": "no lane ({}); every request goes through Python.",
    "ketch.append_module._append": "no append module ({}); appends are transactions.",
}


class OptionalBuildExt(build_ext):
    """Builds what it can where there is a C compiler, and says one sentence for each part where there is none.

    With KETCH_REQUIRE_NATIVE=1, as for wheels that others install, a part that cannot be built is an error.
    """

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # every compiler and platform fails with an exception of its own
            if REQUIRED:
                raise
            print("ketch:", WITHOUT[ext.name].format(error), file=sys.stderr)


def headers(of: str) -> list[str]:
    return sorted(glob.glob(f"{of}/**/*.h", recursive=True))


def kernels() -> list[Extension]:
    extensions = [
        Extension(name, [source], depends=headers(os.path.dirname(source)), extra_compile_args=["-O3"])
        for name, source in (KERNELS | LANE).items()
        if os.path.exists(source)
    ]
    try:
        from Cython.Build import cythonize
    except ImportError:
        if REQUIRED:
            raise
        print("ketch: Cython is missing; the plain-Python kernels are used.", file=sys.stderr)
        return []
    built: list[Extension] = cythonize(extensions, language_level=3)
    return built


def module() -> list[Extension]:
    """No extension of Python but a library that Redis or Valkey loads; it is built and installed in the same way."""
    source = f"{MODULE}/append.c"
    if not os.path.exists(source):
        return []
    arguments = ["-std=c99", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden"]
    return [Extension("ketch.append_module._append", [source], depends=headers(MODULE), extra_compile_args=arguments)]


extensions = kernels() + module()
for one in extensions:
    one.optional = not REQUIRED  # after cythonize, which makes new ones without it

setup(ext_modules=extensions, cmdclass={"build_ext": OptionalBuildExt})
