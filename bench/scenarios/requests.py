"""CPU of the server for a small Produce request, by how many are in flight on its connection."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import Run, Sample, Target
from bench.processes import Usage, cpu_seconds, settle, watch
from bench.scenarios.base import Scenario


@dataclass(frozen=True, slots=True)
class Load:
    """`count` requests, each with `records` records of `size` bytes, `window` of them in flight."""

    shown: str
    window: int
    records: int
    size: int
    count: int


ALONE = "1 record of 100 B, alone"
LIKE_JAVA = "15 records of 1 KB, 5 in flight"
_LOADS = (
    Load(ALONE, 1, 1, 100, 8000),
    Load("1 record of 100 B, 8 in flight", 8, 1, 100, 12_000),
    Load("1 record of 100 B, 32 in flight", 32, 1, 100, 12_000),
    Load(LIKE_JAVA, 5, 15, 1000, 6000),
)


class Requests(Scenario):
    """On two cores that client, broker and store share, a request's CPU is what bounds the requests in a second."""

    name: ClassVar[str] = "requests"
    title: ClassVar[str] = "CPU of a Produce request"
    note: ClassVar[str] = (
        "One connection to one partition, acks=all; a Python program sends a request when one is answered. A quarter "
        "as many requests go before, uncounted. Server CPU is that of the broker and the store, broker CPU what the "
        "broker has of it. It is the measure that depends least on the client."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    targets: ClassVar[tuple[Target, ...]] = (
        Target("ketch", "cpu_request", to="kafka"),
        Target("ketch-batch", "cpu_request", to="kafka"),
    )

    def labels(self, contestant: str) -> list[str]:
        return [f"{load.shown}/socket" for load in _LOADS]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        for load in _LOADS:
            if run.wants(f"{load.shown}/socket"):
                usage, broker, count = _put(server, load, run)
                yield Sample(load.shown, "socket", "cpu_request", usage.cpu / count)
                if isinstance(server, Ketch):
                    yield Sample(load.shown, "socket", "cpu_broker", broker / count)


def _put(server: Server, load: Load, run: Run) -> tuple[Usage, float, int]:
    """What the whole server used, seconds of the broker's CPU, and the number of requests."""
    topic, count = f"requests-{load.window}", run.count(load.count)
    options = {"server": server.kafka, "topic": topic, "window": load.window}
    options |= {"records": load.records, "size": load.size}
    server.create(topic)
    settle(server.pid)
    tools.python("in_flight", count=count // 4, **options)
    with watch(server.pid) as usage:
        before = cpu_seconds([server.pid])
        tools.python("in_flight", count=count, **options)
        broker = cpu_seconds([server.pid]) - before
    server.delete(topic)
    return usage, broker, count
