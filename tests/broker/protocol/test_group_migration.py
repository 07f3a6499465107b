"""Live groups that change their protocol (KIP-848), with raw requests of both protocols in one group.

The scenarios run against Apache Kafka, too (`test_against_kafka`): every answer is compared. Of assignments the numbers
of partitions are, as two assignors need not choose the same ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.protocol.test_consumer_groups import Cast, coordinated, port_of
from tests.support.consumer_members import REBALANCE, Classic, owning, settle
from tests.support.groups import Member, assignment, gather
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually

Answers = list[Any]

PARTITIONS = 6
OK, ILLEGAL_GENERATION, INCONSISTENT, UNKNOWN_MEMBER, FENCED_INSTANCE = 0, 22, 23, 25, 82
NOT_FOUND, MEMBER_ID_REQUIRED, STALE_EPOCH, UNSUPPORTED_VERSION = 69, 79, 113, 35


class MixedCast(Cast):
    """Members of both protocols."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        super().__init__(port, group)
        self.topic, self.classics = topic, list[Classic]()

    def classic(self, instance: str | None = None) -> Classic:
        self.classics.append(Classic(self.port, self.group, self.topic, instance))
        return self.classics[-1]

    def form(self, *instances: str | None) -> list[Classic]:
        """A stable classic group that shares all partitions."""
        members = [self.classic(instance) for instance in instances]
        coordinated(self.member())
        gather(members[0], *members[1:])
        each = PARTITIONS // len(members)
        for n, member in enumerate(members):
            member.owned = list(range(n * each, (n + 1) * each))
        members[0].send_join()
        for member in members[1:]:
            eventually(lambda member=member: member.heartbeat() == REBALANCE)
            member.send_join()
        for member in members:
            assert member.joined().error_code == OK
        shares = {member.id: assignment({self.topic: member.owned}) for member in members}
        for member in members:
            member.send_sync(shares if member is members[0] else {})
        for member in members:
            assert member.synced().error_code == OK
        return members

    def shown(self) -> tuple[Any, ...]:
        """The group as ConsumerGroupDescribe has it."""
        found = self.members[0].shown()
        members = sorted(
            (m.member_type, sum(len(t.partitions) for t in m.assignment.topic_partitions)) for m in found.members
        )
        return int(found.error_code), found.group_state, members

    def listed(self) -> list[Any]:
        return [self.members[0].listed(types_filter=(kind,)) for kind in ("classic", "consumer")]


@contextlib.contextmanager
def mixed(client: Kafka, name: str, topic: str) -> Iterator[MixedCast]:
    topic = f"{topic}-{name}"
    client.create(topic, PARTITIONS)
    eventually(lambda: all(client.list_offsets(topic, -1, partition=n).error_code == OK for n in range(PARTITIONS)))
    made = MixedCast(port_of(client), f"{name}-{topic}", topic)
    try:
        yield made
    finally:
        for member in (*made.members, *made.classics):
            member.close()


def upgrade(client: Kafka, topic: str) -> Answers:
    """Two classic members; one of the other protocol comes, they stay; what each may ask."""
    found: Answers = []
    with mixed(client, "upgrade", topic) as made:
        a, b = made.form(None, None)
        start = a.generation
        c = made.member()
        found.append(made.told(c.enters(made.topic, member_epoch=1))[:2])
        c.generation = -1
        said = made.told(c.enters(made.topic))
        found += [said[0], said[2] - start, said[4]]
        found += [made.shown(), made.listed(), a.describe().error_code]
        found += [a.sync().error_code, a.heartbeat(), b.heartbeat(), a.heartbeat(generation_id=start + 7)]
        found += [a.heartbeat(member_id="other"), c.heartbeat(), c.sync().error_code]
        joined = a.join()
        found += [int(joined.error_code), joined.generation_id - start, joined.protocol_type, joined.protocol_name]
        found += [joined.leader, list(joined.members), joined.skip_assignment, joined.member_id == a.id]
        wrong: list[dict[str, Any]] = [{"protocol_type": "x"}, {"protocol_name": "x"}, {"generation_id": 99}]
        found += [int(a.sync(**each).error_code) for each in wrong]
        found += [a.gets(), a.heartbeat(), a.commit(made.topic, 3), a.commit(made.topic, 4, version=8)]
        found.append(a.commit(made.topic, 5, generation_id_or_member_epoch=start + 9))
        asked = {made.topic: [0]}
        found += [a.offsets(asked, member_id=a.id, member_epoch=a.generation).error_code]
        found += [a.offsets(asked, member_id=a.id, member_epoch=start + 9).error_code]
        found.append([(made.told(c.beat())[::2], a.steps(), b.steps()) for _ in range(5)])
        found += [made.shown(), (a.generation - start, b.generation - start, c.generation - start)]
        found += [len(a.owned), len(b.owned), len(c.assigned)]
    return found


