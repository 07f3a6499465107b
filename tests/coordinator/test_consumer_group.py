"""A consumer group, case by case as Kafka's GroupMetadataManagerTest has them."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from ketch.coordinator.consumer.member import MemberState, State
from tests.coordinator.consumers import OK, Client, Consumers


def test_a_member_alone_gets_everything_at_once() -> None:
    consumers = Consumers({"a": 3, "b": 2, "other": 9})
    client = consumers.join("m", "a", "b", "missing")
    assert (client.epoch, len(client.owned)) == (1, 5)
    assert consumers.group.state is State.STABLE
    assert consumers.group.subscribed == {"a", "b", "missing"}
    stored = consumers.stored
    assert consumers.beat(client).assignment is None
    assert consumers.beat(client, full=True).assignment == client.owned
    assert consumers.stored is stored, "a heartbeat that changes nothing stores nothing"


def test_a_second_member_gets_what_the_first_has_given_up() -> None:
    consumers = Consumers({"a": 4})
    first = consumers.join("m1", "a")
    first.obeys = False
    second = consumers.join("m2", "a")
    assert (second.epoch, second.owned) == (2, frozenset())
    assert consumers.group.state is State.RECONCILING
    kept = consumers.beat(first)
    assert (kept.epoch, len(kept.assignment or ())) == (1, 2), "it stays in its epoch until it has given up"
    assert consumers.group.members["m1"].state is MemberState.UNREVOKED
    for _ in range(2):
        assert consumers.beat(first).assignment is None
        assert consumers.beat(second).assignment is None
    first.owned = kept.assignment or frozenset()
    assert consumers.beat(first).epoch == 2
    assert len(consumers.beat(second).assignment or ()) == 2
    assert consumers.group.state is State.STABLE
    assert consumers.settle() == 1


def test_an_answer_that_was_lost() -> None:
    consumers = Consumers({"a": 4})
    first = consumers.join("m1", "a")
    consumers.join("m2", "a")
    consumers.beat(first)
    assert consumers.beat(first, lost=True).epoch == 2
    assert consumers.beat(first, owned=None, lost=True).error is ErrorCode.fenced_member_epoch
    assert consumers.beat(first, full=True).epoch == 2, "its last epoch, with no more than it may have"


def test_epochs_that_are_refused() -> None:
    consumers = Consumers({"a": 4})
    client = consumers.join("m1", "a")
    consumers.join("m2", "a")
    consumers.settle()
    for epoch in (client.epoch + 1, client.epoch - 1):
        refused = consumers.beat(client, epoch=epoch, owned=None, lost=True)
        assert refused.error is ErrorCode.fenced_member_epoch
        assert refused.member_id is None
        assert f"member epoch ({epoch})" in (refused.message or "")
    stranger = Client("m9", frozenset("a"))
    assert consumers.beat(stranger, epoch=1).error is ErrorCode.unknown_member_id
    assert consumers.depart(stranger).error is ErrorCode.unknown_member_id
    assert Consumers({}).beat(stranger, epoch=1).error is ErrorCode.group_id_not_found
    assert Consumers({}).depart(stranger).error is ErrorCode.group_id_not_found


def test_limits() -> None:
    consumers = Consumers({"a": 4}, max_size=1, assignors=("range",))
    consumers.join("m1", "a", assignor="range")
    assert consumers.beat(Client("m2", frozenset("a"))).error is ErrorCode.group_max_size_reached
    wrong = Client("m1", frozenset("a"), assignor="uniform")
    assert consumers.beat(wrong, full=True).error is ErrorCode.unsupported_assignor
    assert consumers.group.assignor == "range"


def test_the_assignor_that_most_want() -> None:
    consumers = Consumers({"a": 4})
    for name, assignor in (("m1", "range"), ("m2", "range"), ("m3", "uniform"), ("m4", None)):
        consumers.join(name, "a", assignor=assignor)
    assert consumers.group.assignor == "range"
    consumers.settle()
    assert consumers.shares() == [1, 1, 1, 1]


def test_members_that_are_silent_or_keep_what_they_should_give_up() -> None:
    consumers = Consumers({"a": 4}, session_timeout=100.0)
    first = consumers.join("m1", "a")
    first.obeys = False
    consumers.join("m2", "a")
    consumers.beat(first)
    consumers.wait(59.0)
    consumers.beat(first)
    consumers.wait(2.0)
    assert consumers.gone == ["m1"], "it had 60 s"
    consumers.wait(39.5)
    assert consumers.gone == ["m1", "m2"]
    assert consumers.group.state is State.EMPTY
    assert consumers.beat(first, epoch=1).error is ErrorCode.unknown_member_id


def test_leaving_makes_room() -> None:
    consumers = Consumers({"a": 4})
    first, second = consumers.join("m1", "a"), consumers.join("m2", "a")
    consumers.settle()
    epoch = consumers.group.epoch
    gone = consumers.depart(first)
    assert (gone.error, gone.epoch, gone.member_id) == (OK, -1, "m1")
    assert (consumers.group.epoch, consumers.group.state) == (epoch + 1, State.ASSIGNING)
    assert len(consumers.beat(second).assignment or ()) == 4


def test_static_members() -> None:
    consumers = Consumers({"a": 4})
    first, _ = consumers.join("m1", "a", instance="i"), consumers.join("m2", "a")
    consumers.settle()
    had, epoch = first.owned, consumers.group.epoch
    again = Client("m3", frozenset("a"), instance="i")
    assert consumers.beat(again).error is ErrorCode.unreleased_instance_id
    assert consumers.beat(again, epoch=1).error is ErrorCode.fenced_instance_id
    assert consumers.depart(first, epoch=-2).epoch == -2
    assert consumers.commit("m1", epoch) is ErrorCode.stale_member_epoch
    consumers.settle()
    assert consumers.group.owners.keys() >= had, "nobody else gets them"
    consumers.reload()
    again = consumers.join("m3", "a", instance="i")
    assert (again.owned, consumers.group.epoch) == (had, epoch), "no rebalance"
    assert consumers.depart(again, epoch=-2).error is OK
    same = consumers.join("m3", "a", instance="i")
    assert same.owned == had
    consumers.depart(same, epoch=-2)
    consumers.wait(44.0)
    assert consumers.gone == ["m1"]
    consumers.wait(2.0)
    assert set(consumers.gone) == {"m1", "m2", "m3"}


def test_topics_that_come_grow_and_go() -> None:
    consumers = Consumers({"a": 2})
    client = consumers.join("m", "a", "b")
    consumers.set_topics({"a": 2, "b": 1, "other": 7})
    assert len(consumers.beat(client).assignment or ()) == 3
    consumers.set_topics({"a": 5, "b": 1})
    assert len(consumers.beat(client).assignment or ()) == 6
    epoch = consumers.group.epoch
    consumers.set_topics({"a": 5, "b": 1, "more": 3})
    assert consumers.beat(client).assignment is None
    assert consumers.group.epoch == epoch
    consumers.set_topics({"a": 5})
    consumers.beat(client)
    assert {topic for topic, _ in client.owned} == {"id-a"}


def test_regular_expressions() -> None:
    consumers = Consumers({"abc": 2, "abcd": 1, "x": 5})
    client = consumers.join("m", regex="ab.")
    assert {topic for topic, _ in client.owned} == {"id-abc"}
    consumers.set_topics({"abc": 2, "abd": 1, "abcd": 1})
    assert len(consumers.beat(client).assignment or ()) == 3
    assert consumers.group.subscribed == {"abc", "abd"}
    both = consumers.beat(client, names=frozenset({"abcd"}))
    assert len(both.assignment or ()) == 4
    assert consumers.beat(client, regex="", names=frozenset()).assignment == frozenset()
    for wrong in ("a(", "(?=a)", r"(a)\1"):
        refused = consumers.beat(client, regex=wrong, lost=True)
        assert refused.error is ErrorCode.invalid_regular_expression
        assert f"`{wrong}` is not a valid regular expression" in (refused.message or "")


def test_regular_expressions_that_take_too_long_to_compile() -> None:
    """Unicode classes take RE2 most time, and most memory."""
    consumers = Consumers({"abc": 2})
    client = consumers.join("m", regex="|".join(["abc"] * 1000))
    assert len(client.owned) == 2
    for wrong in ("a" * 4097, r"(?i)" + r"\pL" * 1000):
        assert consumers.beat(client, regex=wrong, lost=True).error is ErrorCode.invalid_regular_expression


def test_a_regular_expression_is_asked_with_the_rights_of_who_comes() -> None:
    """Another member's rights count from when a topic comes, or ten minutes later."""
    consumers = Consumers({"a1": 1, "a2": 1, "a3": 1}, session_timeout=1000.0)
    client = consumers.join("m", regex="a.*", hides=lambda name: name != "a1")
    assert {topic for topic, _ in client.owned} == {"id-a1"}
    consumers.reload()
    second = consumers.join("m2", regex="a.*", hides=lambda name: name == "a3")
    consumers.settle()
    assert {topic for topic, _ in client.owned | second.owned} == {"id-a1", "id-a2"}, "the first after it was loaded"
    client.hides = lambda name: False
    consumers.settle()
    assert {topic for topic, _ in client.owned | second.owned} == {"id-a1", "id-a2"}
    consumers.wait(601.0)
    consumers.settle()
    assert {topic for topic, _ in client.owned | second.owned} == {"id-a1", "id-a2", "id-a3"}
    consumers.set_topics({"a1": 1, "a2": 1, "a3": 1, "a4": 1})
    second.hides = lambda name: name in ("a3", "a4")
    consumers.beat(second)
    consumers.settle()
    assert {topic for topic, _ in client.owned | second.owned} == {"id-a1", "id-a2"}


