"""A question that cuts a range of a partition: an offset with about so many records below it.

With dense ids that is an addition. With time ids offsets are sparse, so entries have to be counted: `Layout.count_step`
of them at a time, whatever their size, so that the answer depends on nothing but the entries. Small records are read
for it, which is the quickest; where entries may be large, a script answers with numbers only. Where many records are
wanted and lie close together, the search skips a stretch without counting it, looks behind it, and takes the mean of
the densities before and behind as that of the stretch. Where the two differ too much, it goes back and counts.
"""

from __future__ import annotations

from typing import NamedTuple

from ketch.redis.question import Question
from ketch.store.stream import ranges
from ketch.store.stream.counting import entry_heads
from ketch.store.stream.ranges import REPLY_MAX, PartitionStream

# A leap is a stretch that is skipped: it is estimated from the density on both sides, not counted.
_STRIDE_MAX = 64  # length of a leap at most, as a multiple of the records in the look before it
_DENSE = 1 / 16  # records per offset; where they are sparser, all are counted, with no leaps
_SMALL = 10_000  # with no more records than this still to count, all are counted, with no leaps


class _Look(NamedTuple):
    """What one look at some entries has shown.

    Attributes:
        spans: (first offset, offset after the last) of each batch's records; a single one where entries are records.
        records: how many there are.
        more: whether there may be more entries below the end of the range.
    """

    spans: list[tuple[int, int]]
    records: int
    more: bool

    @property
    def end(self) -> int:
        return self.spans[-1][1]

    def after(self, records: int) -> int:
        """The offset after so many of the records; a guess where entries are records and there are more of them."""
        for first, last in self.spans if records < self.records else ():
            if records <= last - first:
                return first + max(records, 0)
            records -= last - first
        return self.end


def boundary(stream: PartitionStream, start: int, end: int, records: int) -> Question[int]:
    """An offset with about `records` records from `start` up to it: that of a record, or `end` where there are fewer.

    Entries from `end` on have no say, so the answer stays the same when records are appended there. At least one record
    lies below the answer, if there is one below `end`. A burst that a leap hides has at most as many records as there
    are offsets in it.
    """
    first = yield from _look(stream, start, end, 1)
    if not first.spans:
        return end
    low = first.spans[0][0]
    if stream.numbering.dense:
        return min(low + records, end)
    position = yield from _walk(stream, low, end, max(1, records))
    found = yield from _look(stream, position, end, 1)
    return found.spans[0][0] if found.spans else end


def _walk(stream: PartitionStream, position: int, end: int, left: int) -> Question[int]:
    """The offset after the next `left` records from `position` on; `end` where there are fewer."""
    stride, density, sample = 1, 0.0, 0  # density: of the look before, in records an offset; sample: its records
    while True:
        leap = 0
        if density > _DENSE and left > max(_SMALL, 2 * sample):
            leap = int(min(stride * sample, left - 2 * sample) / density)
        if position + leap >= end:
            leap = 0
        look = yield from _look(stream, position + leap, end, left)
        here = look.records / (look.end - position - leap) if look.spans else 0.0
        if leap and (not look.more or not 0.5 < here / density < 2.0):
            stride, density = max(1, stride // 4), 0.0  # walk until the density is steady again
            continue
        left -= round(leap * (here + density) / 2)
        if look.records >= left:
            return look.after(left)
        if not look.more:
            return end
        left -= look.records
        position, density, sample = look.end, here, look.records
        stride = min(2 * stride, _STRIDE_MAX)


def _look(stream: PartitionStream, start: int, end: int, records: int) -> Question[_Look]:
    """The entries with records from `start` to below `end`, as far as one reply tells of them.

    Args:
        records: no more are of interest.
    """
    if start >= end:
        return _Look([], 0, False)
    step, one_each = stream.layout.count_step, stream.layout.entry_is_record
    count = max(1, min(step, records))
    if one_each and count * stream.topic.largest_record <= REPLY_MAX:
        chunk = yield from ranges.read(stream, start, count, end)
        spans = [(chunk.base, chunk.end)] if chunk else []
        return _Look(spans, chunk.records, chunk.entries == count)
    heads = yield from entry_heads(stream, start, most=count)
    offsets = [(max(start, last + 1 - records), min(end, last + 1)) for last, records in heads]
    spans = [(first, last) for first, last in offsets if first < last]
    more = len(spans) == len(heads) == count
    if one_each:
        return _Look([(spans[0][0], spans[-1][1])] if spans else [], len(spans), more)
    return _Look(spans, sum(last - first for first, last in spans), more)
