"""The append: how a batch goes into a partition's stream, on consecutive offsets, whole or not at all.

The ways are told apart here and nowhere else. Each is a command and the way to read its reply. Two are for any server:

- `chosen_here`, for a stream that nobody else writes to. The caller chooses the ids, after the last-generated-id that
  it knows, so batches may be pipelined without waiting. Redis refuses them where the stream has moved. A batch of
  several entries is a transaction: MULTI, guard.lua, the XADDs as the kernel made them, release.lua, EXEC. A batch of
  one entry is one script, single.lua.
- `chosen_by_redis`, for a stream that others write to as well: append.lua, in which nothing can come between.

The third is for a server that has the append module (`module_version`): one command of it does what either of these
does (`store.append.module`). With ids chosen here it also goes on where these do not fit: it takes others, so that
another writer costs no second try. Nothing is too wide for Lua then.

Why not WATCH: a connection has one set of watched keys, which EXEC clears. Partitions would wait for each other, and
each batch would cost a round trip. Why not Lua alone: it takes half the speed of pipelined XADDs (0.52 for batches of
1,000 records of 100 bytes), and cannot pass on entries with more than 7,000 fields and values.

What to do after a refusal is the caller's choice (`log.appending.appender`, `spark.appender`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ketch.errors import RedisError, RightMissing
from ketch.redis.question import Command, Question, call, keyed
from ketch.redis.resp import checked, pack, parse
from ketch.store import scripts
from ketch.store.append import module
from ketch.store.append.producers import StoredProducer
from ketch.store.layouts.layout import Operands, Payload
from ketch.store.offsets import LAST_OFFSET, ZERO, EntryId, OffsetNumbering
from ketch.store.scripts import AppendKeys, Producer
from ketch.store.xinfo import info_command, parse_info

MAX_SCRIPT_ENTRIES = 50_000  # Redis 6.2 closes a connection that sends more than a million arguments

_MULTI, _EXEC = pack("MULTI"), pack("EXEC")
_WITHOUT_MULTI = b"-ERR EXEC without MULTI"


class Refusal(enum.Enum):
    """Why nothing of a batch was stored."""

    MOVED = 0  # the stream, or the producer's state, is not what the caller thought
    WIDE = -1  # more fields than this way takes; a transaction of `chosen_here` does


class Landed(NamedTuple):
    """A batch is stored.

    Attributes:
        base: its first offset.
        follows: whether the stream ended at the last-generated-id that the caller expected.
    """

    base: int
    follows: bool


class Append(NamedTuple):
    """One append, ready to be sent.

    Attributes:
        read: takes the command's last reply; where the batch is, or why nothing was stored. It raises
            StorageUnavailable or RedisError where Redis refused, InvalidRecord where the module found the batch
            malformed; nothing was stored then either.
    """

    command: Command
    read: Callable[[bytes], Landed | Refusal]


def too_long(batch: Payload) -> bool:
    """Whether the batch has so many entries that no script takes it."""
    return batch.entries > MAX_SCRIPT_ENTRIES


def operands(batch: Payload, by_module: int) -> Operands | None:
    """What this version of the module appends the batch by; None where it cannot."""
    knows = by_module >= (module.TRANSACTIONS_SINCE if batch.producer is not None else 1)
    return batch.operands() if knows else None


def chosen_here(
    keys: AppendKeys,
    numbering: OffsetNumbering,
    expected: EntryId | None,
    base: int,
    batch: Payload,
    producer: Producer | None,
    by_module: int,
) -> Append:
    """The append of a batch at offset `base`.

    Args:
        expected: last-generated-id that the ids were chosen to follow; None for any below `base`, which leaves a gap.
        by_module: the server's version of the module, where this batch is not too wide for it, else 0. By the module it
            may land elsewhere.

    Raises:
        InvalidRecord: the batch is malformed, see `Payload.appends`.
        RedisError: the batch would end at or beyond the last offset that Kafka can name.
    """
    last = base + batch.count - 1
    if last > LAST_OFFSET:  # no response could hold it: another client has written an entry id that large
        raise RedisError(f"{scripts.BEYOND} ({keys.stream.decode()})")
    by = operands(batch, by_module) if expected is not None else None
    if by is not None:
        must_exist = expected != ZERO
        command = module.append(keys, numbering, expected, base, must_exist, batch.count, by, producer, tracked=True)
        return Append(command, module_reader(numbering, base))
    first, end = numbering.format_id(*numbering.to_id(base)), numbering.to_id(last)
    if batch.entries == 1 and expected is not None:
        fields, count = _fields(batch)
        if count <= scripts.WIDEST:
            known, entry = numbering.format_id(*expected), numbering.format_id(*end)
            command = scripts.single(keys, known, entry, first, producer, fields, count)
            return Append(command, partial(_read_single, base))
    known = numbering.format_id(*expected) if expected is not None else b""
    guard = scripts.guard(keys, known, first, end, producer)
    entries = batch.appends(keys.stream, numbering, base)
    pieces = (_MULTI, guard, entries, scripts.release(keys), _EXEC)
    command = Command(keys.stream, pieces, batch.entries + 4)
    return Append(command, partial(_read_transaction, base, expected is not None))


def chosen_by_redis(
    keys: AppendKeys,
    numbering: OffsetNumbering,
    floor: int,
    batch: Payload,
    producer: Producer | None,
    by_module: int,
    must_exist: bool = False,
) -> Append:
    """The append of a batch at or above offset `floor`; raises InvalidRecord as `chosen_here`.

    Args:
        by_module: as in `chosen_here`.
        must_exist: nothing is stored where there is no stream.
    """
    by = operands(batch, by_module)
    if by is not None:
        command = module.append(keys, numbering, None, floor, must_exist, batch.count, by, producer, tracked=False)
        return Append(command, partial(_read_module, numbering, None))
    arguments, count = batch.arguments()
    per_entry = batch.count // batch.entries
    command = scripts.append(keys, numbering, floor, per_entry, must_exist, producer, arguments, count)
    return Append(command, partial(_read_append, numbering))


def module_version() -> Question[int]:
    """In which version the server behind this connection appends by the module for this user; 0 where it does not."""
    versions, permission = yield (Command(None, module.ASK_VERSION), Command(None, module.ASK_PERMISSION))
    version = module.common_version(versions)
    return min(version, module.TRANSACTIONS_SINCE - 1) if module.is_forbidden(permission) else version


def store(append: Append) -> Question[Landed | Refusal]:
    """Where the batch is, or why nothing was stored; raises as `Append.read`."""
    (reply,) = yield (append.command,)
    return append.read(reply)


def last_id(keys: AppendKeys) -> Question[EntryId]:
    """The stream's last-generated-id: ids may be chosen to follow it."""
    (reply,) = yield (Command(keys.stream, info_command(keys.stream)),)
    return parse_info(parse(reply)).last


