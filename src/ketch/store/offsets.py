"""Kafka offsets and Redis stream entry ids, both ways, without state.

An entry id `ms-seq` of a topic with `offsetSequenceBits` N is the offset `(ms << N) + seq`. The sum is a plain one: a
native client may write more than 2**N entries in a millisecond, and `seq` then carries into the time, as in
`ketch.records`. A topic with `offset.ids=dense` uses the same arithmetic over a counter: Redis has no entry 0-0, so
dense offset n is entry number n + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

MIN_BITS = 10
MAX_BITS = 16

EntryId = tuple[int, int]  # the two numbers of `ms-seq`
ZERO: EntryId = (0, 0)  # the last-generated-id of a stream that never had an entry

MAX_OFFSET = 2**63 - 1
LAST_OFFSET = MAX_OFFSET - 1  # that a record may have: the high watermark after it is an int64, too


def encode(ms: int, seq: int, bits: int) -> int:
    """The offset of entry `ms-seq`; above MAX_OFFSET when someone wrote an id beyond the wire's int64."""
    return (ms << bits) + seq


def decode(offset: int, bits: int) -> tuple[int, int]:
    """The entry id `(ms, seq)` of a time offset, `seq` below 2**bits."""
    return offset >> bits, offset & ((1 << bits) - 1)


@dataclass(frozen=True, slots=True)
class OffsetNumbering:
    """The two ways between offsets and entry ids of one topic."""

    bits: int = MIN_BITS
    dense: bool = False

    def to_id(self, offset: int) -> tuple[int, int]:
        """The entry id that an offset of 0 or above stands for; ValueError below."""
        if offset < 0:
            raise ValueError(f"offset {offset} is below 0")
        return decode(offset + self.dense, self.bits)

    def to_offset(self, ms: int, seq: int) -> int:
        """The offset of an entry; -1 for 0-0 with dense ids, so that `last-generated-id` + 1 is always the end."""
        return encode(ms, seq, self.bits) - self.dense

    @staticmethod
    def parse_id(entry_id: bytes) -> tuple[int, int]:
        """`b"ms-seq"` as two numbers; ValueError for anything else."""
        ms, dash, seq = entry_id.partition(b"-")
        if not (dash and ms.isdigit() and seq.isdigit()):
            raise ValueError(f"{entry_id!r} is not an entry id (ms-seq)")
        return int(ms), int(seq)

    @staticmethod
    def format_id(ms: int, seq: int) -> bytes:
        return b"%d-%d" % (ms, seq)
