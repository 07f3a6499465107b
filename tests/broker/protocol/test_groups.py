"""The group APIs with raw requests: every version, every error, what survives a restart, and how large groups may be.

The codes are those that Apache Kafka 4.1 gives to the same requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.index import load_request_schema

from tests.support.batches import batch, records
from tests.support.groups import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SERVED,
    SYNC,
    Member,
    assignment,
    gather,
    keys_naming,
    subscription,
)
from tests.support.kafka import API_VERSIONS, DELETE_TOPICS, Kafka, entity
from tests.support.ketch import KetchServer, eventually

Enter = Callable[..., Member]


@pytest.fixture
def enter(broker: KetchServer, topic: str) -> Iterator[Enter]:
    """Makes members of the test's own group: `enter(instance)`; they have not joined."""
    members: list[Member] = []

    def make(instance: str | None = None, group: str = "", client_id: str = "raw") -> Member:
        members.append(Member(broker.port, group or f"g-{topic}", instance, client_id))
        return members[-1]

    yield make
    for member in members:
        member.close()


def test_every_version_is_served(kafka: Kafka) -> None:
    ranges = {api.api_key: range(api.min_version, api.max_version + 1) for api in kafka.ask(API_VERSIONS, 0).api_keys}
    assert {key: ranges[key] for key in SERVED} == SERVED


# -- joining and going, in every version


@pytest.mark.parametrize("version", SERVED[JOIN])
def test_join(enter: Enter, version: int) -> None:
    member = enter()
    first = member.join(version)
    assert first.error_code == (79 if version >= 4 else 0)
    joined = member.join(version) if version >= 4 else first
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member.id)
    assert joined.protocol_name == "range"
    assert [(m.member_id, m.metadata) for m in joined.members] == [(member.id, subscription("t"))]
    if version >= 7:
        assert joined.protocol_type == "consumer"
    assert member.id.startswith("raw-")


@pytest.mark.parametrize("version", SERVED[SYNC])
def test_sync(enter: Enter, version: int) -> None:
    member = enter()
    member.enter()
    assert member.sync({member.id: b"mine"}, version).assignment == b"mine"
    assert member.sync({}, version).assignment == b"mine"
    wrong = [{"generation_id": 9}, {"member_id": "x"}]
    assert [member.sync({}, version, **given).error_code for given in wrong] == [22, 25]
    if version >= 5:
        named = [{"protocol_name": "x"}, {"protocol_type": "x"}, {"protocol_name": None}, {"protocol_type": None}]
        assert [member.sync({}, version, **given).error_code for given in named] == [23] * 4


@pytest.mark.parametrize("version", SERVED[HEARTBEAT])
def test_heartbeat(enter: Enter, version: int) -> None:
    member = enter()
    assert member.heartbeat(version, generation_id=1, member_id="x") == 25
    gather(member)
    assert member.heartbeat(version) == 0
    assert member.heartbeat(version, generation_id=9) == 22
    assert member.heartbeat(version, member_id="x") == 25


@pytest.mark.parametrize("version", SERVED[LEAVE])
def test_leave(enter: Enter, version: int) -> None:
    member = gather(enter())
    answer = member.leave(version)
    assert answer.error_code == 0
    again = member.leave(version)
    if version < 3:
        assert again.error_code == 25
    else:
        assert [(int(m.error_code), m.member_id) for m in answer.members] == [(0, member.id)]
        assert (again.error_code, [int(m.error_code) for m in again.members]) == (0, [25])
    assert member.describe().group_state == "Empty"


def test_several_leave_at_once(enter: Enter) -> None:
    one, two, three = enter(), enter("two"), enter()
    gather(one, two, three)
    members = [
        {"member_id": one.id, "group_instance_id": None},
        {"member_id": "", "group_instance_id": "two"},
        {"member_id": "x", "group_instance_id": None},
        {"member_id": one.id, "group_instance_id": None},
        {"member_id": "", "group_instance_id": "nobody"},
    ]
    assert [int(m.error_code) for m in one.leave(members=members).members] == [0, 0, 25, 25, 25]
    assert three.heartbeat() == 27
    assert three.join().generation_id == three.generation


@pytest.mark.parametrize("version", SERVED[FIND_COORDINATOR])
def test_find_coordinator(broker: KetchServer, kafka: Kafka, version: int) -> None:
    found = _find_coordinators(kafka, version, 0, "a", "b")
    assert [(int(c.error_code), c.host, c.port) for c in found] == [(0, "127.0.0.1", broker.port)] * len(found)
    if version >= 4:
        assert [c.key for c in found] == ["a", "b"]
    if version >= 1:
        (transaction,) = _find_coordinators(kafka, version, 1, "t")
        assert (int(transaction.error_code), transaction.port) == (0, broker.port)
    if version >= 6:
        (share,) = _find_coordinators(kafka, version, 2, "s")
        assert (share.error_code, share.node_id) == (42, -1)


