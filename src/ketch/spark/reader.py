"""Reads a range of one partition from Redis: XRANGE after XRANGE, each asked for while the last one is worked on.

How records lie in a stream is the topic's `store.layouts.layout`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from ketch.errors import KetchError, StorageUnavailable
from ketch.records import DecodedBatch
from ketch.redis.blocking import Patience, Server, connected
from ketch.redis.driver import BlockingDriver
from ketch.redis.question import Question
from ketch.redis.resp import parse
from ketch.store import xinfo
from ketch.store.layouts.layout import Chunk
from ketch.store.layouts.marked import find_marks, spread
from ketch.store.stream.isolation import AbortedIndex, IsolationKeys, aborted_in, readable
from ketch.store.stream.ranges import EntrySizes, PartitionStream
from ketch.store.xinfo import StreamInfo

_REPLY = 800 << 10  # bytes wanted of one reply: large enough to forget the round trip, small enough for a cache
_COUNT_MAX = 10_000  # rows of one Arrow batch, as in Spark's own batches (spark.sql.execution.arrow.maxRecordsPerBatch)

GO_ON = "set the option failOnDataLoss to false to go on without them"  # ends the message of a DataLoss

log = logging.getLogger(__name__)


class DataLoss(KetchError):
    """Records were deleted before they were read: those from `offset` to below `first`, where both are known."""

    def __init__(self, message: str, offset: int = -1, first: int = -1) -> None:
        super().__init__(message)
        self.offset, self.first = offset, first


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The offsets from `start` to below `end` of one partition's stream, as planned.

    Attributes:
        isolation: what says which transactions were aborted, where only committed records are read. `end` is then no
            later than the last stable offset.
    """

    stream: PartitionStream
    start: int
    end: int
    info: StreamInfo  # when the range was planned: records removed since then are lost
    isolation: IsolationKeys | None = None


def read_batches(
    server: Server, span: StreamRange, fail_on_loss: bool = False, marks: dict[int, bytes] | None = None
) -> Iterator[list[DecodedBatch]]:
    """The records of a range, some thousand at a time. Markers of transactions are none.

    Args:
        marks: gets those of the records (`store.layouts.marked`) before these are given.

    Survives a Redis that goes away for no longer than `Server.patience`. The first and the last batch may reach beyond
    the range.

    Raises:
        StorageUnavailable: Redis cannot be reached for longer than that.
        RedisError: Redis answered with an error.
        DataLoss: records were trimmed before they were read; a warning without `fail_on_loss`.
    """
    cursor = _Cursor(span, fail_on_loss, marks)
    patience = Patience(server)
    while cursor.offset < span.end:
        before = cursor.offset
        try:
            with connected(server) as redis:
                yield from cursor.read(redis)
        except StorageUnavailable as error:
            if cursor.offset != before:
                patience.reset()
            patience.wait(error)


class _Cursor:
    """How far a range has been read."""

    def __init__(self, span: StreamRange, fail_on_loss: bool, marks: dict[int, bytes] | None) -> None:
        self.offset = span.start
        self._marks = marks
        self._span, self._fail_on_loss = span, fail_on_loss
        self._sizes = EntrySizes.of(span.stream, span.info)
        self._entries = 0  # that were read
        self._aborted: AbortedIndex | None = None

    def read(self, redis: BlockingDriver) -> Iterator[list[DecodedBatch]]:
        span = self._span
        if span.isolation is not None and self._aborted is None:
            # Before the records: an aborted transaction is forgotten after they were removed.
            aborted = aborted_in(span.isolation, span.stream.numbering, span.start, span.end)
            self._aborted = AbortedIndex(redis.ask(aborted))
        asked = redis.begin(self._next())
        while True:
            chunk, size, info = asked.answer()
            self._check(info)
            if not chunk:
                self.offset = self._span.end
                return
            self._entries += chunk.entries
            self._sizes.learn_size(size / chunk.entries)
            self.offset = chunk.end
            more = self.offset < self._span.end
            if more:  # Redis works on the next entries while these are made into rows
                asked = redis.begin(self._next())
            if batches := readable(chunk.decoded(), self._aborted):
                yield batches
            if not more:
                return

    def _next(self) -> Question[tuple[Chunk, int, StreamInfo]]:
        """The entries from `self.offset` on, the bytes of their reply, and the stream's state just after."""
        stream = self._span.stream
        count = min(_COUNT_MAX, self._sizes.count(_REPLY, spare=0))
        entries, info = yield stream.range_command(self.offset, count, self._span.end), stream.info_command()
        # With LogAppendTime, too, a batch may hold several timestamps: that rule is the Kafka protocol's.
        chunk = stream.layout.read(entries, stream.numbering, 1 << 62, log_append_time=False)
        if self._marks is not None:
            self._marks |= spread(find_marks(entries, stream.numbering, chunk.entries))
        return chunk, len(entries), xinfo.parse_info(parse(info))

    def _check(self, info: StreamInfo) -> None:
        """Whether a record from `self.offset` on has been trimmed since the range was planned."""
        span, planned = self._span, self._span.info
        if planned.first is None or info.first == planned.first:
            return
        start = span.stream.layout.start(info, span.stream.numbering)
        first = span.end if start is None else min(span.end, start)
        if first <= self.offset or self._only_read_ones_gone(info):
            return
        lost = f"from offset {self.offset} to {first}"
        message = f"Records of {span.stream.key.decode()} {lost} were deleted before they were read"
        if self._fail_on_loss:
            raise DataLoss(f"{message}; {GO_ON}.", self.offset, first)
        log.warning("%s.", message)

    def _only_read_ones_gone(self, info: StreamInfo) -> bool:
        """Whether no more entries were trimmed than this range has read, so that only those were.

        Compaction trims none: what it has removed there are newer records for.
        """
        if info.removed is None or self._span.info.removed is None:  # before Redis 7
            return self._span.stream.topic.compacts
        compacted = self._span.stream.topic.compacts and info.removed == self._span.info.removed
        return compacted or 0 < info.removed - self._span.info.removed <= self._entries
