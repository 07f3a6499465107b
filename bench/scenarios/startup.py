"""How long a start takes: with many topics, and with a large append-only file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import BenchError, Run, Sample, Scenario, Target
from bench.scenarios.throughput import timed

_TOPICS = 1000
_BIG, _ENTRY = 1_000_000, 1000  # entries of a kilobyte: 1.1 GB
_WITH_TOPICS, _WITH_BACKLOG = f"start with {_TOPICS:,} topics", "restart with a 1 GB append-only file"


class Startup(Scenario):
    """On brokers of their own, stopped in order."""

    name: ClassVar[str] = "startup"
    title: ClassVar[str] = "Start"
    note: ClassVar[str] = "From the start of the process until a client has the metadata of every topic."
    contestants: ClassVar[tuple[str, ...]] = ("ketch",)
    targets: ClassVar[tuple[Target, ...]] = (Target("ketch", "seconds", most=2.0, loads=_WITH_TOPICS),)

    def labels(self, contestant: str) -> list[str]:
        return [f"{_WITH_TOPICS}/confluent", f"{_WITH_BACKLOG}/confluent"]

    def measure(self, server: Server, run: Run) -> Iterator[Sample]:
        if run.wants(f"{_WITH_TOPICS}/confluent"):
            with Ketch() as own:
                own.create(*(f"topic-{i}" for i in range(_TOPICS)))
                yield Sample(_WITH_TOPICS, "confluent", "seconds", _again(own, _TOPICS))
        if run.wants(f"{_WITH_BACKLOG}/confluent"):
            with Ketch() as own:
                own.create("big")
                tools.raw(own, "produce", "korvet:stream:big:0", run.count(_BIG), _ENTRY)
                yield Sample(_WITH_BACKLOG, "confluent", "seconds", _again(own, 1))


def _again(server: Ketch, topics: int) -> float:
    server.halt()

    def start() -> None:
        server.start()
        found = len(server.admin().list_topics(timeout=60).topics)
        if found != topics:
            raise BenchError(f"{found} topics came back, not {topics}")

    return timed(start)
