"""Decisions by generated ACLs: Ketch and Apache Kafka's StandardAuthorizer are asked the same, and none differs.

A set of ACLs is about topics, groups, transactional ids and the cluster, by literal, prefixed and wildcard patterns,
for two users, for everyone and for others, from two addresses, from any and from elsewhere. Both users ask from both
addresses. What a client may do with a topic, a group and the cluster stands in one answer, as a bit of each operation
(KIP-430); a resource that may not be described hides the others, which requests of their own ask for. So a set of ACLs
is some hundred decisions in a few dozen requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import pytest

from ketch.broker.resources import OPERATIONS
from ketch.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from tests.broker.protocol.test_access import CLUSTER, CODES, GROUP, ID, PARTITIONS, PRODUCER, TOPIC, codes
from tests.support.apache_kafka import missing_tools
from tests.support.authorizers import DELETE_ACLS, HOSTS, USERS, Side, both_sides
from tests.support.batches import batch, records
from tests.support.kafka import (
    ADD_PARTITIONS_TO_TXN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CONFIGS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    PRODUCE,
    Kafka,
    fetch,
    part,
)

NO_KAFKA = missing_tools()
pytestmark = pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA))

NAMES = ["a", "ab", "abc", "abd", "b", "ba", "hardcode"]
NEW = "-new"  # ends the names of topics that are not there
HEARTBEAT, DESCRIBE_GROUPS, DELETE_GROUPS = 12, 15, 42
TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS = 2, 4, 32
RECORDS = batch(records([b"v"]))
SETS = 100  # of ACLs, in the long test

# What was asked, by operation, type and name of the resource and how; and whether it is allowed.
Question = tuple[Operation, ResourceType, str, str]
Decisions = dict[Question, bool]


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.long(minutes=0.1))], ids=["closed", "open"]
)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Brokers that refuse, and brokers that allow, where there is no ACL about a resource."""
    with both_sides(tmp_path_factory.mktemp("ketch"), NAMES, allow_if_none=request.param) as sides:
        yield sides


@pytest.mark.parametrize("seed", range(8))
def test_no_decision_differs(both: tuple[Side, Side], seed: int) -> None:
    compare(both, seed)


@pytest.mark.long(minutes=3)
def test_of_thousands_of_decisions_none_differs(both: tuple[Side, Side], capsys: pytest.CaptureFixture[str]) -> None:
    found = [compare(both, seed) for seed in range(1000, 1000 + SETS)]
    asked, allowed = sum(map(len, found)), sum(sum(each.values()) for each in found)
    with capsys.disabled():
        print(f"\n{asked:,} decisions by {SETS} sets of ACLs: {allowed:,} allowed, {asked - allowed:,} denied")
    assert asked > 20_000
    assert min(allowed, asked - allowed) > asked // 10


def compare(both: tuple[Side, Side], seed: int) -> dict[tuple[str, str, Question], bool]:
    """All decisions by one set of ACLs, by user and address, which both brokers have made."""
    acls = generated(Random(seed))
    found = []
    for side in both:
        side.set(acls)
        callers = [(user, host) for user in USERS for host in HOSTS]
        found.append(
            {(*who, question): yes for who in callers for question, yes in decisions(side.caller(*who)).items()}
        )
    ours, theirs = found
    differing = {question: yes for question, yes in ours.items() if theirs.get(question) != yes}
    assert not differing, acls
    assert ours.keys() == theirs.keys(), acls
    return ours


def generated(random: Random) -> list[Acl]:
    return [_acl(random) for _ in range(random.randint(3, 60))]


def _acl(random: Random) -> Acl:
    kind = random.choice([TOPIC, TOPIC, TOPIC, GROUP, GROUP, ID, CLUSTER])
    pattern = PatternType.LITERAL if kind is CLUSTER else random.choice([PatternType.LITERAL, PatternType.PREFIXED])
    return Acl(
        kind,
        pattern,
        CLUSTER_NAME if kind is CLUSTER else random.choice([*NAMES, "*", "a", "ab", "hard", "ab" + NEW]),
        random.choice([*(f"User:{user}" for user in USERS), "User:*", "User:*", "User:carol", "Group:alice"]),
        random.choice(["*", "*", "*", *HOSTS, "10.0.0.1"]),
        random.choice([Operation.ALL, Operation.ALL, *sorted(OPERATIONS[kind])]),
        random.choice([Permission.DENY, *[Permission.ALLOW] * 4]),
    )


def decisions(client: Kafka) -> Decisions:
    return {question: yes for ask in ASKED for question, yes in ask(client)}


# -- by bits


Found = Iterator[tuple[Question, bool]]


def of_topics_and_cluster(client: Kafka) -> Found:
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = client.metadata(*NAMES, version=8, create=False, **asked)
    for topic in answer.topics:
        yield from _bits(TOPIC, topic.name, topic.error_code, topic.topic_authorized_operations)
    yield from _bits(CLUSTER, CLUSTER_NAME, 0, answer.cluster_authorized_operations)


def of_groups(client: Kafka) -> Found:
    for group in client.ask(DESCRIBE_GROUPS, 5, groups=NAMES, include_authorized_operations=True).groups:
        yield from _bits(GROUP, group.group_id, group.error_code, group.authorized_operations)


def _bits(kind: ResourceType, name: str, code: int, bits: int) -> Found:
    if code:
        assert code in CODES, (kind, name, code)
        yield (Operation.DESCRIBE, kind, name, "bits"), False
        return
    for operation in OPERATIONS[kind]:
        yield (operation, kind, name, "bits"), bool(bits >> operation & 1)
    assert not bits & ~sum(1 << operation for operation in OPERATIONS[kind])


