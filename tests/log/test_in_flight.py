"""The ranges of a share group on a partition, against a model that knows each offset by itself. No server."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ketch.log.sharing.in_flight import InFlight, Range
from ketch.log.sharing.share import Acknowledge, Acknowledged, InvalidRecordState, NotInFlight, Run, runs_of

LIMIT = 3
MEMBERS = st.sampled_from(["m1", "m2", "m3"])
OFFSETS = st.integers(0, 40)
WIDTHS = st.integers(0, 12)


@dataclass(frozen=True)
class One:
    """One offset in flight."""

    deliveries: int
    member: str = ""
    until: int = 0


class Model:
    """Each offset by itself; what is not in `known` and lies below `next` is settled."""

    def __init__(self) -> None:
        self.known: dict[int, One] = {}
        self.next = 0

    @property
    def start(self) -> int:
        return min(self.known, default=self.next)

    def acquire(self, member: str, first: int, last: int, until: int) -> list[Run]:
        got = []
        for offset in range(first, last + 1):
            one = One(0) if offset >= self.next else self.known.get(offset)
            if one is not None and not one.member:
                self.known[offset] = One(one.deliveries + 1, member, until)
                got.append((offset, one.deliveries + 1))
        self.next = max(self.next, last + 1)
        return list(runs_of(got))

    def drop(self, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            if offset in self.known and not self.known[offset].member:
                del self.known[offset]
        self.next = max(self.next, last + 1)

    def acknowledge(self, member: str, acknowledged: list[Acknowledged], now: int) -> type[Exception] | None:
        start, due = self.start, []
        for each in acknowledged:
            if each.last < start:
                continue
            if each.last >= self.next:
                return NotInFlight if self.known else InvalidRecordState
            for offset in range(max(each.first, start), each.last + 1):
                one = self.known.get(offset)
                if one is None or one.member != member or one.until <= now:
                    return InvalidRecordState
                due.append((offset, each.what))
        for offset, what in due:
            if what is Acknowledge.RELEASE:
                self.give_up(offset)
            else:
                del self.known[offset]
        return None

    def give_up(self, offset: int) -> None:
        one = self.known.pop(offset)
        if one.deliveries < LIMIT:
            self.known[offset] = One(one.deliveries)

    def leave(self, member: str) -> None:
        for offset, one in self.known.items():
            if one.member == member:
                self.known[offset] = One(one.deliveries - 1)

    def expire(self, now: int) -> None:
        for offset in [at for at, one in self.known.items() if one.member and one.until <= now]:
            self.give_up(offset)


class InFlightMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model, self.now = Model(), 0
        self.ranges = InFlight(0)
        self.stored: dict[int, Range] = {}

    @rule(member=MEMBERS, first=OFFSETS, width=WIDTHS)
    def acquire(self, member: str, first: int, width: int) -> None:
        until = self.now + 10
        expected = self.model.acquire(member, first, first + width, until)
        got = self.ranges.acquire(member, first, first + width, until)
        flat = [(offset, run.deliveries) for run in got for offset in range(run.first, run.last + 1)]
        assert list(runs_of(flat)) == expected

    @rule(first=OFFSETS, width=WIDTHS)
    def skip(self, first: int, width: int) -> None:
        self.model.drop(first, first + width)
        self.ranges.skip(first, first + width)

    @rule(offset=OFFSETS)
    def removed_below(self, offset: int) -> None:
        self.model.drop(0, offset - 1)
        self.ranges.removed_below(offset)

    @rule(
        member=MEMBERS,
        first=OFFSETS,
        parts=st.lists(st.tuples(st.integers(0, 3), WIDTHS, st.sampled_from(Acknowledge)), min_size=1, max_size=4),
    )
    def acknowledge(self, member: str, first: int, parts: list[tuple[int, int, Acknowledge]]) -> None:
        said = []
        for gap, width, what in parts:
            said.append(Acknowledged(first + gap, first + gap + width, what))
            first += gap + width + 1
        expected, refused = self.model.acknowledge(member, said, self.now), None
        try:
            self.ranges.acknowledge(member, said, self.now, LIMIT)
        except (InvalidRecordState, NotInFlight) as error:
            refused = type(error)
        assert refused is expected

    @rule(member=MEMBERS, what=st.sampled_from(Acknowledge), data=st.data())
    def acknowledge_held(self, member: str, what: Acknowledge, data: st.DataObject) -> None:
        held = [at for at, one in self.model.known.items() if one.member == member and one.until > self.now]
        if held:
            offset = data.draw(st.sampled_from(sorted(held)))
            said = [Acknowledged(offset, offset, what)]
            assert self.model.acknowledge(member, said, self.now) is None
            self.ranges.acknowledge(member, said, self.now, LIMIT)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.model.leave(member)
        self.ranges.leave(member)

    @rule(passes=st.integers(0, 12))
    def expire(self, passes: int) -> None:
        self.now += passes
        self.model.expire(self.now)
        self.ranges.expire(self.now, LIMIT)

    @rule()
    def store(self) -> None:
        for first, now in self.ranges.changes():
            if now is None:
                self.stored.pop(first, None)
            else:
                self.stored[first] = now
        self.ranges = InFlight(self.ranges.next, self.stored.values())
        assert self.ranges.changes() == []

    @invariant()
    def the_same(self) -> None:
        ranges = list(self.ranges)
        flat = {
            offset: One(each.deliveries, each.member, each.until)
            for each in ranges
            for offset in range(each.first, each.last + 1)
        }
        assert flat == self.model.known
        assert (self.ranges.start, self.ranges.next) == (self.model.start, self.model.next)
        assert self.ranges.size == len(self.model.known)
        free = [at for at, one in self.model.known.items() if not one.member]
        assert self.ranges.available == min(free, default=None)
        held = [one.until for one in self.model.known.values() if one.member]
        assert self.ranges.expiry == min(held, default=None)
        assert all(a.last < b.first for a, b in pairwise(ranges))


TestInFlight = InFlightMachine.TestCase
TestInFlight.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_a_thousand_settled_one_by_one_are_as_many_changes() -> None:
    ranges = InFlight(0)
    ranges.acquire("m", 0, 99_999, 10)
    ranges.changes()
    for offset in range(1, 2_000, 2):
        ranges.acknowledge("m", [Acknowledged(offset, offset, Acknowledge.ACCEPT)], 0, 5)
    assert len(ranges.changes()) == 1_001
    assert ranges.size == 99_000
