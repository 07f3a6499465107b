"""A group changes its protocol, case by case: what the raw scenarios against Kafka do not reach, as times."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ketch.coordinator.classic.events import Heartbeat, Join, Leave, Sync
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import Member, State
from ketch.coordinator.classic.payload import read_assignment, read_subscription, write_assignment
from ketch.coordinator.consumer.fields import from_fields, to_fields
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.member import ConsumerConfig
from ketch.coordinator.migration import Unfit, upgrade
from tests.coordinator.mixed_group import (
    OK,
    PARTITIONS,
    REBALANCE,
    REBALANCE_S,
    TOPIC,
    TOPICS,
    ClassicClient,
    MixedGroup,
    NewClient,
    subscription,
)


@pytest.fixture
def mixed() -> MixedGroup:
    """A classic member and one of the new protocol, which share the partitions."""
    group = MixedGroup()
    group.clients = [NewClient(group, "new"), ClassicClient(group)]
    settle(group)
    assert isinstance(group.machine, ConsumerGroup)
    return group


def settle(group: MixedGroup) -> None:
    for _ in range(8):
        for client in list(group.clients):
            client.step()
            group.check()


def classic_of(group: MixedGroup) -> ClassicClient:
    (found,) = [client for client in group.clients if isinstance(client, ClassicClient)]
    return found


def beats(group: MixedGroup, client: ClassicClient) -> Any:
    """Its heartbeat alone: it does not do what it is told."""
    return group.ask(Heartbeat(group.token(), client.id, None, client.generation))


def test_a_classic_member_has_its_own_session_timeout(mixed: MixedGroup) -> None:
    client, new = classic_of(mixed), mixed.clients[0]
    for _ in range(3):
        mixed.wait(9.0)
        assert beats(mixed, client) is OK
        new.step()
    mixed.wait(10.0)
    assert mixed.clients == [new], "the other one has 45 s"


@pytest.mark.parametrize("asks", ["never joins", "joins and never syncs"])
def test_a_classic_member_that_does_not_do_what_it_is_told(mixed: MixedGroup, asks: str) -> None:
    """It sends heartbeats all the time; it has its rebalance timeout for each step."""
    client = classic_of(mixed)
    late = NewClient(mixed, "late")
    mixed.clients.append(late)
    late.step()
    assert beats(mixed, client) is REBALANCE
    if asks != "never joins":
        client.hears_of(REBALANCE)
        client.step()
        assert client.phase == "joined"
    began = mixed.now
    while client in mixed.clients:
        assert mixed.now - began < REBALANCE_S + 5.0
        mixed.wait(4.0)
        if client in mixed.clients:
            assert beats(mixed, client) in (OK, REBALANCE)
        for other in mixed.clients:
            if isinstance(other, NewClient):
                other.step()
    assert mixed.now - began >= REBALANCE_S
    settle(mixed)
    assert sorted(index for each in mixed.clients for index in each.owned) == list(range(PARTITIONS))


def test_a_member_of_one_protocol_goes_on_with_the_other_under_its_id(mixed: MixedGroup) -> None:
    """Kafka takes it; there is no downgrade, as nobody has gone."""
    new, client = mixed.clients
    protocols = (("cooperative", subscription(new.owned)),)
    joined = mixed.ask(Join(mixed.token(), new.id, None, "c", "/h", 10.0, 30.0, "consumer", protocols, topics=TOPICS))
    assert (joined.error, joined.member_id, joined.leader) == (OK, "new", "")
    assert isinstance(mixed.machine, ConsumerGroup)
    assert mixed.machine.is_only_classic
    synced = mixed.ask(Sync(mixed.token(), "new", None, joined.generation, None, None, {}))
    found = read_assignment(synced.assignment)
    assert found is not None
    assert {index for _, index in found.places} == new.owned
    assert mixed.ask(Leave(mixed.token(), client.id, None)) is OK
    assert isinstance(mixed.machine, Group), "the next one that goes leaves only classic members"


def test_what_is_stored_of_a_classic_member(mixed: MixedGroup) -> None:
    group, stored = mixed.machine, mixed.stored
    loaded = from_fields("g", stored, group.config, mixed.now)
    assert loaded.members == group.members
    again = {"type": "consumer", **to_fields(loaded, int(stored["updated"]))}
    assert again == stored


def test_a_downgraded_group_is_loaded_in_its_rebalance(mixed: MixedGroup) -> None:
    client = classic_of(mixed)
    mixed.clients[0].goes(back=False)
    assert (mixed.machine.state, mixed.stored["state"]) == (State.PREPARING, "PreparingRebalance")
    mixed.dies()
    assert mixed.machine.state is State.PREPARING
    mixed.clients = [client]
    settle(mixed)
    assert (mixed.machine.state, client.owned) == (State.STABLE, frozenset(range(PARTITIONS)))


def classic_group(*assignments: bytes, metadata: bytes = subscription([])) -> Group:
    group = Group("g", Any, str, State.STABLE, 3, "consumer", "range")  # type: ignore[arg-type]
    for n, assignment in enumerate(assignments):
        group.members[f"m{n}"] = Member(
            f"m{n}", None, "c", "/h", 10.0, 60.0, (("range", metadata),), assignment=assignment
        )
    return group


def test_an_upgrade_takes_over_what_members_were_assigned() -> None:
    group = classic_group(write_assignment(1, {TOPIC: [0, 1], "gone": [0]}), write_assignment(1, {TOPIC: [1, 2]}), b"")
    made = upgrade(group, ConsumerConfig(), TOPICS, 100.0)
    assert [sorted(index for _, index in member.assigned) for member in made.members.values()] == [[0, 1], [2], []]
    assert {(member.epoch, member.due) for member in made.members.values()} == {(3, 110.0)}
    assert (made.epoch, made.assignment_epoch, set(made.topics)) == (3, 3, {TOPIC})


@pytest.mark.parametrize(
    ("assignment", "metadata"),
    [(b"\0\1", subscription([])), (b"\0", subscription([])), (b"", b""), (b"", b"\0\1\0\0\0\1\0\5t")],
)
def test_an_upgrade_refuses_what_it_cannot_read(assignment: bytes, metadata: bytes) -> None:
    with pytest.raises(Unfit, match="malformed"):
        upgrade(classic_group(assignment, metadata=metadata), ConsumerConfig(), TOPICS, 0.0)


@pytest.mark.parametrize("version", range(4))
def test_assignments_are_written_in_every_version(version: int) -> None:
    written = write_assignment(version, {"a": [0, 3], "b": []})
    assert written[:2] == version.to_bytes(2)
    found = read_assignment(written)
    assert found is not None
    assert dataclasses.astuple(found) == ((("a", 0), ("a", 3)), False)


def test_a_newer_subscription_begins_with_the_fields_of_the_newest_known() -> None:
    rack = (1).to_bytes(2) + b"r"
    said = read_subscription(b"\0\x09" + subscription([2])[2:] + (7).to_bytes(4) + rack)
    assert said is not None
    assert (said.version, said.owned, said.rack_id) == (3, frozenset({(TOPIC, 2)}), "r")


def test_a_static_member_of_the_other_protocol_is_no_unreleased_one(mixed: MixedGroup) -> None:
    """It takes the classic one's place at once; one of its own protocol it may not."""
    client = ClassicClient(mixed, instance="i")
    mixed.clients.append(client)
    settle(mixed)
    owned = client.owned
    mixed.clients.remove(client)
    first, second = NewClient(mixed, "first", "i"), NewClient(mixed, "second", "i")
    mixed.clients.append(first)
    first.step()
    assert (first.owned, first.epoch) == (owned, mixed.machine.epoch)
    second.step()
    assert second.epoch == 0
    assert mixed.machine.members["first"].classic is None
