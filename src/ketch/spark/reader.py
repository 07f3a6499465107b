"""Reads a range of one partition from Redis: XRANGE after XRANGE, each asked for while the last one is worked on.

This is the one place of `ketch.spark` that knows how records lie in a stream (`_ask` and `decode`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ketch.errors import KetchError, StorageUnavailable
from ketch.records import DecodedBatch
from ketch.spark.connection import Connection, Server, connected
from ketch.store import streams
from ketch.store.offsets import OffsetCodec
from ketch.store.pipe import pack, parse
from ketch.store.streams import StreamInfo

_REPLY = 1 << 20  # bytes wanted of one reply: large enough to forget the round trip, small enough for a cache
_REPLY_MAX = 32 << 20  # bytes of one reply, should every entry be as large as the topic's largest
_COUNT_MAX = 10_000  # rows of one Arrow batch, as Spark's own (spark.sql.execution.arrow.maxRecordsPerBatch)
_COUNT_UNKNOWN = 500
_ENTRY_OVERHEAD = 64  # bytes of an entry in a reply around its key and value, about
_RETRIES = 5  # reconnections without progress
_BACKOFF = 0.1  # s before the first; it doubles

log = logging.getLogger(__name__)


class DataLoss(KetchError):
    """Records of a range were deleted before they were read, and `failOnDataLoss` is on."""


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets from `start` to below `end` of one partition's stream, as planned."""

    stream: bytes
    codec: OffsetCodec
    start: int
    end: int
    info: StreamInfo  # as the range was planned: what is gone since was lost
    largest_record: int = 1 << 10  # bytes that no record has passed


def read_batches(server: Server, span: Span, fail_on_loss: bool = False) -> Iterator[list[DecodedBatch]]:
    """The records of a range, some thousand at a time.

    Survives a Redis that goes away for some seconds. The first and the last batch may reach beyond the range.

    Raises:
        StorageUnavailable: Redis is gone for longer.
        RedisError: Redis answered with an error.
        DataLoss: records were trimmed before they were read; a warning without `fail_on_loss`.
    """
    cursor = _Cursor(span, fail_on_loss)
    failures = 0
    while cursor.offset < span.end:
        before = cursor.offset
        try:
            with connected(server) as connection:
                yield from cursor.read(connection)
        except StorageUnavailable:
            failures = failures + 1 if cursor.offset == before else 1
            if failures > _RETRIES:
                raise
            time.sleep(_BACKOFF * 2 ** (failures - 1))


def decode(reply: bytes, codec: OffsetCodec) -> list[DecodedBatch]:
    """The records in a reply of XRANGE; RedisError where it is an error or cannot be read."""
    return streams.read_range(reply, codec, 1 << 62, split_timestamps=False)


class _Cursor:
    """How far a range has been read."""

    def __init__(self, span: Span, fail_on_loss: bool) -> None:
        self.offset = span.start
        self._span, self._fail_on_loss = span, fail_on_loss
        self._entry_bytes = float(span.info.entry_bytes)
        self._records = 0

    def read(self, connection: Connection) -> Iterator[list[DecodedBatch]]:
        connection.send(self._ask())
        while True:
            reply = connection.reply()
            info = streams.parse_info(parse(connection.reply()))
            batches = decode(reply, self._span.codec)
            self._check(info)
            if not batches:
                self.offset = self._span.end
                return
            self._advance(batches, len(reply))
            more = self.offset < self._span.end
            if more:
                connection.send(self._ask())
            yield batches
            if not more:
                return

    def _advance(self, batches: list[DecodedBatch], size: int) -> None:
        count = sum(batch[4] for batch in batches)
        self._records += count
        self._entry_bytes = max(size / count, (7 * self._entry_bytes + size / count) / 8)
        self.offset = batches[-1][0] + batches[-1][1] + 1

    def _ask(self) -> bytes:
        """XRANGE from `self.offset` on, and XINFO, which tells whether its begin was trimmed."""
        span = self._span
        start = span.codec.format_id(*span.codec.to_id(self.offset))
        end = span.codec.format_id(*span.codec.to_id(span.end - 1))
        range_ = pack("XRANGE", span.stream, start, end, "COUNT", self._count())
        return range_ + streams.info_command(span.stream)

    def _count(self) -> int:
        count = int(_REPLY / (self._entry_bytes + _ENTRY_OVERHEAD)) if self._entry_bytes else _COUNT_UNKNOWN
        return max(1, min(count, _COUNT_MAX, _REPLY_MAX // self._span.largest_record))

    def _check(self, info: StreamInfo) -> None:
        """Whether a record from `self.offset` on has been trimmed since the range was planned."""
        span, planned = self._span, self._span.info
        if planned.first is None or info.first == planned.first:
            return
        first = span.end if info.first is None else min(span.end, span.codec.to_offset(*info.first))
        if first <= self.offset or self._only_read_ones_gone(info):
            return
        message = (
            f"Records of {span.stream.decode()} from offset {self.offset} to {first} were deleted before they were read"
        )
        if self._fail_on_loss:
            raise DataLoss(f"{message}; set the option failOnDataLoss to false to go on without them.")
        log.warning("%s.", message)

    def _only_read_ones_gone(self, info: StreamInfo) -> bool:
        """What this range has given lay below its cursor: if no more than that was removed, it is that."""
        if info.removed is None or self._span.info.removed is None:  # before Redis 7
            return False
        return 0 < info.removed - self._span.info.removed <= self._records
