"""The append: how a batch goes into a partition's stream, on consecutive offsets, whole or not at all.

The ways are told apart here and nowhere else. Each is a command and the way to read its reply:

- `chosen_here`, for a stream that nobody else writes to. The caller chooses the ids, after the last-generated-id that
  it knows, so batches may be pipelined without waiting. Redis refuses them where the stream has moved. A batch of
  several entries is a transaction: MULTI, guard.lua, the XADDs as the kernel made them, release.lua, EXEC. A batch of
  one entry is one script, single.lua.
- `chosen_by_redis`, for a stream that others write to as well: append.lua, in which nothing can come between.

Which way to take, and what to do after a refusal, is the caller's choice (`log.appender`, `spark.appender`). An append
module for Redis will be another command with the same outcome.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ketch.errors import RedisError
from ketch.store import scripts
from ketch.store.layout import Payload
from ketch.store.offsets import LAST_OFFSET, EntryId, OffsetNumbering
from ketch.store.producers import StoredProducer
from ketch.store.question import Command, Question, call, keyed
from ketch.store.resp import checked, pack, parse
from ketch.store.scripts import AppendKeys, Producer
from ketch.store.streams import info_command, parse_info

_MULTI, _EXEC = pack("MULTI"), pack("EXEC")


class Refusal(enum.Enum):
    """Why nothing of a batch was stored."""

    MOVED = 0  # the stream, or the producer's state, is not what the caller thought
    WIDE = -1  # an entry has more fields than Lua can pass on; `chosen_here` takes it


class Append(NamedTuple):
    """One append, ready to be sent.

    Attributes:
        read: takes the command's last reply; the base offset, or why nothing was stored. It raises StorageUnavailable
            or RedisError where Redis refused; nothing was stored then either.
    """

    command: Command
    read: Callable[[bytes], int | Refusal]


def chosen_here(
    keys: AppendKeys,
    numbering: OffsetNumbering,
    expected: EntryId | None,
    base: int,
    batch: Payload,
    producer: Producer | None,
) -> Append:
    """The append of a batch at offset `base`.

    Args:
        expected: last-generated-id that the ids were chosen to follow; None for any below `base`, which leaves a gap.

    Raises:
        InvalidRecord: the batch is malformed, see `Payload.appends`.
        RedisError: the batch would end at or beyond the last offset that Kafka can name.
    """
    last = base + batch.count - 1
    if last > LAST_OFFSET:  # no response could hold it: another client has written an entry id that large
        raise RedisError(f"{scripts.BEYOND} ({keys.stream.decode()})")
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
    return Append(Command(keys.stream, pieces, batch.entries + 4), partial(_read_transaction, base))


def chosen_by_redis(
    keys: AppendKeys,
    numbering: OffsetNumbering,
    floor: int,
    batch: Payload,
    producer: Producer | None,
    must_exist: bool = False,
) -> Append:
    """The append of a batch at or above offset `floor`; raises InvalidRecord as `chosen_here`.

    Args:
        must_exist: nothing is stored where there is no stream.
    """
    arguments, count = batch.arguments()
    per_entry = batch.count // batch.entries
    command = scripts.append(keys, numbering, floor, per_entry, must_exist, producer, arguments, count)
    return Append(command, partial(_read_append, numbering))


def store(append: Append) -> Question[int | Refusal]:
    """The base offset, or why nothing was stored; raises as `Append.read`."""
    (reply,) = yield (append.command,)
    return append.read(reply)


def last_id(keys: AppendKeys) -> Question[EntryId]:
    """The stream's last-generated-id: ids may be chosen to follow it."""
    (reply,) = yield (Command(keys.stream, info_command(keys.stream)),)
    return parse_info(parse(reply)).last


def where(keys: AppendKeys, producer: int | str) -> Question[tuple[EntryId, StoredProducer]]:
    """For a writer that begins, or has lost its connection: `last_id` and its own state, its fence being cleared."""
    commands = (
        keyed("DEL", keys.fence),
        Command(keys.stream, info_command(keys.stream)),
        keyed("HGET", keys.producers, producer),
    )
    _, info, state = yield commands
    return parse_info(parse(info)).last, StoredProducer.parse(checked(parse(state)))


def clear_fence(keys: AppendKeys) -> Question[None]:
    """Lets this writer's batches through again: none of those that were refused is in flight any more."""
    yield from call(keys.fence, "DEL", keys.fence)


def _fields(batch: Payload) -> tuple[memoryview, int]:
    """The fields and values of a batch that is one entry, packed as arguments, and how many these are."""
    arguments, count = batch.arguments()  # the first one is their number
    begin = arguments.index(b"\r\n", arguments.index(b"\r\n") + 2) + 2
    return memoryview(arguments)[begin:], count - 1


def _read_single(base: int, reply: bytes) -> int | Refusal:
    return base if checked(parse(reply)) else Refusal.MOVED


def _read_transaction(base: int, reply: bytes) -> int | Refusal:
    # One integer after the array's header says it all; the ids after it are not looked at.
    if reply.startswith(b"*"):
        verdict = reply[reply.index(b"\n") + 1 :][:2]
        if verdict in (b":1", b":0"):
            return base if verdict == b":1" else Refusal.MOVED
        checked(parse(reply)[0])
    checked(parse(reply))
    raise RedisError(f"EXEC answered {reply[:80]!r}")


def _read_append(numbering: OffsetNumbering, reply: bytes) -> int | Refusal:
    answer = checked(parse(reply))
    return Refusal(answer) if isinstance(answer, int) else numbering.to_offset(*numbering.parse_id(answer))