def mixes(client: Kafka, topic: str) -> Answers:
    """Classic members come to a consumer group and go, as well as one that nobody knows."""
    found: Answers = []
    with mixed(client, "mixes", topic) as made:
        a, b = made.member(), made.classic()
        coordinated(a)
        eventually(lambda: a.enters(made.topic).assignment.topic_partitions or (a.goes() and None))
        start = a.generation
        wrong: list[dict[str, Any]] = [
            {"protocol_type": "connect"},
            {"protocols": {}},
            {"protocols": {"range": b""}, "member_id": "bad"},
            {"session_timeout": 1},
        ]
        found += [(int(answer.error_code), answer.member_id) for answer in (b.join(**each) for each in wrong)]
        b.id = ""
        first = b.join()
        found += [int(first.error_code), bool(b.id), first.generation_id]
        second = b.join()
        found += [int(second.error_code), second.generation_id - start, b.gets(), made.shown()]
        found.append([(made.told(a.beat())[::2], b.steps()) for _ in range(4)])
        found.append(made.shown())
        again = made.classic()
        found += [int(again.join(protocols={"other": owning(made.topic, [])}, member_id="fresh").error_code)]
        again.id = "any-id-will-do"
        found += [int(again.join().error_code), again.gets()]
        left = again.leave()
        found.append([(m.member_id == again.id, int(m.error_code)) for m in left.members])
        found.append([int(m.error_code) for m in again.leave().members])
        for _ in range(4):
            a.beat()
            b.steps()
        found += [made.shown(), a.generation - start]
    return found


def downgrade(client: Kafka, topic: str) -> Answers:
    """The last member of the other protocol goes: the classic ones rebalance by themselves."""
    found: Answers = []
    with mixed(client, "downgrade", topic) as made:
        a, b = made.form(None, None)
        start, c = a.generation, made.member()
        c.enters(made.topic)
        for _ in range(5):
            c.beat()
            a.steps()
            b.steps()
        found += [len(a.owned), len(b.owned), len(c.assigned), c.generation - start]
        found.append(made.told(c.goes())[:3])
        described = a.describe()
        found += [int(described.error_code), described.group_state, described.protocol_type, len(described.members)]
        found += [made.listed(), made.shown()[0], made.told(c.beat(member_epoch=1))[:2]]
        found += [a.heartbeat(), b.heartbeat(), a.sync().error_code, a.commit(made.topic, 1)]
        for member in (a, b):
            member.send_join()
        joined = [member.joined() for member in (a, b)]
        found += [[int(each.error_code) for each in joined], [each.generation_id - start for each in joined]]
        (leader,) = [member for member, each in zip((a, b), joined, strict=True) if each.members]
        found.append(sorted(len(each.members) for each in joined))
        shares = {a.id: assignment({made.topic: [0, 1, 2]}), b.id: assignment({made.topic: [3, 4, 5]})}
        for member in (a, b):
            member.send_sync(shares if member is leader else {})
        found += [int(member.synced().error_code) for member in (a, b)]
        found += [a.describe().group_state, a.heartbeat(), a.commit(made.topic, 2), made.listed()]
        up = made.member()
        found += [up.enters(made.topic).error_code, made.listed(), up.goes().error_code, made.listed()]
    return found


def statics(client: Kafka, topic: str) -> Answers:
    """A static member restarts with the other protocol, and again with the first one."""
    found: Answers = []
    with mixed(client, "statics", topic) as made:
        a, b = made.form("i", None)
        start = a.generation
        c = made.member("i")
        said = made.told(c.enters(made.topic))
        found += [said[0], said[2] - start, said[4], a.heartbeat(), b.heartbeat(), made.shown()]
        found.append([(made.told(c.beat())[::2], b.steps()) for _ in range(4)])
        found += [made.shown(), made.listed()]
        d = made.classic("i")
        d.id = "unknown"
        found.append(int(d.join().error_code))
        d.id = ""
        joined = d.join()
        found += [int(joined.error_code), joined.generation_id - c.generation, joined.leader, len(joined.members)]
        found += [made.listed(), made.told(c.beat())[:2], b.describe().group_state, d.heartbeat(), b.heartbeat()]
        found += [d.gets(), b.gets()]
        found.append([int(m.error_code) for m in d.leave().members])
    return found


