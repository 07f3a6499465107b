"""Members of share groups (KIP-932) with raw requests. The scenarios run against Apache Kafka, too
(`test_share_groups_against_kafka`).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.support.batches import batch, records
from tests.support.consumer_members import Beater
from tests.support.groups import FIND_COORDINATOR, Member, gather
from tests.support.kafka import API_VERSIONS, DELETE_TOPICS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, NO_ID, Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.share_members import SHARE_GROUP_HEARTBEAT, ShareAdmin, Sharer, settled, told

Answers = list[Any]

GROUP = 32  # ConfigResource.Type
UNAVAILABLE = (14, 15, 16)  # while Kafka loads its coordinator


def port_of(client: Kafka) -> int:
    return int(client.socket.getpeername()[1])


class Cast:
    """The members of a scenario, which are called a, b, c."""

    def __init__(self, port: int, group: str) -> None:
        self.port, self.group = port, group
        self.members: list[Sharer] = []

    def member(self) -> Sharer:
        self.members.append(Sharer(self.port, self.group))
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


def coordinated(member: Sharer) -> None:
    """Waits until the broker coordinates the group; Kafka makes its topic of offsets when first asked for one."""
    eventually(lambda: member.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[member.group]))
    eventually(lambda: member.beat(member_epoch=1).error_code not in UNAVAILABLE)


def forms(client: Kafka, topic: str) -> Answers:
    """What no heartbeat may say."""
    found: Answers = []
    with cast(client, f"forms-{topic}") as made:
        member = made.member()
        coordinated(member)
        wrong: list[dict[str, Any]] = [
            {"member_id": ""},
            {"group_id": ""},
            {"rack_id": ""},
            {"subscribed_topic_names": None},
            {"subscribed_topic_names": ()},
            {"member_epoch": -2},
            {"member_epoch": 1},
            {"member_epoch": -1},
        ]
        found += [made.told(member.enters(topic, **given)) for given in wrong]
    return found


def lives(client: Kafka, topic: str) -> Answers:
    """Two members share a topic; one is fenced; both go."""
    found: Answers = []
    with cast(client, f"lives-{topic}") as made:
        a, b = made.member(), made.member()
        coordinated(a)
        first = a.enters(topic)
        found.append((int(first.error_code), first.heartbeat_interval, first.member_id == a.id))
        settled(a, 2)
        epoch = a.generation
        found.append((made.told(a.beat()), a.shown().group_epoch - epoch))
        b.enters(topic)
        eventually(lambda: [a.beat(), b.beat(), a.assigned | b.assigned] and len(a.assigned | b.assigned) == 2)
        found.append((a.generation == b.generation, len(a.assigned) in (1, 2), len(b.assigned) in (1, 2)))
        shown, last = a.shown(), a.generation
        found.append((shown.error_code, shown.group_state, shown.assignor_name, shown.group_epoch - last))
        found.append(sorted((m.member_epoch - last, m.client_id, len(m.subscribed_topic_names)) for m in shown.members))
        found.append(sorted(p.topic_name == topic for m in shown.members for p in m.assignment.topic_partitions))
        found += [made.told(a.beat(member_epoch=last + 5))[0], made.told(a.beat(subscribed_topic_names=(topic,)))[:2]]
        found.append(made.told(a.beat(rack_id="r"))[:2])
        found += [a.shown().members[0].rack_id or a.shown().members[1].rack_id, a.shown().group_epoch - last]
        found += [a.describe().error_code, a.describe().error_message.replace(made.group, "G")]
        found += [a.describe().group_state, a.describe(version=5).error_code, a.describe(version=5).group_state]
        found += [a.listed(types_filter=("Share",)), a.listed(types_filter=("classic", "consumer")), a.listed()]
        found.append(a.listed(states_filter=("stable",)))
        found += [a.delete(), made.told(b.goes())[:3], a.shown().group_epoch - last]
        found += [made.told(b.goes())[:2], made.told(b.beat())[:2]]
        found += [made.told(a.goes())[:3], a.listed(), a.shown().group_state, a.shown().members]
        found += [a.delete(), a.shown().error_code, a.listed(), a.delete()]
    return found


def epochs(client: Kafka, topic: str) -> Answers:
    """In which epochs a member may speak."""
    found: Answers = []
    with cast(client, f"epochs-{topic}") as made:
        a, b = made.member(), made.member()
        coordinated(a)
        a.enters(topic)
        settled(a, 2)
        before = a.generation
        b.enters(topic)
        eventually(lambda: a.beat().member_epoch > before)
        found.append(made.told(a.beat(member_epoch=0, subscribed_topic_names=(topic,)))[0])
        found.append(made.told(a.beat(member_epoch=a.generation + 1))[0])
    return found


def _other_apis(port: int, group: str, topic: str) -> Answers:
    """What the APIs of other kinds say of a share group."""
    with Member(port, group) as classic, Beater(port, group) as consumer:
        shown = consumer.shown()
        found = [classic.join().error_code, consumer.enters(topic).error_code, shown.error_code]
        found += [shown.error_message.replace(group, "G"), classic.heartbeat(), classic.uncommit(topic, 0)]
        found.append(classic.commit(topic, 1, member_id="", generation_id_or_member_epoch=-1))
        found.append(classic.commit(topic, 1, member_id="x", generation_id_or_member_epoch=1))
        found.append(classic.offsets({topic: [0]}, member_id=None).error_code)
        found.append(classic.offsets({topic: [0]}, member_id="x", member_epoch=1).error_code)
        found.append([int(member.error_code) for member in classic.leave().members])
    return found


def kinds(client: Kafka, topic: str) -> Answers:
    """What becomes of the id of a share group."""
    port = port_of(client)
    with cast(client, f"kinds-{topic}") as made:
        a = made.member()
        coordinated(a)
        shown = a.shown()
        found = [shown.error_code, shown.error_message.replace(made.group, "G"), a.shown("").error_code]
        a.enters(topic)
        found.append(_other_apis(port, made.group, topic))
        a.goes()
        found.append(_other_apis(port, made.group, topic))
    return found


def ids_of_others(client: Kafka, topic: str) -> Answers:
    """What a member of a share group is told where the id is a classic group's, a consumer group's or of commits."""
    port, found = port_of(client), []
    for kind in ("classic", "consumer", "simple"):
        group = f"{kind}-{topic}"
        with Sharer(port, group) as sharer, Member(port, group) as classic, Beater(port, group) as consumer:
            coordinated(sharer)
            if kind == "classic":
                gather(classic)
            elif kind == "consumer":
                consumer.enters(topic)
            else:
                found.append(classic.commit(topic, 1, member_id="", generation_id_or_member_epoch=-1))
            found += [sharer.enters(topic).error_code, sharer.beat(member_epoch=1).error_code, sharer.goes().error_code]
            found += [sharer.shown().error_code, sharer.shown().error_message.replace(group, "G")]
            if kind == "classic":
                classic.leave()
            elif kind == "consumer":
                consumer.goes()
            found += [sharer.enters(topic).error_code, sharer.goes().error_code, sharer.delete()]
            found += [sharer.enters(topic).error_code, sharer.goes().error_code, sharer.delete()]
    return found


def features(client: Kafka, topic: str) -> Answers:
    """The feature, which clients and tools go by."""
    answer = client.ask(API_VERSIONS, 4, client_software_name="raw", client_software_version="1")
    found: Answers = [(f.name, f.min_version, f.max_version) for f in answer.supported_features if "share" in f.name]
    found += [
        (f.name, f.min_version_level, f.max_version_level) for f in answer.finalized_features if "share" in f.name
    ]
    apis = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    return [*found, *[apis.get(key) for key in (76, 77, 78, 79, 90, 91, 92)]]


def coordinators(client: Kafka, topic: str) -> Answers:
    """Whom FindCoordinator names for a share partition."""
    known, other = (base64.urlsafe_b64encode(id.bytes).decode().rstrip("=") for id in (client.topic_id(topic), NO_ID))
    keys = [f"g:{known}:0", f"g:{known}:9", f"g:{other}:0", f"g:{known}:-1", f"g:{known}:0:", f"g:{known}:+1"]
    keys += ["g", "g:x:0", f"g:{known}:x", f":{known}:0", f"a:b:{known}:0", f"g:{NO_ID}:0", f"g: {known}:0", "::", ""]

    def ask(key: str, version: int = 6) -> tuple[int, int]:
        (answer,) = client.ask(FIND_COORDINATOR, version, key_type=2, coordinator_keys=[key]).coordinators
        return int(answer.error_code), answer.node_id

    eventually(lambda: ask(keys[0])[0] not in UNAVAILABLE)
    return [*[ask(key) for key in keys], ask(keys[0], 5), ask(keys[0], 4)]


def offsets(client: Kafka, topic: str) -> Answers:
    """Where a group stands on partitions is read and forgotten; each answer as it is.

    Kafka 4.1 loses the topics of AlterShareGroupOffsets that there are: `test_offsets_are_moved`.
    """
    port, none, found = port_of(client), topic + "no", []
    with ShareAdmin(port, f"offsets-{topic}") as admin, Sharer(port, f"offsets-{topic}") as member:
        coordinated(member)

        def look() -> None:
            found.extend([admin.offsets(None), admin.offsets({topic: [0, 1, 9], none: [0]}), admin.offsets({})])

        look()
        found += [
            admin.forget(topic),
            admin.forget(topic, group=""),
            admin.forget(),
            admin.alter({}),
            admin.alter({}, ""),
        ]
        found.append(admin.offsets(None, ""))
        member.enters(topic)
        settled(member, 2)
        look()
        found.append(admin.forget(topic))
        member.goes()
        found += [admin.alter({none: {0: 1}}), admin.forget(topic, none), admin.forget(topic)]
        eventually(lambda: not admin.starts(topic))
        look()
        with Sharer(port, f"classic-{topic}") as other, Member(port, f"classic-{topic}") as classic:
            coordinated(other)
            gather(classic)
            found += [admin.forget(topic, group=classic.group), admin.offsets(None, classic.group)]
            classic.leave()
        found += [member.delete(), admin.offsets(None)]
    known = str(client.topic_id(topic))
    texts = [str(_plain(each)).replace(known, "ID").replace(topic, "T") for each in found]
    return [text.replace("Group classic-T is not", "The group is not") for text in texts]  # Ketch does not name it


def _plain(answer: Any) -> Any:
    """An answer as nested tuples, its lists of topics in order."""
    if dataclasses.is_dataclass(answer):
        named = {f.name: _plain(getattr(answer, f.name)) for f in dataclasses.fields(answer)}
        return {name: value for name, value in named.items() if name != "throttle_time" and value not in (None, ())}
    if isinstance(answer, tuple):
        return tuple(sorted(map(_plain, answer), key=str))
    return int(answer) if isinstance(answer, int) else answer


SESSION, INTERVAL, LOCK = "share.session.timeout.ms", "share.heartbeat.interval.ms", "share.record.lock.duration.ms"
RESET, ISOLATION = "share.auto.offset.reset", "share.isolation.level"
SET, DELETE = 0, 1
CHANGES: list[tuple[tuple[str, int, str | None], ...]] = [
    *[((SESSION, SET, value),) for value in ("1", "44999", "60001", "x", "-1", "0", "", "60000")],
    *[((INTERVAL, SET, value),) for value in ("1", "4999", "15001", "x", "15000")],
    *[((LOCK, SET, value),) for value in ("1", "999", "14999", "60001", "x", "60000")],
    *[((RESET, SET, value),) for value in ("earliest", "latest", "none", "EARLIEST", "", "by_duration")],
    *[
        ((RESET, SET, f"by_duration:{value}"),)
        for value in (
            "",
            "P1D",
            "PT1H",
            "pt1.5s",
            "P1DT",
            "P",
            "-PT1S",
            "PT-1S",
            "P1W",
            "PT1M1H",
            "PT0S",
            "P1DT2H3M4.005S",
        )
    ],
    *[((ISOLATION, SET, value),) for value in ("read_committed", "read_uncommitted", "READ_COMMITTED", "")],
    ((SESSION, SET, "46000"), (INTERVAL, SET, "46000")),
    (("share.nope", DELETE, None),),
]


def _change(client: Kafka, group: str, *changes: tuple[str, int, str | None], only: bool = False) -> Answers:
    """The error code and as much of the message as Ketch gives of what a client sent."""
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=only).responses[0]
    return [int(answer.error_code), (answer.error_message or "")[:190]]


def _described(client: Kafka, group: str) -> list[Any]:
    keys = [SESSION, INTERVAL, LOCK, RESET, ISOLATION]
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": keys}
    result = client.ask(DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True).results[0]
    return sorted((c.name, c.value, c.config_source, c.config_type, c.read_only) for c in result.configs)


def configs(client: Kafka, topic: str) -> Answers:
    """The configs of one group, and what they may be."""
    group = f"configs-{topic}"
    found: Answers = [_described(client, group)]
    found += [_change(client, group, *changes, only=True) for changes in CHANGES]
    found.append(_change(client, group, (RESET, SET, "by_duration:PT1H"), (LOCK, SET, "20000")))
    eventually(lambda: any("20000" in each for each in _described(client, group)))
    found.append(_described(client, group))
    return found


SCENARIOS: list[Callable[[Kafka, str], Answers]] = [
    forms,
    lives,
    epochs,
    kinds,
    ids_of_others,
    configs,
    features,
    coordinators,
    offsets,
]


# -- here


def test_lives(kafka: Kafka, made: str) -> None:
    found = lives(kafka, made)
    assert found[:2] == [(0, timedelta(seconds=5), True), ((0, None, 0, timedelta(seconds=5), None), 0)]
    assert found[3] == (0, "Stable", "simple", 0)
    assert found[16:20] == [[("share", "Stable")], [], [("share", "Stable")], [("share", "Stable")]]
    assert found[20:23] == [[68], (0, None, -1), 1]
    assert found[26:] == [[("share", "Empty")], "Empty", (), [0], 69, [], [69]]


@pytest.mark.parametrize("scenario", [forms, epochs, kinds, ids_of_others, configs, features, coordinators, offsets])
def test_scenarios(kafka: Kafka, made: str, scenario: Callable[[Kafka, str], Answers]) -> None:
    """They are held against Kafka where that can be had; here they pass at all."""
    assert scenario(kafka, made)


def test_what_share_groups_refuse(kafka: Kafka, made: str) -> None:
    assert [each[0] for each in forms(kafka, made)] == [42] * 6 + [69] * 2
    assert epochs(kafka, made) == [110, 110]


def test_a_group_goes_by_its_configs(kafka: Kafka, made: str) -> None:
    with Sharer(port_of(kafka), f"g-{made}") as member:
        assert member.enters(made).heartbeat_interval == timedelta(seconds=5)
        assert _change(kafka, member.group, (INTERVAL, SET, "7000")) == [0, ""]
        assert member.beat().heartbeat_interval == timedelta(seconds=7)
        member.goes()
        assert _change(kafka, member.group, (INTERVAL, DELETE, None)) == [0, ""]


def test_topics_come_grow_and_go(kafka: Kafka, topic: str) -> None:
    """The next heartbeat tells, without the member having said anything."""
    with Sharer(port_of(kafka), f"g-{topic}") as member, ShareAdmin(port_of(kafka), f"g-{topic}") as admin:
        member.enters(topic, f"{topic}-a")
        assert member.assigned == frozenset()
        kafka.create(f"{topic}-a", 2)
        assert len(member.beat().assignment.topic_partitions[0].partitions) == 2
        assert admin.starts(f"{topic}-a") == {0: -1, 1: -1}
        kafka.create(topic, 1)
        member.beat()
        assert len(member.assigned) == 3
        kafka.ask(DELETE_TOPICS, 5, topic_names=[f"{topic}-a"], timeout=10_000)
        member.beat()
        assert len(member.assigned) == 1
        assert admin.starts(f"{topic}-a") == {}
        member.goes()


@pytest.mark.storage("record", "batch")
def test_members_that_begin_together_are_told_what_they_keep(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, 4)
    with cast(kafka, topic) as made:
        members = [made.member() for _ in range(4)]
        for member in members:
            said = {"group_id": member.group, "member_id": member.id, "member_epoch": 0, "rack_id": None}
            member.send(SHARE_GROUP_HEARTBEAT, 1, subscribed_topic_names=[topic], **said)
        told = [member.answer(SHARE_GROUP_HEARTBEAT, 1)[1] for member in members]
        assert {each.member_epoch for each in told} == {4}
        parts = [part for each in told for part in each.assignment.topic_partitions]
        assert {index for part in parts for index in part.partitions} == {0, 1, 2, 3}
        assert [member.beat(member_epoch=4).assignment for member in members] == [None] * 4


def test_offsets_are_moved(kafka: Kafka, made: str) -> None:
    """By an administrator, while nobody reads; where there are records does not matter."""
    with ShareAdmin(port_of(kafka), f"g-{made}") as admin, Sharer(port_of(kafka), f"g-{made}") as member:
        assert admin.alter({made: {0: 1}}).error_code == 69
        member.enters(made)
        assert admin.alter({made: {0: 1}}).error_code == 68
        member.goes()
        kafka.stored(made, batch(records([b"a", b"b", b"c"])))
        end = kafka.list_offsets(made, -1).offset
        assert admin.starts(made) == {0: -1, 1: -1}
        answer = admin.alter({made: {0: end - 1, 1: 0, 9: 1}, f"{made}no": {0: 1}})
        found = {t.topic_name: {p.partition_index: int(p.error_code) for p in t.partitions} for t in answer.responses}
        assert (answer.error_code, found) == (0, {made: {0: 0, 1: 0, 9: 3}, f"{made}no": {0: 3}})
        first = kafka.list_offsets(made, -2, partition=1).offset
        assert admin.starts(made) == {0: end - 1, 1: first}, "not before the first record"
        assert admin.alter({made: {1: -1}}).error_code == 0
        assert admin.starts(made) == {0: end - 1, 1: -1}
        assert [int(topic.error_code) for topic in admin.forget(made).responses] == [0]
        assert admin.starts(made) == {}
        assert admin.alter({made: {0: end}}).error_code == 0
        assert admin.starts(made) == {0: end, 1: -1}
        assert member.delete() == [0]
        assert admin.starts(made) == {}


def test_a_killed_broker_is_no_rebalance(start_ketch: Callable[..., KetchServer]) -> None:
    server = start_ketch()
    members = [Sharer(server.port, "g") for _ in range(10)]
    members[0].create("t", 4)
    for member in members:
        member.enters("t")
    for member in members:
        member.beat()
    before, shares = members[0].shown(), [member.assigned for member in members]
    assert all(shares)
    server.kill()
    server.start()
    again = []
    for member in members:
        other = Sharer(server.port, "g")
        other.id, other.generation, other.assigned = member.id, member.generation, member.assigned
        again.append(other)
    for _ in range(2):
        assert [other.beat().error_code for other in again] == [0] * 10
    after = again[0].shown()
    assert (after.group_epoch, after.group_state) == (before.group_epoch, "Stable")
    assert [other.assigned for other in again] == shares
    stored = server.redis().hgetall("korvet:group:g")
    assert (stored[b"type"], stored[b"state"]) == (b"share", b"Stable")
    for member in (*members, *again):
        member.close()


def test_a_full_group(start_ketch: Callable[..., KetchServer]) -> None:
    server = start_ketch(env={"KETCH_GROUP_SHARE_MAX_SIZE": "1"})
    with Sharer(server.port, "g") as first, Sharer(server.port, "g") as second:
        first.create("t", 1)
        assert first.enters("t").error_code == 0
        answer = second.enters("t")
        assert answer.error_code == 81
        assert answer.error_message == "The share group has reached its maximum capacity of 1 members."
        first.goes()
        assert second.enters("t").error_code == 0
