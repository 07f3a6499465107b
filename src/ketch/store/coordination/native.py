"""Questions about native consumer groups on a partition's stream, and the one hot command: XREADGROUP.

It knows Redis's commands and replies. Which position a group should have is `log.native_position`'s to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ketch.errors import RedisError
from ketch.redis.question import Command, Question, ask, call, command
from ketch.redis.resp import checked, pack, parse
from ketch.store import scripts
from ketch.store.offsets import ZERO, EntryId, OffsetNumbering

_MULTI, _EXEC = pack("MULTI"), pack("EXEC")
_THERE, _NO_STREAM = "BUSYGROUP", "requires the key to exist"  # what XGROUP CREATE answers
_HEAD_MAX = 96  # bytes of a reply with an id in them


@dataclass(frozen=True, slots=True)
class NativeGroup:
    """One row of XINFO GROUPS."""

    name: str
    consumers: int
    pending: int
    last_delivered: EntryId
    entries_read: int | None  # entries ever added up to last_delivered; None where Redis cannot tell, as before 7
    lag: int | None  # entries after last_delivered; None likewise


# -- a group, and what is pending


def groups(stream: bytes) -> Question[dict[str, NativeGroup]]:
    """The native groups of a stream by name; none where there is no such stream."""
    return {group.name: group for group in map(_read, (yield from _rows("GROUPS", stream)))}


def named(streams: Sequence[bytes], group: str) -> Question[list[NativeGroup | None]]:
    """The native group of this name on each of these streams, None where there is none; in one round trip."""
    if not streams:
        return []
    replies = yield [command(stream, "XINFO", "GROUPS", stream) for stream in streams]
    return [next((each for each in map(_read, _read_rows(reply)) if each.name == group), None) for reply in replies]


def pending(stream: bytes) -> Question[list[tuple[bytes, bytes]]]:
    """Groups and consumers of a stream that have deliveries pending."""
    found = []
    for group in (yield from _rows("GROUPS", stream)):
        if group[b"pending"]:
            rows = yield from _rows("CONSUMERS", stream, group[b"name"])
            found += [(group[b"name"], row[b"name"]) for row in rows if row[b"pending"]]
    return found


def _rows(kind: str, stream: bytes, *group: bytes) -> Question[list[dict[bytes, Any]]]:
    """What XINFO tells of groups or consumers; nothing where the stream or the group is gone."""
    (reply,) = yield (command(stream, "XINFO", kind, stream, *group),)
    return _read_rows(reply)


def _read_rows(reply: bytes) -> list[dict[bytes, Any]]:
    found = parse(reply)
    if isinstance(found, Exception) and ("no such key" in str(found) or "NOGROUP" in str(found)):
        return []
    return [row if isinstance(row, dict) else dict(zip(row[::2], row[1::2], strict=True)) for row in checked(found)]


def _read(fields: dict[bytes, Any]) -> NativeGroup:
    return NativeGroup(
        fields[b"name"].decode(errors="replace"),
        fields[b"consumers"],
        fields[b"pending"],
        OffsetNumbering.parse_id(fields[b"last-delivered-id"]),
        fields.get(b"entries-read"),
        fields.get(b"lag"),
    )


def create(stream: bytes, group: str, last: EntryId, entries_read: int | None) -> Question[bool]:
    """Makes a group that was delivered the entries up to `last`; False where it is there already.

    Args:
        entries_read: how many entries were ever added up to `last`, by which Redis 7 knows the lag; None: unknown.
    """
    try:
        yield from ask(_position("CREATE", stream, group, last, entries_read))
    except RedisError as error:
        if _THERE not in str(error):
            raise
        return False
    return True


def create_each(streams: Sequence[bytes], group: str) -> Question[list[bool | None]]:
    """Makes a group that was delivered nothing on each of these streams, in one round trip.

    Returns: as `create` for each; None where there is no such stream, which is not made.
    """
    replies = yield [_position("CREATE", stream, group, ZERO, None) for stream in streams]
    return [_created(parse(reply)) for reply in replies]


def _created(reply: Any) -> bool | None:
    if isinstance(reply, Exception) and _THERE in str(reply):
        return False
    if isinstance(reply, Exception) and _NO_STREAM in str(reply):
        return None
    checked(reply)
    return True


def move(stream: bytes, group: str, last: EntryId, entries_read: int | None) -> Question[None]:
    """Sets a group's position, see `create`."""
    yield from ask(move_command(stream, group, last, entries_read))


