"""Random interleavings of everything that can happen to a consumer group, with clients that lose answers and restart.

`Consumers.check` holds after each step: a partition has one owner, and one client reads it.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ketch.coordinator.consumer.member import State
from tests.coordinator.consumers import OK, Client, Consumers

NAMES = st.frozensets(st.sampled_from("abc"), max_size=3)
COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5), max_size=4)
WHO = st.integers(0, 30)


class Life(RuleBasedStateMachine):
    @initialize(counts=COUNTS)
    def begin(self, counts: dict[str, int]) -> None:
        self.consumers, self.made = Consumers(counts), 0
        self.away: list[Client] = []

    def pick(self, who: int) -> Client:
        clients = list(self.consumers.clients.values())
        return clients[who % len(clients)]

    def somebody(self) -> bool:
        return bool(self.consumers.clients)

    @rule(
        names=NAMES,
        regex=st.sampled_from(["", "", "[ab]", "d|a"]),
        instance=st.sampled_from([None, None, "i", "j"]),
        assignor=st.sampled_from([None, "uniform", "range"]),
        obeys=st.booleans(),
    )
    def joins(self, names: frozenset[str], regex: str, instance: str | None, assignor: str | None, obeys: bool) -> None:
        self.made += 1
        client = Client(f"m{self.made}", names, regex, instance, assignor, obeys=obeys)
        if self.consumers.beat(client).error is OK:
            self.consumers.clients[client.id] = client

    @precondition(somebody)
    @rule(who=WHO, full=st.booleans(), lost=st.booleans())
    def beats(self, who: int, full: bool, lost: bool) -> None:
        client = self.pick(who)
        error = self.consumers.beat(client, full=full or lost, lost=lost).error
        if error is not OK and not lost:  # a client that has lost an answer and its epoch with it
            self.consumers.clients.pop(client.id, None)
            self.consumers.depart(client)

    @precondition(somebody)
    @rule(who=WHO)
    def gives_up(self, who: int) -> None:
        client = self.pick(who)
        client.owned &= self.consumers.group.members[client.id].assigned

    @precondition(somebody)
    @rule(who=WHO, names=NAMES)
    def subscribes(self, who: int, names: frozenset[str]) -> None:
        client = self.pick(who)
        client.names = names
        self.beats(who, True, False)

    @precondition(somebody)
    @rule(who=WHO, back=st.booleans())
    def departs(self, who: int, back: bool) -> None:
        client = self.pick(who)
        self.consumers.depart(client, -2 if back and client.instance else -1)

    @rule(seconds=st.sampled_from([1.0, 20.0, 50.0]))
    def waits(self, seconds: float) -> None:
        self.consumers.wait(seconds)

    @rule(counts=COUNTS)
    def topics(self, counts: dict[str, int]) -> None:
        self.consumers.set_topics(counts)

    @precondition(lambda self: bool(self.consumers.stored))
    @rule()
    def broker_dies(self) -> None:
        self.consumers.reload()

    @precondition(somebody)
    @rule()
    def settles(self) -> None:
        consumers = self.consumers
        for client in list(consumers.clients.values()):
            client.obeys = True
            client.owned &= consumers.group.members[client.id].assigned
            if consumers.beat(client, full=True).error is not OK:
                consumers.depart(client)
        if not consumers.clients:
            return
        consumers.settle()
        members = consumers.group.members
        away = {each for name in members.keys() - consumers.clients.keys() for each in members[name].assigned}
        for client in consumers.clients.values():
            assert client.owned == members[client.id].target - away
        assert consumers.group.state is State.STABLE or members.keys() != consumers.clients.keys()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
