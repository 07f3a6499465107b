"""The commands of the append module, which a server may have loaded; `append_module/csrc/append.c` has their arguments.

`store.append.appends` asks for the version once a connection, and tells the ways to append apart.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import hiredis

from ketch.errors import InvalidRecord, RedisError
from ketch.redis.question import Command, Word
from ketch.redis.resp import checked, pack, parse
from ketch.store.layouts.layout import Operands
from ketch.store.offsets import LAST_OFFSET, MAX_BITS, EntryId, OffsetNumbering
from ketch.store.scripts import AppendKeys, Producer
from ketch.wire.pieces import BytesLike

VERSION = 2  # of the module, as it is called here
TRANSACTIONS_SINCE = 2
_NO_PRODUCER: tuple[Word, ...] = ("",) * 5
_PLACED = 6  # words that say where the batch goes: from `expected` to `must_exist`
_INVALID = "INVALID "
ASK_VERSION = pack("KETCH.VERSION")
ASK_PERMISSION = pack("KETCH.TXNAPPEND")  # without arguments: an error of one kind or another
_MULTI, _EXEC = pack("MULTI"), pack("EXEC")
_AS_EXPECTED = b":1\r\n"  # what most replies of EXEC begin with, after the "*2\r\n" or "*3\r\n" of the array
_STREAMS = 1 << 12  # whose common words are kept packed
_ONE_PIECE = 1 << 14  # bytes of records up to which one copy is cheaper than a write of their own


def common_version(reply: bytes) -> int:
    """The newest version that the server and this file have in common, from the reply to ASK_VERSION; 0 for none."""
    versions = parse(reply)  # an error where it has no such command, or this user may not call it
    if not isinstance(versions, list) or len(versions) != 2:
        return 0
    oldest, newest = versions
    if not (isinstance(oldest, int) and isinstance(newest, int)) or oldest > VERSION:
        return 0
    return max(0, min(newest, VERSION))


def is_forbidden(reply: bytes) -> bool:
    """Whether the reply to ASK_PERMISSION says that this user may not append in transactions by the module."""
    return reply.startswith(b"-NOPERM")


def append(
    keys: AppendKeys,
    numbering: OffsetNumbering,
    expected: EntryId | None,
    floor: int,
    must_exist: bool,
    count: int,
    operands: Operands,
    producer: Producer | None,
    tracked: bool,
) -> Command:
    """KETCH.APPEND, or KETCH.TXNAPPEND where the batch belongs to a transaction.

    Args:
        count, operands: of the batch, see `Payload.operands`.
        expected: last-generated-id that offset `floor` was chosen to follow; None where the ids are chosen there.
        floor: the first offset, or the least that it may be.
        tracked: the keys are read in the same transaction: a write ends their tracking (CLIENT TRACKING), a read begins
            it again. The reply is then that of EXEC.
    """
    name: tuple[Word, ...] = ("KETCH.APPEND", *keys)
    started: tuple[Word, ...] = ()
    state, watched = _NO_PRODUCER, None
    if producer is not None:
        state = (producer.id, producer.expected, producer.head, producer.now, producer.batch)
        if producer.transactions is not None:
            name = ("KETCH.TXNAPPEND", *keys, producer.transactions)
            started = ("" if producer.started is None else producer.started,)
            watched = producer.transactions if producer.started is not None else None
    shape, data = operands
    words = (
        *started, b"" if expected is None else numbering.format_id(*expected),
        numbering.format_id(*numbering.to_id(floor)), _last_id(numbering.bits, numbering.dense),
        numbering.bits, count, int(must_exist), *state, *shape,
    )  # fmt: skip
    size = len(name) + len(words) + 1
    head = b"*%d\r\n%b%b$%d\r\n" % (size, _common_bulks(*name), _bulks(*words), len(data))
    tail = b"\r\n"
    if tracked:
        head, tail = _MULTI + head, _reads(keys.stream, watched)
    pieces: tuple[BytesLike, ...] = (head, data, tail)
    commands = 1 if not tracked else 4 if watched is None else 5
    return Command(keys.stream, pieces if len(data) > _ONE_PIECE else b"".join(pieces), commands)


class Parts(NamedTuple):
    """What `append` packs alike for every batch of one shape that goes to a partition, tracked.

    Attributes:
        head: up to the last-generated-id that is expected. Behind it come that one and the first offset's id.
        limit: the last id, and the bits. Behind it come the count, whether the stream must exist, and the producer.
        shape: the words that `Payload.operands` begins with. Behind them come its other words, and the bytes.
        tail: what follows the bytes.
    """

    head: bytes
    limit: bytes
    shape: bytes
    tail: bytes


def parts(
    keys: AppendKeys,
    numbering: OffsetNumbering,
    shape: tuple[Word, ...],
    varying: int,
    transactions: bytes | None = None,
) -> Parts:
    """The parts of the command for batches whose `Payload.operands` begin with `shape`.

    Args:
        varying: how many other words these have.
        transactions: as in `Producer`, of batches that open none.
    """
    name: tuple[Word, ...] = ("KETCH.APPEND", *keys)
    if transactions is not None:
        name = ("KETCH.TXNAPPEND", *keys, transactions, "")
    size = len(name) + _PLACED + len(_NO_PRODUCER) + len(shape) + varying + 1
    head = _MULTI + b"*%d\r\n%b" % (size, _common_bulks(*name))
    limit = _bulks(_last_id(numbering.bits, numbering.dense), numbering.bits)
    return Parts(head, limit, _bulks(*shape), _reads(keys.stream, None))


def _bulks(*words: Word) -> bytes:
    """Words as bulk strings: what follows the array's header in a command."""
    packed = pack(*words)
    return packed[packed.index(b"\n") + 1 :]


_common_bulks = lru_cache(_STREAMS)(_bulks)


@lru_cache(_STREAMS)
def _reads(stream: bytes, transactions: bytes | None) -> bytes:
    """What follows an append that is tracked."""
    watched = b"" if transactions is None else pack("HLEN", transactions)
    return b"\r\n" + pack("XLEN", stream) + watched + _EXEC


@lru_cache(2 * MAX_BITS)
def _last_id(bits: int, dense: bool) -> bytes:
    return OffsetNumbering.format_id(*OffsetNumbering(bits, dense).to_id(LAST_OFFSET))


def read(reply: bytes, tracked: bool) -> bytes | int:
    """The id of the batch's first offset; 1 where it is that of `floor`, and the stream ended at `expected`.

    0 and -1 are refusals, see append.c.

    Raises:
        InvalidRecord: the records are not what the batch says.
        StorageUnavailable, RedisError: as `resp.checked`.
    """
    if tracked and reply[4:8] == _AS_EXPECTED:
        return 1
    answer = parse(reply)
    if tracked:
        answer = checked(answer)
        if not isinstance(answer, list):
            raise RedisError(f"EXEC answered {reply[:80]!r}")
        answer = answer[0]
    if isinstance(answer, hiredis.ReplyError) and str(answer).startswith(_INVALID):
        raise InvalidRecord(str(answer).removeprefix(_INVALID))
    answer = checked(answer)
    assert isinstance(answer, bytes | int)
    return answer