def test_a_regular_expression_finds_a_topic_that_the_group_reads_already() -> None:
    consumers = Consumers({"a": 4}, session_timeout=1000.0)
    by_name = consumers.join("m1", "a")
    by_regex = consumers.join("m2", regex="a.*", hides=lambda name: True)
    consumers.settle()
    assert (len(by_name.owned), len(by_regex.owned)) == (4, 0)
    by_regex.hides = lambda name: False
    consumers.wait(601.0)
    consumers.settle()
    assert (len(by_name.owned), len(by_regex.owned)) == (2, 2)
    consumers.set_topics({"a": 4, "ab": 1})
    consumers.settle()
    assert consumers.group.subscribed == {"a", "ab"}
    consumers.depart(by_regex)
    assert consumers.group.subscribed == {"a"}, "nobody has the expression"
    again = consumers.join("m3", regex="a.*", hides=lambda name: name == "ab")
    consumers.settle()
    assert (consumers.group.subscribed, len(again.owned)) == ({"a"}, 2), "it is asked with this one's rights"


def test_commits() -> None:
    consumers = Consumers({"a": 2})
    assert consumers.commit("", -1) is OK
    client = consumers.join("m", "a")
    assert consumers.commit("m", client.epoch) is OK
    assert consumers.commit("m", client.epoch, knows_epochs=False) is ErrorCode.unsupported_version
    assert consumers.commit("m", client.epoch - 1) is ErrorCode.stale_member_epoch
    for member, epoch in (("", -1), ("other", 1)):
        assert consumers.commit(member, epoch) is ErrorCode.unknown_member_id


def test_a_group_that_is_deleted() -> None:
    consumers = Consumers({"a": 2})
    client = consumers.join("m", "a")
    assert not consumers.group.retire()
    consumers.depart(client)
    assert consumers.group.retire()
    assert consumers.group.state is State.DEAD
    assert consumers.commit("m", -1) is ErrorCode.coordinator_not_available


@pytest.mark.parametrize("when", ["stable", "revoking"])
def test_a_broker_dies(when: str) -> None:
    consumers = Consumers({"a": 5})
    first = consumers.join("m1", "a")
    second = consumers.join("m2", "a")
    if when == "stable":
        consumers.settle()
    else:
        first.obeys = False
        consumers.beat(first)
    epoch = consumers.group.epoch
    consumers.reload()
    first.obeys = True
    consumers.beat(first, full=True)
    consumers.settle()
    assert (consumers.group.epoch, consumers.gone, consumers.shares()) == (epoch, [], [2, 3])
    assert first.owned.isdisjoint(second.owned)
