"""Reads and writes topics with Spark and prints {"seconds": {load: s, ...}, "latency": {load: [ms, ...], ...}}.

Runs under Ketch's PySpark and the connector's.

Argument: JSON with
    `format` (ketch, kafka) and the `options` that name the server,
    `source` and `count`, a topic and its records; `warm` and `warm_count`, a smaller one,
    `sink`, a topic, and `rows`, how many to write to it,
    `paced` and `spaced`: where set, topics that get records all the time, the second seldom, whose values are the time
        they were sent (ns),
    `jars` of the connector, `directory` for checkpoints and files,
    `archive`: where set, the Redis URL and data directory of a job that archives `source`
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

# Records of either topic that are not counted, because a query starts slowly, and that are.
_PACED, _SPACED = (50, 150), (10, 30)
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"
# docs/spark.md, "Latency". In a running session the second setting needs names of its own and no cache.
_FAST_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


class Job:
    """One session and its loads."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.directory = Path(options["directory"])
        self.session = self._session()

    def _session(self) -> SparkSession:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(self.options["jars"]))
        for name, value in (
            ("spark.ui.enabled", "false"),
            ("spark.ui.showConsoleProgress", "false"),
            ("spark.driver.memory", "1g"),
            ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"),
            ("spark.sql.parquet.compression.codec", "zstd"),  # as the archive's files
        ):
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        return session

    def read(self, topic: str, name: str) -> Callable[[], None]:
        """A streaming read of all that a topic holds into nothing."""
        return self._stream(topic, name, lambda writer: writer.format("noop"))

    def parquet(self, topic: str, name: str) -> Callable[[], None]:
        """The same into Spark's own Parquet files."""
        path = str(self.directory / f"{name}.parquet")
        return self._stream(topic, name, lambda writer: writer.format("parquet").option("path", path))

    def _stream(
        self, topic: str, name: str, into: Callable[[DataStreamWriter], DataStreamWriter]
    ) -> Callable[[], None]:
        source = self.session.readStream.format(self.options["format"]).options(**self.options["options"])
        stream = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
        writer = into(stream.writeStream).option("checkpointLocation", str(self.directory / f"{name}.checkpoint"))

        def run() -> None:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            seen = sum(progress["numInputRows"] for progress in query.recentProgress)
            wanted = self.options["count"] if topic == self.options["source"] else self.options["warm_count"]
            if seen != wanted:
                sys.exit(f"{name}: {seen} rows of {wanted}")

        return run

    def write(self, rows: int) -> Callable[[], None]:
        """A batch of keys and values of 100 bytes in two tasks."""
        frame = self.session.range(0, rows, 1, 2).selectExpr(
            "cast(cast(id as string) as binary) as key", "cast(rpad(cast(id as string), 100, 'v') as binary) as value"
        )
        writer = frame.write.format(self.options["format"]).options(**self.options["options"])
        return writer.mode("append").option("topic", self.options["sink"]).save

    def latency(self, topic: str, name: str, early: int, count: int) -> list[float]:
        """ms from sending each record until a foreachBatch function has it."""
        found: list[float] = []

        def sink(frame: DataFrame, _: int) -> None:
            rows, now = frame.select("value").collect(), time.time_ns()
            found.extend((now - int(row.value)) / 1e6 for row in rows)

        source = self.session.readStream.format(self.options["format"]).options(**self.options["options"])
        stream = source.option("subscribe", topic).option("startingOffsets", "latest").load()
        writer = stream.writeStream.option("checkpointLocation", str(self.directory / f"{name}.checkpoint"))
        query = writer.foreachBatch(sink).start()
        while len(found) < early + count and not query.awaitTermination(0.1):
            pass  # raises the query's error
        query.stop()
        return found[early:]

    def latencies(self) -> dict[str, list[float]]:
        """With default settings, and with a checkpoint that starts no programs."""
        if "paced" not in self.options:
            return {}
        topic = self.options["paced"]
        self.latency(topic, "warm-latency", *_PACED)
        found = {"latency": self.latency(topic, "latency", *_PACED)}
        if "spaced" in self.options:
            found["spaced-latency"] = self.latency(self.options["spaced"], "spaced-latency", *_SPACED)
        if self.options["format"] == "ketch":
            for name, value in _FAST_CHECKPOINTS.items():
                self.session.conf.set(name, value)
            found["fast-latency"] = self.latency(topic, "fast-latency", *_PACED)
        return found

    def archive(self, topic: str) -> Callable[[], None]:
        """What `ketch archive run --once` does once its session is there."""
        from ketch.archive.options import Job as ArchiveJob
        from ketch.archive.options import Plan
        from ketch.archive.spark_session import start
        from ketch.redis.blocking import Server

        where = self.options["archive"]
        job = ArchiveJob(Server(where["redis"]), "korvet", "ketch", where["data_dir"], (topic,), 2)
        plan = Plan(job, True, 1.0, "local[2]")
        checkpoint = Path(where["data_dir"]) / "lake" / "checkpoints" / f"bench-{topic}"
        checkpoint.mkdir(parents=True, exist_ok=True)
        return lambda: start(self.session, plan, checkpoint).awaitTermination() and None


def main() -> None:
    options = json.loads(sys.argv[1])
    job, warm, source = Job(options), options["warm"], options["source"]
    # The first query of a session compiles and loads for seconds.
    loads: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
        ("source", job.read(warm, "warm-read"), job.read(source, "read")),
        ("sink", job.write(options["warm_count"]), job.write(options["rows"])),
    ]
    if "archive" in options:
        loads.append(("parquet", job.parquet(warm, "warm-parquet"), job.parquet(source, "parquet")))
        loads.append(("archive", job.archive(warm), job.archive(source)))
    seconds = {}
    for name, first, measured in loads:
        first()
        begin = time.monotonic()
        measured()
        seconds[name] = time.monotonic() - begin
    latency = job.latencies()
    job.session.stop()
    print(json.dumps({"seconds": seconds, "latency": latency}))


if __name__ == "__main__":
    main()