def unfit(client: Kafka, topic: str) -> Answers:
    """Classic groups that cannot be upgraded."""
    found: Answers = []
    with mixed(client, "unfit", topic) as made:
        newcomer = made.member()
        coordinated(newcomer)
        connect = {"protocol_type": "connect"}
        custom = assignment({made.topic: [0]})[:-4] + (1).to_bytes(4) + b"x"
        cases: list[tuple[dict[str, Any], dict[str, Any], bytes]] = [
            (connect, connect, b""),
            ({"protocols": {"range": b"\0"}}, {}, assignment({made.topic: [0]})),
            ({}, {}, custom),
            ({}, {}, b""),
        ]
        for join, sync, share in cases:
            member = made.classic()
            assert member.enter(**join).error_code == OK
            assert member.sync({member.id: share}, **sync).error_code == OK
            code, message = made.told(newcomer.enters(made.topic))[:2]
            found += [code, (message or "")[:150], member.heartbeat(), made.listed()]
            newcomer.goes()
            member.leave()
        # A group whose rebalance is not over.
        member = made.classic()
        assert member.enter().error_code == OK
        found += [made.told(newcomer.enters(made.topic))[0], int(member.sync().error_code), member.steps()]
    return found


MIGRATIONS: list[Callable[[Kafka, str], Answers]] = [upgrade, mixes, downgrade, statics, unfit]


# -- here


def test_upgrade(kafka: Kafka, made: str) -> None:
    found = upgrade(kafka, made)
    assert found[:7] == [
        (NOT_FOUND, "Group G is not a consumer group."),
        *(OK, 1, [], (OK, "Reconciling", [(0, 3), (0, 3), (1, 0)]), [[], [("consumer", "Reconciling")]], NOT_FOUND),
    ]
    assert found[7:13] == [REBALANCE, REBALANCE, REBALANCE, ILLEGAL_GENERATION, UNKNOWN_MEMBER, UNKNOWN_MEMBER]
    assert found[13] == UNKNOWN_MEMBER
    assert found[14:22] == [OK, 0, "consumer", "range", "", [], False, True], (
        "it stays in its generation to give up one"
    )
    assert found[22:25] == [INCONSISTENT, INCONSISTENT, ILLEGAL_GENERATION]
    assert found[25:31] == [(OK, 2), REBALANCE, OK, OK, ILLEGAL_GENERATION, OK]
    assert found[31] == ILLEGAL_GENERATION
    assert found[33:] == [(OK, "Stable", [(0, 2), (0, 2), (1, 2)]), (1, 1, 1), 2, 2, 2]


def test_mixes(kafka: Kafka, made: str) -> None:
    found = mixes(kafka, made)
    assert [code for code, _ in found[:4]] == [INCONSISTENT, INCONSISTENT, -1, 26]
    assert found[4:9] == [MEMBER_ID_REQUIRED, True, -1, OK, 1]
    assert found[9:11] == [(OK, 0), (OK, "Reconciling", [(0, 0), (1, 6)])]
    assert found[12:16] == [(OK, "Stable", [(0, 3), (1, 3)]), INCONSISTENT, OK, (OK, 0)]
    assert found[16:] == [[(True, OK)], [UNKNOWN_MEMBER], (OK, "Stable", [(0, 3), (1, 3)]), 3]


def test_downgrade(kafka: Kafka, made: str) -> None:
    found = downgrade(kafka, made)
    assert found[:5] == [2, 2, 2, 1, (OK, None, -1)]
    assert found[5:9] == [OK, "PreparingRebalance", "consumer", 2]
    assert found[9:12] == [
        [[("consumer", "PreparingRebalance")], []],
        NOT_FOUND,
        (69, "Group G is not a consumer group."),
    ]
    assert found[12:16] == [REBALANCE, REBALANCE, REBALANCE, OK]
    assert found[16:21] == [[OK, OK], [2, 2], [0, 2], OK, OK]
    assert found[21:25] == ["Stable", OK, OK, [[("consumer", "Stable")], []]]
    assert found[25:28] == [OK, [[], [("consumer", "Reconciling")]], OK]


