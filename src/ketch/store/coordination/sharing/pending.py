"""Share groups in the record layout: the share group is the native group of its name on the partition's stream.

===================  ===============================================================================================
what Kafka has       what lies in Redis
===================  ===============================================================================================
acquired             pending, for a consumer that is named as the member
delivery count       the number of deliveries in XPENDING
acquisition lock     the idle time in XPENDING, which is less than the lock's duration
accepted, rejected,  acknowledged: XACK
archived
available again      pending, for the consumer `AVAILABLE`, idle since 1970
available            behind the group's last-delivered-id
===================  ===============================================================================================

So a native consumer that claims what is idle for as long as a lock lasts at least (XAUTOCLAIM) never gets what a member
holds, and no member gets what a native consumer holds for less than that. Each step is one script, or one transaction
of Redis: whichever broker takes it, no record is handed out twice.

This module knows Redis's commands and replies. Who may have how much is decided in `log.sharing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from ketch.errors import RedisError
from ketch.redis.question import Command, Question, Word, ask, call
from ketch.redis.resp import checked, pack, parse
from ketch.store import scripts
from ketch.store.coordination import native
from ketch.store.offsets import ZERO, EntryId, OffsetNumbering

AVAILABLE = "ketch.available"
"""The consumer of a share group for which is pending what anybody may claim."""

_MULTI, _EXEC = pack("MULTI"), pack("EXEC")
_HEAD_MAX = 128  # bytes of a reply with `Standing` in them


class Standing(NamedTuple):
    """Where a share group stands on a stream.

    Attributes:
        position: the last entry that was delivered once.
        pending: deliveries that are not settled.
        available: whether some of them may be delivered again.
        entries_read: entries ever added up to the position; None where Redis cannot tell, as before 7.
    """

    position: EntryId
    pending: int
    available: bool
    entries_read: int | None = None


class Refusal(IntEnum):
    """Why acknowledgements are not taken."""

    NOT_HELD = -1  # the member does not hold one of the entries, or not any more
    BEYOND_LAST = -2  # the last entry of a range was not delivered yet
    NOT_OWNED = -3  # another member holds one of them
    NOTHING = -4  # one was not delivered yet, and nothing is in flight
    BEYOND_FIRST = -5  # a whole range was not delivered yet


class Held(NamedTuple):
    """What a member says of a range of entries.

    Attributes:
        what: "done", "release", "gap" (there is no record), or "undo" (it was never given them).
        offsets: how many offsets lie in the range.
    """

    what: str
    first: EntryId
    last: EntryId
    offsets: int


def create(stream: bytes, group: str, position: EntryId | None) -> Question[None]:
    """Makes the group where it is not there, and the stream as well, without which there can be none.

    Args:
        position: the last entry that it is not delivered; None: the last one there is.
    """
    at = "$" if position is None else OffsetNumbering.format_id(*position)
    try:
        yield from ask(Command(stream, pack("XGROUP", "CREATE", stream, group, at, "MKSTREAM")))
    except RedisError as error:
        if "BUSYGROUP" not in str(error):
            raise


def look(stream: bytes, group: str) -> Question[Standing | None]:
    """Where the group stands; None where it is not there."""
    return _standing((yield from ask(scripts.share_look(stream, group, AVAILABLE))))


def first(stream: bytes, group: str) -> Question[EntryId | None]:
    """The first entry that is not settled, or the place behind the last one; None where the group is not there.

    0-0 stands for the begin of the log. No script: a user who may only read asks this, too.
    """
    known = (yield from native.groups(stream)).get(group)
    if known is None:
        return None
    if known.pending:
        _, least, _, _ = yield from call(stream, "XPENDING", stream, group)
        if least is not None:
            return OffsetNumbering.parse_id(least)
    ms, seq = known.last_delivered
    return (ms, seq + 1) if known.last_delivered != ZERO else ZERO


def recreate(stream: bytes, group: str, position: EntryId) -> Question[None]:
    """Has the group stand behind an entry, with nothing pending; its consumers are forgotten."""
    yield from native.destroy([stream], group)
    yield from create(stream, group, position)


def _standing(text: bytes) -> Standing | None:
    if not text:
        return None
    position, pending, available, read = text.split()
    return Standing(
        OffsetNumbering.parse_id(position), int(pending), available == b"1", None if read == b"-" else int(read)
    )


def read_command(stream: bytes, group: str, member: str, count: int) -> Command:
    """Delivers at most `count` entries that were never delivered; `read_reply` reads the reply."""
    looked = scripts.share_look(stream, group, AVAILABLE).pieces[0]
    read = pack("XREADGROUP", "GROUP", group, member, "COUNT", count, "STREAMS", stream, ">")
    return Command(stream, b"".join((_MULTI, looked, read, _EXEC)), 4)


def read_reply(reply: bytes, stream: bytes) -> tuple[Standing | None, memoryview | None]:
    """Where the group stood before the read, and the entries as XRANGE would give them; None where there are none.

    Raises:
        RedisError: an error reply, or one of another shape.
    """
    head = reply[:_HEAD_MAX].split(b"\r\n", 3)
    if len(head) < 4 or head[0] != b"*2" or not head[1].startswith(b"$"):
        checked(parse(reply))
        raise RedisError(reply[:200].decode(errors="replace"))
    standing = _standing(head[2])
    if standing is None:
        return None, None
    try:
        return standing, native.entries_in(reply, len(reply[:_HEAD_MAX]) - len(head[3]), stream)
    except ValueError as error:
        raise RedisError(str(error)) from None


def take_command(stream: bytes, group: str, member: str, most: int, limit: int) -> Command:
    """Delivers again at most `most` entries that were given up; `take_reply` reads the reply.

    Args:
        limit: how often an entry is delivered at most.
    """
    return scripts.share_take(stream, group, member, AVAILABLE, most, limit)


def take_reply(reply: bytes) -> tuple[dict[EntryId, int], memoryview]:
    """How often each entry has been delivered by now, and the entries as XRANGE would give them.

    Raises:
        RedisError: an error reply.
    """
    if not reply.startswith(b"*2\r\n$"):
        checked(parse(reply))
        raise RedisError(reply[:200].decode(errors="replace"))
    at = reply.index(b"\r\n", 5) + 2
    end = at + int(reply[5 : at - 2])
    words = reply[at:end].split()
    ids = map(OffsetNumbering.parse_id, words[::2])
    return dict(zip(ids, map(int, words[1::2]), strict=True)), memoryview(reply)[end + 2 :]


def claim(
    stream: bytes, group: str, member: str, since: EntryId, to: EntryId, passed: int | None, ids: Iterable[EntryId]
) -> Question[bool]:
    """Delivers chosen entries that were never delivered; False where the group stands elsewhere by now.

    Args:
        since, to: the group's position before and after it.
        passed: entries between them, where that is known.
    """
    edges = [OffsetNumbering.format_id(*each) for each in (since, to)]
    words = [OffsetNumbering.format_id(*each) for each in ids]
    counted: Word = "" if passed is None else passed
    claimed: int = yield from ask(scripts.share_claim(stream, group, member, *edges, counted, *words))
    return claimed == 1


def settle(
    stream: bytes, group: str, member: str, lock_ms: int, limit: int, width: int, ranges: Sequence[Held]
) -> Question[int | Refusal]:
    """Takes acknowledgements, all of them or none: how many entries were given up, or why they are refused.

    Args:
        limit: how often an entry is delivered at most.
        width: offsets of a millisecond.
    """
    words: list[Word] = []
    for each in ranges:
        ends = (OffsetNumbering.format_id(*each.first), OffsetNumbering.format_id(*each.last))
        words += [each.what, *ends, each.offsets]
    freed: int = yield from ask(scripts.share_settle(stream, group, member, AVAILABLE, lock_ms, limit, width, *words))
    return Refusal(freed) if freed < 0 else freed


def expire(stream: bytes, group: str, lock_ms: int, limit: int) -> Question[tuple[int, int]]:
    """Gives up what was held for too long: how many entries, and how many are pending, these included.

    Raises:
        RedisError: there is no such group.
    """
    freed, pending = yield from ask(scripts.share_expire(stream, group, AVAILABLE, lock_ms, limit))
    return freed, pending


def leave(stream: bytes, group: str, member: str) -> Question[int]:
    """Gives up what a member holds, as if it had not been delivered: how many entries."""
    freed: int = yield from ask(scripts.share_leave(stream, group, member, AVAILABLE))
    return freed
