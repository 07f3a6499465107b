"""ACLs as clients meet them: the APIs that change them, what they hide, and when a change is in force."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ketch.security.acls import Operation, PatternType, ResourceType
from tests.legacy07.conftest import legacy_port
from tests.support.acls import KEY, ON, Acls, allow, deny
from tests.support.batches import batch, records
from tests.support.kafka import DELETE_TOPICS, FETCH, INIT_PRODUCER_ID, METADATA, PRODUCE, Kafka, fetch, part, produce
from tests.support.ketch import KetchServer, eventually
from tests.support.legacy07 import Legacy, message
from tests.support.legacy07 import fetch as old_fetch
from tests.support.legacy07 import offsets as old_offsets
from tests.support.legacy07 import produce as old_produce
from tests.support.sasl import SaslClient, add_user, sasl_server

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
NAME = "kafka-cluster"
TOPIC_DENIED, CLUSTER_DENIED, UNKNOWN_TOPIC, UNKNOWN_ID, DISABLED = 29, 31, 3, 100, 54
EVERYTHING = [allow(TOPIC, "*", Operation.ALL), allow(GROUP, "*", Operation.ALL), allow(CLUSTER, NAME, Operation.ALL)]
DATA = batch(records([b"v"]))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """A broker with an authorizer."""
    directory = tmp_path_factory.mktemp("guarded")
    server = KetchServer(directory, *ON, "--legacy-port", "0", "--audit-log", str(directory / "audit")).start()
    yield server
    server.stop()


@pytest.fixture
def kafka(guarded: KetchServer) -> Iterator[Kafka]:
    with Kafka(guarded.port) as client:
        yield client


@pytest.fixture
def acls(guarded: KetchServer, kafka: Kafka) -> Acls:
    """All rights at first."""
    found = Acls(guarded.redis(), kafka)
    found.set(EVERYTHING)
    return found


# -- CreateAcls, DescribeAcls, DeleteAcls


def creation(name: str, **given: Any) -> dict[str, Any]:
    base = {"resource_type": 2, "resource_name": name, "resource_pattern_type": 3, "principal": "User:a"}
    return {**base, "host": "*", "operation": 3, "permission_type": 3, **given}


def wanted(name: str | None = None, **given: Any) -> dict[str, Any]:
    base = {"resource_type_filter": 1, "resource_name_filter": name, "pattern_type_filter": 1}
    return {**base, "operation": 1, "permission_type": 1, **given}


def described(kafka: Kafka, version: int = 3, **given: Any) -> list[tuple[Any, ...]]:
    answer = kafka.ask(DESCRIBE_ACLS, version, **wanted(**given))
    assert answer.error_code == 0, answer
    return [
        (r.resource_type, r.pattern_type, r.resource_name, a.principal, a.host, a.operation, a.permission_type)
        for r in answer.resources
        for a in r.acls
    ]


def test_without_an_authorizer_there_are_no_acls(broker: KetchServer) -> None:
    with Kafka(broker.port) as kafka:
        for version in (1, 2, 3):
            found = kafka.ask(DESCRIBE_ACLS, version, **wanted())
            assert (found.error_code, found.error_message) == (DISABLED, "No Authorizer is configured on the broker")
            (made,) = kafka.ask(CREATE_ACLS, version, creations=[creation("t")]).results
            assert (made.error_code, made.error_message) == (DISABLED, "No Authorizer is configured.")
            (gone,) = kafka.ask(DELETE_ACLS, version, filters=[wanted()]).filter_results
            assert (gone.error_code, gone.error_message) == (DISABLED, "No Authorizer is configured.")


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.usefixtures("acls")
def test_acls_are_created_described_and_deleted(kafka: Kafka, topic: str, version: int) -> None:
    made = kafka.ask(
        CREATE_ACLS,
        version,
        creations=[creation(topic), creation(topic), creation(topic, resource_pattern_type=4, permission_type=2)],
    )
    assert [each.error_code for each in made.results] == [0, 0, 0]
    literal, prefixed = (2, 3, topic, "User:a", "*", 3, 3), (2, 4, topic, "User:a", "*", 3, 2)
    assert described(kafka, version, name=topic) == [literal, prefixed]
    assert described(kafka, version, name=topic + "x", pattern_type_filter=2, principal_filter="User:a") == [prefixed]
    gone = kafka.ask(DELETE_ACLS, version, filters=[wanted(topic, permission_type=3), wanted(topic), wanted("none")])
    assert [[each.permission_type for each in found.matching_acls] for found in gone.filter_results] == [
        [3],
        [3, 2],
        [],
    ]
    assert described(kafka, version, name=topic) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
    ],
)
@pytest.mark.usefixtures("acls")
def test_what_cannot_be_is_refused_in_kafka_s_words(
    kafka: Kafka, topic: str, given: dict[str, Any], message: str
) -> None:
    bad, good = kafka.ask(CREATE_ACLS, 3, creations=[creation("t", **given), creation(topic)]).results
    assert (bad.error_code, bad.error_message, good.error_code) == (42, message, 0)
    assert len(described(kafka, name=topic)) == 1


@pytest.mark.usefixtures("acls")
def test_a_filter_that_cannot_be_is_refused(kafka: Kafka) -> None:
    bad = kafka.ask(DELETE_ACLS, 3, filters=[wanted(resource_type_filter=99), wanted(operation=99)]).filter_results
    assert [(each.error_code, each.error_message) for each in bad] == [
        (42, "Unknown patternFilter."),
        (42, "Unknown entryFilter."),
    ]
    kafka.send(DESCRIBE_ACLS, 3, **wanted(operation=0))
    assert kafka.closed()


# -- what is hidden


def test_a_topic_that_may_not_be_described_is_as_if_it_were_not(acls: Acls, kafka: Kafka, topic: str) -> None:
    kafka.create(topic)
    topic_id = kafka.topic_id(topic)
    acls.set([allow(TOPIC, "other", Operation.ALL)])
    for each in (topic_id, UUID(int=77)):
        found = kafka.ask(METADATA, 12, topics=[{"name": None, "topic_id": each}]).topics[0]
        assert (found.error_code, found.name, found.topic_id) == (UNKNOWN_ID, None, each)
        assert kafka.produce(each, DATA, version=13).error_code == UNKNOWN_ID
        assert kafka.fetch(each, 0, version=13).error_code == UNKNOWN_ID
        (gone,) = kafka.ask(DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": each}], timeout=1000).responses
        assert (gone.error_code, gone.name, gone.topic_id) == (UNKNOWN_ID, None, each)
    for name in (topic, topic + "-not"):
        assert kafka.metadata(name).topics[0].error_code == TOPIC_DENIED
        assert kafka.metadata(name).topics[0].topic_id is None
        assert kafka.produce(name, DATA).error_code == TOPIC_DENIED
        assert kafka.fetch(name, 0).error_code == TOPIC_DENIED


def test_a_topic_that_may_be_described_is_denied_by_its_id_too(acls: Acls, kafka: Kafka, topic: str) -> None:
    kafka.create(topic)
    topic_id = kafka.topic_id(topic)
    acls.set([allow(TOPIC, topic, Operation.DESCRIBE)])
    assert kafka.produce(topic_id, DATA, version=13).error_code == TOPIC_DENIED
    assert kafka.fetch(topic_id, 0, version=13).error_code == TOPIC_DENIED
    (gone,) = kafka.ask(DELETE_TOPICS, 1, topic_names=[topic + "-not"], timeout=1000).responses
    assert gone.error_code == TOPIC_DENIED
    acls.set([allow(TOPIC, topic + "-not", Operation.DESCRIBE)])
    (gone,) = kafka.ask(DELETE_TOPICS, 1, topic_names=[topic + "-not"], timeout=1000).responses
    assert gone.error_code == UNKNOWN_TOPIC


def test_one_topic_denied_leaves_the_others_of_a_request(acls: Acls, kafka: Kafka, topic: str) -> None:
    kafka.create(topic)
    kafka.create(topic + "-b")
    acls.set([*EVERYTHING, deny(TOPIC, topic + "-b", Operation.WRITE)])
    body = produce(topic, DATA)
    body["topic_data"] += produce(topic + "-b", DATA)["topic_data"]
    answer = kafka.ask(PRODUCE, 9, **body)
    assert [each.partition_responses[0].error_code for each in answer.responses] == [0, TOPIC_DENIED]


def test_what_is_denied_under_acks_0_closes_the_connection(acls: Acls, guarded: KetchServer, topic: str) -> None:
    acls.set([allow(TOPIC, "other", Operation.WRITE)])
    for given in ({}, {"transactional_id": "x"}):
        with Kafka(guarded.port) as kafka:
            kafka.send(PRODUCE, 9, **produce(topic, DATA, acks=0, **given))
            assert kafka.closed()


def test_an_idempotent_producer_needs_any_topic_to_write_to(acls: Acls, kafka: Kafka, topic: str) -> None:
    def code() -> int:
        return int(kafka.ask(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=60_000).error_code)

    acls.set([allow(TOPIC, topic, Operation.READ)])
    assert code() == CLUSTER_DENIED
    acls.set([allow(TOPIC, topic, Operation.WRITE)])
    assert code() == 0
    acls.set([allow(TOPIC, topic, Operation.WRITE), deny(TOPIC, topic, Operation.ALL)])
    assert code() == CLUSTER_DENIED


def test_hosts_and_prefixes_and_principals_count(acls: Acls, kafka: Kafka) -> None:
    prefixed = allow(TOPIC, "pre-", Operation.DESCRIBE)._replace(
        pattern=PatternType.PREFIXED, principal="User:*", host="127.0.0.1"
    )
    acls.set([allow(TOPIC, "h", Operation.DESCRIBE, host="10.1.2.3"), prefixed])
    codes = [topic.error_code for topic in kafka.metadata("h", "pre-a", "pr", create=False).topics]
    assert codes == [TOPIC_DENIED, UNKNOWN_TOPIC, TOPIC_DENIED]


def test_operations_are_those_that_are_allowed(acls: Acls, kafka: Kafka, topic: str) -> None:
    kafka.create(topic)
    rights = [allow(TOPIC, topic, Operation.READ), allow(TOPIC, topic, Operation.ALTER_CONFIGS)]
    acls.set([*rights, allow(CLUSTER, NAME, Operation.DESCRIBE), allow(GROUP, "g", Operation.READ)])
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    found = kafka.metadata(topic, version=8, **asked)
    topic_bits = sum(1 << each for each in (Operation.READ, Operation.DESCRIBE, 10, Operation.ALTER_CONFIGS))
    assert found.topics[0].topic_authorized_operations == topic_bits
    assert found.cluster_authorized_operations == 1 << Operation.DESCRIBE
    acls.set(rights)
    assert kafka.metadata(topic, version=8, **asked).cluster_authorized_operations == 0


# -- when a change is in force


def test_a_right_taken_away_ends_a_fetch_session_that_has_no_news(acls: Acls, kafka: Kafka, topic: str) -> None:
    kafka.create(topic)
    end = kafka.stored(topic, DATA) + 1
    opened = kafka.ask(FETCH, 12, **fetch([part(topic, 0, end)], session_id=0, session_epoch=0))
    assert opened.session_id
    again = kafka.ask(FETCH, 12, **fetch([], session_id=opened.session_id, session_epoch=1))
    assert not again.responses
    acls.set([allow(TOPIC, topic, Operation.WRITE)])
    denied = kafka.ask(FETCH, 12, **fetch([], session_id=opened.session_id, session_epoch=2))
    assert denied.responses[0].partitions[0].error_code == TOPIC_DENIED
    acls.set(EVERYTHING)
    allowed = kafka.ask(FETCH, 12, **fetch([], session_id=opened.session_id, session_epoch=3))
    assert [part.error_code for topic in allowed.responses for part in topic.partitions] in ([], [0])


def test_a_change_is_in_force_on_all_brokers(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    first = start_ketch(*ON)
    acls_of = first.redis()
    second = start_ketch(*ON, "--redis", first.redis_url, "--node-id", "2")
    with Kafka(first.port) as a, Kafka(second.port) as b:
        Acls(acls_of, a).set(EVERYTHING)
        eventually(lambda: b.metadata(topic, create=False).topics[0].error_code == UNKNOWN_TOPIC)
        kind = {"principal": "User:ANONYMOUS", "operation": 8, "permission_type": 2}
        assert a.ask(CREATE_ACLS, 3, creations=[creation(topic, **kind)]).results[0].error_code == 0
        assert a.metadata(topic, create=False).topics[0].error_code == TOPIC_DENIED  # at once
        eventually(lambda: b.metadata(topic, create=False).topics[0].error_code == TOPIC_DENIED)
        acls_of.delete(KEY)  # by hand
        for kafka in (a, b):
            eventually(lambda kafka=kafka: kafka.metadata("x", create=False).topics[0].error_code == TOPIC_DENIED)


def test_super_users_and_everyone(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    with Kafka(start_ketch(*ON, "--super-users", "User:a;User:ANONYMOUS").port) as kafka:
        kafka.create(topic)
        assert kafka.ask(DESCRIBE_ACLS, 3, **wanted()).error_code == 0
    with Kafka(start_ketch(*ON).port) as kafka:
        assert kafka.metadata(topic).topics[0].error_code == TOPIC_DENIED
    open_ = start_ketch(*ON, "--allow-everyone-if-no-acl-found")
    with Kafka(open_.port) as kafka:
        kafka.create(topic)
        acl = allow(TOPIC, topic, Operation.READ, principal="User:a")
        open_.redis().sadd(KEY, acl.text, "[no ACL]")
        eventually(lambda: kafka.metadata(topic).topics[0].error_code == TOPIC_DENIED)
        assert kafka.metadata(topic + "-b", create=False).topics[0].error_code == UNKNOWN_TOPIC
    assert "cannot be read; it is passed over" in open_.log


# -- the audit log


def test_each_denial_is_taken_down(acls: Acls, guarded: KetchServer, kafka: Kafka, topic: str) -> None:
    acls.set([allow(TOPIC, "other", Operation.ALL)])
    kafka.produce(topic, DATA)
    kafka.produce(topic, DATA)
    kafka.ask(METADATA, 12, topics=None)  # hides it, which is no denial
    lines = [json.loads(line) for line in Path(guarded.directory / "audit").read_text().splitlines()]
    (line,) = [line for line in lines if line["name"] == topic]
    assert line.pop("time")
    assert line == {
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "listener": "PLAINTEXT",
        "client": "raw",
        "api": "Produce",
        "operation": "WRITE",
        "resource": "TOPIC",
        "name": topic,
        "allowed": False,
        "rule": "DefaultDeny",
    }


# -- clients of Kafka 0.7


def test_a_client_of_kafka_0_7_is_anonymous(acls: Acls, guarded: KetchServer, topic: str) -> None:
    def codes() -> tuple[int, int]:
        with Legacy(legacy_port(guarded)) as client:
            return client.call(old_fetch(topic, 0, 0, 100))[0], client.call(old_offsets(topic, 0, -1, 1))[0]

    def is_closed() -> bool:
        """Whether a produce closes the connection; a request behind it shows that it does not."""
        with Legacy(legacy_port(guarded)) as client:
            client.send(old_produce(topic, 0, message(b"v")), old_offsets("other", 0, -1, 1))
            return client.response() is None

    other = allow(TOPIC, "other", Operation.ALL)
    acls.set([other, allow(TOPIC, topic, Operation.WRITE)])
    assert codes() == (-1, 0)
    assert is_closed()  # it would have to be made
    acls.set([other, allow(TOPIC, topic, Operation.CREATE), allow(TOPIC, topic, Operation.WRITE)])
    assert not is_closed()
    acls.set([other, allow(TOPIC, topic, Operation.READ)])
    assert codes() == (0, 0)
    assert is_closed()
    acls.set([other])
    assert codes() == (-1, -1)
    acls.set([other, allow(CLUSTER, NAME, Operation.CREATE), allow(TOPIC, topic + "-c", Operation.WRITE)])
    with Legacy(legacy_port(guarded)) as client:
        client.send(old_produce(topic + "-c", 0, message(b"v")), old_offsets("other", 0, -1, 1))
        assert client.response() is not None


# -- clients that have said who they are


def test_each_user_has_its_own_rights(tmp_path: Path, topic: str) -> None:
    server = sasl_server(tmp_path, *ON, "--super-users", "User:admin")
    server.start()
    try:
        for name in ("admin", "alice", "bob"):
            add_user(server, name, "in-secret")
        with SaslClient(server.port) as admin, SaslClient(server.port) as alice, SaslClient(server.port) as bob:
            for client, name in ((admin, "admin"), (alice, "alice"), (bob, "bob")):
                assert client.scram(name, "in-secret").error_code == 0
            admin.create(topic)
            assert alice.produce(topic, DATA).error_code == TOPIC_DENIED
            assert alice.ask(CREATE_ACLS, 3, creations=[creation(topic)]).results[0].error_code == CLUSTER_DENIED
            writer = creation(topic, principal="User:alice", operation=Operation.WRITE)
            assert admin.ask(CREATE_ACLS, 3, creations=[writer]).results[0].error_code == 0
            assert alice.produce(topic, DATA).error_code == 0
            assert bob.produce(topic, DATA).error_code == TOPIC_DENIED
            assert admin.produce(topic, DATA).error_code == 0
    finally:
        server.stop()
    assert '"principal": "User:bob", "host": "127.0.0.1"' in server.log
