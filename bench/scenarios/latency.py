"""How long a record takes: to be acknowledged at a steady rate, and from a producer to a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from bench import tools
from bench.contestants import Server
from bench.model import Run, Sample, Scenario, Target
from bench.processes import settle

_RATE = 10_000  # records per second
_PERCENTILES = ("p50", "p99", "p99.9")
STEADY = "10,000 records/s of 1 KB"
ALONE = "100 B, one at a time"


class Latency(Scenario):
    """Java's own tools, which count and sort every record's time."""

    name: ClassVar[str] = "latency"
    title: ClassVar[str] = "Latency"
    note: ClassVar[str] = (
        "ProducerPerformance at a steady rate with acks=all: percentiles of what follows its warm-up; it counts whole "
        "milliseconds, and ratios take anything below one as one. EndToEndLatency: acks=all, each record read by a "
        "consumer before the next is sent."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    targets: ClassVar[tuple[Target, ...]] = tuple(
        target
        for contestant in ("ketch", "ketch-batch")
        for target in (
            *(Target(contestant, name, most=1.0, loads=STEADY, to="kafka") for name in _PERCENTILES),
            Target(contestant, "p99", most=10.0, loads=STEADY),
            Target(contestant, "p50", most=0.99, loads=ALONE),
            Target(contestant, "p99", most=1.0, loads=ALONE, to="kafka"),
        )
    )

    def labels(self, contestant: str) -> list[str]:
        return [f"{STEADY}/java", f"{ALONE}/java"]

    def measure(self, server: Server, run: Run) -> Iterator[Sample]:
        server.create("latency-steady", "latency-alone")
        if run.wants(f"{STEADY}/java"):
            warm, count = run.count(4 * _RATE, 2 * _RATE), run.count(6 * _RATE, 3 * _RATE)
            found = tools.producer_performance(server.kafka, "latency-steady", 1000, count, _RATE, warm)
            yield from (Sample(STEADY, "java", name, found[name]) for name in _PERCENTILES)
        if run.wants(f"{ALONE}/java"):
            settle(server.pid)
            found = tools.end_to_end(server.kafka, "latency-alone", run.count(2500, 1000), 100)
            yield from (Sample(ALONE, "java", name, found[name]) for name in _PERCENTILES)
        server.delete("latency-steady", "latency-alone")
