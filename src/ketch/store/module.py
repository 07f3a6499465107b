"""The commands of the append module, which a server may have loaded (`embedded/csrc/append.c` has their arguments).

`store.appends` asks for the version once a connection, and tells the ways to append apart.
"""

from __future__ import annotations

import hiredis

from ketch.errors import InvalidRecord, RedisError
from ketch.store.layout import Operands
from ketch.store.offsets import LAST_OFFSET, EntryId, OffsetNumbering
from ketch.store.question import Command, Word
from ketch.store.resp import checked, pack, parse
from ketch.store.scripts import AppendKeys, Producer
from ketch.wire.pieces import BytesLike

VERSION = 2  # of the module, as it is called here
TRANSACTIONS_SINCE = 2
_NO_PRODUCER: tuple[Word, ...] = ("",) * 5
_INVALID = "INVALID "
ASK_VERSION = pack("KETCH.VERSION")
ASK_PERMISSION = pack("KETCH.TXNAPPEND")  # without arguments: an error of one kind or another
_MULTI, _EXEC = pack("MULTI"), pack("EXEC")
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
    state, name, watched = _NO_PRODUCER, tuple[Word, ...](("KETCH.APPEND", *keys)), b""
    if producer is not None:
        state = (producer.id, producer.expected, producer.head, producer.now, producer.batch)
        if producer.transactions is not None:
            started = "" if producer.started is None else producer.started
            name = ("KETCH.TXNAPPEND", *keys, producer.transactions, started)
            watched = pack("HLEN", producer.transactions) if producer.started is not None else b""
    shape, data = operands
    head = pack(
        *name, b"" if expected is None else numbering.format_id(*expected),
        numbering.format_id(*numbering.to_id(floor)), numbering.format_id(*numbering.to_id(LAST_OFFSET)),
        numbering.bits, count, int(must_exist), *state, *shape, "",
    )[:-6] + b"$%d\r\n" % len(data)  # fmt: skip
    tail = b"\r\n"
    if tracked:
        head, tail = _MULTI + head, tail + pack("XLEN", keys.stream) + watched + _EXEC
    pieces: tuple[BytesLike, ...] = (head, data, tail)
    commands = 4 + bool(watched) if tracked else 1
    return Command(keys.stream, pieces if len(data) > _ONE_PIECE else b"".join(pieces), commands)


def read(reply: bytes, tracked: bool) -> bytes | int:
    """The id of the batch's first offset; 1 where it is that of `floor`, and the stream ended at `expected`.

    0 and -1 are refusals, see append.c.

    Raises:
        InvalidRecord: the records are not what the batch says.
        StorageUnavailable, RedisError: as `resp.checked`.
    """
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
