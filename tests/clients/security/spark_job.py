"""Run by PySpark 4.0.0, which has Spark's own Kafka source and sink: copies a topic once by each login.

Arguments: the jars, and a JSON file with a list of objects: name, from, to, and the source's and sink's options. Prints
a JSON object: by name the values that were read, or why they were not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    jars, plan = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "512m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    found: dict[str, list[str] | str] = {}
    for each in json.loads(Path(plan).read_text()):
        kafka = each["options"]
        try:
            source = spark.read.format("kafka").options(**kafka, subscribe=each["from"], startingOffsets="earliest")
            rows = source.load()
            rows.select("value").write.format("kafka").options(**kafka, topic=each["to"]).save()
            found[each["name"]] = sorted(bytes(row.value).decode() for row in rows.collect())
        except Exception as error:  # of the JVM, too
            found[each["name"]] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
