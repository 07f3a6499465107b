"""Consumer groups (KIP-848) with raw requests. The scenarios run against Apache Kafka, too (`test_against_kafka`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.support.batches import batch, records
from tests.support.consumer_members import Beater, settle, told
from tests.support.groups import FIND_COORDINATOR, Member, gather
from tests.support.kafka import (
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    Kafka,
)
from tests.support.ketch import KetchServer, eventually

Answers = list[Any]

GROUP = 32  # ConfigResource.Type
COORDINATOR_NOT_AVAILABLE = 15


def port_of(client: Kafka) -> int:
    return int(client.socket.getpeername()[1])


class Cast:
    """The members of a scenario, which are called a, b, c."""

    def __init__(self, port: int, group: str) -> None:
        self.port, self.group = port, group
        self.members: list[Beater] = []

    def member(self, instance: str | None = None) -> Beater:
        self.members.append(Beater(self.port, self.group, instance))
        return self.members[-1]

    def told(self, answer: Any) -> tuple[Any, ...]:
        names = {member.id: "abcdefgh"[n] for n, member in enumerate(self.members)}
        return told(answer, {self.group: "G", **names})


@contextlib.contextmanager
def cast(client: Kafka, group: str) -> Iterator[Cast]:
    made = Cast(port_of(client), group)
    try:
        yield made
    finally:
        for member in made.members:
            member.close()


def coordinated(member: Beater) -> None:
    """Waits until the broker coordinates the group; Kafka makes its topic of offsets when first asked for one."""
    eventually(lambda: member.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[member.group]))
    eventually(lambda: member.enters(member_epoch=1, topic_partitions=None).error_code not in (14, 15, 16))


def forms(client: Kafka, topic: str) -> Answers:
    """What no heartbeat may say."""
    found: Answers = []
    with cast(client, f"forms-{topic}") as made:
        member = made.member()
        coordinated(member)
        wrong: list[dict[str, Any]] = [
            {"member_id": ""},
            {"group_id": ""},
            {"instance_id": ""},
            {"rack_id": ""},
            {"rebalance_timeout": -1},
            {"topic_partitions": None},
            {"subscribed_topic_names": None},
            {"member_epoch": -2, "topic_partitions": None},
            {"member_epoch": -3},
            {"server_assignor": "sticky"},
            {"subscribed_topic_regex": "a("},
            {"member_epoch": 1},
            {"member_epoch": -1},
        ]
        for given in wrong:
            code, message, *rest = made.told(member.enters(topic, **given))
            found.append((code, "RE2" if "subscribed_topic_regex" in given else message, *rest))
        found.append(made.told(member.enters(topic, member_id="", version=0))[0])
    return found


def lives(client: Kafka, topic: str) -> Answers:
    """Two members share a topic; one is fenced; both go."""
    found: Answers = []
    with cast(client, f"lives-{topic}") as made:
        a, b = made.member(), made.member()
        coordinated(a)
        eventually(lambda: a.enters(topic).assignment.topic_partitions or (a.goes() and None))
        found.append((sorted(a.assigned)[0][1], len(a.assigned)))
        epoch = a.generation
        found.append(made.told(b.enters(topic))[4])
        found += [made.told(a.beat())[4], made.told(b.beat())[4], made.told(a.beat())[4], made.told(b.beat())[4]]
        found.append((a.generation - epoch, b.generation - epoch, len(a.assigned), len(b.assigned)))
        shown = a.shown()
        found.append((shown.error_code, shown.group_state, shown.assignor_name, shown.group_epoch - epoch))
        found.append(
            sorted((m.member_epoch - epoch, m.member_type, len(m.assignment.topic_partitions)) for m in shown.members)
        )
        found.append(sorted(tuple(m.subscribed_topic_names) == (topic,) for m in shown.members))
        found += [made.told(a.beat(member_epoch=a.generation + 5))[:1], made.told(a.beat(member_epoch=epoch))[:1]]
        found.append(made.told(a.beat(member_epoch=epoch, topic_partitions=None))[0])
        found += [a.commit(topic, 5), a.commit(topic, 5, generation_id_or_member_epoch=a.generation - 1)]
        found += [a.commit(topic, 5, member_id="other"), a.commit(topic, 5, version=8)]
        found.append(a.commit(topic, 5, member_id="", generation_id_or_member_epoch=-1))
        asked = {topic: [0]}
        found.append(
            a.offsets(asked, member_id=a.id, member_epoch=a.generation).topics[0].partitions[0].committed_offset
        )
        found.append(a.offsets(asked, member_id=a.id, member_epoch=a.generation + 1).error_code)
        found.append(a.offsets(asked, member_id="other", member_epoch=1).error_code)
        found.append(a.offsets(asked, member_id=None).error_code)
        found += [a.describe().error_code, a.describe().group_state, a.describe(version=5).error_code]
        found += [a.listed(types_filter=("Consumer",)), a.listed(types_filter=("classic",)), a.delete()]
        found.append(a.uncommit(topic, 0))
        found.append([made.told(member.goes()) for member in (a, b)])
        found += [a.listed(), a.shown().group_state, a.uncommit(topic, 0), a.delete(), a.shown().error_code]
    return found


def statics(client: Kafka, topic: str) -> Answers:
    """A static member goes and comes back under another id."""
    found: Answers = []
    with cast(client, f"statics-{topic}") as made:
        a, b, c = made.member("i"), made.member(), made.member("i")
        coordinated(a)
        eventually(lambda: a.enters(topic).assignment.topic_partitions or (a.goes() and None))
        b.enters(topic)
        settle([a, b])
        epoch = a.generation
        found += [made.told(c.enters(topic))[:2], made.told(c.beat(member_epoch=epoch))[:2]]
        gone = made.told(a.goes(-2))
        found.append((gone[0], gone[2]))
        a.assigned = frozenset()
        settle([b])
        found.append((len(b.assigned), b.generation - epoch))
        back = made.told(c.enters(topic))
        found.append((back[0], back[2] - epoch, back[4]))
        found.append(made.told(a.beat(member_epoch=epoch))[:2])
        found.append(made.told(a.goes())[:2])
        found.append(made.told(c.goes())[:2])
        found.append([made.told(made.member("j").goes(-2))[:2], made.told(made.member().goes())[:2]])
    return found


def kinds(client: Kafka, topic: str) -> Answers:
    """What an empty group becomes, and what ConsumerGroupDescribe says of others."""
    found: Answers = []
    with cast(client, f"kinds-{topic}") as made:
        a = made.member()
        coordinated(a)
        found.append((a.shown().error_code, (a.shown().error_message or "").replace(made.group, "G")))
        with Member(port_of(client), made.group) as classic:
            gather(classic)
            shown = a.shown()
            found.append((shown.error_code, (shown.error_message or "").replace(made.group, "G")))
            classic.leave()
        found.append(made.told(a.enters(topic))[0])
        found.append(a.listed(types_filter=("consumer",)))
        a.goes()
        with Member(port_of(client), made.group) as classic:
            gather(classic)
            found.append(classic.listed(types_filter=("classic",)))
            classic.leave()
        found.append(a.shown(group="").error_code)
    return found


SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE, APPEND = 0, 1, 2
CHANGES: list[tuple[tuple[str, int, str | None], ...]] = [
    *[((SESSION, SET, value),) for value in ("1", "44999", "60001", "x", "-1", "0", "")],
    *[((INTERVAL, SET, value),) for value in ("1", "4999", "15001", "x")],
    ((SESSION, SET, "46000"), (INTERVAL, SET, "46000")),
    (("nope", SET, "1"),),
    (("nope", DELETE, None),),
    ((SESSION, APPEND, "1"),),
]


def _change(client: Kafka, group: str, *changes: tuple[str, int, str | None], only: bool = False) -> tuple[int, str]:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=only).responses[0]
    return int(answer.error_code), answer.error_message


def _described(client: Kafka, group: str) -> list[Any]:
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": [SESSION, INTERVAL, "nope"]}
    result = client.ask(DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True).results[0]
    shown = [
        (
            c.name,
            c.value,
            c.config_source,
            c.config_type,
            c.read_only,
            [(s.name, s.value, s.source) for s in c.synonyms],
        )
        for c in result.configs
    ]
    return [int(result.error_code), result.error_message, *sorted(shown)]


def configs(client: Kafka, topic: str) -> Answers:
    """The configs of one group, and what they may be."""
    group = f"configs-{topic}"
    found: Answers = [_described(client, group), _described(client, "")]
    found += [_change(client, group, *changes, only=True) for changes in CHANGES]
    found += [_change(client, "", (SESSION, SET, "50000")), _change(client, group, (SESSION, SET, "50000"))]
    eventually(lambda: any("50000" in each for each in _described(client, group)[2:]))
    found.append(_described(client, group))
    listed = client.ask(LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP]).config_resources
    found.append([each.resource_type for each in listed if each.resource_name == group])
    found.append(_change(client, group, (SESSION, DELETE, None)))
    eventually(lambda: not any("50000" in each for each in _described(client, group)[2:]))
    found.append(_described(client, group))
    return found


SCENARIOS: list[Callable[[Kafka, str], Answers]] = [forms, lives, statics, kinds, configs]


# -- here


def test_forms(kafka: Kafka, made: str) -> None:
    found = forms(kafka, made)
    assert [each[0] for each in found[:9]] == [42] * 9
    assert [each[0] for each in found[9:13]] == [112, 128, 69, 69]
    assert found[13] == 0


def test_lives(kafka: Kafka, made: str) -> None:
    found = lives(kafka, made)
    assert found[0] == (0, 2)
    assert found[1:6] == [[], [1], None, None, [1]]
    assert found[6] == (1, 1, 1, 1)
    assert found[7] == (0, "Stable", "uniform", 1)
    assert found[10:13] == [(110,), (0,), 110], "the last epoch is taken from a member that says what it owns"
    assert found[13:18] == [0, 113, 25, 35, 25]
    assert found[18:22] == [5, 113, 25, 0]
    assert found[22:25] == [69, "Dead", 0]
    assert found[25:28] == [[("consumer", "Stable")], [], [68]]
    assert found[28] == (0, [86])
    assert found[30:] == [[("consumer", "Empty")], "Empty", (0, [0]), [0], 69]


def test_statics(kafka: Kafka, made: str) -> None:
    found = statics(kafka, made)
    assert [each[0] for each in found[:2]] == [111, 82]
    assert found[2:5] == [(0, -2), (1, 0), (0, 0, [1])]
    assert [each[0] for each in found[5:8]] == [82, 82, 0]
    assert [each[0] for each in found[8]] == [25, 25]


def test_kinds(kafka: Kafka, made: str) -> None:
    assert kinds(kafka, made) == [
        (69, "Group G not found."),
        (69, "Group G is not a consumer group."),
        0,
        [("consumer", "Stable")],
        [("consumer", "Stable")],
        24,
    ]


def test_configs(kafka: Kafka, made: str) -> None:
    found = configs(kafka, made)
    assert [each[0] for each in found[1:]] == [42, *[40] * 13, 0, 40, 42, 0, 0, 32, 0, 0]


def test_a_group_goes_by_its_configs(kafka: Kafka, made: str) -> None:
    with Beater(port_of(kafka), f"g-{made}") as member:
        assert member.enters(made).heartbeat_interval == timedelta(seconds=5)
        assert _change(kafka, member.group, (INTERVAL, SET, "7000")) == (0, None)
        assert member.beat().heartbeat_interval == timedelta(seconds=7)
        member.goes()
        assert _change(kafka, member.group, (INTERVAL, DELETE, None)) == (0, None)


def test_topics_come_grow_and_go(kafka: Kafka, topic: str) -> None:
    """The next heartbeat tells, without the member having said anything."""
    with Beater(port_of(kafka), f"g-{topic}") as member:
        member.enters(regex=f"{topic}-.*")
        assert member.assigned == frozenset()
        kafka.create(f"{topic}-a", 2)
        assert len(member.beat().assignment.topic_partitions[0].partitions) == 2
        kafka.create(f"{topic}-b", 1)
        kafka.create(f"other-{topic}", 1)
        member.beat()
        assert len(member.assigned) == 3
        assert member.shown().members[0].subscribed_topic_regex == f"{topic}-.*"
        kafka.ask(DELETE_TOPICS, 5, topic_names=[f"{topic}-a"], timeout=10_000)
        member.beat()
        member.beat()
        assert len(member.assigned) == 1
        member.goes()


def test_native_groups_follow(broker: KetchServer, kafka: Kafka, made: str) -> None:
    """A partition with records has the group when members are assigned it; a commit acknowledges what lies below."""
    kafka.stored(made, batch(records([b"a", b"b"])))
    redis, group = broker.redis(), f"g-{made}"
    stream = f"korvet:stream:{made}:0"
    with Beater(broker.port, group) as member:
        member.enters(made)
        (native,) = eventually(lambda: redis.xinfo_groups(stream))
        assert (native["name"], native["lag"]) == (group.encode(), 2)
        assert member.commit(made, kafka.list_offsets(made, -1).offset) == 0
        eventually(lambda: redis.xinfo_groups(stream)[0]["lag"] == 0)
        stored = redis.hgetall(f"korvet:group:{group}")
        assert (stored[b"type"], stored[b"state"]) == (b"consumer", b"Stable")
        member.goes()


def test_a_killed_broker_is_no_rebalance(start_ketch: Callable[..., KetchServer]) -> None:
    server = start_ketch()
    members = [Beater(server.port, "g", f"i{n}" if n % 2 else None) for n in range(10)]
    members[0].create("t", 25)
    for member in members:
        member.enters("t")
    settle(members)
    before, shares = members[0].shown(), [member.assigned for member in members]
    assert sorted(map(len, shares)) == [2] * 5 + [3] * 5
    server.kill()
    server.start()
    again = []
    for member in members:
        other = Beater(server.port, "g", member.instance)
        other.id, other.generation, other.assigned = member.id, member.generation, member.assigned
        again.append(other)
    for _ in range(2):
        assert [other.beat().error_code for other in again] == [0] * 10
    after = again[0].shown()
    assert (after.group_epoch, after.group_state) == (before.group_epoch, "Stable")
    assert [other.assigned for other in again] == shares
    assert again[0].commit("t", 1) == 0
    for member in (*members, *again):
        member.close()


@pytest.mark.parametrize("version", [0, 1])
def test_every_version(kafka: Kafka, made: str, version: int) -> None:
    with Beater(port_of(kafka), f"g-{made}") as member:
        assert member.enters(made, version=version).error_code == 0
        assert len(member.assigned) == 2
        assert member.shown(version=version).members[0].client_id == "raw"
        assert member.beat(version=version).error_code == 0
        assert member.goes(version=version).member_epoch == -1


@pytest.mark.storage("record")
def test_a_full_redis(start_ketch: Callable[..., KetchServer]) -> None:
    """Who joins is told to come again, as nobody knows what was stored; members go on as they were."""
    server = start_ketch()
    redis = server.redis()
    with Beater(server.port, "g") as first, Beater(server.port, "g") as second, Beater(server.port, "h") as other:
        first.create("t", 4)
        first.enters("t")
        redis.config_set("maxmemory", 1)
        try:
            refused = [second.enters("t"), other.enters("t"), second.enters("t")]
            assert {answer.error_code for answer in refused} <= {0, COORDINATOR_NOT_AVAILABLE}
            assert refused[1].error_code == COORDINATOR_NOT_AVAILABLE
            assert first.beat(topic_partitions=None).error_code in (0, COORDINATOR_NOT_AVAILABLE)
        finally:
            redis.config_set("maxmemory", 0)
        assert [member.enters("t").error_code for member in (second, other)] == [0, 0]
        everything = {"rebalance_timeout": 60_000, "subscribed_topic_names": ("t",)}  # as clients do after an error
        assert first.beat(**everything).error_code == 0
        settle([first, second])
        assert (len(first.assigned), len(second.assigned), len(other.assigned)) == (2, 2, 4)
        assert first.shown().group_state == "Stable"