# -- by requests, as these rights show for what may not be described, too


def _by_name(operation: Operation, kind: ResourceType, how: str, found: Iterable[tuple[str, Any]]) -> Found:
    """A decision for each part of an answer, which is about the resource of a name."""
    for name, each in found:
        yield (operation, kind, name, how), not CODES & set(codes(each))


def _one(operation: Operation, how: str, answer: Any) -> Found:
    yield from _by_name(operation, CLUSTER, how, [(CLUSTER_NAME, answer)])


def by_fetch(client: Kafka) -> Found:
    answer = client.ask(FETCH, 12, **fetch([part(name, 0, 0) for name in NAMES]))
    yield from _by_name(Operation.READ, TOPIC, "Fetch", ((each.topic, each) for each in answer.responses))


def by_produce(client: Kafka) -> Found:
    topics = [{"name": name, "partition_data": [{"index": 0, "records": RECORDS}]} for name in NAMES]
    answer = client.ask(PRODUCE, 9, acks=1, timeout=10_000, topic_data=topics)
    yield from _by_name(Operation.WRITE, TOPIC, "Produce", ((each.name, each) for each in answer.responses))


def by_delete_records(client: Kafka) -> Found:
    topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in NAMES]
    answer = client.ask(DELETE_RECORDS, 0, topics=topics, timeout=10_000)
    yield from _by_name(Operation.DELETE, TOPIC, "DeleteRecords", ((each.name, each) for each in answer.topics))


def by_create_topics(client: Kafka) -> Found:
    topics = [{"name": name + NEW, "num_partitions": 1, "replication_factor": -1} for name in NAMES]
    answer = client.ask(CREATE_TOPICS, 4, topics=topics, timeout=10_000, validate_only=True)
    yield from _by_name(Operation.CREATE, TOPIC, "CreateTopics", ((each.name, each) for each in answer.topics))


def by_create_partitions(client: Kafka) -> Found:
    topics = [{"name": name, "count": 2, "assignments": None} for name in NAMES]
    answer = client.ask(CREATE_PARTITIONS, 0, topics=topics, timeout=10_000, validate_only=True)
    yield from _by_name(Operation.ALTER, TOPIC, "CreatePartitions", ((each.name, each) for each in answer.results))


def by_configs(client: Kafka) -> Found:
    kinds = [(TOPIC_CONFIGS, name) for name in NAMES] + [(GROUP_CONFIGS, name) for name in NAMES]
    types = {TOPIC_CONFIGS: TOPIC, GROUP_CONFIGS: GROUP, BROKER_CONFIGS: CLUSTER}
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": [], "configs": []}
        for kind, name in [*kinds, (BROKER_CONFIGS, "")]
    ]
    read = client.ask(DESCRIBE_CONFIGS, 4, resources=resources).results
    changed = client.ask(INCREMENTAL_ALTER_CONFIGS, 0, resources=resources, validate_only=True).responses
    for operation, how, parts in (
        (Operation.DESCRIBE_CONFIGS, "DescribeConfigs", read),
        (Operation.ALTER_CONFIGS, "IncrementalAlterConfigs", changed),
    ):
        for each in parts:
            yield from _by_name(operation, types[each.resource_type], how, [(each.resource_name, each)])


def by_groups(client: Kafka) -> Found:
    gone = client.ask(DELETE_GROUPS, 0, groups_names=NAMES).results
    yield from _by_name(Operation.DELETE, GROUP, "DeleteGroups", ((each.group_id, each) for each in gone))
    for name in NAMES:
        answer = client.ask(HEARTBEAT, 0, group_id=name, generation_id=1, member_id="m")
        yield from _by_name(Operation.READ, GROUP, "Heartbeat", [(name, answer)])


def by_transactional_ids(client: Kafka) -> Found:
    found = client.ask(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=NAMES).coordinators
    yield from _by_name(Operation.DESCRIBE, ID, "FindCoordinator", ((each.key, each) for each in found))
    for name in NAMES:
        answer = client.ask(END_TXN, 0, transactional_id=name, producer_id=99, producer_epoch=0)
        yield from _by_name(Operation.WRITE, ID, "EndTxn", [(name, answer)])


def by_cluster(client: Kafka) -> Found:
    """Each of them is refused as a whole."""
    quotas = client.ask(DESCRIBE_CLIENT_QUOTAS, 0, components=[], strict=False)
    yield from _one(Operation.DESCRIBE_CONFIGS, "DescribeClientQuotas", quotas)
    nothing = {"resource_type_filter": 2, "resource_name_filter": "none", "pattern_type_filter": 3}
    gone = client.ask(DELETE_ACLS, 3, filters=[{**nothing, "operation": 1, "permission_type": 1}])
    yield from _one(Operation.ALTER, "DeleteAcls", gone)
    added = client.ask(ADD_PARTITIONS_TO_TXN, 4, transactions=[{**PRODUCER, "topics": PARTITIONS, "verify_only": True}])
    yield from _one(Operation.CLUSTER_ACTION, "AddPartitionsToTxn", added)
    made = client.ask(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=1000)
    yield from _one(Operation.IDEMPOTENT_WRITE, "InitProducerId", made)


ASKED: list[Callable[[Kafka], Found]] = [
    of_topics_and_cluster,
    of_groups,
    by_fetch,
    by_produce,
    by_delete_records,
    by_create_topics,
    by_create_partitions,
    by_configs,
    by_groups,
    by_transactional_ids,
    by_cluster,
]
