"""The data source `ketch`: the classes that Spark calls, on the driver and in its tasks.

It owns the offsets of a stream and decides when a micro-batch begins. `spark.plan` decides what is read, `spark.rows`
reads it. Every micro-batch starts Python processes that only import this module, so it imports heavy modules where they
are used.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from ketch.errors import ConfigError
from ketch.spark.compat import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from ketch.spark.options import FIRST_S, LATEST, Offsets, ReadOptions, include_headers, read_options, write_options
from ketch.spark.quiet_end import EndsQuietly
from ketch.store.keys import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    import pyarrow as pa

    from ketch.redis.driver import BlockingDriver
    from ketch.spark.plan import ReadPlanner, ReadRange, View
    from ketch.spark.topics import PartitionView
    from ketch.store.xinfo import StreamInfo

T = TypeVar("T")
log = logging.getLogger(__name__)

_DDL = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
_HEADERS_DDL = "headers array<struct<key: string, value: binary>>"


class KetchDataSource(DataSource):
    """`format("ketch")`: columns and options as Spark's Kafka source and sink, see docs/spark.md."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return "ketch"

    def schema(self) -> str:
        return f"{_DDL}, {_HEADERS_DDL}" if include_headers(self.options) else _DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(self.options, streaming=False))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ketch.spark import sink

        options = write_options(self.options)
        if overwrite:
            raise ConfigError("A topic is only ever appended to: write with mode append.")
        sink.check(options, schema)
        sink.check_topic(options)
        return sink.BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ketch.spark import sink

        options = write_options(self.options)
        sink.check(options, schema)
        return sink.StreamWriter(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(read_options(self.options, streaming=True))


@dataclass
class SourceTask(InputPartition):
    """What one task reads."""

    range: ReadRange


class _Reader:
    """The part that batch and streaming readers share."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._reached = False

    @cached_property
    def _planner(self) -> ReadPlanner:
        from ketch.spark.plan import ReadPlanner

        return ReadPlanner(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SourceTask):  # Spark makes an empty task where there is none
            return iter(())
        from ketch.spark import rows

        options = self._options
        return rows.read(options.server, partition.range, options.fail_on_data_loss, options.include_headers)

    def _ask(self, question: Callable[[BlockingDriver], T]) -> T:
        """An answer of Redis. It waits for a Redis that answered before, and gives up soon on one that never did."""
        from ketch.redis.blocking import ask

        answer = ask(self._options.server, question, None if self._reached else FIRST_S)
        self._reached = True
        return answer


class BatchReader(_Reader, DataSourceReader):
    """One read from the start to the end that the options say; planned once per DataFrame."""

    def partitions(self) -> Sequence[InputPartition]:
        return [SourceTask(range_) for range_ in self._ask(self._plan)]

    def _plan(self, redis: BlockingDriver) -> list[ReadRange]:
        view = self._planner.view(redis)
        self._planner.check_topics(view)
        start, end = self._planner.start(redis, view), self._planner.end(redis, view)
        return self._planner.ranges(redis, view, start, end, again=False)


class StreamReader(_Reader, EndsQuietly, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches. An offset of the stream is Kafka's: `{"topic": {"0": 123}}`, the next offset of each partition."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._target: Offsets | None = None  # of Trigger.AvailableNow
        self._seen: View = {}  # the partitions when the last end was decided
        self._marks: dict[
            tuple[TopicPartition, int], StreamInfo
        ] = {}  # (partition, end) -> the stream's state when that was its end
        self._ids: dict[TopicPartition, UUID] = {}  # of the topic that each partition was read of
        self._held_since: float | None = None  # minOffsetsPerTrigger: when records began to wait
        self._at: Offsets | None = None  # where the stream is, as far as this reader took it
        self._first: Offsets | None = None  # where it begins, if this run is its first

    def initialOffset(self) -> dict[str, Any]:
        """Spark asks for it again as it plans the first micro-batch: "latest" has moved on by then."""
        if self._first is None:
            first, at = self._ask(self._initial), self._at or {}  # before PySpark 4.2 the end is asked for first
            self._first = {key: min(offset, at.get(key, offset)) for key, offset in first.items()}
            self._at = self._at or self._first
        return _encode(self._first)

    def _initial(self, redis: BlockingDriver) -> Offsets:
        view = self._planner.view(redis)
        self._planner.check_topics(view)
        start = self._planner.start(redis, view)
        self._mark(view, start)
        return start

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        view = self._ask(self._planner.view)
        self._target = {key: partition.end for key, partition in view.items()}

    def reportLatestOffset(self) -> dict[str, Any]:
        return _encode({key: partition.end for key, partition in self._seen.items()})

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        begin = self._at if start is None else _decode(start)
        limit = self.getDefaultReadLimit() if limit is None else limit
        self._at = self._ask(lambda redis: self._latest(redis, begin, limit))
        return _encode(self._at)

    def _latest(self, redis: BlockingDriver, begin: Offsets | None, limit: ReadLimit) -> Offsets:
        view = self._seen = self._planner.view(redis)
        self._mark(view, begin or {})
        if begin is None:  # Spark has not said it, see `compat`
            if isinstance(limit, ReadMaxRows):
                log.warning(
                    "maxOffsetsPerTrigger: before PySpark 4.2 the first micro-batch of a run takes all there is"
                )
            return {key: partition.end for key, partition in view.items()}
        # New partitions are read from their start, however the others began (as Spark's Kafka source).
        start = {key: begin.get(key, partition.start) for key, partition in view.items()}
        end = {key: partition.end for key, partition in view.items()}
        if self._target is not None:
            end = {key: min(end[key], self._target[key]) for key in end if key in self._target}
        end = {key: max(start[key], offset) for key, offset in end.items()}
        if self._waits(view, start, end):
            return {key: begin[key] for key in end if key in begin}
        if isinstance(limit, ReadMaxRows):
            return self._planner.limited(redis, view, start, end, limit.max_rows)
        return end

    def _mark(self, view: View, begin: Offsets) -> None:
        known = {mark: info for mark, info in self._marks.items() if begin.get(mark[0]) == mark[1]}
        self._marks = known | {(key, partition.end): partition.info for key, partition in view.items()}
        self._ids = {key: self._ids.get(key, partition.topic.id) for key, partition in view.items()}

    def _waits(self, view: View, start: Offsets, end: Offsets) -> bool:
        """Whether fewer than minOffsetsPerTrigger records wait, and not yet for maxTriggerDelay."""
        least = self._options.min_per_trigger
        waiting = sum(view[key].about(start[key], end[key]) for key in end)
        if not least or self._target is not None or waiting == 0 or waiting >= least:
            self._held_since = None
            return False
        self._held_since = self._held_since or time.monotonic()
        if time.monotonic() - self._held_since < self._options.max_trigger_delay:
            return True
        self._held_since = None
        return False

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SourceTask):
            return iter(())
        from ketch.spark import progress

        return progress.noted(super().read(partition), self._options, partition.range)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._ask(lambda redis: self._plan(redis, _decode(start), _decode(end)))
        return [SourceTask(range_) for range_ in ranges]

    def _plan(self, redis: BlockingDriver, start: Offsets, end: Offsets) -> list[ReadRange]:
        view = self._planner.view(redis)
        start = {key: start.get(key, view[key].start if key in view else 0) for key in end | start}
        if start == self._first:
            start = self._begun_before(start, end)
        self._check_loss(view, start, end)
        end = {key: offset for key, offset in end.items() if key in view}
        return self._planner.ranges(redis, view, start, end, again=True)

    def _begun_before(self, start: Offsets, end: Offsets) -> Offsets:
        """The start of a first micro-batch, which an earlier run may have planned and not finished.

        Spark keeps its end alone. "latest" is any moment while a query starts, so then it was that end.
        """
        position = self._options.start
        given = {} if position.offsets is None else position.offsets
        latest = [key for key in end if given.get(key, position.everywhere) == LATEST]
        return start | {key: min(start[key], end[key]) for key in latest}

    def _check_loss(self, view: View, start: Offsets, end: Offsets) -> None:
        gone = sorted(key for key in start if key not in view)
        if gone:
            self._planner.lost(f"{', '.join(f'{topic}-{index}' for topic, index in gone)} were deleted")
        for key, offset in end.items():
            if key not in view:
                continue
            partition, begin, name = view[key], start[key], f"{key[0]}-{key[1]}"
            if self._ids.get(key, partition.topic.id) != partition.topic.id:
                self._planner.lost(f"{name} was read up to offset {begin} before it was deleted and created again")
                self._ids[key] = partition.topic.id
            elif offset < begin or partition.end < offset:
                actual = min(offset, partition.end)
                self._planner.lost(
                    f"{name} ends at offset {actual}, below {max(begin, offset)}: it was deleted and created again"
                )
            elif begin < min(offset, partition.start) and not self._only_read_ones_gone(key, begin, partition):
                self._planner.lost(f"Records of {name} from offset {begin} to {partition.start} were deleted")

    def _only_read_ones_gone(self, key: TopicPartition, begin: int, partition: PartitionView) -> bool:
        """Whether only records that the stream has read were removed, although the log now starts after its offset.

        With time ids the next record lies far after the last one, and no record was ever between them. So nothing is
        lost if no more entries were removed since than the log had when the stream's offset was its end.
        """
        then, now = self._marks.get((key, begin)), partition.info
        if then is None or then.removed is None or now.removed is None:
            return False
        return 0 <= now.removed - then.removed <= then.length


def _encode(offsets: Offsets) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    for (topic, index), offset in sorted(offsets.items()):
        encoded.setdefault(topic, {})[str(index)] = offset
    return encoded


def _decode(offset: dict[str, Any]) -> Offsets:
    if isinstance(offset, str):
        offset = json.loads(offset)
    return {(topic, int(index)): value for topic, partitions in offset.items() for index, value in partitions.items()}
