"""Run by PySpark 4.0.0, which has Spark's own Kafka source and sink: reads and writes topics, prints what it found.

Arguments: jars, bootstrap servers, a directory for checkpoints, and the names of a topic with dense offsets, one with
time offsets, and two to write to.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

LIMITS = {"dense": 200, "time": 20_000_000}  # maxOffsetsPerTrigger: of offsets, 1,024 a millisecond with time ids


def main() -> None:
    """Prints one line of JSON."""
    jars, bootstrap, home, dense, time, written, copied = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "512m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    kafka = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", "includeHeaders": "true"}
    found: dict[str, Any] = {}
    for kind, topic in (("dense", dense), ("time", time)):
        rows = spark.read.format("kafka").options(**kafka, subscribe=topic).load()
        found[f"{kind} batch"] = values(rows)
        # Split into ranges of offsets: all records are there, wherever the records lie in them.
        found[f"{kind} split"] = values(
            spark.read.format("kafka").options(**kafka, subscribe=topic, minPartitions="6").load()
        )
        found[f"{kind} stream"] = stream(spark, kafka, topic, f"{home}/{kind}", LIMITS[kind])
    source = spark.read.format("kafka").options(**kafka, subscribe=dense).load()
    sink = {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true"}
    source.select("key", "value", "headers").write.format("kafka").options(**sink, topic=written).save()
    copy = spark.readStream.format("kafka").options(**kafka, subscribe=dense, maxOffsetsPerTrigger="500").load()
    writer = copy.select("key", "value").writeStream.format("kafka").options(**sink, topic=copied)
    writer.option("checkpointLocation", f"{home}/copy").trigger(availableNow=True).start().awaitTermination()
    print(json.dumps(found))
    spark.stop()


def values(rows: DataFrame) -> list[str]:
    """The values of all rows, sorted."""
    return sorted(row.value for row in rows.selectExpr("cast(value as string) value").collect())


def stream(spark: SparkSession, kafka: dict[str, str], topic: str, checkpoint: str, limit: int) -> dict[str, Any]:
    """What a streaming query up to the end got, and how many rows each of its batches had."""
    got: list[list[str]] = []
    rows = spark.readStream.format("kafka").options(**kafka, subscribe=topic, maxOffsetsPerTrigger=str(limit)).load()
    writer = rows.writeStream.foreachBatch(lambda batch, _: got.append(values(batch)))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return {"batches": [len(batch) for batch in got], "values": sorted(value for batch in got for value in batch)}


if __name__ == "__main__":
    main()
