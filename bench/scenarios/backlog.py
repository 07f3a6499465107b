"""Whether producing and consuming at the end of a long stream is slower than with an empty one."""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar

from confluent_kafka import Consumer, TopicPartition

from bench import tools
from bench.contestants import Server
from bench.model import BenchError, Run, Sample, Target
from bench.processes import await_quiet, settle
from bench.scenarios.base import Scenario
from bench.scenarios.throughput import timed

BACKLOGS = (0, 1_000_000, 10_000_000)
_RECORDS = {"ketch": 300_000, "ketch-batch": 500_000}
_CHUNK = 1_000_000
_REWRITE_SECONDS = 60.0


def after(verb: str, backlog: int) -> str:
    return f"{verb} after {backlog // 1_000_000} million records" if backlog else f"{verb} with an empty stream"


class Backlog(Scenario):
    """A topic for each length, filled in the first round; there they take as many turns as there are rounds."""

    name: ClassVar[str] = "backlog"
    title: ClassVar[str] = "Backlog"
    note: ClassVar[str] = (
        f"kcat sends {_RECORDS['ketch']:,} records of 100 bytes (batch layout: {_RECORDS['ketch-batch']:,}) to streams "
        "that hold none, 1 million and 10 million; then confluent-kafka reads what was added. The long streams are "
        "filled once, in the first round. There they take turns with new empty streams, and a turn counts as a round."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch")
    quick: ClassVar[bool] = False
    targets: ClassVar[tuple[Target, ...]] = tuple(
        Target(contestant, "rate", least=0.9, loads=after(verb, BACKLOGS[-1]), to_load=after(verb, 0))
        for contestant in contestants
        for verb in ("produce", "consume")
    )

    def labels(self, contestant: str) -> list[str]:
        return [f"{after(verb, backlog)}/kcat" for verb in ("produce", "consume") for backlog in BACKLOGS]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        if run.round:
            return
        for backlog in BACKLOGS:
            server.create(f"backlog-{backlog}")
            fill(server, f"backlog-{backlog}", run.count(backlog), run)
        await_quiet(server.pid, _REWRITE_SECONDS)
        for turn in range(run.rounds):
            for backlog in BACKLOGS if turn % 2 == 0 else BACKLOGS[::-1]:
                topic = f"backlog-{backlog}" if backlog else f"empty-{turn}"
                if not backlog:
                    server.create(topic)
                produced, consumed = _once(server, topic, run.count(_RECORDS[server.name]))
                yield Sample(after("produce", backlog), "kcat", "rate", produced, turn)
                yield Sample(after("consume", backlog), "kcat", "rate", consumed, turn)
        empty = (f"empty-{turn}" for turn in range(run.rounds))
        server.delete(*(f"backlog-{backlog}" for backlog in BACKLOGS), *empty)


def fill(server: Server, topic: str, count: int, run: Run) -> None:
    """Puts `count` records of 100 bytes into partition 0, or the part of them that a quick run takes."""
    chunk = run.count(_CHUNK)
    for _ in range(count // chunk):
        tools.kcat_produce(server.kafka, topic, 100, chunk)


def _once(server: Server, topic: str, count: int) -> tuple[float, float]:
    """Records per second in and out."""
    settle(server.pid)
    end = _end(server, topic)
    produced = count / timed(lambda: tools.kcat_produce(server.kafka, topic, 100, count))
    await_quiet(server.pid)
    options = {"server": server.kafka, "topic": topic, "count": count, "offset": end}
    return produced, count / tools.python("confluent_client", verb="consume", **options)["seconds"]


def _end(server: Server, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "bench"})
    offsets = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    if offsets is None:
        raise BenchError(f"{topic} has no end")
    return int(offsets[1])
