"""Whose fetches a connection brings: simulated consumers of several groups, all with one client id and host."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.readers import Reader
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import GroupConfig, Member
from ketch.store.keys import TopicPartition
from tests.support.groups import assignment

CLIENT, HOST = "rdkafka", "/127.0.0.1"
GROUPS = "abc"
P0, P1 = ("t", 0), ("t", 1)


class Consumer:
    """One consumer: its membership, what it believes to be assigned, its connection for fetches."""

    def __init__(self, group: str, member: str) -> None:
        self.group, self.member = group, member
        self.believes: list[TopicPartition] = []
        self.reader = Reader()
        self.before: list[Reader] = []  # connections that broke; the broker may not have noticed
        self.asked = 0  # fetches by this connection


class World:
    """The broker's index, fed as the coordinator and the connections feed it; each step takes a second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.index = Assignments(lambda: self.now)
        self.groups: dict[str, Group] = {}
        self.consumers: list[Consumer] = []
        self.members = 0

    def join(self, group: str, *partitions: TopicPartition, here: bool = True) -> Consumer:
        """A consumer is assigned partitions beside the other members'; these keep theirs."""
        self.members += 1
        consumer = Consumer(group, f"{group}{self.members}")
        self.consumers.append(consumer)
        self.assign(consumer, *partitions, here=here)
        return consumer

    def assign(self, consumer: Consumer, *partitions: TopicPartition, here: bool = True) -> None:
        consumer.believes = list(partitions)
        group = self.groups.setdefault(
            consumer.group, Group(consumer.group, GroupConfig(), str, protocol_type="consumer")
        )
        shares = {"t": [index for _, index in partitions]}
        group.members[consumer.member] = Member(
            consumer.member, None, CLIENT, HOST, 10, 10, (), assignment(shares if partitions else {})
        )
        group.assigned_here = here
        self.now += 1
        self.index.update(group)

    def leave(self, consumer: Consumer) -> None:
        """The member goes; the consumer need not know yet."""
        self.now += 1
        self.groups[consumer.group].members.pop(consumer.member, None)
        self.index.remove(consumer.group, consumer.member)

    def close(self, consumer: Consumer) -> None:
        self.leave(consumer)
        self.consumers.remove(consumer)
        consumer.reader.closed = True

    def rejoin(self, consumer: Consumer) -> None:
        """It has noticed that it is no member any more: it joins under a new id and is assigned what it had."""
        self.members += 1
        consumer.member = f"{consumer.group}{self.members}"
        self.assign(consumer, *consumer.believes)

    def reconnect(self, consumer: Consumer, noticed: bool = True) -> None:
        consumer.reader.closed = noticed
        consumer.reader, consumer.asked = Reader(), 0

    def fetch(self, consumer: Consumer) -> None:
        consumer.asked += 1
        self.ask(consumer.reader, consumer.believes)

    def ask(self, reader: Reader, partitions: list[TopicPartition]) -> None:
        self.now += 1
        reader.ask(self.now)
        if reader.member is None:
            self.index.meet(reader, CLIENT, HOST, partitions)
        for partition in partitions:
            self.index.find(reader, CLIENT, HOST, partition)

    def found(self, consumer: Consumer, partition: TopicPartition = P0) -> str | None:
        """The member that the next records of a partition are delivered to."""
        found = self.index.find(consumer.reader, CLIENT, HOST, partition)
        return found[1] if found else None


def test_the_only_one_that_fits() -> None:
    world = World()
    a = world.join("a", P0)
    world.fetch(a)
    assert world.found(a) == a.member


def test_a_second_group_comes() -> None:
    world = World()
    a = world.join("a", P0)
    world.fetch(a)
    b = world.join("b", P0)
    world.fetch(b)
    assert (world.found(a), world.found(b)) == (a.member, None)
    assert world.index.tracked("a", P0, True)
    assert not world.index.tracked("b", P0, True)
    world.fetch(a)
    world.fetch(b)
    assert (world.found(a), world.found(b)) == (a.member, b.member)
    assert world.index.tracked("b", P0, True)
    assert not world.index.tracked("b", P0, False), "another broker leads the partition"


def test_groups_that_came_together_cannot_be_told_apart() -> None:
    world = World()
    both = world.join("a", P0), world.join("b", P0)
    for _ in range(5):
        for consumer in both:
            world.fetch(consumer)
            assert world.found(consumer) is None


def test_other_partitions_tell() -> None:
    world = World()
    a, b = world.join("a", P0, P1), world.join("b", P0)
    for _ in range(2):
        world.fetch(b)
        world.fetch(a)
    world.fetch(b)
    assert (world.found(a), world.found(b)) == (a.member, b.member)


def test_heartbeats_on_the_same_connection_tell() -> None:
    world = World()
    a, b = world.join("a", P0), world.join("b", P0)
    world.index.speaks(a.reader, "a", a.member)
    world.fetch(a)
    assert world.found(a) == a.member
    world.index.speaks(a.reader, "b", b.member)
    world.fetch(a)
    assert world.found(a) is None, "one connection of several consumers"


