"""A streaming query that copies one topic to another: what a test kills.

    python -m tests.support.sink_job REDIS_URL SOURCE TARGET CHECKPOINT [--once]

Without `--once` it runs until it is killed. Each start of the query prints a line, `STARTED`.
"""

from __future__ import annotations

import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

STARTED = "the query has started"


def main(url: str, source: str, target: str, checkpoint: str, *once: str) -> None:
    builder = SparkSession.builder.master("local[2,8]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "512m").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    options = {"redis.url": url, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20000", "minPartitions": "4"}
    rows = spark.readStream.format("ketch").options(**options, subscribe=source).load().select("key", "value")
    writer = rows.writeStream.format("ketch").option("redis.url", url).option("topic", target)
    writer = writer.option("checkpointLocation", checkpoint)
    for left in reversed(range(5)):
        query = writer.trigger(availableNow=True).start() if once else writer.start()
        print(STARTED, flush=True)
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            if not left or "failed to connect back" not in str(error):  # Spark gives it ten seconds
                raise


if __name__ == "__main__":
    main(*sys.argv[1:])
