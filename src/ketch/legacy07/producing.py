"""Makes payloads of the messages that a 0.7 producer sent: plain ones in runs, each compressed one for itself.

A 0.7 message has no time: its records bear the broker's. A compressed message keeps the bytes that came, and a plain
one its magic where that is not the usual one, see `store.layouts.marked`. No I/O.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from ketch.errors import CorruptRecord, RecordTooLarge
from ketch.legacy07.messages import NONE, OVERHEAD, Message, inner
from ketch.records import DecodedBatch, columns_to_records, decompress, plain_messages
from ketch.store.layouts.layout import Payload
from ketch.store.layouts.marked import MarkedBatch, PlainBatch
from ketch.store.topics.topic import Topic

_RUN_MAX = 10_000  # messages of a batch
_RUN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Plain:
    """Plain messages of one magic as columns: no object for any of them.

    Attributes:
        ends: int32, of each payload in `values`, and 0 before them.
    """

    magic: int
    ends: memoryview
    values: bytes

    @property
    def count(self) -> int:
        return len(self.ends) - 1

    @property
    def wire(self) -> int:
        """Bytes of the messages."""
        return int(self.ends[-1] - self.ends[0]) + OVERHEAD[self.magic] * self.count

    @classmethod
    def of(cls, magic: int, payloads: Sequence[bytes]) -> Plain:
        return cls(magic, memoryview(array("i", accumulate(map(len, payloads), initial=0))), b"".join(payloads))

    @classmethod
    def take(cls, data: bytes) -> Plain | None:
        """A set of messages; None where one is not plain, they are of both magics, or anything is wrong."""
        found = plain_messages(data)
        return cls(found[0], memoryview(found[1]).cast("i"), found[2]) if found else None

    def part(self, start: int, stop: int) -> Plain:
        return Plain(self.magic, self.ends[start : stop + 1], self.values)

    def largest(self) -> int:
        """Bytes of the largest message."""
        return max((b - a for a, b in pairwise(self.ends)), default=0) + OVERHEAD[self.magic]


class Produced(NamedTuple):
    """A payload on its way into the log.

    Attributes:
        codec: of the producer, by today's numbers, which are those of 0.7 for all that it has.
        wire: bytes of the messages.
    """

    batch: Payload
    codec: int
    wire: int


def payloads(
    topic: Topic, messages: Sequence[Message] | Plain, now: int, inflated_max: int, usual: int
) -> list[Produced]:
    """The payloads that messages become, in their order.

    Args:
        usual: the magic that a plain message has which nothing is noted of (`legacy_magic`).

    Raises:
        InvalidMessage: what is within a compressed message is damaged.
        RecordTooLarge: a message is larger than `max.message.bytes`, or inflates to more than `inflated_max`.
    """
    _check_sizes(messages, int(topic.configs["max.message.bytes"]))
    maker = _Maker(topic, now, usual)
    made: list[Produced] = []
    for run in _runs(messages):
        if isinstance(run, Plain):
            made.append(Produced(maker.plain(run), NONE, run.wire))
        elif (within := _within(run, inflated_max)).count:  # a set may be empty: nothing to store
            made.append(Produced(maker.compressed(run, within), run.compression, run.size))
    return made


def check(messages: Sequence[Message] | Plain, most: int, inflated_max: int) -> None:
    """Raises as `payloads` for a topic whose `max.message.bytes` is `most`."""
    _check_sizes(messages, most)
    if not isinstance(messages, Plain):
        for message in messages:
            if message.compression != NONE:
                _within(message, inflated_max)


def _check_sizes(messages: Sequence[Message] | Plain, most: int) -> None:
    largest = _largest(messages, most)
    if largest > most:
        raise RecordTooLarge(f"a message has {largest} bytes, more than {most} (max.message.bytes)")


def _largest(messages: Sequence[Message] | Plain, most: int) -> int:
    """Bytes of the largest message, where one may have more than `most`."""
    if isinstance(messages, Plain):
        return messages.largest() if len(messages.values) + OVERHEAD[messages.magic] > most else 0
    return max((message.size for message in messages), default=0)


def _within(message: Message, limit: int) -> Plain:
    """The messages within a compressed one, to any depth."""
    with suppress(CorruptRecord):  # `inner` says what is wrong
        found = Plain.take(bytes(decompress(message.compression, message.payload, limit)))
        if found is not None:
            return found
    return Plain.of(message.magic, list(inner(message, limit)))


def _runs(messages: Sequence[Message] | Plain) -> Iterator[Plain | Message]:
    """Plain messages of one magic together up to a batch's size, compressed ones alone."""
    if isinstance(messages, Plain):
        yield from _cut(messages)
        return
    for (compressed, magic), group in groupby(messages, key=lambda each: (each.compression != NONE, each.magic)):
        if compressed:
            yield from group
        else:
            yield from _cut(Plain.of(magic, [message.payload for message in group]))


def _cut(plain: Plain) -> Iterator[Plain]:
    start = 0
    while start < plain.count:
        stop = bisect_right(
            plain.ends, plain.ends[start] + _RUN_BYTES, start + 1, min(plain.count, start + _RUN_MAX) + 1
        )
        stop = max(start + 1, stop - 1)
        yield plain.part(start, stop)
        start = stop


class _Maker:
    def __init__(self, topic: Topic, now: int, usual: int) -> None:
        self._layout, self._now, self._usual = topic.layout, now, usual
        self._append_time = now if topic.log_append_time else None
        self._codec = topic.intake.codec

    def plain(self, values: Plain) -> Payload:
        records = self._records(values, NONE)
        return records if values.magic == self._usual else PlainBatch(records, values.magic)

    def _records(self, values: Plain, codec: int) -> Payload:
        codec = codec if self._codec is None else self._codec
        return self._layout.pack(_batch(values, self._now), codec, self._append_time)

    def compressed(self, message: Message, values: Plain) -> Payload:
        records = self._records(values, message.compression)
        last = records
        if records.entries > 1:
            last = self._records(values.part(values.count - 1, values.count), message.compression)
        return MarkedBatch(records, last, message.encode()[4:])


def _batch(values: Plain, timestamp: int) -> DecodedBatch:
    """Records of these values, without keys."""
    count = values.count
    nothing = (None, 0, b"", b"")
    keys = (bytes((count + 7) // 8), 0, bytes(4 * (count + 1)), b"")  # all of them null
    column = (None, 0, values.ends, values.values)
    no_headers = (None, 0, bytes(4 * (count + 1)))
    times = array("q", [timestamp]) * count
    (batch,) = columns_to_records(
        count, array("q", range(count)), times, keys, column, no_headers, nothing, nothing, 2**31 - 1, False
    )
    return batch
