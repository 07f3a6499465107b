"""The append module: a shared library that a Redis or Valkey loads (`csrc/append.c`). Here is where it lies.

Setup builds it where there is a C compiler. Without it, everything works and appends are transactions of XADDs.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_NAME = "_append"


def module_path() -> Path | None:
    """The library's absolute path; None where it was not built."""
    here = Path(__file__).absolute().parent
    built = (here / f"{_NAME}{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((path for path in built if path.is_file()), None)


def loadable() -> Path | None:
    """As `module_path`; None also where a server would refuse the file, because nobody may execute it."""
    path = module_path()
    return path if path is not None and os.access(path, os.X_OK) else None
