"""The records of one partition that a share group has in flight, as ranges of offsets. No I/O, no clock.

It is what `log.sharing.batch` keeps of a partition in the batch layout, and knows four states of an offset:

- Below `next`, where no range holds it: settled. Nobody gets it again.
- In an acquired range: a member has it, until a time. It was delivered `deliveries` times, this time included.
- In an available range: it was given up, and is delivered again.
- From `next` on: it was never delivered.

An offset that was delivered as often as it may be is settled when it is given up. Ranges never overlap; neighbours that
are alike are one range. What has changed since it was last asked is in `changes`, so that whoever stores the ranges
writes those alone.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from ketch.log.sharing.share import (
    BEYOND_FIRST,
    BEYOND_LAST,
    NOT_HELD,
    NOT_OWNED,
    NOTHING,
    Acknowledge,
    Acknowledged,
    InvalidRecordState,
    NotInFlight,
    Run,
)

NOBODY = ""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `first` to `last`, which are in one state.

    Attributes:
        member: who has acquired them; NOBODY: they are available.
        deliveries: how often they were delivered.
        until: ms: when the member's lock expires; 0 where nobody has them.
    """

    first: int
    last: int
    deliveries: int
    member: str = NOBODY
    until: int = 0

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def alike(self, other: Range) -> bool:
        """Whether both are in one state."""
        return (self.member, self.deliveries, self.until) == (other.member, other.deliveries, other.until)


