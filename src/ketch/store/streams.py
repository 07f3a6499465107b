"""One partition's stream: how a batch goes in, whole or not at all, and what XINFO says of it.

Pure bytes: this module builds commands and reads replies; `log` decides what is sent when, and `store.layout` what the
entries hold.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hiredis

from ketch.errors import RedisError
from ketch.store import scripts
from ketch.store.offsets import MAX_OFFSET, OffsetCodec
from ketch.store.pipe import checked, pack, parse

if TYPE_CHECKING:
    from ketch.store.layout import Payload

_MULTI = pack("MULTI")
_EXEC = pack("EXEC")

Id = tuple[int, int]


class Refusal(enum.Enum):
    """Why the pessimistic append stored nothing."""

    MOVED = 0  # the producer's state is not what the caller thought, or the stream is gone
    WIDE = -1  # an entry has more fields than Lua can pass on; the optimistic append takes it


ZERO: Id = (0, 0)


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What XINFO STREAM says that offsets depend on. A stream that does not exist is an empty one."""

    length: int = 0
    last: Id = ZERO  # last-generated-id: survives trimming
    first: Id | None = None  # the first entry's id; None when empty
    added: int | None = None  # entries-added; None before Redis 7
    first_batch: bytes = b""  # the head of the batch in the first entry, where it holds one
    entry_bytes: int = 0  # the larger of the first and the last entry's payload, a first guess at the size of one
    lineage: object = field(default_factory=object, compare=False)  # the same while nothing but our appends changed it

    @property
    def removed(self) -> int | None:
        """How many entries were ever trimmed or deleted; None before Redis 7."""
        return None if self.added is None else self.added - self.length

    def behind(self, last: Id, entries: int) -> StreamInfo:
        """What it says when `entries` more have been appended, the last one with id `last`."""
        added = None if self.added is None else self.added + entries
        return StreamInfo(
            self.length + entries, last, self.first, added, self.first_batch, self.entry_bytes, self.lineage
        )


@dataclass(frozen=True, slots=True)
class Producer:
    """What the scripts need to move an idempotent producer's state along with its batch."""

    id: int | str
    expected: str  # "epoch last_sequence" as known, "" for a producer never seen here
    head: str  # the same behind this batch
    batch: str  # "first_sequence:last_sequence:"
    now: int  # ms


def info_command(stream: bytes) -> bytes:
    return pack("XINFO", "STREAM", stream)


def parse_info(reply: Any) -> StreamInfo:
    """StreamInfo from the parsed reply (RESP2 list or RESP3 map) of XINFO STREAM, or of `scripts.INFO`.

    Raises:
        RedisError: an error other than "no such key", e.g. the key holds another type.
    """
    if isinstance(reply, hiredis.ReplyError) and "no such key" in str(reply):
        return StreamInfo()
    checked(reply)
    fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    ends = [_glance(entry) for entry in (fields[b"first-entry"], fields[b"last-entry"]) if entry]
    return StreamInfo(
        length=fields[b"length"],
        last=OffsetCodec.parse_id(fields[b"last-generated-id"]),
        first=OffsetCodec.parse_id(ends[0][0]) if ends else None,
        added=fields.get(b"entries-added"),
        first_batch=ends[0][2] if ends else b"",
        entry_bytes=max((size for _, size, _ in ends), default=0),
    )


def _glance(entry: list[Any]) -> tuple[bytes, int, bytes]:
    """An entry's id, the bytes in it, and its field `batch` or the beginning of that."""
    if len(entry) == 3:
        return entry[0], entry[1], entry[2]
    entry_id, words = entry
    batch = next((value for name, value in zip(words[::2], words[1::2], strict=True) if name == b"batch"), b"")
    return entry_id, sum(map(len, words)), batch


def encode_transaction(
    keys: tuple[bytes, bytes, bytes],
    codec: OffsetCodec,
    expected: Id | None,
    base: int,
    batch: Payload,
    producer: Producer | None,
) -> tuple[tuple[bytes, ...], int]:
    """The optimistic append: (commands, cut anywhere; number of replies). The last reply is for `read_transaction`.

    Args:
        keys: stream, producers, fence.
        expected: last-generated-id that the ids were chosen behind; None for any below `base`, which leaves a gap.
        base: offset of the first record.

    Raises:
        InvalidRecord: the batch is malformed, see `Payload.appends`.
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
        codec.format_id(*expected) if expected is not None else b"",
        codec.format_id(ms, seq),
        *end,
        *words,
    )
    adds = batch.appends(stream, codec, base)
    release = pack("EVAL", scripts.RELEASE, 2, stream, fence)
    return (_MULTI, guard, adds, release, _EXEC), batch.entries + 4


def encode_single(
    keys: tuple[bytes, bytes, bytes],
    codec: OffsetCodec,
    expected: Id,
    base: int,
    batch: Payload,
    producer: Producer | None,
) -> bytes | None:
    """As `encode_transaction`, of a batch that is one entry; one reply, for `read_single`.

    None for an entry too wide for Lua.
    """
    arguments, count = batch.arguments()
    if count > scripts.WIDEST:
        return None
    words: tuple[bytes | str | int, ...] = _producer_words(producer)
    if words:
        words = (*words, codec.format_id(*codec.to_id(base)))
    end = codec.format_id(*codec.to_id(base + batch.count - 1))
    head = ("EVAL", scripts.SINGLE, 3, *keys, codec.format_id(*expected), end, len(words), *words)
    return _call(head, *_without_count(arguments, count))


def read_single(reply: bytes) -> bool:
    """Whether the batch landed; raises as `read_transaction`."""
    return bool(checked(parse(reply)))


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
    keys: tuple[bytes, bytes, bytes],
    codec: OffsetCodec,
    floor: int,
    batch: Payload,
    producer: Producer | None,
    exists: bool = False,
) -> bytes:
    """The pessimistic append: Redis chooses ids at or above offset `floor`; one reply, for `read_append`.

    Args:
        exists: there must be a stream, none is made.
    """
    stream, producers, _ = keys
    arguments, count = batch.arguments()
    words = _producer_words(producer)
    head: tuple[bytes | str | int, ...] = (
        "EVAL", scripts.APPEND, 2, stream, producers,
        codec.bits, *codec.to_id(floor), batch.count // batch.entries, int(exists), len(words), *words,
    )  # fmt: skip
    return _call(head, arguments, count)


def _call(head: tuple[bytes | str | int, ...], arguments: bytes | memoryview, count: int) -> bytes:
    """A command whose last `count` arguments are encoded already."""
    packed = pack(*head)
    return b"".join((b"*%d" % (len(head) + count), packed[packed.index(b"\r") :], arguments))


def _without_count(arguments: bytes, count: int) -> tuple[memoryview, int]:
    """`Payload.arguments` of one entry, less the number of its fields and values."""
    begin = arguments.index(b"\r\n", arguments.index(b"\r\n") + 2) + 2
    return memoryview(arguments)[begin:], count - 1


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
