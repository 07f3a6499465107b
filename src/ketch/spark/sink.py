"""The sink: the classes that Spark calls when it writes. `spark.task` does the work of a task.

Every micro-batch starts Python processes that only import this module, so it imports heavy modules where they are used.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from ketch.errors import ConfigError
from ketch.spark.compat import DataSourceStreamArrowWriter
from ketch.spark.options import FIRST_S, WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass
class Written(WriterCommitMessage):
    """How many rows a task was given."""

    rows: int


def check(options: WriteOptions, schema: StructType) -> None:
    """Raises ConfigError where columns are missing or of a wrong type."""
    fields = {field.name.lower(): field.dataType for field in schema.fields}
    if "value" not in fields:
        raise ConfigError(f"A DataFrame that is written to ketch needs the column value; it has {_listed(fields)}.")
    if options.topic is None and "topic" not in fields:
        raise ConfigError("Give the topic to write to by the option topic or by a column topic.")
    for name, types in _TYPES.items():
        if name in fields and not isinstance(fields[name], types):
            wanted = " or ".join(type_().simpleString() for type_ in types)
            raise ConfigError(f"The column {name} should be {wanted}, it is {fields[name].simpleString()}.")
    headers = fields.get("headers")
    if headers is not None and not _are_headers(headers):
        raise ConfigError(f"The column headers should be {_HEADERS}, it is {headers.simpleString()}.")


def _are_headers(kind: DataType) -> bool:
    """Whether they have names and values: Arrow takes a field that it does not find for null."""
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return fields.keys() == {"key", "value"} and all(isinstance(of, BinaryType | StringType) for of in fields.values())


def check_topic(options: WriteOptions) -> None:
    """Raises UnknownTopicOrPartition where the option `topic` names none."""
    from ketch.redis.blocking import ask
    from ketch.spark.task import find_topic

    name = options.topic
    if name is not None:
        ask(options.server, lambda redis: find_topic(redis, options, name), FIRST_S)


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: every row once as long as no task fails midway; a task that is run again writes its rows again."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from ketch.spark.appender import Writer
        from ketch.spark.task import SinkTask

        writer = Writer(f"spark-{uuid.uuid4().hex}", 0)
        return Written(SinkTask(self._options, writer, random.randrange(1 << 30)).write(iterator, forget=True))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: every row once, also when a micro-batch or a task is run again."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from ketch.spark.appender import Writer
        from ketch.spark.task import SinkTask

        task = TaskContext.get()
        assert task is not None
        query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise ConfigError(
                "This Spark does not tell a task its query and micro-batch: ketch cannot write exactly once."
            )
        writer = Writer(f"spark-{query}-{task.partitionId()}", int(batch))
        # A task that is run again must send rows without a key to the same partition.
        return Written(SinkTask(self._options, writer, task.partitionId() + int(batch)).write(iterator, forget=False))


def _listed(names: dict[str, DataType]) -> str:
    return ", ".join(names)
