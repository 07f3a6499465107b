"""The same ACLs and the same questions to Ketch and to Apache Kafka with its StandardAuthorizer: no answer differs.

Each row of the dispatch table with each right taken away, and thousands of decisions by generated ACLs.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from ketch.broker.api import Api
from ketch.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from tests.broker.protocol.test_access import (
    CLUSTER,
    CODES,
    COMMIT,
    GROUP,
    PARAMETERS,
    TOPIC,
    Case,
    codes,
    grant,
    rights,
)
from tests.support.acls import ON
from tests.support.apache_kafka import ApacheKafka, missing_tools
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.sasl import SaslClient, add_user, sasl_server

NO_KAFKA = missing_tools()
pytestmark = pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA))

PASSWORD = "in-secret"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="admin" password="{PASSWORD}" user_admin="{PASSWORD}" user_alice="{PASSWORD}";'
)
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",  # the broker itself is anonymous to its controller
}
# Rows of which Kafka's broker has nothing to answer with, or that it answers otherwise for another reason.
ELSEWHERE = {
    "DescribeQuorum",  # Ketch has none: it refuses with 35 whoever asks
    "UpdateFeatures",
}
ANYTHING = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
NAMES = ["a", "ab", "abc", "abd", "b", "ba", "hardcode"]


class Side:
    """One of the two brokers: who may do everything there, and who is asked about."""

    def __init__(self, port: int) -> None:
        self.admin, self.alice = SaslClient(port, timeout=60.0), SaslClient(port, timeout=60.0)
        assert self.admin.plain("admin", PASSWORD).error_code == 0
        assert self.alice.plain("alice", PASSWORD).error_code == 0

    def close(self) -> None:
        self.admin.close()
        self.alice.close()

    def set(self, acls: list[Acl]) -> None:
        """Replaces all ACLs, and waits until they are in force.

        Both brokers answer DescribeAcls with the ACLs by which they decide at that moment. A topic of its own would not
        tell as much: a generated DENY may be about it, too.
        """
        assert self.admin.ask(31, 3, filters=[ANYTHING]).filter_results[0].error_code == 0
        made = self.admin.ask(30, 3, creations=[body(acl) for acl in acls])
        assert not any(result.error_code for result in made.results), made
        eventually(lambda: self.in_force() == set(acls), 60.0, "ACLs to be in force")

    def in_force(self) -> set[Acl]:
        found = self.admin.ask(29, 3, **ANYTHING)
        assert found.error_code == 0, found
        return {
            Acl(
                ResourceType(pattern.resource_type),
                PatternType(pattern.pattern_type),
                pattern.resource_name,
                acl.principal,
                acl.host,
                Operation(acl.operation),
                Permission(acl.permission_type),
            )
            for pattern in found.resources
            for acl in pattern.acls
        }


def body(acl: Acl) -> dict[str, Any]:
    return {
        "resource_type": acl.resource,
        "resource_name": acl.name,
        "resource_pattern_type": acl.pattern,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


@pytest.fixture(scope="module")
def ketch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    server = sasl_server(tmp_path_factory.mktemp("ketch"), *ON, "--super-users", "User:admin").start()
    for name in ("admin", "alice"):
        add_user(server, name, PASSWORD, "--mechanism", "SCRAM-SHA-256")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def both(ketch: KetchServer) -> Iterator[tuple[Side, Side]]:
    with ApacheKafka(SETTINGS) as kafka:
        sides = Side(ketch.port), Side(kafka.port)
        for side in sides:
            for name in ("t", *NAMES):
                side.admin.create(name)
            prepare(side.admin)
        yield sides
        for side in sides:
            side.close()


def prepare(admin: Kafka) -> None:
    """The group `g` with a commit, and the transaction `x` that is open, once the coordinators are there."""
    for kind, key in ((0, "g"), (1, "x")):  # Kafka makes its own topics when it is asked
        asked = {"key_type": kind, "coordinator_keys": [key]}
        eventually(lambda asked=asked: not any(codes(admin.ask(10, 4, **asked))), 60.0)
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": COMMIT}
    eventually(lambda: not any(codes(admin.ask(8, 8, **commit))), 60.0)
    made = eventually(
        lambda: (
            (found := admin.ask(22, 4, transactional_id="x", transaction_timeout=600_000)).error_code == 0 and found
        ),
        60.0,
    )
    producer = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch, "transactional_id": "x"}
    given = {f"v3_and_below_{name}": value for name, value in producer.items()}
    topics = [{"name": "t", "partitions": [0]}]
    eventually(lambda: not any(codes(admin.ask(24, 3, **given, v3_and_below_topics=topics))), 60.0)


def answers(side: Side, api: Api, case: Case, acls: list[Acl]) -> list[int]:
    """The codes of denials, and whether a right without a code shows in the answer."""
    side.set([acl._replace(principal="User:alice") for acl in acls])
    answer = case.ask(side.alice, api)
    hidden = [number for number, shows in enumerate(case.shows.values()) if shows(answer)]
    return sorted({*CODES & set(codes(answer)), *(-number - 1 for number in hidden)})


@pytest.mark.parametrize(("api", "case"), [each for each in PARAMETERS if each.values[0].name not in ELSEWHERE])
def test_each_right_taken_away_shows_in_the_same_way(both: tuple[Side, Side], api: Api, case: Case) -> None:
    needed = rights(api.touches, case)
    for number in range(len(needed) + 1):
        case.renew()
        acls = [grant(case, each[-1]) for other, each in enumerate(needed) if other != number]
        ours, theirs = (answers(side, api, case, acls) for side in both)
        assert ours == theirs, (number, acls)


@pytest.mark.parametrize("seed", range(30))
def test_decisions_by_generated_acls(both: tuple[Side, Side], seed: int) -> None:
    acls = generated(Random(seed))
    ours, theirs = (decisions(side, acls) for side in both)
    assert ours == theirs, acls


def generated(random: Random) -> list[Acl]:
    operations = [each for each in Operation if Operation.ALL <= each <= Operation.IDEMPOTENT_WRITE]
    found = [
        Acl(
            kind := random.choice([TOPIC, TOPIC, GROUP, CLUSTER]),
            PatternType.LITERAL if kind is CLUSTER else random.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            CLUSTER_NAME if kind is CLUSTER else random.choice([*NAMES, "*", "a", "ab", "hard"]),
            random.choice(["User:alice", "User:alice", "User:bob", "User:*"]),
            random.choice(["*", "*", "127.0.0.1", "10.0.0.1"]),
            random.choice(operations),
            random.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
        )
        for _ in range(random.randint(3, 30))
    ]
    return list(dict.fromkeys(found))


def decisions(side: Side, acls: list[Acl]) -> list[Any]:
    """What alice may do with each topic and group, with the cluster, and whether she may be a producer."""
    side.set(acls)
    topics = side.alice.metadata(
        *NAMES, version=8, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    groups = side.alice.ask(15, 5, groups=NAMES, include_authorized_operations=True).groups
    found: list[Any] = [topics.cluster_authorized_operations]
    found += sorted(
        (t.name, int(t.error_code), t.topic_authorized_operations) for t in topics.topics if not t.error_code
    )
    found += sorted((t.name, int(t.error_code)) for t in topics.topics if t.error_code)
    found += sorted((g.group_id, int(g.error_code), g.authorized_operations) for g in groups if g.error_code != 30)
    found += sorted(g.group_id for g in groups if g.error_code == 30)
    found.append(int(side.alice.ask(22, 4, transactional_id=None, transaction_timeout=1000).error_code))
    for name in NAMES:  # rights that show for topics that may not be described
        records = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}]
        found.append(sorted(codes(side.alice.ask(21, 0, topics=records, timeout=1000))))
        resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]}]
        found.append(sorted(codes(side.alice.ask(32, 4, resources=resources))))
    return found
