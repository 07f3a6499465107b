"""One topic with many partitions: producing, consuming, metadata, and waiting consumers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Generator, Iterator
from statistics import median
from typing import ClassVar

from bench import tools
from bench.contestants import Server
from bench.model import Run, Sample, Target
from bench.processes import await_quiet, watch
from bench.scenarios.base import Scenario

_RECORDS = {1: 300_000, 100: 300_000, 1000: 150_000}
PARTITIONS = tuple(_RECORDS)
_ASKED = 20
_POLL = 100  # ms
_POLL_SECONDS = 2.0
_SETTLE_SECONDS = 5.0


def partitioned(what: str, partitions: int) -> str:
    return f"{what}, {partitions:,} partition{'s' if partitions > 1 else ''}"


class Partitions(Scenario):
    """A topic with one partition, one with a hundred, one with a thousand."""

    name: ClassVar[str] = "partitions"
    title: ClassVar[str] = "Many partitions"
    note: ClassVar[str] = (
        "confluent-kafka sends records of 100 bytes to all partitions in turn and reads them with all partitions "
        f"assigned. Metadata: one Metadata request for the topic, the median of {_ASKED}. Waiting: the Java console "
        f"consumer reads all partitions, which hold nothing new (fetch.max.wait.ms={_POLL}). The figure is the "
        "server's CPU for each fetch, less what the server uses without the consumer."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    quick: ClassVar[bool] = False
    targets: ClassVar[tuple[Target, ...]] = tuple(
        target
        for contestant in ("ketch", "ketch-batch")
        for target in (
            Target(contestant, "rate", least=1.0, loads=partitioned("produce", 1000), to="kafka"),
            Target(contestant, "rate", least=1.0, loads=partitioned("consume", 1000), to="kafka"),
            Target(contestant, "metadata", most=1.0, to="kafka", loads=partitioned("metadata", 1000)),
            Target(contestant, "cpu_poll", most=1.0, loads=partitioned("waiting", 1000)),
        )
    )

    def labels(self, contestant: str) -> list[str]:
        through = [
            f"{partitioned(verb, n)}/confluent" for n in PARTITIONS for verb in ("produce", "consume", "metadata")
        ]
        return [*through, f"{partitioned('waiting', PARTITIONS[-1])}/java"]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        for partitions in PARTITIONS:
            topic = f"wide-{partitions}"
            server.create(topic, partitions=partitions)
            if any(run.wants(f"{partitioned(verb, partitions)}/confluent") for verb in ("produce", "consume")):
                yield from _through(server, topic, partitions, run.count(_RECORDS[partitions]))
            if run.wants(f"{partitioned('metadata', partitions)}/confluent"):
                yield Sample(partitioned("metadata", partitions), "confluent", "metadata", _metadata(server, topic))
            if partitions == PARTITIONS[-1] and run.wants(f"{partitioned('waiting', partitions)}/java"):
                yield Sample(partitioned("waiting", partitions), "java", "cpu_poll", _waiting(server, topic))
            server.delete(topic)


def _through(server: Server, topic: str, partitions: int, count: int) -> Iterator[Sample]:
    options = {"server": server.kafka, "topic": topic, "count": count, "partitions": partitions}
    for verb in ("produce", "consume"):
        more = {"size": 100} if verb == "produce" else {}
        await_quiet(server.pid)
        seconds = tools.python("confluent_client", verb=verb, **options, **more)["seconds"]
        yield Sample(partitioned(verb, partitions), "confluent", "rate", count / seconds)


def _metadata(server: Server, topic: str) -> float:
    """Milliseconds of a Metadata request, the median."""
    admin = server.admin()
    admin.list_topics(topic, timeout=30)
    took = []
    for _ in range(_ASKED):
        begin = time.monotonic()
        admin.list_topics(topic, timeout=30)
        took.append(time.monotonic() - begin)
    return median(took) * 1000


def _waiting(server: Server, topic: str) -> float:
    """Milliseconds of CPU per fetch that waits its time out, all partitions in one incremental fetch session."""
    await_quiet(server.pid)
    idle = _share(server)
    properties = [f"fetch.max.wait.ms={_POLL}", "enable.auto.commit=false", "heartbeat.interval.ms=10000"]
    arguments = [word for name in properties for word in ("--command-property", name)]
    command = tools.java_command(
        "consumer.ConsoleConsumer", "--bootstrap-server", server.kafka, "--topic", topic, *arguments
    )
    waiting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(_SETTLE_SECONDS)  # it joins, finds its offsets, and its full fetches become incremental ones
        return max(0.0, _share(server) - idle) * _POLL
    finally:
        waiting.kill()
        waiting.wait()


def _share(server: Server) -> float:
    """The server's CPU time as a share of one core."""
    with watch(server.pid) as usage:
        time.sleep(_POLL_SECONDS)
    return usage.cpu / usage.seconds
