"""The Kafka 0.7 port beside the Kafka port: the same records produced and consumed through each."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import ClassVar

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import Run, Sample, Target
from bench.scenarios.base import Scenario
from bench.scenarios.throughput import timed

_COUNTS = {100: 500_000, 1000: 100_000}  # records
_SHOWN = {100: "100 B", 1000: "1 KB"}
_CLIENTS = ("kcat", "legacy")
_ROWS = [
    f"{verb} {_SHOWN[size]} from {writer}/{client}"
    for size in _COUNTS
    for writer in _CLIENTS
    for verb, clients in (("produce", (writer,)), ("consume", _CLIENTS))
    for client in clients
]


class Legacy(Scenario):
    """Each topic is written through one of the two ports, and read through both."""

    name: ClassVar[str] = "legacy"
    title: ClassVar[str] = "Clients of Kafka 0.7"
    note: ClassVar[str] = (
        "One partition; values without keys. kcat as in the scenario throughput; legacy: a Python program with one "
        "socket, sets of 200 uncompressed messages made before the clock runs, fetches of 1 MB. Its first fetch of a "
        "topic includes the counting of positions, which is done once."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch")
    targets: ClassVar[tuple[Target, ...]] = tuple(
        Target(contestant, "megabytes", least=0.5, loads=f"{verb} {size} from legacy", clients="legacy", **other)
        for contestant in ("ketch", "ketch-batch")
        for size in _SHOWN.values()
        for verb, other in (
            ("produce", {"to_load": f"produce {size} from kcat", "to_client": "kcat"}),
            ("consume", {"to_client": "kcat"}),
        )
    )

    def labels(self, contestant: str) -> list[str]:
        return list(_ROWS)

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        assert isinstance(server, Ketch)
        with type(server)("--legacy-port", "0") as own:
            for size, full in _COUNTS.items():
                for writer in _CLIENTS:
                    if any(run.wants(row) for row in _ROWS if f"{_SHOWN[size]} from {writer}/" in row):
                        yield from self._topic(own, size, writer, run.count(full), run)

    def _topic(self, server: Ketch, size: int, writer: str, count: int, run: Run) -> Iterator[Sample]:
        topic = f"legacy-{size}-{writer}"
        server.create(topic)
        if writer == "kcat":
            tools.lines(size, count)  # made before the clock runs
        for verb, clients in (("produce", (writer,)), ("consume", _CLIENTS)):
            load = f"{verb} {_SHOWN[size]} from {writer}"
            for client in clients:
                seconds = _seconds(server, verb, client, topic, size, count)
                if run.wants(f"{load}/{client}"):
                    yield Sample(load, client, "megabytes", count * size / seconds)
        server.delete(topic)


def _seconds(server: Ketch, verb: str, client: str, topic: str, size: int, count: int) -> float:
    if client == "legacy":
        options = {"verb": verb, "server": server.legacy, "topic": topic, "count": count, "size": size}
        return float(tools.python("legacy_client", **options)["seconds"])
    if verb == "produce":
        return timed(lambda: tools.kcat_produce(server.kafka, topic, size, count))
    return timed(lambda: tools.kcat_consume(server.kafka, topic, count))
