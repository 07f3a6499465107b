"""Latency of a record: from send to acknowledgement at a steady rate, and from a producer to a consumer."""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar

from bench import tools
from bench.contestants import Server
from bench.model import Run, Sample, Target
from bench.processes import await_quiet, settle
from bench.scenarios.base import Scenario

_RATE = 10_000  # records per second
_PERCENTILES = ("p50", "p99", "p99.9")
STEADY = "10,000 records/s of 1 KB"
ALONE = "100 B, one at a time"


class Latency(Scenario):
    """Kafka's own Java tools, and a Python client at the same rate."""

    name: ClassVar[str] = "latency"
    title: ClassVar[str] = "Latency"
    note: ClassVar[str] = (
        "10,000 records/s: ProducerPerformance at a steady rate with acks=all; the percentiles leave out its warm-up. "
        "One at a time: EndToEndLatency with acks=all, which sends a record when the consumer has read the one before. "
        "Both count whole milliseconds; ratios take a number below one as one. Client confluent: the same steady rate "
        "from a Python program with linger.ms=0 and, as the Java client has them, batches of 16 KB and five requests "
        "in flight."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    targets: ClassVar[tuple[Target, ...]] = tuple(
        target
        for contestant in ("ketch", "ketch-batch")
        for target in (
            *(Target(contestant, name, most=1.0, loads=STEADY, clients="java", to="kafka") for name in _PERCENTILES),
            Target(contestant, "p99", most=10.0, loads=STEADY, clients="java"),
            Target(contestant, "p50", most=0.99, loads=ALONE),
            Target(contestant, "p99", most=1.0, loads=ALONE, to="kafka"),
        )
    )

    def labels(self, contestant: str) -> list[str]:
        return [f"{STEADY}/java", f"{STEADY}/confluent", f"{ALONE}/java"]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        server.create("latency-steady", "latency-alone")
        if run.wants(f"{STEADY}/java"):
            settle(server.pid)
            warm, count = run.count(4 * _RATE, 2 * _RATE), run.count(6 * _RATE, 3 * _RATE)
            found = tools.producer_performance(server.kafka, "latency-steady", 1000, count, _RATE, warm)
            yield from (Sample(STEADY, "java", name, found[name]) for name in _PERCENTILES)
        if run.wants(f"{STEADY}/confluent"):
            settle(server.pid)
            counts = {"rate": _RATE, "warm": run.count(4 * _RATE), "count": run.count(6 * _RATE)}
            options = {"server": server.kafka, "topic": "latency-steady", "size": 1000, **counts}
            found = tools.python("steady_producer", **options)
            yield from (Sample(STEADY, "confluent", name, found[name]) for name in _PERCENTILES)
        if run.wants(f"{ALONE}/java"):
            await_quiet(server.pid)
            found = tools.end_to_end(server.kafka, "latency-alone", run.count(2500, 1000), 100)
            yield from (Sample(ALONE, "java", name, found[name]) for name in _PERCENTILES)
        server.delete("latency-steady", "latency-alone")
