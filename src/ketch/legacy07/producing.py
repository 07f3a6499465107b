"""Makes payloads of the messages that a 0.7 producer sent: plain ones in runs, each compressed one for itself.

A 0.7 message has no time: its records bear the broker's. A compressed message keeps the bytes that came, see
`store.marked`. No I/O.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from ketch.errors import RecordTooLarge
from ketch.legacy07.messages import NONE, Message, inner
from ketch.log.notes import CODEC_NAMES
from ketch.records import DecodedBatch, columns_to_records
from ketch.store.layout import Payload
from ketch.store.marked import MarkedBatch
from ketch.store.topics import Topic

_RUN_MAX = 10_000  # messages of a batch
_RUN_BYTES = 1 << 20


class Produced(NamedTuple):
    """A payload on its way into the log.

    Attributes:
        codec: of the producer, by today's numbers, which are those of 0.7 for all that it has.
        wire: bytes of the messages.
    """

    batch: Payload
    codec: int
    wire: int


def payloads(topic: Topic, messages: Sequence[Message], now: int, inflated_max: int) -> list[Produced]:
    """The payloads that messages become, in their order.

    Raises:
        InvalidMessage: what is within a compressed message is damaged.
        RecordTooLarge: a message is larger than `max.message.bytes`, or inflates to more than `inflated_max`.
    """
    maker = _Maker(topic, now)
    made: list[Produced] = []
    for run, wire in _runs(messages, int(topic.configs["max.message.bytes"])):
        if run[0].compression == NONE:
            made.append(Produced(maker.plain([message.payload for message in run]), NONE, wire))
        elif values := list(inner(run[0], inflated_max)):  # a set may be empty: nothing to store
            made.append(Produced(maker.compressed(run[0], values), run[0].compression, wire))
    return made


def _runs(messages: Sequence[Message], most: int) -> Iterator[tuple[list[Message], int]]:
    """Plain messages together up to a batch's size, compressed ones alone; and the bytes of each run."""
    run: list[Message] = []
    total = 0
    for message in messages:
        size = message.size
        if size > most:
            raise RecordTooLarge(f"a message has {size} bytes, more than {most} (max.message.bytes)")
        alone = message.compression != NONE
        if run and (alone or len(run) == _RUN_MAX or total + size > _RUN_BYTES):
            yield run, total
            run, total = [], 0
        if alone:
            yield [message], size
        else:
            run.append(message)
            total += size
    if run:
        yield run, total


class _Maker:
    def __init__(self, topic: Topic, now: int) -> None:
        self._layout, self._now = topic.layout, now
        self._append_time = now if topic.log_append_time else None
        wanted = topic.configs["compression.type"]
        names = {"producer": None, "uncompressed": 0}
        self._codec = names[wanted] if wanted in names else CODEC_NAMES.index(wanted)

    def plain(self, values: Sequence[bytes]) -> Payload:
        return self._pack(values, NONE)

    def compressed(self, message: Message, values: Sequence[bytes]) -> Payload:
        records = self._pack(values, message.compression)
        last = self._pack(values[-1:], message.compression) if records.entries > 1 else records
        return MarkedBatch(records, last, message.encode()[4:])

    def _pack(self, values: Sequence[bytes], codec: int) -> Payload:
        return self._layout.pack(
            _batch(values, self._now), codec if self._codec is None else self._codec, self._append_time
        )


def _batch(values: Sequence[bytes], timestamp: int) -> DecodedBatch:
    """Records of these values, without keys."""
    count = len(values)
    nothing = (None, 0, b"", b"")
    keys = (bytes((count + 7) // 8), 0, bytes(4 * (count + 1)), b"")  # all of them null
    column = (None, 0, array("i", accumulate(map(len, values), initial=0)), b"".join(values))
    no_headers = (None, 0, bytes(4 * (count + 1)))
    times = array("q", [timestamp]) * count
    (batch,) = columns_to_records(
        count, array("q", range(count)), times, keys, column, no_headers, nothing, nothing, 2**31 - 1, False
    )
    return batch
