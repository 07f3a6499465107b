"""What it costs the broker that the time of each request is noted."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from statistics import median
from typing import ClassVar

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import Run, Sample, Target
from bench.processes import cpu_seconds, settle
from bench.scenarios.base import Scenario

_TURNS = 8
_COUNT = 3000  # requests of a turn
_LOADS = {"1 record of 100 B, 8 in flight": (8, 1, 100), "15 records of 1 KB, 5 in flight": (5, 15, 1000)}
_NOTED, _NOT = "noted", "not noted"


class Timing(Scenario):
    """Two brokers that run at the same time, and are sent requests by turns."""

    name: ClassVar[str] = "timing"
    title: ClassVar[str] = "Cost of the latency histograms"
    note: ClassVar[str] = (
        "Two servers of the same kind, one of which does not note how long requests and commands to Redis took. They "
        f"are sent Produce requests by turns, {_TURNS} of {_COUNT} requests each after one that does not count; the "
        "median of the turns. One connection to one partition, acks=all."
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
        with type(server)() as noted, _untimed(type(server))() as other:
            for load, shape in _LOADS.items():
                if not any(run.wants(f"{load}, {what}/socket") for what in (_NOTED, _NOT)):
                    continue
                found = _by_turns({_NOTED: noted, _NOT: other}, shape, run)
                yield from (Sample(f"{load}, {what}", "socket", "cpu_broker", cpu) for what, cpu in found.items())


def _untimed(made: type[Ketch]) -> type[Ketch]:
    program = (str(Path(tools.CLIENTS) / "untimed.py"),)
    return type(made.__name__, (made,), {"program": program})


def _by_turns(servers: dict[str, Ketch], shape: tuple[int, int, int], run: Run) -> dict[str, float]:
    """CPU of each broker for a request, in seconds."""
    window, records, size = shape
    topic, count, taken = f"timing-{window}", run.count(_COUNT), {what: list[float]() for what in servers}
    for server in servers.values():
        server.create(topic)
        settle(server.pid)
    for turn in range(_TURNS + 1):
        for what in sorted(servers, reverse=bool(turn % 2)):
            server = servers[what]
            before = cpu_seconds([server.pid])
            options = {"server": server.kafka, "topic": topic, "window": window, "records": records, "size": size}
            tools.python("in_flight", count=count, **options)
            if turn:
                taken[what].append((cpu_seconds([server.pid]) - before) / count)
    for server in servers.values():
        server.delete(topic)
    return {what: median(each) for what, each in taken.items()}
