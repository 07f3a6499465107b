"""The clock that offsets, timestamps and expiry go by."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds since the epoch, as Kafka's timestamps and the ids of Redis count them."""
    return time.time_ns() // 1_000_000
