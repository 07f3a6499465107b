"""One partition's stream in the record layout: how a batch goes in, how a range comes out, what XINFO says of it.

Pure bytes: this module builds commands and reads replies; `log` decides what is sent when.
"""

from __future__ import annotations

import contextlib
import enum
from dataclasses import dataclass
from typing import Any

import hiredis

from ketch.errors import RedisError
from ketch.records import decode_entries, encode_appends, encode_arguments
from ketch.store import scripts
from ketch.store.offsets import MAX_OFFSET, OffsetCodec
from ketch.store.pipe import checked, pack, parse

_MULTI = pack("MULTI")
_EXEC = pack("EXEC")

Id = tuple[int, int]


class Refusal(enum.Enum):
    """Why the pessimistic append stored nothing."""

    PRODUCER_MOVED = 0  # the producer's state is not what the caller thought
    WIDE = -1  # a record has more fields than Lua can pass on; the optimistic append takes it


ZERO: Id = (0, 0)


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What XINFO STREAM says that offsets depend on. A stream that does not exist is an empty one."""

    length: int = 0
    last: Id = ZERO  # last-generated-id: survives trimming
    first: Id | None = None  # the first entry's id; None when empty
    added: int | None = None  # entries-added; None before Redis 7
    entry_bytes: int = 0  # the larger of the first and the last entry's payload, a first guess at the size of one

    @property
    def removed(self) -> int | None:
        """How many entries were ever trimmed or deleted; None before Redis 7."""
        return None if self.added is None else self.added - self.length


@dataclass(frozen=True, slots=True)
class Producer:
    """What the scripts need to move an idempotent producer's state along with its batch."""

    id: int
    expected: str  # "epoch last_sequence" as known, "" for a producer never seen here
    head: str  # the same behind this batch
    batch: str  # "first_sequence:last_sequence:"
    now: int  # ms


def info_command(stream: bytes) -> bytes:
    return pack("XINFO", "STREAM", stream)


def parse_info(reply: Any) -> StreamInfo:
    """StreamInfo from the parsed reply (RESP2 list or RESP3 map) of XINFO STREAM.

    Raises:
        RedisError: an error other than "no such key", e.g. the key holds another type.
    """
    if isinstance(reply, hiredis.ReplyError) and "no such key" in str(reply):
        return StreamInfo()
    checked(reply)
    fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    ends = [entry for entry in (fields[b"first-entry"], fields[b"last-entry"]) if entry]
    return StreamInfo(
        length=fields[b"length"],
        last=OffsetCodec.parse_id(fields[b"last-generated-id"]),
        first=OffsetCodec.parse_id(ends[0][0]) if ends else None,
        added=fields.get(b"entries-added"),
        entry_bytes=max((sum(map(len, entry[1])) for entry in ends), default=0),
    )


@dataclass(frozen=True, slots=True)
class RecordSet:
    """The records of one produced batch, decompressed, as the kernel takes them."""

    records: bytes | bytearray | memoryview
    count: int
    base_timestamp: int
    timestamp: int | None  # ms, for LogAppendTime; None keeps each record's own


def encode_transaction(
    keys: tuple[bytes, bytes, bytes],
    codec: OffsetCodec,
    expected: Id,
    base: int,
    batch: RecordSet,
    producer: Producer | None,
) -> tuple[bytes, int]:
    """The optimistic append: (commands, number of replies); the last reply is EXEC's, for `read_transaction`.

    Args:
        keys: stream, producers, fence.
        expected: last-generated-id that the ids were chosen behind.
        base: offset of the first record.

    Raises:
        InvalidRecord: the records section is malformed.
    """
    stream, producers, fence = keys
    ms, seq = codec.to_id(base)
    end = codec.to_id(base + batch.count - 1)
    words = _producer_words(producer)
    guard = pack(
        "EVAL",
        scripts.GUARD_PRODUCER if producer else scripts.GUARD,
        3,
        stream,
        producers,
        fence,
        codec.format_id(*expected),
        codec.format_id(ms, seq),
        *end,
        *words,
    )
    adds = encode_appends(
        batch.records, batch.count, stream, ms, seq, codec.bits, batch.base_timestamp, batch.timestamp
    )
    release = pack("EVAL", scripts.RELEASE, 2, stream, fence)
    return b"".join((_MULTI, guard, adds, release, _EXEC)), batch.count + 4


