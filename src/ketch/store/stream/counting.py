"""Questions that count records and entries: with time ids offsets are sparse, so no subtraction tells how many lie in a
range.

Redis counts them in scripts that answer with numbers only, some entries at a time (`Layout.count_step`): no other
client waits long, and no record crosses the wire.
"""

from __future__ import annotations

from ketch.redis.question import Question, ask
from ketch.store import scripts
from ketch.store.stream.ranges import PartitionStream

# Counting entries copies them inside Redis: so many bytes or entries at a time, not to hold it up, and so many times.
_STEP_BYTES, _STEP_MAX = 1 << 20, 2_000
_STEPS = 50


def count(stream: PartitionStream, start: int, end: int | None = None, most: int | None = None) -> Question[int]:
    """How many records there are from offset `start` on, up to `end` (exclusive) where that is given.

    Args:
        most: records after which counting may stop; the answer is at least as many then.
    """
    total, cursor = 0, start
    while most is None or total < most:
        heads = yield from entry_heads(stream, cursor)
        for last, records in heads:
            if end is not None and last >= end:
                return total + max(0, end - max(start, last - records + 1))
            total += min(records, last - start + 1)
        if len(heads) < stream.layout.count_step:
            break
        cursor = heads[-1][0] + 1
    return total


def shifted(stream: PartitionStream, offset: int, records: int) -> Question[int | None]:
    """The offset so many records further on, or back where `records` is negative; None where there are not as many."""
    if records == 0:
        return offset
    if records > 0:
        return (yield from _forward(stream, offset, records))
    return (yield from _back(stream, offset, -records))


def _forward(stream: PartitionStream, offset: int, left: int) -> Question[int | None]:
    cursor = offset
    while True:
        heads = yield from entry_heads(stream, cursor)
        for last, records in heads:
            here = min(records, last - offset + 1)
            if left <= here:
                return last + 1 - here + left
            left -= here
        if len(heads) < stream.layout.count_step:
            return None
        cursor = heads[-1][0] + 1


def _back(stream: PartitionStream, offset: int, left: int) -> Question[int | None]:
    heads = yield from entry_heads(stream, offset)
    for last, records in heads[:1]:  # the entry that holds it may begin below
        below = max(0, offset - (last - records + 1))
        if left <= below:
            return offset - left
        left -= below
    cursor = offset
    while True:
        heads = yield from entry_heads(stream, cursor, back=True)
        for last, records in heads:
            if left <= records:
                return last + 1 - left
            left -= records
        if len(heads) < stream.layout.count_step:
            return None
        cursor = heads[-1][0]


def entries(stream: PartitionStream, start: int, end: int, entry_bytes: int) -> Question[int | None]:
    """How many entries there are from offset `start` on, up to `end` (exclusive); None if too many to count.

    Args:
        entry_bytes: about how large an entry is.
    """
    if start >= end:
        return 0
    step = max(1, min(_STEP_MAX, _STEP_BYTES // max(entry_bytes, 1)))
    total, first, last = 0, _at(stream, start), b"(" + _at(stream, end)
    for _ in range(_STEPS):
        found: int
        found, at = yield from ask(scripts.count(stream.key, first, last, step))
        total += found
        if found < step:
            return total
        first = b"(" + at
    return None


def _at(stream: PartitionStream, offset: int) -> bytes:
    return stream.numbering.format_id(*stream.numbering.to_id(max(offset, 0)))


def entry_heads(
    stream: PartitionStream, offset: int, back: bool = False, most: int | None = None
) -> Question[list[tuple[int, int]]]:
    """The last offset and the number of records of each entry from `offset` on, or of those below, backwards.

    In a batch that compaction has taken records from, they count as if they were its last ones.

    Args:
        most: how many entries to look at; by default, and no more than, `Layout.count_step`.
    """
    numbering, step = stream.numbering, stream.layout.count_step
    count = step if most is None else max(1, min(step, most))
    at = _at(stream, offset)
    words = ("XREVRANGE", b"(" + at, b"-") if back else ("XRANGE", at, b"+")
    found = yield from ask(scripts.heads(stream.key, *words, count))
    return [(numbering.to_offset(*numbering.parse_id(entry_id)), records) for entry_id, records in found]
