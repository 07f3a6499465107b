"""Random interleavings of everything that can happen to a share group, with clients that lose answers and restart.

`Sharers.check` holds after each step: every partition has a reader, and every member has something to read.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from kio.schema.errors import ErrorCode

from tests.coordinator.sharers import OK, Client, Sharers

NAMES = st.frozensets(st.sampled_from("abc"), min_size=1, max_size=3)
COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5), max_size=4)
WHO = st.integers(0, 30)
FENCED = (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id)


class Life(RuleBasedStateMachine):
    @initialize(counts=COUNTS)
    def begin(self, counts: dict[str, int]) -> None:
        self.sharers, self.made = Sharers(counts, max_size=8), 0

    def pick(self, who: int) -> Client:
        clients = list(self.sharers.clients.values())
        return clients[who % len(clients)]

    def somebody(self) -> bool:
        return bool(self.sharers.clients)

    @rule(names=NAMES)
    def joins(self, names: frozenset[str]) -> None:
        self.made += 1
        client, full = Client(f"m{self.made}", names), len(self.sharers.group.members) == 8
        result = self.sharers.beat(client)
        assert (result.error is ErrorCode.group_max_size_reached) == full
        if not full:
            self.sharers.clients[client.id] = client

    @precondition(somebody)
    @rule(who=WHO, full=st.booleans(), lost=st.booleans())
    def beats(self, who: int, full: bool, lost: bool) -> None:
        client = self.pick(who)
        known = client.id in self.sharers.group.members
        error = self.sharers.beat(client, full=full, lost=lost).error
        if client.epoch == 0 or error is not OK:
            assert error in (OK, *FENCED, ErrorCode.group_max_size_reached)
            assert known or error is not ErrorCode.fenced_member_epoch

    @precondition(somebody)
    @rule(who=WHO, names=NAMES)
    def subscribes(self, who: int, names: frozenset[str]) -> None:
        client = self.pick(who)
        client.names = names
        self.sharers.beat(client, full=True)

    @precondition(somebody)
    @rule(who=WHO, by=st.integers(1, 9))
    def speaks_in_another_epoch(self, who: int, by: int) -> None:
        client = self.pick(who)
        member = self.sharers.group.members.get(client.id)
        if member is not None:
            error = self.sharers.beat(client, epoch=member.epoch + by, lost=True).error
            assert error is ErrorCode.fenced_member_epoch
            if member.epoch - by not in (member.previous_epoch, 0, -1) and member.epoch > by:
                error = self.sharers.beat(client, epoch=member.epoch - by, lost=True).error
                assert error is ErrorCode.fenced_member_epoch

    @precondition(somebody)
    @rule(who=WHO)
    def departs(self, who: int) -> None:
        client = self.pick(who)
        known, epoch = client.id in self.sharers.group.members, self.sharers.group.epoch
        error = self.sharers.depart(client).error
        assert error is (OK if known else ErrorCode.unknown_member_id if epoch else ErrorCode.group_id_not_found)
        assert self.sharers.group.epoch == epoch + known

    @rule(seconds=st.sampled_from([1.0, 20.0, 50.0]))
    def waits(self, seconds: float) -> None:
        self.sharers.wait(seconds)
        assert all(member.deadline > self.sharers.now for member in self.sharers.group.members.values())

    @rule(counts=COUNTS)
    def topics(self, counts: dict[str, int]) -> None:
        self.sharers.set_topics(counts)

    @precondition(lambda self: bool(self.sharers.stored))
    @rule()
    def broker_dies(self) -> None:
        self.sharers.reload()

    @precondition(somebody)
    @rule()
    def settles(self) -> None:
        """Two heartbeats of everybody, and everybody has what it is to have; a third one changes nothing."""
        sharers = self.sharers
        for _ in range(2):
            for client in list(sharers.clients.values()):
                if sharers.beat(client).error is not OK and sharers.beat(client).error is not OK:
                    sharers.depart(client)
        epoch = sharers.group.epoch
        for client in sharers.clients.values():
            assert sharers.beat(client).assignment is None
        assert sharers.group.epoch == epoch
        owned = {partition for member in sharers.group.members.values() for partition in member.target}
        assert not sharers.clients or owned == sharers.of(sharers.group.subscribed)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
