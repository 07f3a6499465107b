"""Search by time (ListOffsets, Spark's timestamps, retention): the record's own timestamp decides, entry ids only say
where to begin.

With time ids a record cannot have been appended before its timestamp, save by `timestampLead`, which the topic keeps:
so a search begins at `(timestamp - lead) << N`. With dense ids a bisection over the timestamps finds the place, which
is exact as long as they rise; a short log is simply read. Every read is bound by bytes (`EntrySizes`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ketch.redis.question import Question
from ketch.store.layouts.layout import Chunk
from ketch.store.stream import ranges
from ketch.store.stream.ranges import EntrySizes, PartitionStream
from ketch.store.xinfo import StreamInfo

_STEP = 1_000  # entries read at a time, if these are not large
_STEP_BYTES = 1 << 20  # bytes of them
_SHORT = 20  # such reads that are done rather than a bisection
_FIRST_SPAN_MS = 60_000  # what a search for the latest timestamp looks through first


@dataclass(frozen=True, slots=True)
class Found:
    """A record: its offset and its timestamp in ms."""

    offset: int
    timestamp: int


def first_at_or_after(
    stream: PartitionStream, sizes: EntrySizes, info: StreamInfo, least: int, timestamp: int, rising: bool = True
) -> Question[Found | None]:
    """The first record from offset `least` on whose timestamp is `timestamp` ms or later; None if there is none.

    Args:
        info: the stream as it is.
        rising: timestamps may be taken to rise; else, with dense ids, all records up to there are read.
    """
    if info.first is None:
        return None
    if not stream.numbering.dense:
        start = max(least, (timestamp - stream.topic.timestamp_lead) << stream.numbering.bits)
        return (yield from _scan(stream, sizes, start, timestamp))
    start = least
    if rising:
        chunk = yield from _step(stream, sizes, start)
        if not chunk:
            return None
        if info.length > _SHORT * chunk.entries and chunk.max_timestamp < timestamp:
            start = yield from _bisect(stream, chunk.end, stream.numbering.to_offset(*info.last), timestamp)
    return (yield from _scan(stream, sizes, start, timestamp))


def latest_timestamp(
    stream: PartitionStream, sizes: EntrySizes, info: StreamInfo, first: int
) -> Question[Found | None]:
    """The first record from offset `first` on that bears the latest timestamp (KIP-734); None if there is none."""
    if info.first is None:
        return None
    numbering = stream.numbering
    end = numbering.to_offset(*info.last) + 1
    best: Found | None = None
    span = _FIRST_SPAN_MS << numbering.bits
    start = first if numbering.dense else max(first, end - span)
    while True:
        found = yield from _latest_from(stream, sizes, start, end)
        if found is not None and (best is None or found.timestamp >= best.timestamp):
            best = found
        # What lies below `start` was appended before it, and its timestamp was at most the lead ahead.
        if start <= first or (best and best.timestamp > (start >> numbering.bits) + stream.topic.timestamp_lead):
            return best
        end, span = start, 2 * span
        start = max(first, start - span)


def _latest_from(stream: PartitionStream, sizes: EntrySizes, start: int, end: int) -> Question[Found | None]:
    best: Found | None = None
    while start < end:
        chunk = yield from _step(stream, sizes, start)
        if not chunk:
            break
        if best is None or chunk.max_timestamp > best.timestamp:
            best = _latest_of(chunk, start) or best
        start = chunk.end
    return best


def _latest_of(chunk: Chunk, start: int) -> Found | None:
    """The first record from `start` on, where a batch may begin before it, that bears the latest timestamp of these."""
    if chunk.base >= start:
        return _first(chunk, chunk.max_timestamp, start)
    rest = [Found(offset, timestamp) for offset, timestamp in chunk.timestamps(-1) if offset >= start]
    return max(rest, key=lambda found: found.timestamp, default=None)


def _scan(stream: PartitionStream, sizes: EntrySizes, start: int, timestamp: int) -> Question[Found | None]:
    """The first record from `start` on whose timestamp is `timestamp` or later."""
    while True:
        chunk = yield from _step(stream, sizes, start)
        if not chunk:
            return None
        found = _first(chunk, timestamp, start)
        if found is not None:
            return found
        start = chunk.end


def _step(stream: PartitionStream, sizes: EntrySizes, start: int) -> Question[Chunk]:
    chunk = yield from ranges.read(stream, start, min(_STEP, sizes.count(_STEP_BYTES)))
    sizes.learn(chunk)
    return chunk


def _first(chunk: Chunk, timestamp: int, start: int) -> Found | None:
    if chunk.max_timestamp < timestamp:
        return None
    for offset, found in chunk.timestamps(timestamp):
        if offset >= start:
            return Found(offset, found)
    return None


def _bisect(stream: PartitionStream, low: int, high: int, timestamp: int) -> Question[int]:
    """An offset at or before the first record that is as late as `timestamp`, given that timestamps rise."""
    while low < high:
        middle = (low + high) // 2
        chunk = yield from ranges.read(stream, middle, 1)
        if chunk and chunk.max_timestamp < timestamp:
            low = max(middle + 1, chunk.end)
        else:
            high = middle
    return low
