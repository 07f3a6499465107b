"""Streams all that topics hold into nothing with Spark, one after the other; prints {"seconds": of the last}.

Argument: JSON with `redis`, a URL, `topics`, their names and how many records each has, and `directory`, where
checkpoints go.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark.sql import SparkSession


def main() -> None:
    options = json.loads(sys.argv[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "1g").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    seconds = 0.0
    for topic, count in options["topics"].items():
        source = session.readStream.format("ketch").option("redis.url", options["redis"])
        stream = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", f"{options['directory']}/{topic}")
        begin = time.monotonic()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.monotonic() - begin
        seen = sum(progress["numInputRows"] for progress in query.recentProgress)
        if seen != count:
            sys.exit(f"{topic}: {seen} rows of {count}")
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
