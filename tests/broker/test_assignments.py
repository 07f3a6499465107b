"""Which member a fetch is of by assignments alone, against a list of all of them: no broker.

What connections tell beyond that is the matter of test_readers.py.
"""

from __future__ import annotations

import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.consumer_protocol_assignment.v1.data import TopicPartition as AssignedTopic
from kio.serial import entity_writer
from kio.static.constants import EntityType

from ketch.broker.coordination.assignments import Assignments, assigned_partitions, subscribed_topics
from ketch.broker.coordination.readers import Reader
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import GroupConfig, Member
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.member import ConsumerConfig
from ketch.coordinator.consumer.member import Member as ConsumerMember
from ketch.coordinator.consumer.topics import TopicInfo
from ketch.store.keys import TopicPartition

GROUPS, MEMBERS, CLIENTS = ("g", "h"), ("m0", "m1", "m2"), ("c0", "c1")
partitions = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2))


def encoded(kind: str, version: int = 1, **fields: Any) -> bytes:
    """Metadata or an assignment of the consumer protocol."""
    schema = load_entity_schema(f"consumer_protocol_{kind}", version, EntityType.data)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, schema(**fields))
    return version.to_bytes(2) + buffer.getvalue()


def assignment(assigned: set[TopicPartition]) -> bytes:
    topics = {topic for topic, _ in assigned}
    parts = tuple(
        AssignedTopic(topic=t, partitions=tuple(n for topic, n in assigned if topic == t)) for t in sorted(topics)
    )
    return encoded("assignment", assigned_partitions=parts, user_data=None)


def member(name: str, client: str, assigned: bytes, metadata: bytes = b"") -> Member:
    return Member(name, None, client, "/host", 10.0, 10.0, (("range", metadata),), assigned)


def group(name: str, members: list[Member], protocol_type: str = "consumer") -> Group:
    made = Group(name, GroupConfig(), lambda prefix: prefix)
    made.protocol_type, made.protocol = protocol_type, "range"
    made.members = {each.id: each for each in members}
    return made


def consumer_group(name: str, members: dict[str, tuple[str, set[TopicPartition]]]) -> ConsumerGroup:
    """A group of the new protocol, whose coordinator has assigned these partitions."""
    made = ConsumerGroup(name, ConsumerConfig())
    made.topics = {topic: TopicInfo(f"id-{topic}", 3) for topic in ("a", "b")}
    for each, (client, held) in members.items():
        assigned = frozenset((f"id-{topic}", index) for topic, index in held)
        made.members[each] = ConsumerMember(each, client_id=client, host="/host", assigned=assigned)
    return made


assigned_members = st.dictionaries(st.sampled_from(MEMBERS), st.tuples(st.sampled_from(CLIENTS), st.sets(partitions)))
changes = st.lists(
    st.tuples(
        st.just("update"),
        st.sampled_from(GROUPS),
        assigned_members,
        st.sampled_from(["consumer", "connect", "KIP-848"]),
    )
    | st.tuples(st.just("remove"), st.sampled_from(GROUPS), st.sampled_from(MEMBERS)),
    max_size=12,
)


@given(changes)
def test_a_fetch_is_the_only_member_s_it_can_be(changes: list[Any]) -> None:
    assignments = Assignments()
    model: dict[str, dict[str, tuple[str, set[TopicPartition]]]] = {name: {} for name in GROUPS}
    for kind, name, *rest in changes:
        had = {each: held for each, (_, held) in model[name].items()}
        if kind == "update":
            members, protocol_type = rest
            made = [member(each, client, assignment(held)) for each, (client, held) in members.items()]
            new = protocol_type == "KIP-848"
            lost = assignments.update(consumer_group(name, members) if new else group(name, made, protocol_type))
            model[name] = {} if protocol_type == "connect" else dict(members)
            expected = {each: held - model[name].get(each, ("", set()))[1] for each, held in had.items()}
            assert {each: set(gone) for each, gone in lost if gone} == {e: gone for e, gone in expected.items() if gone}
        else:
            assert set(assignments.remove(name, rest[0])) == had.get(rest[0], set())
            model[name].pop(rest[0], None)
        check(assignments, model)


def check(assignments: Assignments, model: dict[str, dict[str, tuple[str, set[TopicPartition]]]]) -> None:
    for partition in [(topic, index) for topic in ("a", "b") for index in range(3)]:
        readers: dict[str, list[tuple[str, str]]] = {client: [] for client in CLIENTS}
        for name, members in model.items():
            for each, (client, held) in members.items():
                if partition in held:
                    readers[client].append((name, each))
        for client, them in readers.items():
            assert assignments.find(Reader(), client, "/host", partition) == (them[0] if len(them) == 1 else None)
            assert assignments.find(Reader(), client, "/elsewhere", partition) is None
        for name in GROUPS:
            known = any(len(them) == 1 and them[0][0] == name for them in readers.values())
            for leads in (False, True):  # without any connection that fetched, leading the partition tells nothing more
                assert assignments.tracked(name, partition, leads) == known


@given(st.binary(max_size=30))
def test_assignments_that_are_no_consumer_s(data: bytes) -> None:
    """A member may send anything; what cannot be read is no assignment."""
    for partition in assigned_partitions(member("m", "c", data)):
        assert isinstance(partition, tuple)
    assert isinstance(subscribed_topics(group("g", [member("m", "c", b"", data)])), set | None)


def test_a_newer_version_of_the_consumer_protocol() -> None:
    data = assignment({("a", 1)})
    assert assigned_partitions(member("m", "c", (7).to_bytes(2) + data[2:])) == [("a", 1)]


def test_the_topics_a_group_subscribes_to() -> None:
    known = encoded("subscription", topics=("a", "b"), user_data=None, owned_partitions=())
    other = encoded("subscription", topics=("c",), user_data=None, owned_partitions=())
    members = [member("m0", "c", b"", known), member("m1", "c", b"", other)]
    assert subscribed_topics(group("g", members)) == {"a", "b", "c"}
    assert subscribed_topics(group("g", [*members, member("m2", "c", b"", b"?")])) is None