class Where(NamedTuple):
    """What a writer needs to know that begins, or has lost its connection: `last_id`, its state, `module_version`."""

    last: EntryId
    state: StoredProducer
    by_module: int


def where(keys: AppendKeys, producer: int | str) -> Question[Where]:
    """Clears the writer's fence, too."""
    commands = (
        keyed("DEL", keys.fence),
        Command(keys.stream, info_command(keys.stream)),
        keyed("HGET", keys.producers, producer),
        Command(keys.stream, module.ASK_VERSION),
    )
    _, info, state, versions = yield commands
    last = parse_info(parse(info)).last
    return Where(last, StoredProducer.parse(checked(parse(state))), module.common_version(versions))


def clear_fence(keys: AppendKeys) -> Question[None]:
    """Lets this writer's batches through again: none of those that were refused is in flight any more."""
    yield from call(keys.fence, "DEL", keys.fence)


def _fields(batch: Payload) -> tuple[memoryview, int]:
    """The fields and values of a batch that is one entry, packed as arguments, and how many these are."""
    arguments, count = batch.arguments()  # the first one is their number
    begin = arguments.index(b"\r\n", arguments.index(b"\r\n") + 2) + 2
    return memoryview(arguments)[begin:], count - 1


def _read_single(base: int, reply: bytes) -> Landed | Refusal:
    return Landed(base, True) if checked(parse(reply)) else Refusal.MOVED


def _read_transaction(base: int, follows: bool, reply: bytes) -> Landed | Refusal:
    # One integer after the array's header says it all; the ids after it are not looked at.
    if reply.startswith(b"*"):
        verdict = reply[reply.index(b"\n") + 1 :][:2]
        if verdict in (b":1", b":0"):
            return Landed(base, follows) if verdict == b":1" else Refusal.MOVED
        checked(parse(reply)[0])
    if reply.startswith(_WITHOUT_MULTI):
        raise RightMissing("NOPERM this user has no permissions to run the 'multi' command")
    checked(parse(reply))
    raise RedisError(f"EXEC answered {reply[:80]!r}")


def _read_append(numbering: OffsetNumbering, reply: bytes) -> Landed | Refusal:
    answer = checked(parse(reply))
    if isinstance(answer, int):
        return Refusal(answer)
    return Landed(numbering.to_offset(*numbering.parse_id(answer)), False)


def module_reader(numbering: OffsetNumbering, base: int) -> Callable[[bytes], Landed | Refusal]:
    """What reads the reply to an append by the module at `base`, see `Append.read`."""
    return partial(_read_module, numbering, base)


def _read_module(numbering: OffsetNumbering, base: int | None, reply: bytes) -> Landed | Refusal:
    """Args: base: where the ids were chosen here."""
    answer = module.read(reply, tracked=base is not None)
    if answer == 1 and base is not None:
        return Landed(base, True)
    if isinstance(answer, int):
        return Refusal(answer)
    return Landed(numbering.to_offset(*numbering.parse_id(answer)), False)