def test_a_group_that_may_have_been_reading_before() -> None:
    """After a restart a group is loaded when its member first sends a heartbeat, which may be after its first fetch."""
    world = World()
    a = world.join("a", P0, here=False)
    b = Consumer("b", "b1")
    world.ask(b.reader, [P0])
    world.consumers.append(b)
    world.assign(b, P0, here=False)
    for _ in range(3):
        world.fetch(a)
        world.fetch(b)
    assert world.found(a) in (None, a.member)
    assert world.found(b) in (None, b.member)


def test_a_fenced_consumer_that_goes_on_fetching() -> None:
    world = World()
    a, b = world.join("a", P0), world.join("b", P0)
    world.leave(b)
    world.fetch(b)  # a's is the only member that fits now
    world.rejoin(b)
    for _ in range(3):
        world.fetch(a)
        world.fetch(b)
    assert (world.found(a), world.found(b)) == (None, None)


def test_a_stranger_suspends_what_is_known() -> None:
    world = World()
    a = world.join("a", P0)
    world.fetch(a)
    b = world.join("b", P0)
    stranger = Reader()
    for _ in range(3):
        for consumer in (a, b):
            world.fetch(consumer)
    assert (world.found(a), world.found(b)) == (a.member, b.member)
    for _ in range(2):
        world.ask(stranger, [P0])
        for consumer in (a, b):
            world.fetch(consumer)
    world.ask(stranger, [P0])
    assert (world.found(a), world.found(b)) == (None, None)
    stranger.closed = True
    assert (world.found(a), world.found(b)) == (a.member, b.member)


def test_new_connections_and_new_member_ids() -> None:
    world = World()
    a = world.join("a", P0)
    world.fetch(a)
    b = world.join("b", P0)
    for change in (lambda: world.reconnect(b), lambda: world.reconnect(a, noticed=False), lambda: world.leave(b)):
        change()
        if b.member not in world.groups["b"].members:
            world.rejoin(b)
        for _ in range(3):
            world.fetch(a)
            world.fetch(b)
        assert (world.found(a), world.found(b)) == (a.member, b.member)


@given(st.lists(st.sampled_from(["stranger", "a", "b", "c"]), max_size=20))
@settings(max_examples=300)
def test_no_wrong_guess_lasts(steps: list[str]) -> None:
    """A stranger may be taken for a member until that member fetches; then neither is believed."""
    world, members, stranger = World(), dict[str, Consumer](), Reader()
    for step in [*steps, *["a", "b", "c"] * 2, *["stranger", "a", "b", "c"] * 3]:
        if step == "stranger":
            world.ask(stranger, [P0])
        elif step in members:
            world.fetch(members[step])
        else:
            members[step] = world.join(step, P0)
    for consumer in members.values():
        assert world.found(consumer) in (None, consumer.member)
    assert world.index.find(stranger, CLIENT, HOST, P0) is None


class Life(RuleBasedStateMachine):
    """Consumers of three groups come, go, are fenced, reconnect. No connection is taken for another member's."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def pick(self, who: int) -> Consumer:
        return self.world.consumers[who % len(self.world.consumers)]

    def taken(self, group: str) -> set[TopicPartition]:
        """What members of the group have, and what fenced ones will get again."""
        return {partition for c in self.world.consumers if c.group == group for partition in c.believes}

    @rule(group=st.sampled_from(GROUPS), count=st.integers(1, 3))
    def join(self, group: str, count: int) -> None:
        free = [("t", n) for n in range(3) if ("t", n) not in self.taken(group)]
        if free:
            self.world.join(group, *free[:count])

    @precondition(lambda self: self.world.consumers)
    @rule(who=st.integers(0, 8))
    def close(self, who: int) -> None:
        self.world.close(self.pick(who))

    @precondition(lambda self: self.world.consumers)
    @rule(who=st.integers(0, 8))
    def fence(self, who: int) -> None:
        self.world.leave(self.pick(who))

    @precondition(lambda self: self.world.consumers)
    @rule(who=st.integers(0, 8))
    def rejoin(self, who: int) -> None:
        consumer = self.pick(who)
        if consumer.member not in self.world.groups[consumer.group].members:
            self.world.rejoin(consumer)

    @precondition(lambda self: self.world.consumers)
    @rule(who=st.integers(0, 8), noticed=st.booleans())
    def reconnect(self, who: int, noticed: bool) -> None:
        self.world.reconnect(self.pick(who), noticed)

    @precondition(lambda self: self.world.consumers)
    @rule(who=st.integers(0, 8))
    def fetch(self, who: int) -> None:
        self.world.fetch(self.pick(who))

    @precondition(lambda self: self.world.consumers)
    @rule()
    def fetch_all(self) -> None:
        for consumer in self.world.consumers:
            self.world.fetch(consumer)

    @invariant()
    def never_another_ones(self) -> None:
        for consumer in self.world.consumers:
            assert consumer.reader.member in (None, (consumer.group, consumer.member))

    @invariant()
    def known_is_found(self) -> None:
        for consumer in self.world.consumers:
            if (consumer.group, consumer.member) == consumer.reader.member:
                assert all(
                    self.world.found(consumer, partition) in (None, consumer.member) for partition in consumer.believes
                )


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
