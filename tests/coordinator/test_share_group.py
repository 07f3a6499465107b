"""Share groups, one story at a time, and their assignor; `test_share_properties` mixes the stories."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from ketch.coordinator.consumer.assignors import Subscriber
from ketch.coordinator.machine import Tick
from ketch.coordinator.share.assignor import _hash, assign_simply
from ketch.coordinator.share.config import Isolation, ResetStrategy, ResetTo
from ketch.coordinator.share.events import ShareBeat, ShareDepart
from ketch.coordinator.share.member import State
from tests.coordinator.sharers import OK, Sharers

Counts = dict[str, int]


# -- the group


def test_two_members_read_one_partition() -> None:
    sharers = Sharers({"t": 1})
    a, b = sharers.join("a", "t"), sharers.join("b", "t")
    assert sharers.beat(a).assignment is None, "nothing is taken from it"
    assert a.owned == b.owned == {("id-t", 0)}
    assert (sharers.group.epoch, a.epoch, b.epoch) == (2, 2, 2)


def test_a_member_that_missed_an_answer_goes_on() -> None:
    sharers = Sharers({"t": 4})
    a = sharers.join("a", "t")
    sharers.join("b", "t")
    sharers.beat(a, lost=True)
    assert sharers.beat(a).assignment == a.owned, "it is told again"
    sharers.join("c", "t")
    sharers.beat(a, lost=True)
    sharers.join("d", "t")
    sharers.beat(a, lost=True)
    assert sharers.beat(a).error is ErrorCode.fenced_member_epoch
    assert a.epoch == 0
    assert sharers.beat(a).error is ErrorCode.fenced_member_epoch, "as in Kafka: it has to leave, or to expire"


def test_members_expire_one_by_one() -> None:
    sharers = Sharers({"t": 2}, session_timeout=45.0)
    sharers.join("a", "t")
    sharers.wait(10)
    b = sharers.join("b", "t")
    sharers.wait(35)
    assert list(sharers.group.members) == ["b"]
    assert sharers.beat(b).error is OK
    assert len(b.owned) == 2
    sharers.wait(45)
    assert (sharers.group.state, sharers.group.epoch) == (State.EMPTY, 4)


def test_topics_come_grow_and_go() -> None:
    sharers = Sharers({})
    a = sharers.join("a", "t", "u")
    assert (a.owned, a.epoch) == (frozenset(), 1)
    sharers.set_topics({"t": 1, "v": 9})
    assert sharers.beat(a).assignment == {("id-t", 0)}
    sharers.set_topics({"t": 3, "v": 10})
    sharers.beat(a)
    assert (len(a.owned), a.epoch) == (3, 3)
    sharers.set_topics({"t": 3, "v": 11})
    assert sharers.beat(a).assignment is None, "a topic that it does not read"
    sharers.set_topics({"v": 11})
    assert sharers.beat(a).assignment == frozenset()


def test_a_group_that_is_deleted_answers_that_clients_have_to_come_again() -> None:
    sharers = Sharers({"t": 1})
    a = sharers.join("a", "t")
    assert not sharers.group.retire()
    sharers.depart(a)
    assert sharers.group.retire()
    for event in (ShareBeat(1, "a", 0, "c", "/h", sharers.topics, None, frozenset("t")), ShareDepart(1, "a")):
        (effect,) = sharers.group.handle(event, 0.0)
        assert effect.result.error is ErrorCode.coordinator_not_available
    assert sharers.group.handle(Tick(), 0.0) == []
    assert sharers.group.state is State.DEAD


# -- the assignor

MEMBERS = st.lists(
    st.builds(
        Subscriber,
        st.text("abcdef0123", min_size=1, max_size=6),
        st.none(),
        st.frozensets(st.sampled_from("tuv"), max_size=3),
        st.frozensets(st.tuples(st.sampled_from("tuvw"), st.integers(0, 9)), max_size=12),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda member: member.id,
)
COUNTS = st.dictionaries(st.sampled_from("tuv"), st.integers(1, 9))


@given(MEMBERS, COUNTS)
@settings(max_examples=300, deadline=None)
def test_everybody_reads_and_everything_is_read(members: list[Subscriber], counts: Counts) -> None:
    targets = assign_simply(members, counts)
    assert targets.keys() == {member.id for member in members}
    wanted = {(topic, n) for member in members for topic in member.topics for n in range(counts.get(topic, 0))}
    assert {partition for target in targets.values() for partition in target} == wanted
    for member in members:
        assert {topic for topic, _ in targets[member.id]} <= member.topics
        assert bool(targets[member.id]) == any(counts.get(topic) for topic in member.topics)


@given(MEMBERS, COUNTS, st.frozensets(st.sampled_from("tuv"), min_size=1))
@settings(max_examples=300, deadline=None)
def test_equal_members_get_about_the_same(members: list[Subscriber], counts: Counts, topics: frozenset[str]) -> None:
    """No more than its hash and an equal part gives a member, whatever it had; the part may be exceeded by one."""
    equal = [Subscriber(member.id, None, topics, member.had) for member in members]
    partitions = sum(counts.get(topic, 0) for topic in topics)
    sizes = [len(target) for target in assign_simply(equal, counts).values()]
    assert max(sizes) <= -(-partitions // len(equal)) + 1


@given(MEMBERS, COUNTS)
@settings(max_examples=300, deadline=None)
def test_without_a_change_nothing_moves(members: list[Subscriber], counts: Counts) -> None:
    first = assign_simply(members, counts)
    again = [Subscriber(member.id, None, member.topics, first[member.id]) for member in members]
    assert assign_simply(again, counts) == first


def test_more_members_than_partitions() -> None:
    members = [Subscriber(f"m{n}", None, frozenset("t")) for n in range(20)]
    targets = assign_simply(members, {"t": 3})
    assert {len(target) for target in targets.values()} <= {1, 2}
    loads = [sum((("t", n) in target) for target in targets.values()) for n in range(3)]
    assert min(loads) >= 1


def test_the_hash_is_that_of_java() -> None:
    """String.hashCode of these, by jshell."""
    assert [_hash(text) for text in ("", "a", "Aa", "BB", "hello", "m1", "\U0001f600")] == [
        0, 97, 2112, 2112, 99162322, 3428, 1772899,
    ]  # fmt: skip
    assert _hash("polygenelubricants") == -(2**31)


# -- configs

DURATIONS = {
    "P1D": 86_400_000,
    "pt1h": 3_600_000,
    "PT1M30S": 90_000,
    "PT0.0015S": 1,
    "PT1,5S": 1500,
    "P1DT2H3M4.005S": 93_784_005,
    "PT0S": 0,
    "-PT-1S": 1000,
    "PT1H-1M": 3_540_000,
}


@pytest.mark.parametrize("text", DURATIONS)
def test_durations(text: str) -> None:
    assert ResetStrategy.parse(f"by_duration:{text}") == ResetStrategy(ResetTo.BY_DURATION, DURATIONS[text])


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "PT1.5H", "-PT1S", "PT-0.1S", "P1W", "PT1M1H", " PT1S"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="must be either"):
        ResetStrategy.parse(f"by_duration:{text}")


def test_words_of_configs() -> None:
    assert [ResetStrategy.parse(text).to for text in ("earliest", "latest")] == [ResetTo.EARLIEST, ResetTo.LATEST]
    assert Isolation.parse("read_committed") is Isolation.READ_COMMITTED
    wrong = ("Latest", "READ_COMMITTED", "none", "")
    for parse, text in itertools.product((ResetStrategy.parse, Isolation.parse), wrong):
        with pytest.raises(ValueError, match="must be"):
            parse(text)
