"""ListOffsets by time: the record's own timestamp decides, entry ids only say where to begin.

With time ids a record cannot have been appended before its timestamp, save by `timestampLead`, which the topic keeps:
so a search begins at `(timestamp - lead) << N`. With dense ids a bisection over the timestamps finds the place, which
is exact as long as they rise; a short log is simply read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from ketch.store import streams
from ketch.store.streams import StreamInfo
from ketch.store.topics import Topic

Chunk = Callable[[int, int], Awaitable[bytes]]  # (offset, count) -> the reply of XRANGE

_STEP = 1_000  # entries read at a time
_SHORT = 20_000  # entries that are read rather than bisected


@dataclass(frozen=True, slots=True)
class Found:
    """A record: its offset and its timestamp in ms."""

    offset: int
    timestamp: int


async def first_at_or_after(chunk: Chunk, topic: Topic, info: StreamInfo, timestamp: int) -> Found | None:
    """The first record in offset order whose timestamp is `timestamp` or later."""
    if info.first is None:
        return None
    start = topic.codec.to_offset(*info.first)
    if not topic.codec.dense:
        start = max(start, (timestamp - topic.timestamp_lead) << topic.codec.bits)
    elif info.length > _SHORT:
        start = await _bisect(chunk, topic, start, topic.codec.to_offset(*info.last), timestamp)
    async for found in _scan(chunk, topic, start, timestamp):
        return found
    return None


async def latest_timestamp(chunk: Chunk, topic: Topic, info: StreamInfo) -> Found | None:
    """The first record that bears the latest timestamp."""
    if info.first is None:
        return None
    first, end = topic.codec.to_offset(*info.first), topic.codec.to_offset(*info.last) + 1
    best: Found | None = None
    span = 60_000 << topic.codec.bits
    start = first if topic.codec.dense else max(first, end - span)
    while True:
        found = await _latest_from(chunk, topic, start, end)
        if found is not None and (best is None or found.timestamp >= best.timestamp):
            best = found
        # Whatever lies before `start` was appended before it, and its timestamp was at most the lead ahead.
        if start <= first or (best and best.timestamp > (start >> topic.codec.bits) + topic.timestamp_lead):
            return best
        end, span = start, 2 * span
        start = max(first, start - span)


async def _latest_from(chunk: Chunk, topic: Topic, start: int, end: int) -> Found | None:
    best: Found | None = None
    while start < end:
        entries = streams.read_timestamps(await chunk(start, _STEP), topic.codec)
        if not entries:
            break
        start = entries[-1][0] + 1
        for offset, timestamp in entries:
            if offset < end and (best is None or timestamp > best.timestamp):
                best = Found(offset, timestamp)
    return best


async def _scan(chunk: Chunk, topic: Topic, start: int, timestamp: int) -> AsyncIterator[Found]:
    """Every record from `start` on whose timestamp is `timestamp` or later, in offset order."""
    while True:
        reply = await chunk(start, _STEP)
        batches = streams.read_range(reply, topic.codec, 1 << 62, False)
        if not batches:
            return
        if max(batch[3] for batch in batches) >= timestamp:  # the kernel knows without a look at each record
            for offset, own in streams.read_timestamps(reply, topic.codec):
                if own >= timestamp:
                    yield Found(offset, own)
        start = batches[-1][0] + batches[-1][1] + 1


async def _bisect(chunk: Chunk, topic: Topic, low: int, high: int, timestamp: int) -> int:
    """An offset at or before the first record that is as late as `timestamp`, given that timestamps rise."""
    while low < high:
        middle = (low + high) // 2
        entry = streams.read_timestamps(await chunk(middle, 1), topic.codec)
        if entry and entry[0][1] < timestamp:
            low = max(middle, entry[0][0]) + 1
        else:
            high = middle
    return low
