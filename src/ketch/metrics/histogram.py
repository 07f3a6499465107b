"""Histograms: those of prometheus_client, with their locks, take five times as long. They belong to the event loop's
thread. The lane writes into their arrays as well.
"""

from __future__ import annotations

import os
from typing import Literal

KERNEL: Literal["cython", "python"]

try:
    if os.environ.get("KETCH_KERNEL") == "python":
        raise ImportError
    from ketch.metrics._kernel import Histogram, Times, Trips

    KERNEL = "cython"
except ImportError:
    from ketch.metrics._pure_histogram import Histogram, Times, Trips

    KERNEL = "python"

__all__ = ["KERNEL", "Histogram", "Times", "Trips"]
