"""Every row of the dispatch table, with an authorizer: each right that it names is needed, and taken away it shows.

For each rule of a row the other rights are granted and this one is not, which changes the answer as Kafka's does; then
each of its alternatives alone is enough. So no rule is only decoration, and none asks for more than it says.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ketch.broker.api import Api
from ketch.broker.dispatch import TABLE
from ketch.broker.resources import DENIED, Rule, Touch
from ketch.broker.touches import NOTHING
from ketch.security.acls import CLUSTER_NAME, Acl, Operation, ResourceType
from tests.support.acls import ON, Acls, allow
from tests.support.batches import batch, records
from tests.support.kafka import Kafka, fetch, part, produce
from tests.support.ketch import KetchServer

TOPIC, GROUP, CLUSTER, ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
NAMES = {TOPIC: "t", GROUP: "g", CLUSTER: CLUSTER_NAME, ID: "x"}
ALL = [allow(kind, name, Operation.ALL) for kind, name in NAMES.items()]
_numbers = itertools.count(1)
CODES = {int(code) for code in DENIED.values()}

Denied = Callable[[Any], bool]  # whether an answer says or hides that something is denied


@dataclasses.dataclass
class Case:
    """A request that needs all that its row says, or in this version some of it.

    Attributes:
        shows: whether an answer is one to a client without a right, by the right; without one the code says it.
        without: rights of the row that this request does not need.
        names: what it names, where that is not `NAMES`.
        fresh: the topic in its body is another one each time.
    """

    version: int
    body: dict[str, Any]
    shows: dict[tuple[Operation, ResourceType], Denied] = dataclasses.field(default_factory=dict)
    without: set[tuple[Operation, ResourceType]] = dataclasses.field(default_factory=set)
    names: dict[ResourceType, str] = dataclasses.field(default_factory=dict)
    fresh: bool = False

    def ask(self, kafka: Kafka, api: Api) -> Any:
        return kafka.ask(api.key, self.version, **self.body)

    def renew(self) -> None:
        if self.fresh:
            self.names[TOPIC] = f"new-{next(_numbers)}"
            self.body["topics"] = [{"name": self.names[TOPIC]}]

    def name(self, touch: Touch) -> str:
        return {**NAMES, **self.names}[touch.resource]


class Acknowledging(Case):
    """Acknowledgements by a member of a share group that has a session; to have one takes no topic."""

    def ask(self, kafka: Kafka, api: Api) -> Any:
        kafka.ask(78, 1, **{**SHARES, "topics": []})
        batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
        partitions = [{"partition_index": 0, "acknowledgement_batches": batches}]
        topics = [{**SHARES["topics"][0], "partitions": partitions}]
        return kafka.ask(api.key, self.version, **{**self.body, "topics": topics})


def codes(answer: Any) -> Iterator[int]:
    """All error codes in an answer."""
    if isinstance(answer, ErrorCode):
        yield int(answer)
    elif isinstance(answer, tuple):
        for each in answer:
            yield from codes(each)
    elif dataclasses.is_dataclass(answer):
        for field in dataclasses.fields(answer):
            yield from codes(getattr(answer, field.name))


def topic_entry(answer: Any) -> Any:
    (found,) = [topic for topic in answer.topics if topic.name[:4] in ("t", "new-")]
    return found


PARTITIONS = [{"name": "t", "partitions": [0]}]
COMMIT = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]}]
IN_TRANSACTION = batch(records([b"v"]), attributes=0x10, producer_id=99, producer_epoch=0, base_sequence=0)
PRODUCED = produce("t", batch(records([b"v"])))
MEMBER = {"group_id": "g", "generation_id": 1, "member_id": "m"}
JOINS = {
    "group_id": "c",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout": 60_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}
PRODUCER = {"transactional_id": "x", "producer_id": 99, "producer_epoch": 0}
RESOURCES = [
    {"resource_type": kind, "resource_name": name, "configuration_keys": None, "configs": []}
    for kind, name in ((2, "t"), (32, "g"), (4, ""))
]
DESCRIBE_CLUSTER = (Operation.DESCRIBE, CLUSTER)
DESCRIBE_TOPIC = (Operation.DESCRIBE, TOPIC)
CREATES = {(Operation.CREATE, TOPIC): lambda answer: topic_entry(answer).error_code == 29}
NO_OPERATIONS = {DESCRIBE_CLUSTER: lambda answer: answer.cluster_authorized_operations == 0}

ACTS = (Operation.CLUSTER_ACTION, CLUSTER)
SHARE_MEMBER = {"group_id": "s", "member_id": "AAAAAAAAAAAAAAAAAAAAAg"}
SHARE_JOINS = {**SHARE_MEMBER, "member_epoch": 0, "subscribed_topic_names": ["t"]}
SHARES: dict[str, Any] = {  # the topic's id is set once there is one
    **SHARE_MEMBER,
    "share_session_epoch": 0,
    "max_wait": 0,
    "max_records": 1,
    "topics": [{"topic_id": None, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}],
}
# Of a topic that the client may not describe either, an id says nothing.
UNKNOWN_ID = {(Operation.READ, TOPIC): lambda answer: 100 in codes(answer)}

CASES: dict[str, list[Case]] = {
    "Produce": [
        Case(9, PRODUCED, without={(Operation.WRITE, ID)}),
        Case(12, {**produce("t", IN_TRANSACTION), "transactional_id": "x"}),
    ],
    "Fetch": [Case(12, fetch([part("t", 0, 0)]))],
    "ListOffsets": [
        Case(v, {"replica_id": -1, "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]})
        for v in (1, 9)
    ],
    "Metadata": [
        Case(
            8,
            {
                "topics": [{"name": "t"}],
                "allow_auto_topic_creation": True,
                "include_cluster_authorized_operations": True,
            },
            NO_OPERATIONS,
            without={(Operation.CREATE, TOPIC), (Operation.CREATE, CLUSTER)},
        ),
        Case(
            12,
            {"topics": None},
            {DESCRIBE_TOPIC: lambda answer: "t" not in {topic.name for topic in answer.topics}},
            without={(Operation.CREATE, TOPIC), (Operation.CREATE, CLUSTER), DESCRIBE_CLUSTER},
        ),
        Case(
            4,
            {"topics": [{"name": "new"}], "allow_auto_topic_creation": True},
            CREATES,
            without={DESCRIBE_CLUSTER},
            fresh=True,
        ),
    ],
    "OffsetCommit": [Case(v, {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": COMMIT}) for v in (2, 9)],
    "OffsetFetch": [
        Case(1, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}),
        Case(7, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}),
        Case(8, {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]}),
        Case(
            8,
            {"groups": [{"group_id": "g", "topics": None}]},
            {DESCRIBE_TOPIC: lambda answer: not answer.groups[0].topics},
        ),
    ],
    "FindCoordinator": [
        Case(4, {"key_type": 0, "coordinator_keys": ["g"]}, without={(Operation.DESCRIBE, ID), ACTS}),
        Case(4, {"key_type": 1, "coordinator_keys": ["x"]}, without={(Operation.DESCRIBE, GROUP), ACTS}),
        Case(0, {"key": "g"}, without={(Operation.DESCRIBE, ID), ACTS}),
        Case(
            6,
            {"key_type": 2, "coordinator_keys": ["s:AAAAAAAAAAAAAAAAAAAAAQ:0"]},
            without={(Operation.DESCRIBE, GROUP), (Operation.DESCRIBE, ID)},
        ),
    ],
    "JoinGroup": [Case(5, {**MEMBER, "session_timeout": 1})],
    "Heartbeat": [Case(0, MEMBER)],
    "LeaveGroup": [Case(0, MEMBER), Case(3, {"group_id": "g", "members": []})],
    "SyncGroup": [Case(0, MEMBER)],
    "ConsumerGroupHeartbeat": [Case(1, JOINS, names={GROUP: "c"})],
    "ConsumerGroupDescribe": [Case(1, {"group_ids": ["c"]}, names={GROUP: "c"})],
    "ShareGroupHeartbeat": [Case(1, SHARE_JOINS, names={GROUP: "s"})],
    "ShareGroupDescribe": [Case(1, {"group_ids": ["s"]}, names={GROUP: "s"})],
    "ShareFetch": [Case(1, SHARES, UNKNOWN_ID, names={GROUP: "s"})],
    "ShareAcknowledge": [Acknowledging(1, {**SHARE_MEMBER, "share_session_epoch": 1}, UNKNOWN_ID, names={GROUP: "s"})],
    "DescribeShareGroupOffsets": [
        Case(
            0, {"groups": [{"group_id": "s", "topics": [{"topic_name": "t", "partitions": [0]}]}]}, names={GROUP: "s"}
        ),
        Case(
            0,
            {"groups": [{"group_id": "s", "topics": None}]},
            {DESCRIBE_TOPIC: lambda answer: not answer.groups[0].topics},
            names={GROUP: "s"},
        ),
    ],
    "AlterShareGroupOffsets": [
        Case(
            0,
            {
                "group_id": "s",
                "topics": [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 0}]}],
            },
            names={GROUP: "s"},
        )
    ],
    "DeleteShareGroupOffsets": [Case(0, {"group_id": "s", "topics": [{"topic_name": "t"}]}, names={GROUP: "s"})],
    "DescribeGroups": [Case(0, {"groups": ["g"]})],
    "ListGroups": [
        Case(
            4,
            {},
            {(Operation.DESCRIBE, GROUP): lambda answer: "g" not in {group.group_id for group in answer.groups}},
        )
    ],
    "CreateTopics": [
        Case(
            7,
            {"topics": [{"name": "t2", "num_partitions": 1, "replication_factor": -1}], "validate_only": True},
            {
                (Operation.DESCRIBE_CONFIGS, TOPIC): lambda answer: (
                    answer.topics[0].topic_config_error_code == 29 and answer.topics[0].num_partitions == -1
                )
            },
            names={TOPIC: "t2"},
        )
    ],
    "DeleteTopics": [
        Case(1, {"topic_names": ["gone"], "timeout": 1000}, names={TOPIC: "gone"}),
        Case(6, {"topics": [{"name": "gone", "topic_id": None}], "timeout": 1000}, names={TOPIC: "gone"}),
    ],
    "DeleteRecords": [
        Case(0, {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout": 1000})
    ],
    "InitProducerId": [
        Case(
            0,
            {"transactional_id": "y", "transaction_timeout": 1000},
            without={(Operation.WRITE, TOPIC)},
            names={ID: "y"},
        ),
        Case(0, {"transactional_id": None, "transaction_timeout": 1000}, without={(Operation.WRITE, ID)}),
    ],
    "OffsetForLeaderEpoch": [
        Case(
            2,
            {
                "topics": [
                    {"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
                ]
            },
        )
    ],
    "AddPartitionsToTxn": [
        Case(
            3,
            {
                "v3_and_below_transactional_id": "x",
                "v3_and_below_producer_id": 99,
                "v3_and_below_producer_epoch": 0,
                "v3_and_below_topics": PARTITIONS,
            },
            without={(Operation.CLUSTER_ACTION, CLUSTER)},
        ),
        Case(
            4,
            {"transactions": [{**PRODUCER, "topics": PARTITIONS, "verify_only": True}]},
            without={(Operation.WRITE, ID), (Operation.WRITE, TOPIC)},
        ),
    ],
    "AddOffsetsToTxn": [Case(0, {**PRODUCER, "group_id": "g"})],
    "EndTxn": [Case(0, PRODUCER)],
    "WriteTxnMarkers": [
        Case(
            1,
            {
                "markers": [
                    {
                        "producer_id": 99,
                        "producer_epoch": 0,
                        "transaction_result": False,
                        "topics": [{"name": "t", "partition_indexes": [0]}],
                        "coordinator_epoch": 0,
                    }
                ]
            },
        )
    ],
    "TxnOffsetCommit": [Case(3, {**PRODUCER, "group_id": "g", "topics": COMMIT})],
    "DescribeConfigs": [Case(4, {"resources": RESOURCES})],
    "AlterConfigs": [Case(0, {"resources": RESOURCES, "validate_only": True})],
    "IncrementalAlterConfigs": [Case(0, {"resources": RESOURCES, "validate_only": True})],
    "DescribeLogDirs": [Case(3, {"topics": []})],
    "CreatePartitions": [
        Case(0, {"topics": [{"name": "t", "count": 2, "assignments": None}], "timeout": 1000, "validate_only": True})
    ],
    "DeleteGroups": [Case(0, {"groups_names": ["none"]}, names={GROUP: "none"})],
    "ElectLeaders": [
        Case(1, {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": 1000})
    ],
    "AlterPartitionReassignments": [
        Case(
            0,
            {
                "topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}],
                "timeout": 1000,
            },
        )
    ],
    "ListPartitionReassignments": [Case(0, {"topics": None, "timeout": 1000})],
    "OffsetDelete": [
        Case(0, {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 9}]}]}),
    ],
    "DescribeClientQuotas": [Case(0, {"components": [], "strict": False})],
    "DescribeQuorum": [Case(0, {"topics": []})],
    "UpdateFeatures": [Case(1, {"feature_updates": []})],
    "DescribeCluster": [Case(0, {"include_cluster_authorized_operations": True}, NO_OPERATIONS)],
    "DescribeProducers": [Case(0, {"topics": [{"name": "t", "partition_indexes": [0]}]})],
    "DescribeTransactions": [
        Case(
            0,
            {"transactional_ids": ["x"]},
            {DESCRIBE_TOPIC: lambda answer: not answer.transaction_states[0].topics},
        )
    ],
    "ListTransactions": [
        Case(0, {}, {(Operation.DESCRIBE, ID): lambda answer: not answer.transaction_states}),
    ],
    "ListConfigResources": [Case(v, {"resource_types": []}) for v in (0, 1)],
    "DescribeTopicPartitions": [
        Case(0, {"topics": [{"name": "t"}], "response_partition_limit": 10, "cursor": None}),
        Case(
            0,
            {"topics": [], "response_partition_limit": 10, "cursor": None},
            {DESCRIBE_TOPIC: lambda answer: "t" not in {topic.name for topic in answer.topics}},
        ),
    ],
    "AlterClientQuotas": [
        Case(
            0,
            {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}], "validate_only": True},
        )
    ],
    "DescribeUserScramCredentials": [Case(0, {"users": [{"name": "u"}]})],
    "AlterUserScramCredentials": [Case(0, {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": []})],
    "DescribeAcls": [
        Case(1, {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1})
    ],
    "CreateAcls": [
        Case(
            1,
            {
                "creations": [
                    {
                        "resource_type": 2,
                        "resource_name": "",
                        "resource_pattern_type": 3,
                        "principal": "User:a",
                        "host": "*",
                        "operation": 3,
                        "permission_type": 3,
                    }
                ]
            },
        )
    ],
    "DeleteAcls": [
        Case(
            1,
            {
                "filters": [
                    {
                        "resource_type_filter": 2,
                        "resource_name_filter": "nothing",
                        "pattern_type_filter": 3,
                        "operation": 1,
                        "permission_type": 1,
                    }
                ]
            },
        )
    ],
}
EVERYONE = {api.name for api in TABLE.values() if api.touches == NOTHING}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """A broker with an authorizer on which `NAMES` exist, with a commit, an open transaction, a consumer group `c`, and
    a share group `s`.
    """
    server = KetchServer(tmp_path_factory.mktemp("guarded"), *ON).start()
    with Kafka(server.port) as kafka:
        Acls(server.redis(), kafka).set([*ALL, *(allow(GROUP, name, Operation.ALL) for name in "cs")])
        kafka.create("t")
        SHARES["topics"][0]["topic_id"] = kafka.topic_id("t")
        assert kafka.ask(76, 1, **SHARE_JOINS).error_code == 0
        kafka.ask(8, 8, group_id="g", generation_id_or_member_epoch=-1, topics=COMMIT)
        assert kafka.ask(68, 1, **JOINS).error_code == 0
        made = kafka.ask(22, 4, transactional_id="x", transaction_timeout=60_000)
        producer = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        given = {f"v3_and_below_{name}": value for name, value in {**producer, "transactional_id": "x"}.items()}
        kafka.ask(24, 3, **given, v3_and_below_topics=PARTITIONS)
    yield server
    server.stop()


@pytest.fixture
def kafka(guarded: KetchServer) -> Iterator[Kafka]:
    with Kafka(guarded.port) as client:
        yield client


def rights(rules: tuple[Rule, ...], case: Case) -> list[list[Touch]]:
    """The alternatives of each rule that the case needs, those of one operation on one type once."""
    found: dict[tuple[Operation, ResourceType], list[Touch]] = {}
    for rule in rules:
        last = rule.touches[-1]
        key = (last.operation, last.resource)
        if key not in case.without and not {(t.operation, t.resource) for t in rule.touches} <= case.without:
            found[key] = list(rule.touches)
    return list(found.values())


PARAMETERS = [
    pytest.param(api, case, id=f"{api.name}-{number}")
    for api in TABLE.values()
    for number, case in enumerate(CASES.get(api.name, []))
]


@pytest.mark.parametrize(("api", "case"), PARAMETERS)
def test_each_right_is_needed_and_enough(guarded: KetchServer, kafka: Kafka, api: Api, case: Case) -> None:
    acls = Acls(guarded.redis(), kafka)
    needed = rights(api.touches, case)
    assert needed
    for number, alternatives in enumerate(needed):
        case.renew()
        others = [grant(case, each[-1]) for other, each in enumerate(needed) if other != number]
        last = alternatives[-1]
        acls.set(others)
        code = DENIED[(alternatives[0] if last.somewhere else last).resource]
        assert shown(case, last, case.ask(kafka, api), int(code)), f"without {last}"
        for alternative in alternatives:
            case.renew()
            others = [grant(case, each[-1]) for other, each in enumerate(needed) if other != number]
            acls.set([*others, grant(case, alternative)])
            answer = case.ask(kafka, api)
            assert not shown(case, last, answer, int(code)), f"with {alternative}: {answer}"
            assert not CODES & set(codes(answer)), f"with {alternative}: {answer}"


def grant(case: Case, touch: Touch) -> Acl:
    """The right, by ALL where no ACL can name it, see `OPERATIONS`."""
    operation = Operation.ALL if (touch.operation, touch.resource) == (Operation.DELETE, CLUSTER) else touch.operation
    return allow(touch.resource, case.name(touch), operation)


def shown(case: Case, touch: Touch, answer: Any, code: int) -> bool:
    special = case.shows.get((touch.operation, touch.resource))
    return special(answer) if special else code in set(codes(answer))


def test_every_api_has_its_cases() -> None:
    for api in TABLE.values():
        if api.name not in EVERYONE:
            wanted = {(rule.touches[-1].operation, rule.touches[-1].resource) for rule in api.touches}
            tried = {
                (each[-1].operation, each[-1].resource)
                for case in CASES[api.name]
                for each in rights(api.touches, case)
            }
            assert wanted == tried, api.name