def move_command(stream: bytes, group: str, last: EntryId, entries_read: int | None) -> Command:
    """As `move`; the reply is +OK."""
    return _position("SETID", stream, group, last, entries_read)


def _position(verb: str, stream: bytes, group: str, last: EntryId, entries_read: int | None) -> Command:
    counted = () if entries_read is None else ("ENTRIESREAD", entries_read)
    return command(stream, "XGROUP", verb, stream, group, OffsetNumbering.format_id(*last), *counted)


def acknowledge(stream: bytes, group: str, first: bytes, last: bytes) -> Question[int]:
    """Acknowledges what is pending from entry `first` to entry `last`; how many deliveries stay pending."""
    left: int = yield from ask(scripts.acknowledge(stream, group, first, last))
    return left


def remove_consumer(stream: bytes, group: str, consumer: str) -> Question[None]:
    """Removes a consumer with what is pending for it; raises RedisError where there is no such group or stream."""
    yield from call(stream, "XGROUP", "DELCONSUMER", stream, group, consumer)


def destroy(streams: Sequence[bytes], group: str) -> Question[None]:
    """Removes the group from those of the streams that exist."""
    if not streams:
        return
    replies = yield [command(stream, "XGROUP", "DESTROY", stream, group) for stream in streams]
    for reply in map(parse, replies):
        if not (isinstance(reply, Exception) and "key to exist" in str(reply)):
            checked(reply)


# -- reading through a group


def read_command(stream: bytes, group: str, consumer: str, count: int) -> Command:
    """XREADGROUP of at most `count` entries that were never delivered; they become pending.

    The reply, see `read_reply`, also says after which entry was read. The group's position tells that. The stream's
    next entry would tell it too, but then a batch of a megabyte would come twice.
    """
    position = scripts.position(stream, group).pieces[0]
    read = pack("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", stream, ">")
    return Command(stream, b"".join((_MULTI, position, read, _EXEC)), 4)


def read_reply(reply: bytes, stream: bytes) -> tuple[EntryId, memoryview | None]:
    """The reply to `read_command`: the id after which was read, and the array of entries that XRANGE would give.

    There is no array where there are no entries.

    Raises:
        ValueError: an error reply, or one of another shape.
    """
    head = reply[:_HEAD_MAX].split(b"\r\n", 3)
    if len(head) < 4 or head[0] != b"*2" or not head[1].startswith(b"$") or b"-" not in head[2]:
        raise ValueError(reply[:200].decode(errors="replace"))
    last = OffsetNumbering.parse_id(head[2])
    return last, entries_in(reply, len(reply[:_HEAD_MAX]) - len(head[3]), stream)


def entries_in(reply: bytes, at: int, stream: bytes) -> memoryview | None:
    """The array of entries in the reply of XREADGROUP that stands in a larger one; raises as `read_reply`.

    Args:
        at: where it begins.
    """
    if reply[at : at + 3] in (b"*-1", b"$-1") or reply[at : at + 1] == b"_":
        return None
    prefix = b"*1\r\n*2\r\n$%d\r\n%s\r\n" % (len(stream), stream)
    if not reply.startswith(prefix, at):
        raise ValueError(reply[at : at + 200].decode(errors="replace"))
    return memoryview(reply)[at + len(prefix) :]


def entry_count(entries: bytes | memoryview) -> int:
    """How many entries the array holds."""
    head = bytes(entries[:24])
    return int(head[1 : head.index(b"\r")])
