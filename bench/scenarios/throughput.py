"""Throughput of one partition by record size, compression and client; the server's CPU and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import BenchError, Run, Sample, Target
from bench.processes import await_quiet, settle, watch
from bench.scenarios.base import Scenario

_COUNTS = {100: 1_000_000, 1000: 200_000, 10_000: 30_000}  # records: about a second
_FEWER = {  # where a client takes longer
    "java": {100: 500_000, 1000: 60_000, 10_000: 9000},
    "confluent": {100: 500_000},
}
_SHOWN = {100: "100 B", 1000: "1 KB", 10_000: "10 KB"}
_CODECS = ("lz4", "zstd")
_CONSUMERS = 4
_WARM_UP = 4  # ProducerPerformance first sends a quarter as many records, uncounted


@dataclass(frozen=True, slots=True)
class Load:
    """Records of one size through one client, produced and then consumed."""

    size: int
    client: str
    codec: str = ""
    consumers: int = 1
    behind: int = 0  # as many records again, so often, were produced to the same topic before

    @property
    def shown(self) -> str:
        codec = f" {self.codec}" if self.codec else ""
        consumers = f", {self.consumers} consumers" if self.consumers > 1 else ""
        return f"{_SHOWN[self.size]}{codec}{consumers}" + (", third million" if self.behind else "")

    @property
    def labels(self) -> list[str]:
        verbs = ("produce",) if self.behind else ("produce", "consume") if self.consumers == 1 else ("consume",)
        return [f"{verb} {self.shown}/{self.client}" for verb in verbs]


_PLAIN = [Load(size, client) for size in _COUNTS for client in ("kcat", "java")] + [Load(100, "confluent")]
_MORE = [Load(size, "kcat", codec) for size in _COUNTS for codec in _CODECS]
_MORE += [Load(size, "kcat", consumers=_CONSUMERS) for size in (100, 1000)]
_LATER = Load(100, "kcat", behind=2)
_SLOW = [Load(size, "java") for size in (100, 10_000)]  # a quick run has one start of a JVM, not three

_LOADS = {
    "valkey": [*(Load(size, "raw") for size in _COUNTS), Load(100, "raw", behind=2)],
    "ketch": [*_PLAIN, _LATER],
    "ketch-multi": [*_PLAIN, _LATER],
    "ketch-batch": [*_PLAIN, *_MORE, _LATER],
    "kafka": [*_PLAIN, *_MORE, _LATER],
}

_RAW = {"to": "valkey", "to_client": "raw"}


class Throughput(Scenario):
    """Each load has a topic of its own, deleted after it was consumed."""

    name: ClassVar[str] = "throughput"
    title: ClassVar[str] = "Produce and consume"
    note: ClassVar[str] = (
        "One partition. raw: a C program on Valkey's unix socket sends `XADD` with the fields that Ketch writes, "
        "10,000 in flight, and reads with `XRANGE COUNT 5000`, page by page. kcat: `kcat -P -l FILE` and `kcat -C`, "
        "from the program's start to its exit. java: ProducerPerformance (after a warm-up) and ConsumerPerformance, "
        "by their own clocks. confluent: a Python program with confluent-kafka, from its first record to its last. "
        "third million: behind two million others. no module: the broker runs with `--append multi`. "
        "It sets fetch.queue.backoff.ms=10, because with the default the client itself pauses for a second. 4 "
        "consumers: four kcat, each on a partition of its own. CPU and memory are those of the server's processes, "
        "broker and store. Valkey's log is in its memory; Kafka's is in the page cache, which does not count."
    )
    contestants: ClassVar[tuple[str, ...]] = ("valkey", "ketch", "ketch-multi", "ketch-batch", "kafka")
    targets: ClassVar[tuple[Target, ...]] = (
        Target("ketch", "rate", least=2.0, loads="produce 100 B", clients="kcat", **_RAW),
        Target("ketch", "rate", least=2.0, loads="produce 100 B, third million", clients="kcat", **_RAW),
        Target("ketch", "rate", least=1.0, loads="produce 1 KB", clients="kcat", **_RAW),
        Target("ketch", "rate", least=0.8, loads="produce 100 B*", clients="kcat", to="kafka"),
        *(
            Target("ketch", "rate", least=1.0, loads=f"produce {size}", clients="java", to="kafka")
            for size in ("100 B", "1 KB")
        ),
        Target("ketch", "rate", least=1.0, loads="produce 100 B", clients="confluent", to="kafka"),
        *(
            Target("ketch-multi", "rate", least=0.8, loads=f"produce {load}", clients="kcat", **_RAW)
            for load in ("100 B", "100 B, third million", "1 KB")
        ),
        *(
            Target("ketch", "rate", least=0.8, loads=f"consume {size}", clients=client, **_RAW)
            for size in ("100 B", "1 KB")
            for client in ("kcat", "java")
        ),
        Target("ketch-batch", "rate", least=1.0, loads="produce *", to="kafka"),
        Target("ketch-batch", "rate", least=1.0, loads="consume *", to="kafka"),
        Target("ketch-batch", "cpu", most=2.0, to="kafka"),
    )

    def labels(self, contestant: str) -> list[str]:
        return [label for load in _LOADS[contestant] for label in load.labels]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        for load in _LOADS[server.name]:
            if any(run.wants(label) for label in load.labels) and not (run.quick and load in _SLOW):
                yield from self._load(server, load, run)

    def _load(self, server: Server, load: Load, run: Run) -> Iterator[Sample]:
        topic = f"t-{load.size}-{load.client}-{load.codec or 'plain'}-{load.consumers}-{load.behind}"
        count = run.count(_FEWER.get(load.client, _COUNTS)[load.size] // (2 if load.consumers > 1 else 1))
        produce, consume = (_several if load.consumers > 1 else _one)(server, load, topic, count)
        if load.client != "raw":
            server.create(topic, partitions=load.consumers)
        for _ in range(load.behind):
            produce()
        yield from self._verb("produce", server, load, count, produce, run)
        if not load.behind:
            yield from self._verb("consume", server, load, count, consume, run)
        if load.client != "raw":
            server.delete(topic)
        elif isinstance(server, Ketch):
            server.store().unlink(topic)

    def _verb(
        self, verb: str, server: Server, load: Load, count: int, put: Callable[[], float], run: Run
    ) -> Iterator[Sample]:
        shown = f"{verb} {load.shown}"
        (settle if verb == "produce" else await_quiet)(server.pid)
        with watch(server.pid) as usage:
            rate = put()
        if f"{shown}/{load.client}" in load.labels and run.wants(f"{shown}/{load.client}"):
            yield Sample(shown, load.client, "rate", rate)
            warmup = count // _WARM_UP if (verb, load.client) == ("produce", "java") else 0
            yield Sample(shown, load.client, "cpu", usage.cpu / (count * load.consumers + warmup) * 1e6)
            yield Sample(shown, load.client, "memory", usage.peak)


def _one(server: Server, load: Load, topic: str, count: int) -> tuple[Callable[[], float], Callable[[], float]]:
    """Two functions: one produces, one consumes; each returns records per second."""
    at, size = server.kafka, load.size
    if load.client == "raw":
        assert isinstance(server, Ketch)
        return (
            lambda: count / _checked(server, topic, count, size),
            lambda: count / tools.raw(server, "consume", topic, count),
        )
    if load.client == "java":
        return (
            lambda: tools.producer_performance(at, topic, size, count, warmup=count // _WARM_UP)["rate"],
            lambda: tools.consumer_performance(at, topic, count),
        )
    if load.client == "confluent":
        options = {"server": at, "topic": topic, "count": count}
        return (
            lambda: count / tools.python("confluent_client", verb="produce", size=size, **options)["seconds"],
            lambda: count / tools.python("confluent_client", verb="consume", **options)["seconds"],
        )
    tools.lines(size, count)  # made before the clock runs
    return (
        lambda: count / timed(lambda: tools.kcat_produce(at, topic, size, count, load.codec)),
        lambda: count / timed(lambda: tools.kcat_consume(at, topic, count)),
    )


def _several(server: Server, load: Load, topic: str, count: int) -> tuple[Callable[[], float], Callable[[], float]]:
    tools.lines(load.size, count)

    def fill(partition: int) -> None:
        tools.kcat_produce(server.kafka, topic, load.size, count, load.codec, partition)

    def produce() -> float:
        with ThreadPoolExecutor(2) as pool:
            return load.consumers * count / timed(lambda: list(pool.map(fill, range(load.consumers))))

    def consume() -> float:
        return load.consumers * count / tools.kcat_consumers(server.kafka, topic, count, load.consumers)

    return produce, consume


def _checked(server: Ketch, stream: str, count: int, size: int) -> float:
    expected = server.store().xlen(stream) + count
    seconds = tools.raw(server, "produce", stream, count, size)
    there = server.store().xlen(stream)
    if there != expected:
        raise BenchError(f"{stream} holds {there} records instead of {expected}")
    return seconds


def timed(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin
