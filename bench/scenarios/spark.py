"""Spark: Ketch's source, sink and archive beside Spark's own Kafka connector, and fetches of archived records."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any, ClassVar

from confluent_kafka import Producer

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import BenchError, Run, Sample, Target, Unavailable
from bench.processes import await_quiet
from bench.scenarios.base import Scenario
from bench.spark_kafka import VERSION, SparkKafka, spark_kafka

_RECORDS, _WARM, _ROWS = 1_000_000, 100_000, 300_000
_PARTITIONS = 2
_SOURCE, _SINK = "stream into noop", "batch write"
_PARQUET, _ARCHIVE = "stream into Spark's Parquet sink", "stream into the archive"
_HOT, _COLD = "fetch from Redis", "fetch from the archive"
_PACE, _SELDOM = 20, 2  # records a second, for latency
_LATENCY, _FAST_LATENCY = "record to foreachBatch", "record to foreachBatch, checkpoint without programs"
_SPACED_LATENCY = f"record to foreachBatch, {_SELDOM} a second"
_OF_LATENCY = {"latency": _LATENCY, "fast-latency": _FAST_LATENCY, "spaced-latency": _SPACED_LATENCY}
_OF = {"source": _SOURCE, "sink": _SINK, "parquet": _PARQUET, "archive": _ARCHIVE}
_TRIM_SECONDS = 60.0
_TAILED, _TAIL_TURNS = 700, 6
_SLOW, _FAST = 20_000, 100_000  # records/s
_ALONE = "tail, alone"
_COLD_SLOW, _COLD_FAST = (f"tail, beside {rate:,} archived records/s" for rate in (_SLOW, _FAST))
_ELSEWHERE = f"tail, beside {_FAST:,} records/s of another broker"
_OF_TAIL = {_ALONE: 0, _COLD_SLOW: _SLOW, _COLD_FAST: _FAST, _ELSEWHERE: _FAST}
_PATIENCE = 300.0
_JOB = tools.CLIENTS / "spark_job.py"


class Spark(Scenario):
    """On a broker of its own, which soon trims archived records from Redis."""

    name: ClassVar[str] = "spark"
    title: ClassVar[str] = "Spark and the archive"
    note: ClassVar[str] = (
        f"Spark runs as `local[2]` and reads {_RECORDS:,} records of 100 bytes from two partitions, or writes "
        f"{_ROWS:,} rows. Ketch's data source runs under PySpark 4.3, Spark's own Kafka source and sink {VERSION} "
        f"under PySpark {VERSION}. Each load first runs with fewer records in the same session, uncounted. Streams "
        "use Trigger.AvailableNow and are timed from start to termination. The archive is the stream of `ketch "
        "archive`; Spark's Parquet sink gets the same records from Ketch's source. Fetches: confluent-kafka reads "
        f"one partition before and after its records were archived. Record to foreachBatch: {_PACE} records/s, one "
        "at a time, sent by XADD (redis-py) or by a Kafka producer without linger, until a query without a trigger "
        f"interval has collected them. It runs with Spark's defaults; with {_SELDOM} records/s, where each record "
        "finds the query idle; and with the settings of "
        '"Latency" in docs/spark.md. Tail: confluent-kafka sends a record every 5 ms to a waiting consumer, alone, or '
        "while another consumer reads one partition from the archive, or from a second broker and its Redis; "
        f"{_TAIL_TURNS} turns of {_TAILED} records each count as one measurement."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    quick: ClassVar[bool] = False
    targets: ClassVar[tuple[Target, ...]] = (
        *(
            target
            for contestant in ("ketch", "ketch-batch")
            for target in (
                Target(contestant, "rate", least=1.0, loads=_SOURCE, to="kafka"),
                Target(contestant, "rate", loads=_SINK, to="kafka"),
                Target(contestant, "rate", loads=_ARCHIVE, to_load=_PARQUET),
                Target(contestant, "rate", loads=_COLD, to_load=_HOT, clients="confluent"),
            )
        ),
        *(Target("ketch", "p50", most=300.0, loads=load) for load in _OF_LATENCY.values()),
        Target("ketch", "p99", most=1.2, loads=_COLD_SLOW, to_load=_ALONE),
        Target("ketch", "p99", loads=_COLD_FAST, to_load=_ALONE),
        Target("ketch", "p99", most=1.2, loads=_COLD_FAST, to_load=_ELSEWHERE),
    )

    def labels(self, contestant: str) -> list[str]:
        if contestant == "kafka":
            return [f"{load}/spark" for load in (_SOURCE, _SINK, _LATENCY)]
        queries, fetches = list(_OF.values()), [_HOT, _COLD]
        if contestant == "ketch":
            queries += _OF_LATENCY.values()  # an XADD makes no batch
            fetches += _OF_TAIL
        return [*(f"{load}/spark" for load in queries), *(f"{load}/confluent" for load in fetches)]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
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
    producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 0})
    with _paced(lambda partition, value: producer.produce("paced", value, partition=partition), _PACE):
        yield from _spark(
            (connector.python, None), _JOB, run, format="kafka", options=where, jars=connector.jars, paced="paced"
        )
    server.delete("warm", "source", "sink", "paced", "spaced")


def _with_ketch(server: Ketch, run: Run) -> Iterator[Sample]:
    _fill(server, run, {"local.retention.ms": "0"})
    url = f"unix://{server.redis}"
    hot = functools.partial(_fetch, server, run.count(_RECORDS) // _PARTITIONS)
    yield Sample(_HOT, "confluent", "rate", hot())
    await_quiet(server.pid)
    archive = {"redis": url, "data_dir": str(server.data)}
    told = {"format": "ketch", "options": {"redis.url": url}, "jars": [], "archive": archive}
    # Another checkout's job imports that checkout's modules.
    job = _JOB if server.tree is None else server.tree / "bench" / "clients" / _JOB.name
    if server.name == "ketch":
        with _xadds(server, "paced", _PACE), _xadds(server, "spaced", _SELDOM):
            yield from _spark(server.interpreter(), job, run, **told, paced="paced", spaced="spaced")
    else:
        yield from _spark(server.interpreter(), job, run, **told)
    _await_trimmed(server)
    yield Sample(_COLD, "confluent", "rate", hot())
    if server.name == "ketch":
        yield from _tail(server, run)


def _fill(server: Server, run: Run, configs: dict[str, str] | None = None) -> None:
    server.create("warm", "source", partitions=_PARTITIONS, configs=configs)
    server.create("sink", "paced", "spaced", partitions=_PARTITIONS)
    for topic, full in (("warm", _WARM), ("source", _RECORDS)):
        for partition in range(_PARTITIONS):
            tools.kcat_produce(server.kafka, topic, 100, run.count(full) // _PARTITIONS, partition=partition)
    await_quiet(server.pid)


def _xadds(server: Ketch, topic: str, pace: int) -> contextlib.AbstractContextManager[None]:
    store = server.store()
    return _paced(lambda partition, value: store.xadd(f"korvet:stream:{topic}:{partition}", {"value": value}), pace)


def _paced(send: Callable[[int, bytes], object], pace: int) -> contextlib.AbstractContextManager[None]:
    """Sends records to the partitions in turn; the value is the time in ns."""
    partitions = itertools.cycle(range(_PARTITIONS))
    return tools.meanwhile(lambda: send(next(partitions), b"%d" % time.time_ns()), 1 / pace)


def _spark(interpreter: tuple[str, dict[str, str] | None], job: Path, run: Run, **options: Any) -> Iterator[Sample]:
    python, environment = interpreter
    counts = {"count": run.count(_RECORDS), "warm_count": run.count(_WARM), "rows": run.count(_ROWS)}
    with tempfile.TemporaryDirectory(prefix="ketch-bench-") as directory:
        told = {**options, **counts, "warm": "warm", "source": "source", "sink": "sink", "directory": directory}
        said = tools.run([python, str(job), json.dumps(told)], timeout=_PATIENCE, environment=environment)
    found = json.loads(said.splitlines()[-1])
    for name, seconds in found["seconds"].items():
        yield Sample(_OF[name], "spark", "rate", counts["rows" if name == "sink" else "count"] / seconds)
    for name, times in found["latency"].items():
        tenths = quantiles(times, n=10)
        yield Sample(_OF_LATENCY[name], "spark", "p50", tenths[4])
        yield Sample(_OF_LATENCY[name], "spark", "p90", tenths[8])


def _fetch(server: Server, count: int) -> float:
    options = {"server": server.kafka, "topic": "source", "count": count}
    return count / float(tools.python("confluent_client", verb="consume", **options)["seconds"])


def _tail(server: Ketch, run: Run) -> Iterator[Sample]:
    """A tail consumer's latency alone, and beside a reader of old records."""
    found: dict[str, list[float]] = {load: [] for load in _OF_TAIL}
    with type(server)() as other:
        for one in (server, other):
            one.create("tail")
        other.create("source")
        count = run.count(_RECORDS) // _PARTITIONS
        tools.kcat_produce(other.kafka, "source", 100, count)
        for one in (server, other):
            await_quiet(one.pid)
        for turn in range(_TAIL_TURNS):
            for load in list(_OF_TAIL)[:: 1 if turn % 2 == 0 else -1]:
                with contextlib.ExitStack() as stack:
                    if load != _ALONE:
                        read = {"topic": "source", "count": count, "rate": run.count(_OF_TAIL[load])}
                        where = (other if load == _ELSEWHERE else server).kafka
                        stack.enter_context(tools.background("steady_reader", server=where, **read))
                    options = {"server": server.kafka, "topic": "tail", "count": run.count(_TAILED)}
                    found[load] += tools.python("tail_latency", **options)["ms"]
    for load, times in found.items():
        hundredths = quantiles(times, n=100)
        yield Sample(load, "confluent", "p50", hundredths[49])
        yield Sample(load, "confluent", "p99", hundredths[98])


def _await_trimmed(server: Ketch) -> None:
    """Waits until Redis holds few archived records; an approximate XTRIM leaves those of one node."""
    deadline, store = time.monotonic() + _TRIM_SECONDS, server.store()
    while store.xlen("korvet:stream:source:0") > 1000:
        if time.monotonic() > deadline:
            raise BenchError("archived records are still in Redis")
        time.sleep(0.1)
