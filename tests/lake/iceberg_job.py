"""Run by PySpark 4.0.0 with Apache Iceberg's runtime: reads archive tables through catalogs, prints what it finds.

Arguments: jars, then for each catalog its name and its properties as JSON; the tables of namespace `ketch` are read.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

COLUMNS = (
    "partition, offset, unix_micros(timestamp) timestamp, hex(key) key, hex(value) value,"
    " transform(headers, h -> array(h.key, hex(h.value))) headers, unix_micros(append_time) append_time,"
    " exact.timestamp_ms exact_ms, transform(exact.header_keys, k -> hex(k)) exact_keys"
)


def main() -> None:
    """Prints one line of JSON: catalog -> table -> findings."""
    jars, *pairs = sys.argv[1:]
    catalogs = {name: json.loads(properties) for name, properties in zip(pairs[::2], pairs[1::2], strict=True)}
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.driver.memory", "512m")
    for name, properties in catalogs.items():
        builder = builder.config(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
        for key, value in properties.items():
            builder = builder.config(f"spark.sql.catalog.{name}.{key}", value)
    for key in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(key, "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({name: tables(spark, name) for name in catalogs}))
    spark.stop()


def tables(spark: SparkSession, catalog: str) -> dict[str, Any]:
    """What each table holds."""
    names = [row.tableName for row in spark.sql(f"SHOW TABLES IN {catalog}.ketch").collect()]
    return {name: findings(spark, f"{catalog}.ketch.`{name}`") for name in names}


def findings(spark: SparkSession, table: str) -> dict[str, Any]:
    """Its rows, counts by partition, the files of a partition, and how it is partitioned."""

    def query(text: str) -> list[list[Any]]:
        return [list(row) for row in spark.sql(text).collect()]

    second = f"FROM {table} WHERE partition = 1"
    return {
        "rows": query(f"SELECT {COLUMNS} FROM {table} ORDER BY partition, offset"),
        "counts": query(f"SELECT partition, count(*), count(DISTINCT offset) FROM {table} GROUP BY 1 ORDER BY 1"),
        "partitions": query(
            f"SELECT partition.partition, cast(partition.append_time_day AS string), sum(record_count)"
            f" FROM {table}.files GROUP BY 1, 2 ORDER BY 1, 2"
        ),
        "files": query(f"SELECT count(*) FROM {table}.files WHERE partition.partition = 1")[0][0],
        "files with rows": query(f"SELECT count(DISTINCT _file) {second}")[0][0],
        "all files": query(f"SELECT count(*) FROM {table}.files")[0][0],
        "snapshots": query(f"SELECT count(*) FROM {table}.snapshots")[0][0],
    }


if __name__ == "__main__":
    main()