class InFlight:
    """The records in flight.

    Args:
        next_: the first offset that was never delivered.

    Attributes:
        size: how many offsets are in flight.
    """

    def __init__(self, next_: int, ranges: Iterable[Range] = ()) -> None:
        self.next = next_
        self.size = 0
        self._ranges: dict[int, Range] = {}  # by their first offsets
        self._order: list[int] = []  # these, in order
        self._available: list[int] = []  # those of available ranges, in order
        self._expiries: list[tuple[int, int]] = []  # heap of (until, first); some are of ranges that are gone
        self._changed: dict[int, None] = {}
        for each in ranges:
            self._insert(each)
        self._told = set(self._ranges)  # the first offsets of ranges that whoever stores them has
        self._changed.clear()

    # -- what there is

    def __iter__(self) -> Iterator[Range]:
        """The ranges in order."""
        return (self._ranges[first] for first in self._order)

    @property
    def start(self) -> int:
        """The first offset that is not settled."""
        return self._order[0] if self._order else self.next

    @property
    def available(self) -> int | None:
        """The first offset that was given up, and is delivered again; None where there is none."""
        return self._available[0] if self._available else None

    @property
    def expiry(self) -> int | None:
        """When the next lock expires, ms; None where there is none."""
        while self._expiries:
            until, first = self._expiries[0]
            held = self._ranges.get(first)
            if held is not None and held.until == until:
                return until
            heappop(self._expiries)
        return None

    def changes(self) -> list[tuple[int, Range | None]]:
        """The first offsets of ranges that have come, changed or gone since the last call, and what is there now."""
        changed = [(first, self._ranges.get(first)) for first in self._changed]
        changed = [(first, now) for first, now in changed if now is not None or first in self._told]
        self._told -= self._changed.keys()
        self._told |= {first for first, now in changed if now is not None}
        self._changed.clear()
        return changed

    # -- what happens

    def acquire(self, member: str, first: int, last: int, until: int) -> list[Run]:
        """A member gets what may be delivered of these offsets.

        Args:
            first, last: of a batch in the log. Offsets between `next` and it hold nothing, and count as settled.
        """
        runs = []
        for each in self._within(first, last):
            if each.member == NOBODY:
                (part,) = self._cut([each], first, last)
                self._put(part, replace(part, member=member, deliveries=part.deliveries + 1, until=until))
                runs.append(Run(part.first, part.last, part.deliveries + 1))
        if last >= self.next:
            fresh = Range(max(first, self.next), last, 1, member, until)
            self.next = last + 1
            self._add(fresh)
            runs.append(Run(fresh.first, fresh.last, 1))
        return runs

    def skip(self, first: int, last: int) -> None:
        """These offsets hold nothing to deliver: those that nobody has are settled."""
        for each in self._within(first, last):
            if each.member == NOBODY:
                self._drop(self._cut([each], first, last)[0])
        self.next = max(self.next, last + 1)

    def acknowledge(self, member: str, acknowledged: Sequence[Acknowledged], now: int, limit: int) -> bool:
        """Takes what a member says of offsets, all of it or none; whether something is available that was not.

        What lies below `start` was settled before, and is passed over.

        Args:
            limit: how often an offset is delivered at most.

        Raises:
            InvalidRecordState: the member does not hold one of them.
            NotInFlight: one was not delivered yet.
        """
        start = self.start
        due = [each for each in acknowledged if each.last >= start]
        for each in due:
            self._check_held(member, each, now)
        freed = False
        for each in due:
            for part in self._cut(self._within(each.first, each.last), each.first, each.last):
                if each.what is Acknowledge.RELEASE:
                    freed |= self._give_up(part, limit)
                else:
                    self._drop(part)
        return freed

    def _check_held(self, member: str, acknowledged: Acknowledged, now: int) -> None:
        if acknowledged.last >= self.next:
            if self._order:
                raise NotInFlight(BEYOND_FIRST if acknowledged.first >= self.next else BEYOND_LAST)
            raise InvalidRecordState(NOTHING)
        at = max(acknowledged.first, self.start)
        for each in self._within(acknowledged.first, acknowledged.last):
            if each.first > at or each.until <= now:
                break
            if each.member != member:
                raise InvalidRecordState(NOT_OWNED)
            at = each.last + 1
        if at <= acknowledged.last:
            raise InvalidRecordState(NOT_HELD)

    def leave(self, member: str) -> bool:
        """A member is gone: what it has is available, as if it had not been delivered; whether it had anything."""
        held = [each for each in self if each.member == member]
        for each in held:
            self._put(each, Range(each.first, each.last, each.deliveries - 1))
        return bool(held)

    def expire(self, now: int, limit: int) -> bool:
        """Locks that have expired are given up; whether something is available that was not."""
        freed = False
        while (until := self.expiry) is not None and until <= now:
            _, first = heappop(self._expiries)
            freed |= self._give_up(self._ranges[first], limit)
        return freed

    def removed_below(self, offset: int) -> None:
        """The log starts at `offset` by now: what nobody has below it is settled."""
        for each in self._within(0, offset - 1):
            if each.member == NOBODY:
                self._drop(self._cut([each], 0, offset - 1)[0])
        self.next = max(self.next, offset)

    # -- the ranges

    def _within(self, first: int, last: int) -> list[Range]:
        """The ranges that hold an offset from `first` to `last`, in order."""
        found = []
        for at in range(max(bisect_right(self._order, first) - 1, 0), len(self._order)):
            each = self._ranges[self._order[at]]
            if each.first > last:
                break
            if each.last >= first:
                found.append(each)
        return found

    def _cut(self, ranges: Iterable[Range], first: int, last: int) -> list[Range]:
        """Has each range end at the offsets `first` and `last`, if they lie within it: the parts between them."""
        parts = []
        for each in ranges:
            part = replace(each, first=max(each.first, first), last=min(each.last, last))
            if part != each:
                self._drop(each)
                if each.first < part.first:
                    self._insert(replace(each, last=part.first - 1))
                self._insert(part)
                if part.last < each.last:
                    self._insert(replace(each, first=part.last + 1))
            parts.append(part)
        return parts

    def _give_up(self, held: Range, limit: int) -> bool:
        """Nobody has the range any more; whether it may be delivered again."""
        if held.deliveries >= limit:
            self._drop(held)
            return False
        self._put(held, Range(held.first, held.last, held.deliveries))
        return True

    def _put(self, known: Range, instead: Range) -> None:
        self._drop(known)
        self._add(instead)

    def _add(self, added: Range) -> None:
        """Adds a range, as one with neighbours that are alike."""
        at = bisect_right(self._order, added.first)
        before = self._ranges[self._order[at - 1]] if at else None
        behind = self._ranges[self._order[at]] if at < len(self._order) else None
        if before is not None and before.last + 1 == added.first and before.alike(added):
            self._drop(before)
            added = replace(added, first=before.first)
        if behind is not None and added.last + 1 == behind.first and added.alike(behind):
            self._drop(behind)
            added = replace(added, last=behind.last)
        self._insert(added)

    def _insert(self, added: Range) -> None:
        self._ranges[added.first] = added
        insort(self._order, added.first)
        if added.member == NOBODY:
            insort(self._available, added.first)
        else:
            heappush(self._expiries, (added.until, added.first))
        self.size += added.size
        self._changed[added.first] = None

    def _drop(self, known: Range) -> None:
        del self._ranges[known.first]
        del self._order[bisect_right(self._order, known.first) - 1]
        if known.member == NOBODY:
            del self._available[bisect_right(self._available, known.first) - 1]
        self.size -= known.size
        self._changed[known.first] = None
