"""Random lives of a group whose clients change their protocol one by one (KIP-848), see `mixed_group`."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ketch.coordinator.classic.group import Group
from ketch.coordinator.consumer.group import ConsumerGroup
from tests.coordinator.mixed_group import PARTITIONS, ClassicClient, Client, MixedGroup, NewClient

WHO = st.integers(0, 30)


class Life(RuleBasedStateMachine):
    @initialize(eager=st.booleans())
    def begin(self, eager: bool) -> None:
        self.group, self.eager, self.made = MixedGroup(), eager, 0

    def pick(self, who: int) -> Client:
        return self.group.clients[who % len(self.group.clients)]

    def somebody(self) -> bool:
        return bool(self.group.clients)

    def add(self, new: bool, instance: str | None) -> None:
        self.made += 1
        made: Client = NewClient(self.group, f"m{self.made}", instance)
        self.group.clients.append(made if new else ClassicClient(self.group, instance=instance, eager=self.eager))

    @precondition(lambda self: len(self.group.clients) < 5)
    @rule(new=st.booleans(), instance=st.sampled_from([None, None, "i", "j"]))
    def starts(self, new: bool, instance: str | None) -> None:
        if instance is None or all(client.instance != instance for client in self.group.clients):
            self.add(new, instance)

    @precondition(somebody)
    @rule(who=WHO, times=st.integers(1, 4))
    def steps(self, who: int, times: int) -> None:
        client = self.pick(who)
        for _ in range(times):
            if client in self.group.clients:
                client.step()
                self.group.check()

    @rule(rounds=st.integers(1, 6))
    def all_step(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in list(self.group.clients):
                if client in self.group.clients:
                    client.step()
                    self.group.check()

    @precondition(somebody)
    @rule(who=WHO, back=st.booleans())
    def goes(self, who: int, back: bool) -> None:
        client = self.pick(who)
        self.group.clients.remove(client)
        client.goes(back)

    @precondition(somebody)
    @rule(who=WHO)
    def restarts_with_the_other_protocol(self, who: int) -> None:
        client = self.pick(who)
        self.group.clients.remove(client)
        client.goes(back=True)
        self.add(isinstance(client, ClassicClient), client.instance)

    @rule(seconds=st.sampled_from([1.0, 4.0, 20.0]))
    def waits(self, seconds: float) -> None:
        self.group.wait(seconds)

    @rule()
    def broker_dies(self) -> None:
        self.group.dies()

    @rule()
    def settles(self) -> None:
        """Whatever has happened, all partitions are read again once the clients are left alone."""
        group = self.group
        for _ in range(80):
            group.wait(1.0)
            for client in list(group.clients):
                if client in group.clients:
                    client.step()
                    group.check()
        assert all(client.is_settled for client in group.clients)
        read = [index for client in group.clients for index in client.owned]
        assert sorted(read) == (list(range(PARTITIONS)) if group.clients else [])
        new = any(isinstance(client, NewClient) for client in group.clients)
        assert isinstance(group.machine, ConsumerGroup) >= new

    @invariant()
    def nobody_reads_what_another_one_does(self) -> None:
        if hasattr(self, "group"):
            self.group.check()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("eager", [True, False])
def test_a_rolling_upgrade_and_back(eager: bool) -> None:
    """Three clients are restarted one by one, twice: one conversion each way."""
    group = MixedGroup()
    life = Life()
    life.group, life.eager, life.made = group, eager, 0
    for _ in range(3):
        life.add(False, None)
    life.settles()
    assert isinstance(group.machine, Group)
    for turn in (ConsumerGroup, Group):
        for _ in range(3):
            life.restarts_with_the_other_protocol(0)
            life.settles()
        assert isinstance(group.machine, turn)
    assert group.conversions == 2
