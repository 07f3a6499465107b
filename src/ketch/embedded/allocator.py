"""The malloc of the embedded Valkey: jemalloc or mimalloc where one is installed.

The wheel's Valkey uses the C library's. That is what makes transactions of many XADDs dearer the longer it runs: with
glibc the third million of records costs a half more CPU than the first, with these two it costs the same. Linux loads
such a library before the C library where LD_PRELOAD names it; only the child gets that.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_VARIABLE = "LD_PRELOAD"
_JEMALLOC, _MIMALLOC = "libjemalloc.so.2", "libmimalloc.so*"
_DIRECTORIES = ("/usr/local/lib", "/usr/lib/{machine}-linux-gnu", "/lib/{machine}-linux-gnu", "/usr/lib64", "/usr/lib")
_SMALL_PAGE = 4096
_TRIAL_SECONDS = 5.0


def preloading(binary: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment of `binary` needs beside: the variable, or nothing where there is no allocator for it.

    A value that the environment already has stays. An allocator with which `binary` does not even tell its version is
    not used.
    """
    if _VARIABLE in environment or sys.platform != "linux":
        return {}
    for library in installed():
        added = {_VARIABLE: str(library)}
        if _runs(binary, {**environment, **added}):
            return added
    return {}


def installed(root: Path = Path("/"), machine: str | None = None, page: int | None = None) -> Iterator[Path]:
    """The libraries, the best first. jemalloc is built for one size of pages: with larger ones it aborts."""
    machine, page = machine or platform.machine(), page or os.sysconf("SC_PAGESIZE")
    names = (_MIMALLOC,) if machine == "aarch64" and page > _SMALL_PAGE else (_JEMALLOC, _MIMALLOC)
    for name in names:
        for directory in _DIRECTORIES:
            yield from sorted((root / directory.format(machine=machine).lstrip("/")).glob(name))


def in_use(pid: int) -> str | None:
    """The file of the allocator that a process has loaded; None where it has none of these, or this cannot be seen."""
    try:
        mapped = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    files = (line.split(maxsplit=5)[-1] for line in mapped)
    return next((file for file in files if "libjemalloc" in file or "libmimalloc" in file), None)


def _runs(binary: Path, environment: Mapping[str, str]) -> bool:
    try:
        trial = subprocess.run(
            [binary, "--version"], env=environment, capture_output=True, timeout=_TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return trial.returncode == 0 and not trial.stderr  # the loader says there what it could not load