def _find_coordinators(kafka: Kafka, version: int, key_type: int, *keys: str) -> list[Any]:
    asked = {"key": keys[0], "key_type": key_type, "coordinator_keys": keys}
    kafka.send_frame(kafka.encode(entity(load_request_schema(FIND_COORDINATOR, version), asked)))
    _, answer = kafka.answer(FIND_COORDINATOR, version)
    return list(answer.coordinators) if version >= 4 else [answer]


def test_errors_of_joining(enter: Enter) -> None:
    stable = gather(enter())
    wrong: list[tuple[dict[str, Any], int]] = [
        ({"session_timeout": 5_999}, 26),
        ({"session_timeout": 1_800_001}, 26),
        ({"protocols": {}}, 23),
        ({"protocol_type": ""}, 23),
        ({"protocol_type": "connect"}, 23),
        ({"protocols": {"other": b""}}, 23),
        ({"member_id": "stranger"}, 25),
        ({"member_id": stable.id, "group_instance_id": "x"}, 25),
        ({"group_id": ""}, 24),
    ]
    assert [int(enter().join(**given).error_code) for given, _ in wrong] == [code for _, code in wrong]
    assert stable.heartbeat() == 0


def test_the_empty_group_id(enter: Enter, made: str) -> None:
    nameless = enter()
    nameless.group = ""
    assert nameless.heartbeat() == 24
    assert nameless.sync().error_code == 24
    assert nameless.leave().error_code == 24
    assert nameless.uncommit(made, 0) == (24, [])
    assert nameless.commit(made, 3) == 0, "a consumer without a group may commit, as ever"
    assert nameless.committed(made) == (3, -1, "")
    assert nameless.delete("") == [0]


def test_static_members(enter: Enter) -> None:
    old, other = enter("one"), enter()
    gather(old, other, shares=None)
    new = enter("one")
    answer = new.join()
    assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (0, old.generation, True)
    assert (old.heartbeat(), old.commit("t", 1, group_instance_id="one")) == (82, 3)
    assert old.sync().error_code == 82
    assert old.join().error_code == 82
    assert [int(m.error_code) for m in old.leave().members] == [82]
    assert new.sync().error_code == 0
    assert (new.heartbeat(), other.heartbeat()) == (0, 0), "nobody had to join again"
    before_9 = enter("one").join(version=8)
    assert (before_9.leader, before_9.members) == (new.id, ())


# -- commits


@pytest.mark.parametrize("version", SERVED[OFFSET_COMMIT])
def test_commit_by_who_assigned_itself(enter: Enter, made: str, version: int) -> None:
    alone = enter()
    assert alone.commit(made, 7, version=version, committed_metadata="m", committed_leader_epoch=3) == 0
    assert alone.committed(made) == (7, 3 if version >= 6 else -1, "m")
    assert alone.describe().group_state == "Empty"
    assert alone.listed() == [("", "Empty")]


@pytest.mark.parametrize("version", SERVED[OFFSET_FETCH])
def test_fetching_offsets(enter: Enter, made: str, version: int) -> None:
    alone = enter()
    nothing = alone.offsets({made: [0, 9], "nope": [0]}, version)
    assert [p.committed_offset for t in nothing.topics for p in t.partitions] == [-1, -1, -1]
    alone.commit(made, 7, partition=1, committed_metadata="m")
    alone.commit(made, 5)
    assert alone.committed(made, 1, version)[0::2] == (7, "m")
    if version >= 2:
        found = alone.offsets(None, version)
        assert found.error_code == 0
        (only,) = found.topics
        assert [(p.partition_index, p.committed_offset) for p in only.partitions] == [(0, 5), (1, 7)]


def test_fetching_offsets_of_very_many_partitions(enter: Enter, made: str) -> None:
    """Redis is asked for so many at a time."""
    alone = enter()
    alone.commit(made, 7, partition=1)
    (found,) = alone.offsets({made: [*range(2, 1_500), 1]}).topics
    assert [p.committed_offset for p in found.partitions] == [-1] * 1_498 + [7]


