"""Reads a range of one partition from Redis: XRANGE after XRANGE, each asked for while the last one is worked on.

How records lie in a stream is the topic's `store.layout`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from ketch.errors import KetchError, StorageUnavailable
from ketch.records import DecodedBatch
from ketch.spark.connection import Connection, Patience, Server, connected
from ketch.store import streams
from ketch.store.layout import Chunk, Layout
from ketch.store.offsets import OffsetCodec
from ketch.store.pipe import parse
from ketch.store.streams import StreamInfo

_REPLY = 1 << 20  # bytes wanted of one reply: large enough to forget the round trip, small enough for a cache
_REPLY_MAX = 32 << 20  # bytes of one reply, should every entry be as large as the topic's largest
_COUNT_MAX = 10_000  # rows of one Arrow batch, as Spark's own (spark.sql.execution.arrow.maxRecordsPerBatch)
_COUNT_UNKNOWN = 500
_ENTRY_OVERHEAD = 64  # bytes of an entry in a reply around its key and value, about

log = logging.getLogger(__name__)


class DataLoss(KetchError):
    """Records were deleted before they were read: those from `offset` to below `first`, where both are known."""

    def __init__(self, message: str, offset: int = -1, first: int = -1) -> None:
        super().__init__(message)
        self.offset, self.first = offset, first


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets from `start` to below `end` of one partition's stream, as planned."""

    stream: bytes
    codec: OffsetCodec
    layout: Layout
    start: int
    end: int
    info: StreamInfo  # as the range was planned: what is gone since was lost
    largest_record: int = 1 << 10  # bytes that no record has passed


def read_batches(server: Server, span: Span, fail_on_loss: bool = False) -> Iterator[list[DecodedBatch]]:
    """The records of a range, some thousand at a time.

    Survives a Redis that goes away for no longer than `Server.patience`. The first and the last batch may reach beyond
    the range.

    Raises:
        StorageUnavailable: Redis is gone for longer.
        RedisError: Redis answered with an error.
        DataLoss: records were trimmed before they were read; a warning without `fail_on_loss`.
    """
    cursor = _Cursor(span, fail_on_loss)
    patience = Patience(server)
    while cursor.offset < span.end:
        before = cursor.offset
        try:
            with connected(server) as connection:
                yield from cursor.read(connection)
        except StorageUnavailable as error:
            if cursor.offset != before:
                patience.reset()
            patience.wait(error)


class _Cursor:
    """How far a range has been read."""

    def __init__(self, span: Span, fail_on_loss: bool) -> None:
        self.offset = span.start
        self._span, self._fail_on_loss = span, fail_on_loss
        self._entry_bytes = float(span.info.entry_bytes)
        self._entries = 0  # that were read

    def read(self, connection: Connection) -> Iterator[list[DecodedBatch]]:
        connection.send(self._ask())
        while True:
            reply = connection.reply()
            info = streams.parse_info(parse(connection.reply()))
            chunk = self._span.layout.read(reply, self._span.codec, 1 << 62, log_append_time=False)
            self._check(info)
            if not chunk:
                self.offset = self._span.end
                return
            self._advance(chunk, len(reply))
            more = self.offset < self._span.end
            if more:
                connection.send(self._ask())
            if batches := chunk.decoded():
                yield batches
            if not more:
                return

    def _advance(self, chunk: Chunk, size: int) -> None:
        self._entries += chunk.entries
        average = size / chunk.entries
        self._entry_bytes = max(average, (7 * self._entry_bytes + average) / 8)
        self.offset = chunk.end

    def _ask(self) -> bytes:
        """XRANGE from `self.offset` on, and XINFO, which tells whether its begin was trimmed."""
        span = self._span
        range_ = span.layout.range_command(span.stream, span.codec, self.offset, self._count(), span.end)
        return range_ + span.layout.info_command(span.stream)

    def _count(self) -> int:
        count = int(_REPLY / (self._entry_bytes + _ENTRY_OVERHEAD)) if self._entry_bytes else _COUNT_UNKNOWN
        return max(1, min(count, _COUNT_MAX, _REPLY_MAX // self._span.largest_record))

    def _check(self, info: StreamInfo) -> None:
        """Whether a record from `self.offset` on has been trimmed since the range was planned."""
        span, planned = self._span, self._span.info
        if planned.first is None or info.first == planned.first:
            return
        start = span.layout.start(info, span.codec)
        first = span.end if start is None else min(span.end, start)
        if first <= self.offset or self._only_read_ones_gone(info):
            return
        message = (
            f"Records of {span.stream.decode()} from offset {self.offset} to {first} were deleted before they were read"
        )
        if self._fail_on_loss:
            hint = "set the option failOnDataLoss to false to go on without them"
            raise DataLoss(f"{message}; {hint}.", self.offset, first)
        log.warning("%s.", message)

    def _only_read_ones_gone(self, info: StreamInfo) -> bool:
        """What this range has given lay below its cursor: if no more than that was removed, it is that."""
        if info.removed is None or self._span.info.removed is None:  # before Redis 7
            return False
        return 0 < info.removed - self._span.info.removed <= self._entries
