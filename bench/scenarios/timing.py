"""What it costs the broker that the time of each request is noted."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path
from statistics import median
from typing import ClassVar

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import Run, Sample, Target
from bench.processes import cpu_seconds, settle
from bench.scenarios.base import Scenario

_TURNS = 16
_COUNT = 3000  # requests of a turn
_LOADS = {"1 record of 100 B, 8 in flight": (8, 1, 100), "15 records of 1 KB, 5 in flight": (5, 15, 1000)}
_NOTED, _NOT = "noted", "not noted"
_SIGNALS = {_NOTED: signal.SIGUSR1, _NOT: signal.SIGUSR2}


class Timing(Scenario):
    """One broker that notes times by turns, and is sent requests."""

    name: ClassVar[str] = "timing"
    title: ClassVar[str] = "Cost of the latency histograms"
    note: ClassVar[str] = (
        "A broker is sent Produce requests and told by turns to note how long requests and commands to Redis take, and "
        f"not to: {_TURNS} turns of {_COUNT} requests each way, after one that does not count; the median of the "
        "turns. One connection to one partition, acks=all."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch")
    quick: ClassVar[bool] = False
    targets: ClassVar[tuple[Target, ...]] = tuple(
        Target(name, "cpu_broker", most=1.02, loads=f"{load}, {_NOTED}", to_load=f"{load}, {_NOT}")
        for name in contestants
        for load in _LOADS
    )

    def labels(self, contestant: str) -> list[str]:
        return [f"{load}, {what}/socket" for load in _LOADS for what in (_NOTED, _NOT)]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        assert isinstance(server, Ketch)
        with _switched(type(server))() as ketch:
            for load, shape in _LOADS.items():
                if any(run.wants(f"{load}, {what}/socket") for what in _SIGNALS):
                    found = _by_turns(ketch, shape, run)
                    yield from (Sample(f"{load}, {what}", "socket", "cpu_broker", cpu) for what, cpu in found.items())


def _switched(made: type[Ketch]) -> type[Ketch]:
    program = (str(Path(tools.CLIENTS) / "untimed.py"),)
    return type(made.__name__, (made,), {"program": program})


def _by_turns(ketch: Ketch, shape: tuple[int, int, int], run: Run) -> dict[str, float]:
    """CPU of the broker for a request, in seconds."""
    window, records, size = shape
    topic, count, taken = f"timing-{window}", run.count(_COUNT), {what: list[float]() for what in _SIGNALS}
    ketch.create(topic)
    settle(ketch.pid)
    for turn in range(_TURNS + 1):
        for what in sorted(_SIGNALS, reverse=bool(turn % 2)):
            os.kill(ketch.pid, _SIGNALS[what])
            before = cpu_seconds([ketch.pid])
            options = {"server": ketch.kafka, "topic": topic, "window": window, "records": records, "size": size}
            tools.python("in_flight", count=count, **options)
            if turn:
                taken[what].append((cpu_seconds([ketch.pid]) - before) / count)
    ketch.delete(topic)
    return {what: median(each) for what, each in taken.items()}
