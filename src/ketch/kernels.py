"""Which kernels this installation works with, for those who tell it to people."""

from __future__ import annotations

from typing import Literal

from ketch.records import KERNEL as _RECORDS
from ketch.wire.kernel import KERNEL as _WIRE

KERNEL: Literal["cython", "python"] = "cython" if _RECORDS == _WIRE == "cython" else "python"
