"""The pipeline as a Structured Streaming job: four queries that hand records on through topics.

    orders ──── clean ─┬─> topic orders.dead-letter
       customers ──┘   └─> topic orders.clean ─┬─ sessions ─> table shop.sessions
                                               ├─ revenue ──> topic revenue ─┐
                                               └──────────────────── tables ─┴─> tables shop.orders, shop.revenue

Run on its own it goes on until Ctrl-C:

    python -m examples.orders.streaming --redis redis://127.0.0.1:6379 --data-dir DIR
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from examples.orders import transform
from examples.orders.status import Status
from examples.orders.tables import Lake

_ATTEMPTS = 3  # to start a query
_INTERVAL = "500 milliseconds"  # from one micro-batch to the next; without one Spark asks Redis without pause

_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",  # also the number of state stores of a query: fixed by its checkpoint
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


def session(master: str) -> SparkSession:
    """A Spark session of the example; executors use this very Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("orders").master(master)
    for name, value in _CONFIG.items():
        builder = builder.config(name, value)
    if path := os.environ.get("PYTHONPATH"):
        builder = builder.config("spark.executorEnv.PYTHONPATH", path)
    if master.startswith("local") or "127.0.0.1" in master:
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    return builder.getOrCreate()


class Job:
    """The four queries of one session.

    Args:
        redis: URL of the Redis that holds the topics.
        home: directory of checkpoints and, unless pyiceberg is configured otherwise, of the tables.
    """

    def __init__(self, spark: SparkSession, redis: str, home: Path) -> None:
        self._spark, self._redis, self._home = spark, redis, home
        self.lake = Lake(home)
        self.queries: list[StreamingQuery] = []  # upstream ones first

    def start(self) -> None:
        """Starts all queries, or goes on where their checkpoints are."""
        records = self._stream("orders")
        orders = transform.clean_from_topic(self._stream("orders.clean"))
        revenue = transform.to_topic(transform.revenue_per_minute(orders), "region")
        self._to_topics("clean", transform.checked(records, self._customers()))
        self._to_table("sessions", transform.sessions(orders))
        self._to_topics("revenue", revenue.withColumn("topic", F.lit("revenue")))
        self._start("tables", self._stream("orders.clean,revenue").writeStream.foreachBatch(self._split))

    def process_all(self) -> None:
        """Waits until all queries have processed the records that are in `orders` now."""
        for query in self.queries:
            query.processAllAvailable()

    def stop(self) -> None:
        """Ends all queries; they can be started again."""
        for query in self.queries:
            query.stop()

    def _stream(self, topic: str) -> DataFrame:
        stream = self._spark.readStream.format("ketch").option("redis.url", self._redis)
        return stream.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def _customers(self) -> DataFrame:
        # A snapshot, as it is when the job starts.
        return transform.latest_customers(
            self._spark.read.format("ketch").option("redis.url", self._redis).option("subscribe", "customers").load()
        )

    def _to_topics(self, name: str, rows: DataFrame) -> None:
        self._start(name, rows.writeStream.format("ketch").option("redis.url", self._redis))

    def _to_table(self, table: str, rows: DataFrame) -> None:
        self._start(table, rows.writeStream.foreachBatch(lambda rows, batch: self.lake.append(table, rows, batch)))

    def _split(self, records: DataFrame, batch: int) -> None:
        records.persist()  # read once for both
        for topic, table, columns in (
            ("orders.clean", "orders", transform.clean_from_topic),
            ("revenue", "revenue", transform.revenue_from_topic),
        ):
            self.lake.append(table, columns(records.where(F.col("topic") == topic)), batch)
        records.unpersist()

    def _start(self, name: str, writer: DataStreamWriter) -> None:
        writer = writer.queryName(name).option("checkpointLocation", str(self._home / "checkpoints" / name))
        writer = writer.trigger(processingTime=_INTERVAL)
        for attempt in range(_ATTEMPTS):
            query = writer.start()
            try:
                query.processAllAvailable()  # one query at a time: each starts Python processes of its own
                break
            except StreamingQueryException as error:
                # Spark gives such a process ten seconds to answer; a query goes on where its checkpoint is.
                if "failed to connect back" not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
        self.queries.append(query)


def main() -> None:
    """Runs the job until it is interrupted."""
    parser = argparse.ArgumentParser(description="The orders pipeline on topics that are there.")
    parser.add_argument("--redis", required=True, help="URL of the Redis that holds the topics")
    parser.add_argument("--data-dir", type=Path, required=True, help="directory of checkpoints and tables")
    parser.add_argument("--master", default="local[*]", help="Spark's master; default local[*]")
    arguments = parser.parse_args()
    spark = session(arguments.master)
    spark.streams.addListener(Status(print))
    job = Job(spark, arguments.redis, arguments.data_dir.absolute())
    try:
        job.start()
        spark.streams.awaitAnyTermination()
    except KeyboardInterrupt:
        job.stop()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
