"""What a phase of the load has measured. Pure arithmetic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

PERCENTILES = (50.0, 95.0, 99.0, 99.9)
_MEASURED_MAX = 200_000


@dataclass(slots=True)
class Figures:
    """One phase.

    Attributes:
        records, size: how many, and their bytes of values.
        seconds: that it took.
        latencies: s, of all records or of a sample of them.
        failed: records that were not stored; `reason` is the first cause, a phrase.
        complete: whether it came to its end.
    """

    phase: str
    records: int = 0
    size: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failed: int = 0
    reason: str = ""
    complete: bool = False
    began: float = field(default_factory=time.perf_counter)

    def begin(self) -> None:
        """The time begins now."""
        self.began = time.perf_counter()

    def stop(self) -> None:
        """The time is over."""
        self.seconds = time.perf_counter() - self.began

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def megabytes(self) -> float:
        """Per second, of a million bytes."""
        return self.size / self.seconds / 1e6 if self.seconds else 0.0

    def percentiles(self) -> dict[str, float]:
        """ms; `max` is the highest. Empty where nothing was measured."""
        if not self.latencies:
            return {}
        ordered = sorted(self.latencies)
        found = {f"p{percent:g}": 1000 * _at(ordered, percent) for percent in PERCENTILES}
        return {**found, "max": 1000 * ordered[-1]}


def _at(ordered: Sequence[float], percent: float) -> float:
    """The least of the values that so many percent do not exceed (nearest rank)."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def spacing(records: int) -> int:
    """Of how many records one is measured: of each, or of so many that not more than `_MEASURED_MAX` are."""
    return -(-records // _MEASURED_MAX)
