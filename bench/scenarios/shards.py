"""A log on one Valkey and on several shards: what a record costs, very many partitions and groups, a read by Spark."""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import ClassVar

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import Run, Sample, Target, Unavailable
from bench.processes import settle, watch
from bench.scenarios.base import Scenario

_SHARDS = (1, 3, 6)
_RECORDS, _SPARK_RECORDS, _SPARK_WARM = 600_000, 600_000, 60_000
_PARTITIONS, _MANY = 12, 10_000
_GROUPS, _TURNS = 1000, 3
_WARM_UPS = 2
_PATIENCE = 300.0
_PRODUCE, _CONSUME = f"produce 100 B, {_PARTITIONS} partitions", f"consume 100 B, {_PARTITIONS} partitions"
_WIDE, _READ_WIDE = f"produce 100 B, {_MANY:,} partitions", f"consume 100 B, {_MANY:,} partitions"
_COMMITS = f"commits of {_GROUPS:,} groups"
_SPARK = "stream into noop"
_THROUGH = {_PRODUCE: _PARTITIONS, _CONSUME: _PARTITIONS, _WIDE: _MANY, _READ_WIDE: _MANY}


def on(what: str, shards: int) -> str:
    return f"{what}, {shards} shard{'s' if shards > 1 else ''}"


class Shards(Scenario):
    """Each number of shards has a broker of its own, with the shards that `ketch serve --shards` starts."""

    name: ClassVar[str] = "shards"
    title: ClassVar[str] = "Several shards"
    note: ClassVar[str] = (
        "A broker of its own for each number of shards (`ketch serve --shards`): one is a Valkey on a unix socket, "
        "several are a Redis Cluster on loopback. confluent-kafka sends records of 100 bytes to all partitions in turn "
        f"and reads them with all partitions assigned; with {_PARTITIONS} partitions {_WARM_UPS} times before that is "
        "counted, as a new shard gets its memory from the system while it is filled. CPU is that of the broker and of "
        "all shards. Groups: each "
        f"commits {_TURNS} times through the coordinator, up to 50 commits at once. Spark reads all that a topic of "
        f"{_PARTITIONS} partitions holds, as `local[2]`, after a smaller read in the same session."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch")
    quick: ClassVar[bool] = False
    targets: ClassVar[tuple[Target, ...]] = tuple(
        Target(contestant, "cpu", most=1.1, loads=on(load, shards), to_load=on(load, 1))
        for contestant in contestants
        for load in (_PRODUCE, _CONSUME)
        for shards in _SHARDS[1:]
    )

    def labels(self, contestant: str) -> list[str]:
        loads = [(load, "confluent") for load in _THROUGH]
        # What a group commits does not depend on the layout.
        loads += [(_COMMITS, "confluent"), (_SPARK, "spark")] if contestant == "ketch" else []
        return [f"{on(load, shards)}/{client}" for shards in _SHARDS for load, client in loads]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        assert isinstance(server, Ketch)
        labels = self.labels(server.name)
        for shards in _SHARDS:
            end = on("", shards)
            wanted = [label.removesuffix("/confluent").removesuffix("/spark") for label in labels if run.wants(label)]
            loads = [load.removesuffix(end) for load in wanted if load.endswith(end)]
            if loads:
                with type(server)(*(() if shards == 1 else ("--shards", str(shards)))) as own:
                    for load, client, metric, value in _measured(own, run, loads):
                        yield Sample(on(load, shards), client, metric, value)


def _measured(server: Ketch, run: Run, loads: list[str]) -> Iterator[tuple[str, str, str, float]]:
    for produce, consume in ((_PRODUCE, _CONSUME), (_WIDE, _READ_WIDE)):
        if produce in loads or consume in loads:
            partitions, count = _THROUGH[produce], run.count(_RECORDS)
            for _ in range(_WARM_UPS if partitions == _PARTITIONS else 0):
                list(_produced_and_consumed(server, partitions, count))
            counted = _produced_and_consumed(server, partitions, count)
            for load, (seconds, cpu) in zip((produce, consume), counted, strict=True):
                yield load, "confluent", "rate", count / seconds
                yield load, "confluent", "cpu", cpu / count * 1e6
    if _COMMITS in loads:
        groups = run.count(_GROUPS)
        server.create("committed", partitions=_PARTITIONS)
        told = {"server": server.kafka, "topic": "committed", "groups": groups, "turns": _TURNS}
        seconds, cpu = _watched(server, functools.partial(tools.python, "many_groups", **told))
        yield _COMMITS, "confluent", "commits", groups * _TURNS / seconds
        yield _COMMITS, "confluent", "cpu_request", cpu / (groups * _TURNS)
        server.delete("committed")
    if _SPARK in loads:
        yield _SPARK, "spark", "rate", _spark(server, run)


def _produced_and_consumed(server: Ketch, partitions: int, count: int) -> Iterator[tuple[float, float]]:
    """As `_watched`, of a topic that is new, twice."""
    topic = f"spread-{partitions}"
    server.create(topic, partitions=partitions)
    told = {"server": server.kafka, "topic": topic, "count": count, "partitions": partitions}
    yield _watched(server, functools.partial(tools.python, "confluent_client", verb="produce", size=100, **told))
    yield _watched(server, functools.partial(tools.python, "confluent_client", verb="consume", **told))
    server.delete(topic)


def _watched(server: Ketch, put: Callable[[], dict[str, float]]) -> tuple[float, float]:
    """Seconds by the client's clock, and the server's CPU time."""
    settle(server.pid)
    with watch(server.pid) as usage:
        seconds = put()["seconds"]
    return seconds, usage.cpu


def _spark(server: Ketch, run: Run) -> float:
    """Rows a second.

    Raises:
        Unavailable: Spark or Java is missing.
        BenchError: the query failed or gave another number of rows.
    """
    if importlib.util.find_spec("pyspark") is None or not shutil.which("java"):
        raise Unavailable("pyspark or java is missing: make install-spark")
    counts = {"spark-warm": run.count(_SPARK_WARM, 1200), "spark": run.count(_SPARK_RECORDS, 1200)}
    for topic, count in counts.items():
        server.create(topic, partitions=_PARTITIONS)
        told = {"server": server.kafka, "topic": topic, "count": count, "partitions": _PARTITIONS, "size": 100}
        tools.python("confluent_client", verb="produce", **told)
    python, environment = server.interpreter()
    job = Path(__file__).parents[1] / "clients" / "spark_read.py"
    with tempfile.TemporaryDirectory(prefix="ketch-bench-") as directory:
        options = {"redis": server.url, "topics": counts, "directory": directory}
        said = tools.run([python, str(job), json.dumps(options)], timeout=_PATIENCE, environment=environment)
    server.delete(*counts)
    return counts["spark"] / float(json.loads(said.splitlines()[-1])["seconds"])
