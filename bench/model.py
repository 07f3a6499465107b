"""The vocabulary of the benchmark: metrics, samples, targets, runs and errors. It knows no server and no scenario."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


class BenchError(Exception):
    """Something could not be measured; the message is one sentence that says why."""


class Unavailable(BenchError):
    """A tool, package or feature that a measurement needs is not there; the message says which."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number counts: `shown` is the quantity, `unit` what it is shown in."""

    name: str
    shown: str
    unit: str
    higher: bool = False  # whether more is better
    scale: float = 1.0  # of the sample, to the unit it is shown in

    @property
    def heading(self) -> str:
        """Quantity and unit: "p99, ms"."""
        return f"{self.shown}, {self.unit}"


METRICS = {
    metric.name: metric
    for metric in (
        Metric("rate", "rate", "thousand records/s", higher=True, scale=1e-3),
        Metric("megabytes", "rate", "MB/s", higher=True, scale=1e-6),
        Metric("cpu", "server CPU", "s per million records"),
        Metric("memory", "server memory, peak", "MB", scale=1e-6),
        Metric("commits", "rate", "commits/s", higher=True),
        Metric("seconds", "time", "s"),
        Metric("p50", "p50", "ms"),
        Metric("p90", "p90", "ms"),
        Metric("p99", "p99", "ms"),
        Metric("p99.9", "p99.9", "ms"),
        Metric("reads", "reads of Redis", "per batch"),
        Metric("cpu_batch", "server CPU", "ms per batch"),
        Metric("cpu_poll", "server CPU", "ms per poll"),
        Metric("cpu_request", "server CPU", "us per request", scale=1e6),
        Metric("cpu_broker", "broker CPU", "us per request", scale=1e6),
        Metric("bytes", "server memory", "KB per connection", scale=1e-3),
        Metric("metadata", "time", "ms"),
    )
}
_PERCENTILES = ("p50", "p90", "p99", "p99.9")


def resolution(metric: str, client: str) -> float:
    """The least number that the client tells apart: smaller ones count as this one in a ratio."""
    return 1.0 if metric in _PERCENTILES and client == "java" else 0.0  # Kafka's tools count whole milliseconds


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one run. `load` and `client` name its row, `turn` replaces the number of the round."""

    load: str
    client: str
    metric: str  # a key of METRICS
    value: float
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a contestant's number, or on its ratio to another's of the same round.

    `loads` and `clients` are patterns as of fnmatch. What it is compared with is the same row of contestant `to`, but
    for the `to_load` and `to_client` that differ; with none of the three the bound is on the number itself, in its
    shown unit.
    """

    contestant: str
    metric: str
    least: float | None = None
    most: float | None = None
    loads: str = "*"
    clients: str = "*"
    to: str | None = None
    to_load: str | None = None
    to_client: str | None = None

    @property
    def reported(self) -> bool:
        """There is no bound: the ratio is shown."""
        return self.least is None and self.most is None

    @property
    def is_ratio(self) -> bool:
        return bool(self.to or self.to_load or self.to_client)


@dataclass(slots=True)
class Run:
    """How a scenario is to run.

    `wants` says whether a row ("load/client") is asked for, `factor` is the part of the full load, and `round` counts
    from 0 to `rounds` - 1.
    """

    wants: Callable[[str], bool] = field(default=lambda _: True)
    factor: float = 1.0
    quick: bool = False
    round: int = 0
    rounds: int = 1

    def count(self, full: int, least: int = 100) -> int:
        """The full number, or the part that a quick run takes."""
        return max(min(full, least), int(full * self.factor))


_home: list[tempfile.TemporaryDirectory[str]] = []


def home() -> Path:
    """A directory for files that are made once and used in every round; deleted when this process ends."""
    if not _home:
        _home.append(tempfile.TemporaryDirectory(prefix="ketch-bench-"))
    return Path(_home[0].name)