def test_offsets_of_several_groups(enter: Enter, made: str) -> None:
    a, b = enter(), enter(group=f"other-{made}")
    a.commit(made, 1)
    b.commit(made, 2)
    asked = [{"group_id": g.group, "topics": None, "member_epoch": -1} for g in (a, b)]
    groups = a.ask(OFFSET_FETCH, 9, groups=asked, require_stable=True).groups
    assert [g.topics[0].partitions[0].committed_offset for g in groups] == [1, 2]


def test_what_commit_refuses(enter: Enter, made: str) -> None:
    alone = enter()
    assert [alone.commit(made, 1, version=v, generation_id_or_member_epoch=3) for v in (8, 9)] == [22, 69]
    assert [alone.commit(made, 1, partition=p) for p in (2, -1)] == [3, 3]
    assert alone.commit(f"{made}-no", 1, generation_id_or_member_epoch=3) == 3
    sizes = ["x" * 4096, "x" * 4097, "é" * 4096]
    assert [alone.commit(made, 1, committed_metadata=text) for text in sizes] == [0, 12, 0]
    assert [alone.commit(made, 1, committed_metadata=None), alone.committed(made)] == [0, (1, -1, "")]
    for odd in (-1, -5, 1 << 60, 2**63 - 1):
        assert alone.commit(made, odd) == 0
        assert alone.committed(made)[0] == odd
    assert alone.commit(made, 1, generation_id_or_member_epoch=3) == 25
    assert alone.commit(made, 1, member_id="x") == 0


def test_commits_of_members(enter: Enter, made: str) -> None:
    member = enter()
    member.enter()
    assert member.commit(made, 1) == 27
    member.sync()
    assert member.commit(made, 1) == 0
    assert member.commit(made, 2, generation_id_or_member_epoch=9) == 22
    assert member.commit(made, 2, generation_id_or_member_epoch=-1) == 22
    assert member.commit(made, 2, generation_id_or_member_epoch=-1, member_id="") == 25
    assert member.commit(made, 2, group_instance_id="i") == 25
    assert member.committed(made)[0] == 1


def test_a_commit_set_by_hand_counts(broker: KetchServer, enter: Enter, made: str) -> None:
    alone = enter()
    alone.commit(made, 7, committed_metadata="m")
    key = f"korvet:commit:korvet:stream:{made}:0:{alone.group}"
    assert broker.redis().get(key) == b"7"
    broker.redis().set(key, 44)
    assert alone.committed(made) == (44, -1, "")


# -- administration


@pytest.mark.parametrize("version", SERVED[DESCRIBE_GROUPS])
def test_describe(enter: Enter, topic: str, version: int) -> None:
    member = enter("one")
    missing = member.describe(version)
    assert (missing.error_code, missing.group_state) == (69 if version >= 6 else 0, "Dead")
    share = assignment({"t": [0]})
    member.enter()
    assert member.describe(version).group_state == "CompletingRebalance"
    member.sync({member.id: share})
    found = member.describe(version)
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    (one,) = found.members
    assert (one.member_id, one.client_id, one.client_host) == (member.id, "raw", "/127.0.0.1")
    assert (one.member_metadata, one.member_assignment) == (subscription("t"), share)
    if version >= 4:
        assert one.group_instance_id == "one"


@pytest.mark.parametrize("version", SERVED[LIST_GROUPS])
def test_list(enter: Enter, version: int) -> None:
    member = gather(enter())
    assert member.listed(version) == [("consumer", "Stable" if version >= 4 else "")]
    if version >= 4:
        assert member.listed(version, states_filter=["empty"]) == []
        assert member.listed(version, states_filter=["Empty", "stable"])
    if version >= 5:
        assert member.listed(version, types_filter=["Classic"])
        assert not member.listed(version, types_filter=["consumer"])


def test_list_without_a_group_that_a_newer_version_stored(broker: KetchServer, enter: Enter, topic: str) -> None:
    member, redis, newer = gather(enter()), broker.redis(), f"newer-{topic}"
    redis.hset(f"korvet:group:{newer}", "type", "banner")
    redis.sadd("korvet:groups", newer)
    answer = member.ask(LIST_GROUPS, 5)
    redis.srem("korvet:groups", newer)
    redis.delete(f"korvet:group:{newer}")
    names = {group.group_id for group in answer.groups}
    assert (answer.error_code, member.group in names, newer in names) == (0, True, False)
    eventually(lambda: broker.log.count(f"ListGroups leaves out a group: {newer} is stored as banner") == 1)


def test_delete(enter: Enter, made: str) -> None:
    member = gather(enter())
    member.commit(made, 1)
    assert member.delete() == [68]
    member.leave()
    assert [member.delete(version=v) for v in (0, 1, 2)] == [[0], [69], [69]]
    assert member.delete(member.group, member.group, f"{member.group}x") == [69, 69]
    assert member.committed(made)[0] == -1
    assert member.describe().error_code == 69


