"""Whether the kernels of `records` and `wire` are compiled: for `ketch version`, `ketch doctor` and the ready line."""

from __future__ import annotations

from typing import Literal

from ketch.records import KERNEL as _RECORDS
from ketch.wire.kernel import KERNEL as _WIRE


def kernels() -> dict[str, str]:
    """By package, "cython" or "python"."""
    return {"records": _RECORDS, "wire": _WIRE}


KERNEL: Literal["cython", "python"] = "cython" if _RECORDS == _WIRE == "cython" else "python"
