"""Many clients at once: consumers at the end of one partition, idle connections, slow producers."""

from __future__ import annotations

import resource
import time
from collections.abc import Generator, Iterator
from typing import ClassVar

from confluent_kafka import Producer

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import BenchError, Run, Sample, Target
from bench.processes import await_quiet, resident, tree, watch
from bench.scenarios.base import Scenario

_TAILS, _BATCHES = 100, 200
_BATCH_SECONDS = 0.02
_READS = ("xrange", "xrevrange", "xread", "xreadgroup")


class Fanout(Scenario):
    """Single batches, each of which a hundred waiting consumers read."""

    name: ClassVar[str] = "fanout"
    title: ClassVar[str] = "Tail consumers"
    note: ClassVar[str] = (
        f"{_TAILS} confluent-kafka consumers wait at the end of one partition, to which a batch of one record is sent "
        "every 20 ms. Reads are calls of XRANGE, XREVRANGE, XREAD and XREADGROUP in Valkey's INFO commandstats; CPU is "
        "the server's."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    targets: ClassVar[tuple[Target, ...]] = (
        Target("ketch", "reads", most=1.5),
        Target("ketch-batch", "reads", most=1.5),
    )
    _label = f"{_TAILS} consumers of one partition"

    def labels(self, contestant: str) -> list[str]:
        return [f"{self._label}/confluent"]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        topic, batches = "fanout", run.count(_BATCHES, 50)
        server.create(topic)
        producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 0, "acks": "all"})
        producer.produce(topic, b"first", partition=0)
        producer.flush(30)
        with tools.background("tail", server=server.kafka, topic=topic, consumers=_TAILS, count=batches) as tails:
            assert tails.stdout is not None
            await_quiet(server.pid, 2.0)
            before = _reads(server)
            with watch(server.pid) as usage:
                for _ in range(batches):
                    producer.produce(topic, b"v" * 100, partition=0)
                    producer.flush(30)
                    time.sleep(_BATCH_SECONDS)  # the load's rate
                if tails.stdout.readline().strip() != "done":
                    raise BenchError("not every consumer read every record")
            after = _reads(server)
        if isinstance(server, Ketch):
            yield Sample(self._label, "confluent", "reads", (after - before) / batches)
        yield Sample(self._label, "confluent", "cpu_batch", usage.cpu / batches * 1000)
        server.delete(topic)


def _reads(server: Server) -> int:
    if not isinstance(server, Ketch):
        return 0
    told = server.store().info("commandstats")
    return sum(told.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in _READS)


_IDLE = 10_000
_OTHER_FILES = 1000


class Idle(Scenario):
    """On a broker of its own: one that has freed memory before would give it to the connections unseen."""

    name: ClassVar[str] = "idle"
    title: ClassVar[str] = "Idle connections"
    note: ClassVar[str] = (
        "Each connection sends one ApiVersions request and stays open. The figure is the resident memory of broker and "
        "store with the connections less that without them, for each connection."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch",)
    targets: ClassVar[tuple[Target, ...]] = (Target("ketch", "bytes", most=25.0),)

    def labels(self, contestant: str) -> list[str]:
        return [f"{_IDLE:,} idle connections/socket"]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES
        count = run.count(_IDLE, 2000)
        if limit < count:
            raise BenchError(f"{count} connections need as many open files, of which ulimit -n allows {limit}")
        assert isinstance(server, Ketch)
        with type(server)("--max-connections", str(_IDLE + _OTHER_FILES)) as own:
            await_quiet(own.pid)
            before = resident(tree(own.pid))
            with tools.background("connections", server=own.kafka, count=count):
                await_quiet(own.pid)
                after = resident(tree(own.pid))
        yield Sample(f"{_IDLE:,} idle connections", "socket", "bytes", (after - before) / count)


_SLOW = 1000
_ALONE, _CROWDED = "100 B, alone", f"100 B, beside {_SLOW:,} producers"


class Slow(Scenario):
    """The latency of one producer and one consumer, alone and beside many slow producers."""

    name: ClassVar[str] = "slow"
    title: ClassVar[str] = "Slow producers beside a busy pair"
    note: ClassVar[str] = (
        f"EndToEndLatency alone, then while {_SLOW:,} connections each send a record of 100 bytes a second (acks=all). "
        "The program that holds these connections shares the cores."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    quick: ClassVar[bool] = False
    targets: ClassVar[tuple[Target, ...]] = (
        Target("ketch", "p99", most=1.2, loads=_CROWDED, to_load=_ALONE),
        Target("ketch-batch", "p99", most=1.2, loads=_CROWDED, to_load=_ALONE),
    )

    def labels(self, contestant: str) -> list[str]:
        return [f"{load}/java" for load in (_ALONE, _CROWDED)]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        server.create("slow", "busy")
        await_quiet(server.pid)
        yield from _busy_pair(server, run, _ALONE)
        with tools.background("slow_producers", server=server.kafka, topic="slow", count=_SLOW):
            crowded = list(_busy_pair(server, run, _CROWDED))
        yield from crowded
        server.delete("slow", "busy")


def _busy_pair(server: Server, run: Run, load: str) -> Iterator[Sample]:
    found = tools.end_to_end(server.kafka, "busy", run.count(1500, 500), 100)
    yield from (Sample(load, "java", name, value) for name, value in found.items())