def read_transaction(reply: bytes) -> bool:
    """Whether the batch landed; False when another writer came in between and nothing of it was stored.

    Raises:
        StorageUnavailable, RedisError: Redis refused the transaction; nothing was stored.
    """
    # One integer behind the array's header says it all; the ids behind it are not looked at.
    if reply.startswith(b"*"):
        verdict = reply[reply.index(b"\n") + 1 :][:2]
        if verdict in (b":1", b":0"):
            return verdict == b":1"
        checked(parse(reply)[0])
    checked(parse(reply))
    raise RedisError(f"EXEC answered {reply[:80]!r}")


def encode_append(
    keys: tuple[bytes, bytes, bytes], codec: OffsetCodec, floor: int, batch: RecordSet, producer: Producer | None
) -> bytes:
    """The pessimistic append: Redis chooses ids at or above offset `floor`; one reply, for `read_append`."""
    stream, producers, _ = keys
    arguments, count = encode_arguments(batch.records, batch.count, batch.base_timestamp, batch.timestamp)
    words = _producer_words(producer)
    head: tuple[bytes | str | int, ...] = (
        "EVAL", scripts.APPEND, 2, stream, producers, codec.bits, *codec.to_id(floor), len(words), *words
    )  # fmt: skip
    packed = pack(*head)
    return b"*%d" % (len(head) + count) + packed[packed.index(b"\r") :] + arguments


def read_append(reply: bytes, codec: OffsetCodec) -> int | Refusal:
    """The base offset, or why nothing was stored; raises as `read_transaction`."""
    answer = checked(parse(reply))
    if isinstance(answer, int):
        return Refusal(answer)
    base = codec.to_offset(*codec.parse_id(answer))
    if base > MAX_OFFSET:  # behind an id that someone else has chosen
        raise RedisError(f"the entry ids have left the offsets of Kafka with {answer.decode()}")
    return base


def _producer_words(producer: Producer | None) -> tuple[str | int, ...]:
    if producer is None:
        return ()
    return producer.id, producer.expected, producer.head, producer.now, producer.batch


def range_command(stream: bytes, codec: OffsetCodec, offset: int, count: int) -> bytes:
    """XRANGE from an offset on."""
    return pack("XRANGE", stream, codec.format_id(*codec.to_id(offset)), "+", "COUNT", count)


def read_range(
    reply: bytes | memoryview, codec: OffsetCodec, max_bytes: int, split_timestamps: bool
) -> list[tuple[int, int, int, int, int, bytes]]:
    """The reply of XRANGE as batches, see `records.decode_entries`.

    Raises:
        RedisError: Redis answered with an error, or with an entry whose id is beyond any offset.
    """
    if reply[:1] != b"*":
        checked(parse(bytes(reply)))
    try:
        return decode_entries(reply, codec.bits, codec.dense, max_bytes, split_timestamps)
    except ValueError as error:
        raise RedisError(f"entries that cannot be served: {error}") from None


def read_timestamps(reply: bytes, codec: OffsetCodec) -> list[tuple[int, int]]:
    """(offset, timestamp in ms) of every entry in XRANGE's reply, timestamps as `records.decode_entries` has them."""
    return [
        (codec.to_offset(*codec.parse_id(entry)), _timestamp(entry, fields, codec))
        for entry, fields in checked(parse(reply))
        if fields is not None
    ]


def _timestamp(entry: bytes, fields: list[bytes], codec: OffsetCodec) -> int:
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        if name == b"timestamp":
            with contextlib.suppress(ValueError):
                return int(value)
            break
    return -1 if codec.dense else codec.parse_id(entry)[0]
