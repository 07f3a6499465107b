"""Topics whose values are JSON as DataFrames with typed columns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ketch.errors import ConfigError, UnknownTopicOrPartition
from ketch.redis.blocking import ask
from ketch.spark.options import FIRST_S, read_options
from ketch.spark.topics import named
from ketch.store.keys import Keyspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CORRUPT = "_corrupt"
_ALSO_OF_A_SAMPLE = frozenset(
    (
        "redis.url",
        "redis.ca",
        "redis.cert",
        "redis.key",
        "redis.timeout.ms",
        "redis.retry.ms",
        "keyspace",
        "subscribe",
        "tier",
        "archive.catalog",
        "isolation.level",
    )
)


def from_topic(
    spark: SparkSession,
    topic: str,
    schema: StructType | str | None = None,
    *,
    redis_url: str,
    stream: bool = False,
    sample: int = 1_000,
    **options: str,
) -> DataFrame:
    """A topic with `valueType=JSON` as typed columns: those of the JSON objects, and what Kafka knows of a record.

    The latter are `_key` (binary), `_topic`, `_partition`, `_offset`, `_timestamp`, and `_corrupt` (string): the value
    where it is not JSON or does not fit the schema, else null. A null value is a row of nulls.

    Args:
        schema: of the objects, as StructType or DDL; inferred from the first `sample` records where it is not given.
        stream: a streaming DataFrame.
        options: of the source, e.g. `startingOffsets="earliest"`; names with a dot by `**{"redis.ca": ...}`.

    Raises:
        ConfigError: a wrong option; no schema for a topic whose values are not JSON, or for one without records.
        UnknownTopicOrPartition: there is no such topic.
        StorageUnavailable: Redis cannot be reached.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    given = {"redis.url": redis_url, "subscribe": topic, **options}
    struct = _inferred(spark, topic, given, sample) if schema is None else _struct(schema)
    struct = StructType([*struct.fields, StructField(CORRUPT, StringType())])
    reader = spark.readStream if stream else spark.read
    text = F.col("value").cast("string")
    permissive = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = F.from_json(text, struct, permissive)
    names = {
        "key": "_key",
        "topic": "_topic",
        "partition": "_partition",
        "offset": "_offset",
        "timestamp": "_timestamp",
    }
    about = [F.col(name).alias(alias) for name, alias in names.items()]
    return (
        reader.format("ketch")
        .options(**given)
        .load()
        .select(parsed.alias("value"), *about)
        .select("value.*", *names.values())
    )


def _struct(schema: StructType | str) -> StructType:
    from pyspark.sql.types import DataType, StructType

    struct = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        raise ConfigError(f"The schema of a topic's values is a struct, not {struct.simpleString()}.")
    return struct


def _inferred(spark: SparkSession, topic: str, given: dict[str, str], sample: int) -> StructType:
    """The schema of the first records."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DataType, StructType

    _check_json(topic, given)
    batch = {name: value for name, value in given.items() if name.lower() in _ALSO_OF_A_SAMPLE}
    frame = spark.read.format("ketch").options(**batch).load()
    rows = frame.where("value is not null").selectExpr("string(value)").limit(sample).collect()
    objects = list(_objects(row[0] for row in rows))
    if not objects:
        raise ConfigError(f"Topic {topic} has no JSON objects to infer a schema from: give one.")
    together = spark.range(1).select(F.schema_of_json(F.lit(f"[{','.join(objects)}]"))).collect()[0][0]
    array = DataType.fromDDL(together)
    assert isinstance(array, ArrayType)
    assert isinstance(array.elementType, StructType)
    return array.elementType


def _check_json(topic: str, given: dict[str, str]) -> None:
    options = read_options(given, streaming=True)
    found = ask(options.server, lambda redis: named(redis, Keyspace(options.keyspace), [topic]), FIRST_S)
    if not found:
        raise UnknownTopicOrPartition(f"Unknown topic {topic}.")
    value_type = found[0].configs["valueType"]
    if value_type != "JSON":
        raise ConfigError(f"Topic {topic} has valueType={value_type}: give a schema, or create it with valueType=JSON.")


def _objects(values: Iterable[str]) -> Iterable[str]:
    """Those of the values that are JSON objects."""
    for value in values:
        try:
            parsed: Any = json.loads(value)
        except ValueError:
            continue
        if isinstance(parsed, dict):
            yield value
