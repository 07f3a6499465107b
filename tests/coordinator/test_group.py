"""The group protocol case by case, as Kafka's GroupMetadataManager has it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ketch.coordinator.classic.events import Heartbeat, Sync
from ketch.coordinator.classic.group import TABLE
from ketch.coordinator.classic.member import State
from tests.coordinator.driver import OK, Driver

E = ErrorCode
RANGE, ROUNDROBIN = ("range", b"r"), ("roundrobin", b"rr")


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_the_table_knows_every_state_and_event() -> None:
    assert all(set(row) == set(State) for row in TABLE.values())


# -- joining


def test_the_member_id_round_trip(driver: Driver) -> None:
    given = driver.join(id_required=True)
    assert (given.error, given.generation) == (E.member_id_required, -1)
    assert not driver.group.members
    assert driver.join(given.member_id, id_required=True).generation == 1
    assert driver.join("another").error is E.unknown_member_id


def test_an_id_that_is_not_used_is_forgotten(driver: Driver) -> None:
    given = driver.join(id_required=True).member_id
    driver.wait(10)
    assert driver.join(given, id_required=True).error is E.unknown_member_id


def test_an_id_that_was_only_given_does_not_hold_up_the_first_rebalance(driver: Driver) -> None:
    driver.join(id_required=True)
    assert driver.join().generation == 1


def test_a_rebalance_waits_for_ids_that_were_given(driver: Driver) -> None:
    (first,) = driver.stable(None)
    driver.join(id_required=True)
    assert driver.join(first) is None
    driver.wait(9)
    assert driver.group.state is State.PREPARING
    driver.wait(1)
    assert driver.group.state is State.COMPLETING


@pytest.mark.parametrize("session", [5.9, 1801.0, 0.0, -1.0])
def test_session_timeouts_have_limits(driver: Driver, session: float) -> None:
    assert driver.join(session=session).error is E.invalid_session_timeout


@pytest.mark.parametrize("given", [{"protocols": ()}, {"kind": ""}])
def test_a_join_without_protocol(driver: Driver, given: dict[str, Any]) -> None:
    assert driver.join(**given).error is E.inconsistent_group_protocol


def test_members_need_a_protocol_in_common(driver: Driver) -> None:
    driver.stable(None)
    assert driver.join(protocols=(ROUNDROBIN,)).error is E.inconsistent_group_protocol
    assert driver.join(kind="connect").error is E.inconsistent_group_protocol
    assert driver.group.state is State.STABLE
    assert driver.join(protocols=(ROUNDROBIN, RANGE)) is None


def test_members_that_name_very_many_protocols(driver: Driver) -> None:
    """As many as a request may have; to compare each with each would take minutes."""
    names = [(f"p{n}", b"") for n in range(90_000)]
    first = driver.join(protocols=tuple(names))
    assert (first.error, first.protocol) == (OK, "p0")
    others = [(f"q{n}", b"") for n in range(90_000)]
    assert driver.join(protocols=tuple(others)).error is E.inconsistent_group_protocol
    driver.join(protocols=(*others, names[-1]))
    assert driver.join(first.member_id, protocols=tuple(names)).protocol == "p89999"


def test_the_protocol_that_most_prefer(driver: Driver) -> None:
    third = ("third", b"")
    first = driver.join(protocols=(third, RANGE, ROUNDROBIN))
    assert first.protocol == "third"
    for _ in range(2):
        driver.join(protocols=(ROUNDROBIN, RANGE))
    assert driver.join(first.member_id, protocols=(RANGE, ROUNDROBIN)).protocol == "roundrobin"
    assert all(metadata == b"rr" for _, _, metadata in driver.answers[max(driver.answers)].members)


def test_an_empty_group_takes_another_type(driver: Driver) -> None:
    (member,) = driver.stable(None)
    driver.leave(member)
    joined = driver.join(kind="connect")
    assert (joined.error, joined.protocol_type) == (OK, "connect")


def test_a_leader_that_joins_again_starts_a_rebalance_a_follower_does_not(driver: Driver) -> None:
    leader, follower = driver.stable(None, None)
    again = driver.join(follower)
    assert (again.generation, again.leader, again.members) == (2, leader, ())
    assert driver.join(leader) is None
    assert driver.heartbeat(follower) is E.rebalance_in_progress
    assert driver.join(follower).generation == 3


def test_a_member_that_changes_its_mind_starts_a_rebalance(driver: Driver) -> None:
    _, follower = driver.stable(None, None)
    assert driver.join(follower, protocols=(("range", b"new"),)) is None
    assert driver.group.state is State.PREPARING


def test_a_join_that_is_repeated_before_the_sync_is_answered_alike(driver: Driver) -> None:
    first = driver.join()
    assert driver.join(first.member_id) == first


def test_a_join_that_is_repeated_while_it_waits(driver: Driver) -> None:
    driver.stable(None)
    driver.join()
    waiting = max(driver.open)
    driver.join(list(driver.group.members)[1])
    assert driver.answers[waiting].error is E.rebalance_in_progress


def test_the_initial_delay_is_prolonged_by_those_who_come(driver: Driver) -> None:
    driver = Driver(initial_rebalance_delay=3.0)
    driver.join(rebalance=7.0)
    driver.wait(2)
    driver.join(rebalance=7.0)
    driver.wait(2)
    assert driver.group.state is State.PREPARING
    driver.join(rebalance=7.0)
    driver.wait(2.9)
    assert driver.group.state is State.PREPARING, "up to the rebalance timeout"
    driver.wait(0.1)
    assert (driver.group.state, driver.group.generation) == (State.COMPLETING, 1)
    assert len(driver.group.members) == 3


def test_the_initial_delay_alone() -> None:
    driver = Driver(initial_rebalance_delay=3.0)
    driver.join()
    driver.wait(2.9)
    assert driver.open
    driver.wait(0.1)
    assert not driver.open


def test_a_full_group() -> None:
    driver = Driver(max_size=2)
    members = driver.stable(None, "i")
    assert driver.join().error is E.group_max_size_reached
    assert driver.join(id_required=True).error is E.group_max_size_reached
    assert driver.join(instance="i").error is OK, "it takes its own place"
    assert driver.join(members[0]) is None


def test_places_go_to_those_who_come_first() -> None:
    driver = Driver(max_size=2)
    first, second = driver.stable(None, None)
    driver.leave(second)
    assert driver.join() is None
    assert driver.join() is None
    assert driver.join(first).error is E.group_max_size_reached
    assert driver.group.state is State.COMPLETING
    assert first in driver.removed


# -- syncing


def test_everybody_gets_a_share(driver: Driver) -> None:
    members = driver.stable(None, None, None)
    assert [driver.sync(member).assignment for member in members] == [member.encode() for member in members]


def test_a_member_that_the_leader_forgot_gets_an_empty_share(driver: Driver) -> None:
    (first,) = driver.stable(None)
    driver.join()
    driver.join(first)
    second = list(driver.group.members)[1]
    assert driver.sync(first, {first: b"all", "ghost": b"?"}).assignment == b"all"
    assert driver.sync(second).assignment == b""


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"generation": 7}, E.illegal_generation),
        ({"instance": "i"}, E.unknown_member_id),
        ({"kind": "connect"}, E.inconsistent_group_protocol),
        ({"protocol": "other"}, E.inconsistent_group_protocol),
        ({"kind": "consumer", "protocol": "range"}, OK),
    ],
)
def test_what_sync_refuses(driver: Driver, given: dict[str, Any], error: ErrorCode) -> None:
    member = driver.join().member_id
    assert driver.sync(member, **given).error is error
    assert driver.sync("stranger").error is E.unknown_member_id


def test_a_sync_that_comes_late(driver: Driver) -> None:
    (first,) = driver.stable(None)
    driver.join()
    assert driver.sync(first).error is E.rebalance_in_progress


def test_whoever_waits_for_a_share_is_told_of_the_next_rebalance(driver: Driver) -> None:
    (first,) = driver.stable(None)
    driver.join()
    driver.join(first)
    second = list(driver.group.members)[1]
    assert driver.sync(second) is None
    waiting = max(driver.open)
    driver.leave(first)
    assert driver.answers[waiting].error is E.rebalance_in_progress


@pytest.mark.parametrize("leader_syncs", [True, False])
def test_members_that_never_sync_go(driver: Driver, leader_syncs: bool) -> None:
    (first,) = driver.stable(None)
    driver.join()
    driver.join(first)
    second = list(driver.group.members)[1]
    synced, silent = (first, second) if leader_syncs else (second, first)
    driver.sync(synced)
    for _ in range(7):
        driver.wait(8)
        driver.heartbeat(synced)
        driver.heartbeat(silent)
    assert silent in driver.group.members
    driver.wait(4)
    assert list(driver.group.members) == [synced]
    assert driver.heartbeat(synced) is E.rebalance_in_progress


# -- heartbeats, sessions, leaving


def test_heartbeats_in_every_state(driver: Driver) -> None:
    assert driver.heartbeat("x", generation=0) is E.unknown_member_id
    first = driver.join().member_id
    assert driver.heartbeat(first) is OK
    assert driver.heartbeat(first, generation=0) is E.illegal_generation
    driver.sync(first)
    assert driver.heartbeat(first) is OK
    driver.join()
    assert driver.heartbeat(first) is E.rebalance_in_progress


def test_a_silent_member_goes_when_its_session_ends(driver: Driver) -> None:
    first, second = driver.stable(None, None)
    driver.wait(9)
    driver.heartbeat(first)
    driver.wait(1)
    assert driver.removed == [second]
    assert driver.heartbeat(first) is E.rebalance_in_progress


@pytest.mark.parametrize("how", ["commit", "sync"])
def test_any_word_of_a_member_prolongs_its_session(driver: Driver, how: str) -> None:
    (member,) = driver.stable(None)
    for _ in range(3):
        driver.wait(9)
        getattr(driver, how)(member)
    assert member in driver.group.members


def test_who_does_not_join_again_is_left_behind(driver: Driver) -> None:
    first, second = driver.stable(None, None, rebalance=5.0)
    driver.join(first, rebalance=5.0)
    driver.wait(5)
    assert driver.removed == [second]
    assert driver.group.state is State.COMPLETING


def test_a_member_that_waits_for_others_does_not_expire(driver: Driver) -> None:
    first, second = driver.stable(None, None)
    driver.join(first)
    for _ in range(6):
        driver.wait(9)
        driver.heartbeat(second)
    assert first in driver.group.members


def test_a_newcomer_that_waits_too_long_is_let_go() -> None:
    driver = Driver(new_member_join_timeout=20.0)
    (first,) = driver.stable(None, rebalance=1000.0)
    driver.join(rebalance=1000.0)
    newcomer = max(driver.open)
    for _ in range(3):
        driver.wait(7)
        driver.heartbeat(first)
    assert driver.answers[newcomer].error is E.unknown_member_id


def test_leaving(driver: Driver) -> None:
    first, second = driver.stable(None, None)
    assert driver.leave("stranger") is E.unknown_member_id
    assert driver.leave(second, "i") is E.unknown_member_id
    assert driver.leave(second) is OK
    assert driver.leave(second) is E.unknown_member_id
    assert driver.heartbeat(first) is E.rebalance_in_progress
    assert driver.leave(first) is OK
    assert (driver.group.state, driver.group.generation, driver.group.leader) == (State.EMPTY, 3, None)
    assert driver.group.deadline is None


def test_the_last_that_was_waited_for_leaves(driver: Driver) -> None:
    first, second = driver.stable(None, None)
    driver.join(first)
    driver.leave(second)
    assert driver.group.state is State.COMPLETING
    driver.join(id_required=True)
    driver.sync(first)
    given = driver.join(id_required=True).member_id
    assert driver.leave(given) is OK


def test_leaving_while_one_waits(driver: Driver) -> None:
    driver.stable(None)
    driver.join()
    waiting = max(driver.open)
    driver.leave(list(driver.group.members)[1])
    assert driver.answers[waiting].error is E.unknown_member_id


# -- static members


def test_a_static_member_that_comes_back_keeps_its_place(driver: Driver) -> None:
    leader, old = driver.stable("i", "j")
    again = driver.join(instance="j")
    assert (again.error, again.generation, again.leader, again.members) == (OK, 2, leader, ())
    assert again.member_id != old
    assert driver.sync(again.member_id, instance="j").assignment == old.encode()
    assert driver.heartbeat(old, "j") is E.fenced_instance_id
    assert driver.commit(old, "j") is E.fenced_instance_id
    assert driver.sync(old, instance="j").error is E.fenced_instance_id
    assert driver.join(old, "j").error is E.fenced_instance_id
    assert driver.leave(old, "j") is E.fenced_instance_id
    assert driver.heartbeat(old) is E.unknown_member_id
    assert driver.heartbeat(leader, "i") is OK


def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment_if_it_can(driver: Driver) -> None:
    old, _ = driver.stable("i", "j")
    new = driver.join(instance="i", skips_assignment=True)
    assert (new.leader, new.skip_assignment, len(new.members)) == (new.member_id, True, 2)
    plain = driver.join(instance="i")
    assert (plain.leader, plain.skip_assignment, plain.members) == (new.member_id, False, ())
    assert old not in driver.group.members


def test_a_static_member_that_comes_back_otherwise_starts_a_rebalance(driver: Driver) -> None:
    driver.stable("i", protocols=(RANGE, ROUNDROBIN))
    changed = driver.join(instance="i", protocols=(ROUNDROBIN, RANGE))
    assert (changed.generation, changed.protocol) == (2, "roundrobin")


def test_a_static_member_that_comes_back_twice_fences_the_one_that_waits(driver: Driver) -> None:
    first, _ = driver.stable("i", "j")
    driver.join(first, "i")
    driver.join(instance="j")
    assert driver.join(first, "i").error is OK
    driver.join(instance="j")
    waiting = max(driver.open)
    driver.join(instance="j")
    assert driver.answers[waiting].error is E.fenced_instance_id


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends(driver: Driver) -> None:
    first, away = driver.stable("i", "j", rebalance=2.0)
    driver.join(first, "i", rebalance=2.0)
    driver.wait(2)
    assert driver.group.state is State.COMPLETING
    assert away in driver.group.members
    driver.wait(8)
    assert away in driver.removed


def test_an_administrator_removes_an_instance(driver: Driver) -> None:
    driver.stable("i")
    assert driver.leave("", "x") is E.unknown_member_id
    assert driver.leave("", "i") is OK
    assert driver.group.state is State.EMPTY


# -- commits


def test_who_may_commit(driver: Driver) -> None:
    assert driver.commit("", generation=-1) is OK
    assert driver.commit("x", generation=3) is E.unknown_member_id
    member = driver.join().member_id
    assert driver.commit(member) is E.rebalance_in_progress
    assert driver.commit("", generation=-1) is E.unknown_member_id
    driver.sync(member)
    assert driver.commit(member) is OK
    assert driver.commit(member, generation=-1) is E.illegal_generation
    assert driver.commit(member, generation=9) is E.illegal_generation
    assert driver.commit(member, "i") is E.unknown_member_id
    driver.join()
    assert driver.commit(member) is OK, "it may save what it has done before it joins again"


# -- dead groups and stored ones


def test_a_dead_group_sends_everybody_away(driver: Driver) -> None:
    driver.group.state = State.DEAD
    assert driver.join("m").error is E.coordinator_not_available
    assert driver.sync("m").error is E.coordinator_not_available
    for answer in (driver.heartbeat("m"), driver.leave("m"), driver.commit("m")):
        assert answer is E.coordinator_not_available
    driver.wait(100)


def test_a_stored_group_goes_on_in_its_generation(driver: Driver) -> None:
    leader, follower = driver.stable("i", None)
    driver.wait(5)
    driver.group = driver.restored()
    driver.removed.clear()
    assert driver.heartbeat(leader, "i") is OK
    assert driver.feed(Sync(next(driver.tokens), follower, None, 2, None, None, {})).assignment == follower.encode()
    assert driver.feed(Heartbeat(next(driver.tokens), leader, "other", 2)) is E.unknown_member_id
    driver.wait(10)
    assert not driver.group.members


def test_state_is_stored_when_it_is_settled(driver: Driver) -> None:
    (member,) = driver.stable("i")
    assert driver.persisted == 1
    member = driver.join(instance="i").member_id
    assert driver.persisted == 2
    driver.leave(member)
    assert driver.persisted == 3
