"""Questions about the positions of one partition's byte log, as clients of Kafka 0.7 count them.

`{ks}:legacy07:{<streamKey>}` is a stream. Each of its ids is a *place*, `position-(offset + 1)`: the records from
`offset` on begin at the byte `position` (plus one, because Redis has no id 0-0). It has an entry for about every
`STEP` bytes. Its last-generated-id is the end: the place up to which positions were ever given out. The end moves with
every fetch that reads something new, so it is no entry of its own.

How many bytes a plain message takes depends on its magic, and so do the positions behind it. Most messages have the
magic that was usual when they were counted (`legacy_magic`), so a place says in its field `magic` what that was:

- for the records between the place before it and itself, and, where it is the last one, for those behind it;
- where it has the field `since`, a place too, for the records from there on: what was usual changed there. The records
  before that have the magic of the place before it. A place is kept with every change, so there is one change at most
  between two places.
- A place without `magic` says 0: an earlier version of Ketch kept it, which served all plain messages with that.

What makes a position the same for ever: nothing beyond the end was given to anyone, and only a broker that knows the
newest end can move it (extend_positions.lua). Between two places the messages are laid out backwards from the later
one, and entries leave a stream at its front only, so a message keeps its position when those before it are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ketch.redis.question import Command, Question, ask, call, keyed
from ketch.redis.resp import checked, parse
from ketch.store import scripts
from ketch.store.offsets import OffsetNumbering
from ketch.store.xinfo import info_command, parse_info

STEP = 1 << 20  # bytes between two places that are kept, about

_SEQ_MAX = 2**64 - 1
_MOST = 10_000  # places in one answer


class Place(NamedTuple):
    """A place in a byte log: the records from `offset` on begin at byte `position`."""

    position: int
    offset: int

    @property
    def id(self) -> bytes:
        return b"%d-%d" % (self.position, self.offset + 1)

    @classmethod
    def of(cls, entry_id: bytes) -> Place:
        position, number = OffsetNumbering.parse_id(entry_id)
        return cls(position, number - 1)


class Part(NamedTuple):
    """Records in a row whose plain messages have the same usual magic.

    Attributes:
        end: the offset after the last one.
    """

    end: int
    magic: int


class Around(NamedTuple):
    """The places that lie around a position.

    Attributes:
        below: the last one at or below it; None where that was dropped with the records there.
        above: the first one above it; the end where none is kept.
        parts: the records between the two, in their order.
    """

    below: Place | None
    above: Place
    parts: Sequence[Part]


class _Kept(NamedTuple):
    """An entry of the index: a place, and the magic that it says, from `since` on where that is no place before it."""

    place: Place
    magic: int
    since: Place | None

    @classmethod
    def of(cls, entry: list[Any]) -> _Kept:
        entry_id, words = entry
        fields = dict(zip(words[::2], words[1::2], strict=True))
        since = fields.get(b"since")
        return cls(Place.of(entry_id), int(fields.get(b"magic", 0)), None if since is None else Place.of(since))


def end(positions: bytes) -> Question[Place | None]:
    """The end; None where no position was ever given out."""
    (reply,) = yield (Command(positions, info_command(positions)),)
    return _end(parse(reply))


def around(positions: bytes, position: int) -> Question[Around]:
    """The places around a position below the end. There is an index."""
    return (yield from _around(positions, b"%d-%d" % (position, _SEQ_MAX)))


def around_offset(positions: bytes, offset: int) -> Question[Around]:
    """The places around a record that lies below the end, by bisection: places are in the order of offsets, too."""
    newest = yield from end(positions)
    first, last = 0, newest.position if newest else 0
    while True:
        found = yield from around(positions, (first + last) // 2)
        if found.above.offset <= offset:
            first = found.above.position
        elif found.below is not None and found.below.offset > offset:
            last = found.below.position - 1
        else:
            return found


def below(positions: bytes, position: int, most: int) -> Question[list[int]]:
    """The positions that are kept below one, at most so many, the newest first."""
    if position == 0:
        return []
    reply = yield from call(positions, "XREVRANGE", positions, b"(%d-0" % position, "-", "COUNT", min(most, _MOST))
    return [place.position for place in _places(reply)]


def extend(
    positions: bytes, known: Place | None, to: Place, kept: Sequence[tuple[Place, int]], magic: int, time: int
) -> Question[Place | None]:
    """Moves the end from `known` to `to`; the end as it then is: another one where another broker was first.

    Args:
        known: None where there is none yet: `to` is the first place then, and is kept.
        kept: the places to keep, each with the time of the record before it, ms.
        magic: the usual one of the records from `known` to `to`.
        time: of the last record before `to`, ms.
    """
    ids = [(place.id, time) for place, time in kept]
    reply = yield from ask(scripts.extend_positions(positions, known.id if known else b"", to.id, magic, time, ids))
    return Place.of(reply) if reply else None


def drop(positions: bytes, below: Place) -> Question[None]:
    """Drops the places below one that is kept: their records are gone."""
    yield from ask(keyed("XTRIM", positions, "MINID", "~", below.id))


def _around(positions: bytes, bound: bytes) -> Question[Around]:
    info = Command(positions, info_command(positions))
    below = keyed("XREVRANGE", positions, bound, "-", "COUNT", 1)
    above = keyed("XRANGE", positions, b"(" + bound, "+", "COUNT", 1)
    # The end first: what is kept up to there is seen by the two after it.
    replies = yield (info, below, above)
    last = _end(parse(replies[0]))
    before, after = (next(map(_Kept.of, checked(parse(reply))), None) for reply in replies[1:])
    assert last is not None
    to = after.place if after is not None and after.place < last else last
    return Around(before.place if before else None, to, _parts(before, after, to))


def _parts(before: _Kept | None, after: _Kept | None, to: Place) -> list[Part]:
    """The parts between two entries of the index, up to a place."""
    usual = before.magic if before is not None else 0
    if after is None:
        return [Part(to.offset, usual)]
    if after.since is None:
        return [Part(to.offset, after.magic)]
    return [Part(min(after.since.offset, to.offset), usual), Part(to.offset, after.magic)]


def _end(reply: Any) -> Place | None:
    info = parse_info(reply)
    return None if info.last == (0, 0) else Place(info.last[0], info.last[1] - 1)


def _places(entries: list[Any]) -> list[Place]:
    return [Place.of(entry_id) for entry_id, _ in entries]