def test_statics(kafka: Kafka, made: str) -> None:
    found = statics(kafka, made)
    assert found[:6] == [OK, 0, [3], FENCED_INSTANCE, OK, (OK, "Stable", [(0, 3), (1, 3)])], "no rebalance"
    assert found[7:9] == [(OK, "Stable", [(0, 3), (1, 3)]), [[], [("consumer", "Stable")]]]
    assert found[9:14] == [FENCED_INSTANCE, OK, 0, "", 0]
    assert found[14:] == [
        [[("consumer", "Stable")], []], (NOT_FOUND, "Group G is not a consumer group."), "Stable", OK, OK, (OK, 3),
        (OK, 3), [OK],
    ]  # fmt: skip


def test_unfit(kafka: Kafka, made: str) -> None:
    found = unfit(kafka, made)
    why = [
        "the group does not use the consumer embedded protocol.",
        "the embedded consumer protocol is malformed.",
        "an unsupported custom assignor is in use. Please refer to the documentation",
    ]
    for code, text, reason in zip(found[:12:4], found[1:12:4], why, strict=True):
        assert code == NOT_FOUND
        assert text.startswith(f"Cannot upgrade classic group G to consumer group because {reason}"[:150])
    assert found[12:16] == [OK, "", REBALANCE, [[], [("consumer", "Reconciling")]]]
    assert found[16:] == [OK, REBALANCE, [REBALANCE, OK, OK]]


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade"])
def test_a_policy_allows_one_way_or_none(start_ketch: Callable[..., KetchServer], policy: str) -> None:
    server = start_ketch("--group-consumer-migration-policy", policy)
    with Kafka(server.port) as client, mixed(client, "policy", "t") as made:
        a, b = made.form(None, None)
        answer = made.told(made.members[0].enters(made.topic))
        if policy == "upgrade":
            assert answer[0] == OK
            made.members[0].goes()
            assert made.listed() == [[], [("consumer", "Assigning")]], "it goes on as it is"
            assert (a.heartbeat(), b.heartbeat()) == (REBALANCE, REBALANCE)
            for _ in range(4):
                assert {*a.steps(), *b.steps()} <= {OK, REBALANCE}
            assert len(a.owned) == len(b.owned) == PARTITIONS // 2
            return
        assert answer[:2] == (NOT_FOUND, f"{CANNOT} because online upgrade is disabled.")
        assert (a.heartbeat(), b.heartbeat()) == (OK, OK)
        for member in (a, b):
            member.leave()
        last = made.members[0]
        assert last.enters(made.topic).error_code == OK, "an empty group changes its protocol as ever"
        joiner = made.classic()
        assert joiner.enter().error_code == OK, "a classic member may join at any time"
        last.goes()
        assert made.listed()[1] == ([("consumer", "Assigning")] if policy == "disabled" else [])


CANNOT = "Cannot upgrade classic group G to consumer group"


def reconnect(*members: Member) -> None:
    for member in members:
        member.close()
        Kafka.__init__(member, member.port)


def test_a_group_of_both_protocols_survives_its_coordinator(start_ketch: Callable[..., KetchServer]) -> None:
    """Members of both go on in their epochs; and a rebalance that a downgrade began goes on, too."""
    server = start_ketch()
    with Kafka(server.port) as client, mixed(client, "survives", "t") as made:
        a, b = made.form(None, None)
        c = made.member()
        c.enters(made.topic)
        for _ in range(4):
            settle([c], 1)
            assert {*a.steps(), *b.steps()} <= {OK, REBALANCE}
        before, owned = made.shown(), (a.owned, b.owned, c.assigned)
        server.kill()
        server.start()
        reconnect(a, b, *made.members)
        assert (a.heartbeat(), b.heartbeat(), c.beat().error_code) == (OK, OK, OK)
        assert (made.shown(), (a.owned, b.owned, c.assigned)) == (before, owned)
        assert c.goes().error_code == OK
        server.kill()
        server.start()
        reconnect(a, b, *made.members)
        assert (a.heartbeat(), b.heartbeat()) == (REBALANCE, REBALANCE)
