"""The pipeline beside Spark's own: source, sink, archive; and what reading archived records back costs."""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import BenchError, Run, Sample, Scenario, Target, Unavailable
from bench.processes import settle
from bench.spark_kafka import VERSION, SparkKafka, spark_kafka

_RECORDS, _WARM, _ROWS = 1_000_000, 100_000, 300_000
_PARTITIONS = 2
_SOURCE, _SINK = "stream into noop", "batch write"
_PARQUET, _ARCHIVE = "stream into Spark's Parquet sink", "stream into the archive"
_HOT, _COLD = "fetch from Redis", "fetch from the archive"
_OF = {"source": _SOURCE, "sink": _SINK, "parquet": _PARQUET, "archive": _ARCHIVE}
_TRIM_SECONDS = 60.0
_PATIENCE = 300.0


class Spark(Scenario):
    """On a broker of its own, whose archived records leave Redis soon."""

    name: ClassVar[str] = "spark"
    title: ClassVar[str] = "Spark and the archive"
    note: ClassVar[str] = (
        f"`local[2]`, {_RECORDS:,} records of 100 bytes in two partitions, {_ROWS:,} rows written: Ketch's data source "
        f"under PySpark 4.3, Spark's own Kafka source and sink {VERSION} under PySpark {VERSION}. Every load runs once "
        "with fewer records in the same session before it counts; Trigger.AvailableNow, from start to termination. The "
        "archive is `ketch archive`'s stream; Spark's Parquet sink gets the same records through Ketch's source. "
        "Fetches: confluent-kafka reading one partition, before and after its records went to the archive."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    rounds: ClassVar[int] = 1
    quick: ClassVar[bool] = False
    targets: ClassVar[tuple[Target, ...]] = tuple(
        target
        for contestant in ("ketch", "ketch-batch")
        for target in (
            Target(contestant, "rate", least=1.0, loads=_SOURCE, to="kafka"),
            Target(contestant, "rate", loads=_SINK, to="kafka"),
            Target(contestant, "rate", loads=_ARCHIVE, to_load=_PARQUET),
            Target(contestant, "rate", loads=_COLD, to_load=_HOT, clients="confluent"),
        )
    )

    def labels(self, contestant: str) -> list[str]:
        if contestant == "kafka":
            return [f"{_SOURCE}/spark", f"{_SINK}/spark"]
        return [*(f"{load}/spark" for load in _OF.values()), f"{_HOT}/confluent", f"{_COLD}/confluent"]

    def measure(self, server: Server, run: Run) -> Iterator[Sample]:
        if not isinstance(server, Ketch):
            yield from _with_connector(server, run, spark_kafka())
            return
        if missing := [name for name in ("pyspark", "pyiceberg") if importlib.util.find_spec(name) is None]:
            raise Unavailable(f"{' and '.join(missing)} missing: make install-spark")
        if not shutil.which("java"):
            raise Unavailable("java is missing: Spark runs on it")
        with type(server)("--retention-check-interval-ms", "500") as own:
            yield from _with_ketch(own, run)


def _with_connector(server: Server, run: Run, connector: SparkKafka) -> Iterator[Sample]:
    _fill(server, run)
    where = {"kafka.bootstrap.servers": server.kafka}
    yield from _spark(connector.python, run, format="kafka", options=where, jars=connector.jars)
    server.delete("warm", "source", "sink")


def _with_ketch(server: Ketch, run: Run) -> Iterator[Sample]:
    _fill(server, run, {"local.retention.ms": "0"})
    url = f"unix://{server.redis}"
    hot = functools.partial(_fetch, server, run.count(_RECORDS) // _PARTITIONS)
    yield Sample(_HOT, "confluent", "rate", hot())
    settle(server.pid)
    archive = {"redis": url, "data_dir": str(server.data)}
    yield from _spark(sys.executable, run, format="ketch", options={"redis.url": url}, jars=[], archive=archive)
    _await_trimmed(server)
    yield Sample(_COLD, "confluent", "rate", hot())


def _fill(server: Server, run: Run, configs: dict[str, str] | None = None) -> None:
    server.create("warm", "source", partitions=_PARTITIONS, configs=configs)
    server.create("sink", partitions=_PARTITIONS)
    for topic, full in (("warm", _WARM), ("source", _RECORDS)):
        for partition in range(_PARTITIONS):
            tools.kcat_produce(server.kafka, topic, 100, run.count(full) // _PARTITIONS, partition=partition)
    settle(server.pid)


def _spark(python: str, run: Run, **options: Any) -> Iterator[Sample]:
    counts = {"count": run.count(_RECORDS), "warm_count": run.count(_WARM), "rows": run.count(_ROWS)}
    with tempfile.TemporaryDirectory(prefix="ketch-bench-") as directory:
        told = {**options, **counts, "warm": "warm", "source": "source", "sink": "sink", "directory": directory}
        said = tools.run([python, str(tools.CLIENTS / "spark_job.py"), json.dumps(told)], timeout=_PATIENCE)
    for name, seconds in json.loads(said.splitlines()[-1]).items():
        yield Sample(_OF[name], "spark", "rate", counts["rows" if name == "sink" else "count"] / seconds)


def _fetch(server: Server, count: int) -> float:
    options = {"server": server.kafka, "topic": "source", "count": count}
    return count / float(tools.python("confluent_client", verb="consume", **options)["seconds"])


def _await_trimmed(server: Ketch) -> None:
    """XTRIM leaves part of a node."""
    deadline, store = time.monotonic() + _TRIM_SECONDS, server.store()
    while store.xlen("korvet:stream:source:0") > 1000:
        if time.monotonic() > deadline:
            raise BenchError("archived records are still in Redis")
        time.sleep(0.1)
