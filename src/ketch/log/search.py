"""ListOffsets by time: the record's own timestamp decides, entry ids only say where to begin.

With time ids a record cannot have been appended before its timestamp, save by `timestampLead`, which the topic keeps:
so a search begins at `(timestamp - lead) << N`. With dense ids a bisection over the timestamps finds the place, which
is exact as long as they rise; a short log is simply read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ketch.store.layout import Chunk
from ketch.store.streams import StreamInfo
from ketch.store.topics import Topic

Read = Callable[[int, int], Awaitable[Chunk]]  # (offset, most entries) -> what lies there

_STEP = 1_000  # entries read at a time, if these are not large
_SHORT = 20  # such reads that are done rather than a bisection


@dataclass(frozen=True, slots=True)
class Found:
    """A record: its offset and its timestamp in ms."""

    offset: int
    timestamp: int


async def first_at_or_after(
    read: Read, topic: Topic, info: StreamInfo, least: int, timestamp: int, rising: bool = True
) -> Found | None:
    """The first record from offset `least` on whose timestamp is `timestamp` or later.

    Args:
        rising: timestamps may be taken to rise; else, with dense ids, all records up to there are read.
    """
    if info.first is None:
        return None
    if not topic.codec.dense:
        start = max(least, (timestamp - topic.timestamp_lead) << topic.codec.bits)
        return await _scan(read, start, timestamp)
    start = least
    if not rising:
        return await _scan(read, start, timestamp)
    chunk = await read(start, _STEP)
    if info.length > _SHORT * chunk.entries and chunk.max_timestamp < timestamp:
        start = await _bisect(read, chunk.end, topic.codec.to_offset(*info.last), timestamp)
    return await _scan(read, start, timestamp)


async def latest_timestamp(read: Read, topic: Topic, info: StreamInfo, first: int) -> Found | None:
    """The first record from offset `first` on that bears the latest timestamp."""
    if info.first is None:
        return None
    end = topic.codec.to_offset(*info.last) + 1
    best: Found | None = None
    span = 60_000 << topic.codec.bits
    start = first if topic.codec.dense else max(first, end - span)
    while True:
        found = await _latest_from(read, start, end)
        if found is not None and (best is None or found.timestamp >= best.timestamp):
            best = found
        # Whatever lies before `start` was appended before it, and its timestamp was at most the lead ahead.
        if start <= first or (best and best.timestamp > (start >> topic.codec.bits) + topic.timestamp_lead):
            return best
        end, span = start, 2 * span
        start = max(first, start - span)


async def _latest_from(read: Read, start: int, end: int) -> Found | None:
    best: Found | None = None
    while start < end:
        chunk = await read(start, _STEP)
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


async def _scan(read: Read, start: int, timestamp: int) -> Found | None:
    """The first record from `start` on whose timestamp is `timestamp` or later."""
    while True:
        chunk = await read(start, _STEP)
        if not chunk:
            return None
        found = _first(chunk, timestamp, start)
        if found is not None:
            return found
        start = chunk.end


def _first(chunk: Chunk, timestamp: int, start: int) -> Found | None:
    for offset, found in chunk.timestamps(timestamp):
        if offset >= start:
            return Found(offset, found)
    return None


async def _bisect(read: Read, low: int, high: int, timestamp: int) -> int:
    """An offset at or before the first record that is as late as `timestamp`, given that timestamps rise."""
    while low < high:
        middle = (low + high) // 2
        chunk = await read(middle, 1)
        if chunk and chunk.max_timestamp < timestamp:
            low = max(middle + 1, chunk.end)
        else:
            high = middle
    return low
