"""Whether the kernels are compiled, but for the lane: for `ketch version`, `ketch doctor` and the ready line."""

from __future__ import annotations

from typing import Literal

from ketch.metrics.histogram import KERNEL as _METRICS
from ketch.records import KERNEL as _RECORDS
from ketch.wire.kernel import KERNEL as _WIRE


def kernels() -> dict[str, str]:
    """By package, "cython" or "python"."""
    return {"metrics": _METRICS, "records": _RECORDS, "wire": _WIRE}


KERNEL: Literal["cython", "python"] = "cython" if {*kernels().values()} == {"cython"} else "python"
