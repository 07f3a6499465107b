"""The work of one task of the sink: turns rows (columns as of Spark's Kafka sink) into records and appends them.

It chooses topic and partition of each row. `spark.appender` writes to Redis.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ketch.clock import now_ms
from ketch.errors import InvalidRecord, UnknownTopicOrPartition
from ketch.records.arrow import SCHEMA
from ketch.redis.driver import BlockingDriver
from ketch.spark.appender import TaskAppender, Writer
from ketch.spark.options import WriteOptions
from ketch.spark.partitioner import partitions
from ketch.spark.topics import named
from ketch.store.keys import Keyspace
from ketch.store.topics.topic import Topic

_BYTES = pa.binary()
_HEADERS = pa.list_(pa.struct([pa.field("key", _BYTES), pa.field("value", _BYTES)]))


class SinkTask:
    """Writes the rows of one task; `write` returns how many it was given.

    Args:
        unkeyed: decides the partition of rows without a key; each task has one for all of them, as Kafka's producer
            keeps to one for a batch (KIP-480).
    """

    def __init__(self, options: WriteOptions, writer: Writer, unkeyed: int) -> None:
        self._options, self._unkeyed = options, unkeyed
        self._appender = TaskAppender(options.server, Keyspace(options.keyspace), writer)
        self._topics: dict[str, Topic] = {}

    def write(self, iterator: Iterator[pa.RecordBatch], forget: bool) -> int:
        rows = 0
        try:
            for batch in iterator:
                rows += batch.num_rows
                self._write(batch)
            self._appender.flush()
            if forget:
                self._appender.forget()
        finally:
            self._appender.close()
        return rows

    def _write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        batch = batch.rename_columns([name.lower() for name in batch.schema.names])
        records = _records(batch)
        for name, rows in self._by_topic(batch):
            topic = self._topic(name)
            ours = records if rows is None else records.take(rows)
            given = _column(batch, "partition", pa.int32())
            if given is not None and rows is not None:
                given = given.take(rows)
            self._write_topic(topic, ours, given)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array | None]]:
        """Each topic with the rows that go to it; None for all of them."""
        if self._options.topic is not None:
            yield self._options.topic, None
            return
        names = batch.column("topic")
        if names.null_count:
            raise InvalidRecord("A row has no topic: the column topic is null and the option topic is not given.")
        distinct = names.unique().to_pylist()
        for name in distinct:
            yield name, None if len(distinct) == 1 else pa.array(np.flatnonzero(_mask(pc.equal(names, name))))

    def _write_topic(self, topic: Topic, records: pa.RecordBatch, given: pa.Array | None) -> None:
        chosen = partitions(records.column("key"), topic.partitions, self._unkeyed % topic.partitions)
        if given is not None:
            chosen = np.where(_mask(given.is_valid()), given.fill_null(0).to_numpy(), chosen)
            if chosen.min() < 0 or chosen.max() >= topic.partitions:
                wrong = chosen.min() if chosen.min() < 0 else chosen.max()
                raise UnknownTopicOrPartition(f"Topic {topic.name} has {topic.partitions} partitions, no {wrong}.")
        if topic.partitions == 1:
            self._append(topic, 0, records)
            return
        order = np.argsort(chosen, kind="stable")
        indexes, starts = np.unique(chosen[order], return_index=True)
        for index, piece in zip(indexes.tolist(), np.split(order, starts[1:]), strict=True):
            self._append(topic, index, records if len(indexes) == 1 else records.take(pa.array(piece)))

    def _append(self, topic: Topic, index: int, records: pa.RecordBatch) -> None:
        offsets = pa.array(np.arange(records.num_rows))
        self._appender.append(topic, index, records.set_column(0, SCHEMA.field("offset"), offsets))

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            self._appender.flush()
            topic = self._topics[name] = find_topic(self._appender.redis, self._options, name)
        return topic


def find_topic(redis: BlockingDriver, options: WriteOptions, name: str) -> Topic:
    """The topic; UnknownTopicOrPartition where there is none."""
    found = named(redis, Keyspace(options.keyspace), [name])
    if not found:
        where = f"keyspace {options.keyspace} of {options.server.address().describe()}"
        raise UnknownTopicOrPartition(f"Unknown topic {name} in {where}: create it first (ketch topics create).")
    return found[0]


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as `records.arrow.SCHEMA` has them, the offsets yet to be given."""
    count = batch.num_rows
    nothing = pa.nulls(count, _BYTES)
    key, value = _column(batch, "key", _BYTES), _column(batch, "value", _BYTES)
    headers = _column(batch, "headers", _HEADERS)
    columns = [
        pa.array(np.zeros(count, np.int64)),
        _millis(batch),
        nothing if key is None else key,
        nothing if value is None else value,
        pa.nulls(count, _HEADERS) if headers is None else headers,
    ]
    return pa.RecordBatch.from_arrays(columns, names=SCHEMA.names)


def _millis(batch: pa.RecordBatch) -> pa.Array:
    """The column `timestamp` in ms; now, where there is none."""
    now = pa.scalar(now_ms(), pa.int64())
    micros = _column(batch, "timestamp", pa.int64())
    if micros is None:
        return pa.repeat(now, batch.num_rows)
    # Arrow divides towards zero, but -1 us lies in the ms before 0.
    before = pc.less(pc.subtract(micros, pc.multiply(pc.divide(micros, 1000), 1000)), 0).cast(pa.int64())
    return pc.subtract(pc.divide(micros, 1000), before).fill_null(now)


def _column(batch: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    return column if column.type == type_ else column.cast(type_)


def _mask(flags: pa.Array) -> np.typing.NDArray[np.bool_]:
    mask: np.typing.NDArray[np.bool_] = flags.to_numpy(zero_copy_only=False)
    return mask
