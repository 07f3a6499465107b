"""Questions about the positions of one partition's byte log, as clients of Kafka 0.7 count them.

`{ks}:legacy07:{<streamKey>}` is a stream. Each of its ids is a *place*, `position-(offset + 1)`: the records from
`offset` on begin at the byte `position` (plus one, because Redis has no id 0-0). It has an entry for about every
`STEP` bytes. Its last-generated-id is the end: the place up to which positions were ever given out. The end moves with
every fetch that reads something new, so it is no entry of its own.

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


class Around(NamedTuple):
    """The places that lie around a position.

    Attributes:
        below: the last one at or below it; None where that was dropped with the records there.
        above: the first one above it; the end where none is kept.
    """

    below: Place | None
    above: Place
    end: Place


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
    positions: bytes, known: Place | None, to: Place, kept: Sequence[tuple[Place, int]]
) -> Question[Place | None]:
    """Moves the end from `known` to `to`; the end as it then is: another one where another broker was first.

    Args:
        known: None where there is none yet: `to` is the first place then, and is kept.
        kept: the places to keep, each with the time of the record before it, ms.
    """
    ids = [(place.id, time) for place, time in kept]
    reply = yield from ask(scripts.extend_positions(positions, known.id if known else b"", to.id, ids))
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
    before, after = (_places(checked(parse(reply))) for reply in replies[1:])
    assert last is not None
    return Around(before[0] if before else None, after[0] if after and after[0] < last else last, last)


def _end(reply: Any) -> Place | None:
    info = parse_info(reply)
    return None if info.last == (0, 0) else Place(info.last[0], info.last[1] - 1)


def _places(entries: list[Any]) -> list[Place]:
    return [Place.of(entry_id) for entry_id, _ in entries]