def test_delete_offsets(enter: Enter, made: str) -> None:
    member = enter()
    assert member.uncommit(made, 0) == (69, [])
    gather(member, protocols={"range": subscription(made)})
    member.commit(made, 1)
    assert member.uncommit(made, 0, 9) == (0, [86, 3])
    member.leave()
    assert member.uncommit(made, 0) == (0, [0])
    assert member.committed(made)[0] == -1
    assert SERVED[OFFSET_DELETE] == range(1)


def test_delete_offsets_of_others_than_consumers(enter: Enter, made: str) -> None:
    worker = enter()
    worker.enter(protocol_type="connect")
    assert worker.uncommit(made, 0) == (68, [])


# -- what stays and what goes


def test_a_deleted_group_leaves_nothing_behind(broker: KetchServer, enter: Enter, made: str) -> None:
    member = gather(enter(), protocols={"range": subscription(made)})
    member.stored(made, _record())
    member.commit(made, 1)
    member.commit(made, 1, partition=1)
    # A native group on a partition that it never committed for, as one has that reads with auto-commit off.
    broker.redis().xgroup_create(f"korvet:stream:{made}:1", member.group, "0", mkstream=True)
    assert keys_naming(broker, member.group)
    member.leave()
    assert member.delete() == [0]
    assert keys_naming(broker, member.group) == []


def test_a_deleted_topic_leaves_nothing_behind(broker: KetchServer, enter: Enter, made: str) -> None:
    alone = enter(group="of-many-topics")
    alone.stored(made, _record())
    alone.commit(made, 1)
    alone.commit(made, 1, partition=1)
    assert keys_naming(broker, made)
    answer = alone.ask(DELETE_TOPICS, 1, topic_names=[made], timeout=5000)
    assert answer.responses[0].error_code == 0
    assert keys_naming(broker, made) == []


def _record() -> bytes:
    return batch(records([b"x"]))


# -- restarts and sizes


def test_a_restarted_broker_goes_on_in_the_same_generation(start_ketch: Callable[..., KetchServer]) -> None:
    server = start_ketch()
    members = [Member(server.port, "g", f"i{n}" if n % 2 else None) for n in range(20)]
    members[0].create("t", 20)
    leader = gather(*members)
    for n, member in enumerate(members):
        assert member.commit("t", n, partition=n) == 0
    before = leader.describe()
    server.kill()
    server.start()
    again = []
    for member in members:
        other = Member(server.port, "g", member.instance)
        other.id, other.generation = member.id, member.generation
        again.append(other)
    assert [member.heartbeat() for member in again] == [0] * 20
    assert set(again[0].describe().members) == set(before.members)
    assert [member.sync().error_code for member in again] == [0] * 20
    assert [member.committed("t", n)[0] for n, member in enumerate(again)] == list(range(20))
    assert [member.commit("t", n + 1, partition=n) for n, member in enumerate(again)] == [0] * 20
    assert again[0].describe().group_state == "Stable"
    for member in (*members, *again):
        member.close()


def test_a_large_group(start_ketch: Callable[..., KetchServer], capsys: pytest.CaptureFixture[str]) -> None:
    """500 members over 500 partitions."""
    server = start_ketch()
    members = [Member(server.port, "g") for _ in range(500)]
    members[0].create("t", 500)
    first, others = members[0], members[1:]
    cpu, start = _cpu(server), time.perf_counter()
    first.enter()
    for member in others:
        member.send(JOIN, 9, **member._join({}))
    for member in others:
        assert member.joined().error_code == 79
        member.send_join()
    with Member(server.port, "g") as watch:
        eventually(lambda: len(watch.describe().members) == 500)
    first.send_join()
    assert [member.joined().error_code for member in members] == [0] * 500
    for member in others:
        member.send_sync()
    first.send_sync({member.id: assignment({"t": [n]}) for n, member in enumerate(members)})
    assert [member.synced().assignment for member in members] == [assignment({"t": [n]}) for n in range(500)]
    with capsys.disabled():
        took = time.perf_counter() - start
        print(f"\n500 members over 500 partitions: {_cpu(server) - cpu:.2f} s of broker CPU, {took:.2f} s in all")
    for member in members:
        member.close()


def _cpu(server: KetchServer) -> float:
    """Seconds of CPU that the broker's process has had."""
    assert server.process is not None
    with open(f"/proc/{server.process.pid}/stat") as stat:
        user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / 100
