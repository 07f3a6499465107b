"""Random interleavings of everything that can happen to a group."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ketch.coordinator.classic.fields import to_fields
from ketch.coordinator.classic.member import State
from ketch.coordinator.machine import Tick
from tests.coordinator.driver import OK, Driver

PROTOCOLS = st.sampled_from(
    [
        (("range", b"r"),),
        (("range", b"other"),),
        (("rr", b"x"), ("range", b"r")),
        (("range", b"r"), ("rr", b"x")),
        (("rr", b"x"),),
        (),
    ]
)
INSTANCES = st.sampled_from([None, None, None, "i", "j"])
WHO = st.integers(0, 30)
LAG = st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])


class Life(RuleBasedStateMachine):
    """`wrong` sometimes lies about the instance, `lag` about the generation."""

    def __init__(self) -> None:
        super().__init__()
        self.highest = 0

    @initialize(
        size=st.sampled_from([2, 3, 100]), delay=st.sampled_from([0.0, 3.0]), newcomers=st.sampled_from([20.0, 300.0])
    )
    def begin(self, size: int, delay: float, newcomers: float) -> None:
        self.driver = Driver(max_size=size, initial_rebalance_delay=delay, new_member_join_timeout=newcomers)

    def pick(self, who: int) -> tuple[str, str | None]:
        """A member, an id that was only given, or a stranger."""
        group = self.driver.group
        known = [(m.id, m.instance_id) for m in group.members.values()] + [(name, None) for name in group.pending]
        return known[who % len(known)] if known and who < 28 else ("stranger", None)

    @rule(
        instance=INSTANCES,
        protocols=PROTOCOLS,
        required=st.booleans(),
        rebalance=st.sampled_from([0.0, 5.0, 60.0]),
        session=st.sampled_from([6.0, 10.0, 5.0]),
        skips=st.booleans(),
    )
    def newcomer(self, instance: str | None, protocols: Any, required: bool, **given: Any) -> None:
        skips = given.pop("skips")
        self.driver.join("", instance, protocols, id_required=required, skips_assignment=skips, **given)

    @rule(who=WHO, protocols=PROTOCOLS)
    def again(self, who: int, protocols: Any) -> None:
        self.driver.join(*self.pick(who), protocols)

    @rule()
    def everybody_joins(self) -> None:
        for member in list(self.driver.group.members.values()):
            if member.id in self.driver.group.members and member.join_token is None:
                self.driver.join(member.id, member.instance_id, member.protocols)

    @rule(who=WHO, lag=LAG, lie=st.sampled_from([None, None, None, "x"]))
    def syncs(self, who: int, lag: int, lie: str | None) -> None:
        member, instance = self.pick(who)
        generation = self.driver.group.generation + lag
        shares = {name: f"{name} in {generation}".encode() for name in self.driver.group.members}
        self.driver.sync(member, shares, instance=lie or instance, generation=generation)

    @rule(leader_last=st.booleans(), some=st.booleans())
    def everybody_syncs(self, leader_last: bool, some: bool) -> None:
        members = list(self.driver.group.members.values())
        if leader_last:
            members.sort(key=lambda member: member.id == self.driver.group.leader)
        for member in members[:-1] if some else members:
            shares = {name: name.encode() for name in self.driver.group.members}
            self.driver.sync(member.id, shares, instance=member.instance_id)

    @rule(who=WHO, lag=LAG)
    def heartbeats(self, who: int, lag: int) -> None:
        self.driver.heartbeat(*self.pick(who), self.driver.group.generation + lag)

    @rule(who=WHO, lag=LAG)
    def commits(self, who: int, lag: int) -> None:
        answer = self.driver.commit(*self.pick(who), self.driver.group.generation + lag)
        if self.driver.group.state is State.COMPLETING:
            assert answer is not OK

    @rule()
    def commits_without_a_generation(self) -> None:
        answer = self.driver.commit("", None, -1)
        assert (answer is OK) == (self.driver.group.state is State.EMPTY)

    @rule(who=WHO)
    def leaves(self, who: int) -> None:
        self.driver.leave(*self.pick(who))

    @rule(instance=INSTANCES)
    def is_removed(self, instance: str | None) -> None:
        self.driver.leave("", instance)

    @rule(seconds=st.sampled_from([0.0, 1.0, 4.0, 9.0, 70.0]))
    def waits(self, seconds: float) -> None:
        self.driver.wait(seconds)

    @rule()
    def ticks_early(self) -> None:
        self.driver.feed(Tick())

    @invariant()
    def generations_rise(self) -> None:
        if hasattr(self, "driver"):
            assert self.driver.group.generation >= self.highest
            self.highest = self.driver.group.generation

    @invariant()
    def comes_back_as_it_was_stored(self) -> None:
        if hasattr(self, "driver") and self.driver.group.state in (State.EMPTY, State.STABLE):
            again = self.driver.restored()
            assert to_fields(again, 0) == to_fields(self.driver.group, 0)
            assert again.static == self.driver.group.static
            assert (again.state, again.timer) == (self.driver.group.state, None)

    def teardown(self) -> None:
        """Left alone, everybody is answered and every member goes."""
        if hasattr(self, "driver"):
            self.driver.wait(10_000)
            assert not self.driver.open
            assert self.driver.group.state is State.EMPTY
            assert self.driver.group.deadline is None


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=80, stateful_step_count=50, deadline=None, derandomize=True)
