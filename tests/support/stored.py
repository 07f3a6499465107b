"""One partition's stream in a Python list, which answers the questions that read a stream as Redis would: no server.

A test gives the batches of a log; `Stored` lays them out as a layout does, and knows XRANGE and heads.lua.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

from ketch.configs.topic_table import CONFIGS
from ketch.redis.question import Question
from ketch.store.keys import Keyspace
from ketch.store.offsets import OffsetNumbering
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics.topic import Topic
from ketch.store.xinfo import StreamInfo
from tests.support import batches
from tests.support.questions import answered
from tests.support.replies import resp

T = TypeVar("T")
_FOREVER = 1 << 70  # no entry has this offset


class Batch(NamedTuple):
    """Records that were appended together.

    Attributes:
        base: offset of the first record.
        timestamps: of the records, ms.
    """

    base: int
    timestamps: list[int]

    @property
    def last(self) -> int:
        return self.base + len(self.timestamps) - 1


def offsets(log: list[Batch]) -> list[int]:
    """Of every record."""
    return [offset for batch in log for offset in range(batch.base, batch.last + 1)]


def logs(gap: int, records: int, batches: int) -> st.SearchStrategy[list[Batch]]:
    """Logs of at most so many batches, each of at most so many records and at most `gap` offsets behind the last."""
    parts = st.lists(st.tuples(st.integers(0, gap), st.integers(1, records)), max_size=batches)
    return parts.map(_log)


def _log(parts: list[tuple[int, int]]) -> list[Batch]:
    ends = accumulate(gap + size for gap, size in parts)
    return [Batch(end - size, [7] * size) for end, (_, size) in zip(ends, parts, strict=True)]


def partition(layout: str, dense: bool = False, *, lead: int = 0, largest: int = 1 << 20) -> PartitionStream:
    """A partition of a topic with this storage.layout.

    Args:
        lead: ms that a record's timestamp lay ahead of the clock at most.
        largest: bytes that no record has passed.
    """
    configs = {config.name: "" for config in CONFIGS.values()} | {"storage.layout": layout}
    codec = OffsetNumbering(10, dense)
    topic = Topic("t", uuid.UUID(int=1), 1, 0, codec, configs, largest_record=largest, timestamp_lead=lead)
    return PartitionStream.of(topic, 0, Keyspace("k"))


class Stored:
    """A stream with these batches.

    Attributes:
        asked: how many commands it has answered.
    """

    def __init__(self, of: PartitionStream, stored: list[Batch]) -> None:
        self._numbering, self.asked = of.numbering, 0
        records = of.layout.entry_is_record
        self._entries = [entry for batch in stored for entry in (_records(batch) if records else [_whole(batch)])]

    @property
    def info(self) -> StreamInfo:
        """What XINFO says of it, as far as searches need that."""
        if not self._entries:
            return StreamInfo()
        first, last = (self._numbering.to_id(self._entries[n][0]) for n in (0, -1))
        return StreamInfo(len(self._entries), last, first, len(self._entries))

    def ask(self, question: Question[T]) -> T:
        """The answer to a question about the stream."""
        return answered(question, self._reply)

    def _reply(self, words: list[bytes]) -> bytes:
        self.asked += 1
        if words[0] == b"XRANGE":
            _, _, low, high, _, count = words
            return resp([[self._id(at), fields] for at, fields, _ in self._between(low, high)[: int(count)]])
        assert words[0] == b"EVAL"
        *_, name, first, last, most = words
        found = self._between(last, first)[::-1] if name == b"XREVRANGE" else self._between(first, last)
        return resp([[self._id(at), count] for at, _, count in found[: int(most)]])

    def _between(self, low: bytes, high: bytes) -> list[tuple[int, list[bytes], int]]:
        start = 0 if low == b"-" else self._offset(low)
        end = _FOREVER if high == b"+" else self._offset(high[1:]) if high[:1] == b"(" else self._offset(high) + 1
        at, behind = (bisect_left(self._entries, offset, key=_offset_of) for offset in (start, end))
        return self._entries[at:behind]

    def _id(self, offset: int) -> bytes:
        return self._numbering.format_id(*self._numbering.to_id(offset))

    def _offset(self, entry_id: bytes) -> int:
        return self._numbering.to_offset(*self._numbering.parse_id(entry_id))


def _offset_of(entry: tuple[int, list[bytes], int]) -> int:
    return entry[0]


def _records(batch: Batch) -> list[tuple[int, list[bytes], int]]:
    """Of an entry for each record: its offset, its fields, how many records it holds."""
    fields = ([b"value", b"v", b"timestamp", b"%d" % timestamp] for timestamp in batch.timestamps)
    return [(batch.base + n, each, 1) for n, each in enumerate(fields)]


def _whole(batch: Batch) -> tuple[int, list[bytes], int]:
    first = batch.timestamps[0]
    encoded = [
        batches.record(b"v", offset_delta=n, timestamp_delta=timestamp - first)
        for n, timestamp in enumerate(batch.timestamps)
    ]
    data = batches.batch(encoded, base_timestamp=first, max_timestamp=max(batch.timestamps))
    return batch.last, [b"batch", data], len(encoded)
