"""The seam: samples, targets, and what a scenario is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from bench.contestants import Server


class BenchError(Exception):
    """A load that gave no number; one sentence."""


class Unavailable(BenchError):
    """What is wanted can't be had here; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number counts."""

    name: str
    unit: str
    higher: bool = False  # whether more is better
    scale: float = 1.0  # of the sample, to the unit it is shown in
    floor: float = 0.0  # samples below it count as it in a ratio: the resolution of the program that measured


METRICS = {
    metric.name: metric
    for metric in (
        Metric("rate", "thousand records/s", higher=True, scale=1e-3),
        Metric("cpu", "CPU s per million records"),
        Metric("memory", "peak MB", scale=1e-6),
        Metric("commits", "commits/s", higher=True),
        Metric("seconds", "s"),
        Metric("p50", "p50 ms", floor=1.0),  # ProducerPerformance counts whole milliseconds
        Metric("p90", "p90 ms", floor=1.0),
        Metric("p99", "p99 ms", floor=1.0),
        Metric("p99.9", "p99.9 ms", floor=1.0),
        Metric("reads", "reads of Redis per batch"),
        Metric("cpu_batch", "CPU ms per batch"),
        Metric("cpu_poll", "CPU ms per poll"),
        Metric("bytes", "KB per connection", scale=1e-3),
        Metric("metadata", "ms"),
    )
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one run. `load` and `client` name its row, `turn` another round than the harness's own."""

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
    """How a scenario is to run: `wants` says whether a row is asked for, `count` how much of the full load, `round` in
    which of how many `rounds`, from 0."""

    wants: Callable[[str], bool] = field(default=lambda _: True)
    factor: float = 1.0
    quick: bool = False
    round: int = 0
    rounds: int = 1

    def count(self, full: int, least: int = 100) -> int:
        """The full number, or the part that a quick run takes."""
        return max(min(full, least), int(full * self.factor))


class Scenario:
    """A load. A subclass says what it is and yields what it measures; it leaves the server as it found it."""

    name: ClassVar[str]
    title: ClassVar[str]
    note: ClassVar[str] = ""  # for the report: how it is measured
    contestants: ClassVar[tuple[str, ...]]
    targets: ClassVar[tuple[Target, ...]] = ()
    quick: ClassVar[bool] = True  # whether a quick run has it without being asked by name

    def labels(self, contestant: str) -> list[str]:
        """The rows as "load/client", known before it runs."""
        raise NotImplementedError

    def measure(self, server: Server, run: Run) -> Iterator[Sample]:
        """Puts the load on a running server.

        Raises:
            Unavailable: a program that it needs is missing.
            BenchError: it gave no number.
        """
        raise NotImplementedError


_home: list[tempfile.TemporaryDirectory[str]] = []


def home() -> Path:
    """For what is made once and used in every round; goes with this process."""
    if not _home:
        _home.append(tempfile.TemporaryDirectory(prefix="ketch-bench-"))
    return Path(_home[0].name)
