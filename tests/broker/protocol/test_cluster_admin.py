"""The APIs of Kafka's cluster tools: leaders, reassignments, directories, quotas, features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import batch, records
from tests.support.coordinator import wait_for_coordinators
from tests.support.kafka import (
    ALTER_CLIENT_QUOTAS,
    ALTER_REASSIGNMENTS,
    CREATE_TOPICS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    ELECT_LEADERS,
    INIT_PRODUCER_ID,
    LIST_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    OFFSET_FOR_LEADER_EPOCH,
    UPDATE_FEATURES,
    Kafka,
    versions,
)
from tests.support.ketch import KetchServer, eventually

Answers = list[Any]


# -- scenarios that Kafka 4.1 answers in the same way, see test_against_kafka


def epochs(kafka: Kafka, topic: str) -> Answers:
    """Error, epoch, and whether the end is the high watermark, for current and asked epochs."""
    kafka.stored(topic, batch(records([b"x"] * 3)))
    end, found = kafka.list_offsets(topic, -1).offset, []
    for name, partition in ((topic, 0), (topic, 9), (f"{topic}-no", 0), ("a b", 0)):
        for current in (-1, 0, 1):
            for epoch in (0, 1, -1, 5):
                asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
                for version in versions(OFFSET_FOR_LEADER_EPOCH):
                    topics = [{"topic": name, "partitions": [asked]}]
                    answer = kafka.ask(OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=topics)
                    (part,) = answer.topics[0].partitions
                    ends = part.end_offset == end or part.end_offset
                    found.append((int(part.error_code), part.partition, part.leader_epoch, ends))
    return found


def elections(kafka: Kafka, topic: str) -> Answers:
    found = []
    some = [{"topic": topic, "partitions": [0, 9]}, {"topic": f"{topic}-no", "partitions": [0]}]
    for version in versions(ELECT_LEADERS):
        for kind in (0, 1, 7):
            answer = kafka.ask(ELECT_LEADERS, version, election_type=kind, topic_partitions=some, timeout=1000)
            results = {
                (each.topic.replace(topic, "T"), part.partition_id): (int(part.error_code), part.error_message)
                for each in answer.replica_election_results
                for part in each.partition_result
            }
            found.append((int(getattr(answer, "error_code", 0)), str(sorted(results.items())).replace(topic, "T")))
            every = kafka.ask(ELECT_LEADERS, version, election_type=kind, topic_partitions=None, timeout=1000)
            named = {each.topic: each.partition_result for each in every.replica_election_results}
            found.append((int(getattr(every, "error_code", 0)), str(named.get(topic))))
    return found


def reassignments(kafka: Kafka, topic: str) -> Answers:
    found: Answers = []
    for name, partition, replicas in [
        *((topic, 0, replicas) for replicas in ([1], None, [2], [1, 2], [], [1, 1], [-1])),
        (topic, 9, [1]),
        (f"{topic}-no", 0, [1]),
    ]:
        asked = [{"name": name, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
        for version in versions(ALTER_REASSIGNMENTS):
            answer = kafka.ask(ALTER_REASSIGNMENTS, version, topics=asked, timeout=1000)
            (part,) = answer.responses[0].partitions
            # Kafka says nothing of what is not there to be cancelled.
            said = str(part.error_message).replace(topic, "T") if replicas is not None else ""
            found.append((int(answer.error_code), int(part.error_code), said))
    for topics in (None, [{"name": topic, "partition_indexes": [0]}, {"name": "no", "partition_indexes": [0]}]):
        found.append(kafka.ask(LIST_REASSIGNMENTS, 0, topics=topics, timeout=1000).topics)
    return found


QUOTA_FILTERS = [
    [],
    [("user", 0, "x")],
    [("foo", 0, "x")],
    [("", 0, "x")],
    [("user", 9, None)],
    [("user", 0, None)],
    [("user", 1, None), ("user", 1, None)],
    [("user", 1, "x")],
    [("ip", 2, None), ("user", 2, None)],
]


def quotas(kafka: Kafka, topic: str) -> Answers:
    found = []
    for each in QUOTA_FILTERS:
        components = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in each]
        for version in versions(DESCRIBE_CLIENT_QUOTAS):
            answer = kafka.ask(DESCRIBE_CLIENT_QUOTAS, version, components=components, strict=True)
            found.append((int(answer.error_code), answer.error_message or "", answer.entries))
    return found


QUOTA_CHANGES: list[tuple[list[tuple[str, str | None]], list[tuple[str, float, bool]]]] = [
    ([], [("producer_byte_rate", 1.0, False)]),
    ([("user", "x"), ("user", "y")], [("producer_byte_rate", 1.0, False)]),
    ([("host", "x")], [("producer_byte_rate", 1.0, False)]),
    ([("user", "")], [("producer_byte_rate", 1.0, False)]),
    ([("user", "x"), ("ip", "1.2.3.4")], [("producer_byte_rate", 1.0, False)]),
    ([("ip", "not a host")], [("connection_creation_rate", 1.0, False)]),
    ([("ip", "1.2.3.4")], [("producer_byte_rate", 1.0, False)]),
    ([("ip", "1.2.3.4")], [("connection_creation_rate", 3e9, False)]),
    ([("user", "x")], [("connection_creation_rate", 1.0, False)]),
    ([("user", "x")], [("no.such", 1.0, False)]),
    ([("user", "x")], [("no.such", 1.0, True)]),
    ([("user", "x")], [("producer_byte_rate", 0.0, False)]),
    ([("user", "x")], [("producer_byte_rate", -1.0, False)]),
    ([("user", "x")], [("producer_byte_rate", 1.5, False)]),
    ([("user", "x")], [("producer_byte_rate", 1e30, False)]),
    ([("user", "x")], [("request_percentage", 1e30, False)]),
    ([("user", "x"), ("client-id", None)], [("controller_mutation_rate", 0.5, False)]),
    ([("user", None)], []),
]


def quota_changes(kafka: Kafka, topic: str) -> Answers:
    found = []
    for whom, changes in QUOTA_CHANGES:
        entity = [{"entity_type": kind, "entity_name": name} for kind, name in whom]
        ops = [{"key": key, "value": value, "remove": remove} for key, value, remove in changes]
        for version in versions(ALTER_CLIENT_QUOTAS):
            entries = [{"entity": entity, "ops": ops}]
            for each in kafka.ask(ALTER_CLIENT_QUOTAS, version, entries=entries, validate_only=True).entries:
                named = [(part.entity_type, part.entity_name) for part in each.entity]
                found.append((int(each.error_code), each.error_message, sorted(named, key=str)))
    return found


def quotas_twice(kafka: Kafka, topic: str) -> Answers:
    """An entity twice in a request, and a quota twice in an entity; Kafka answers once for an entity."""
    found = []
    once = {"key": "producer_byte_rate", "value": 5.0}
    for entities, ops in ((1, [once, {**once, "remove": True}]), (2, [once]), (1, [once])):
        entry = {"entity": [{"entity_type": "user", "entity_name": topic}], "ops": ops}
        answer = kafka.ask(ALTER_CLIENT_QUOTAS, 1, entries=[entry] * entities, validate_only=True)
        found.append({int(each.error_code) for each in answer.entries})
    return found


def features(kafka: Kafka, topic: str) -> Answers:
    found = []
    for version in versions(UPDATE_FEATURES):
        for names in ([], ["no.such"], ["no.such", "other"]):
            updates = [{"feature": name, "max_version_level": 1, "upgrade_type": 1} for name in names]
            found.append(int(kafka.ask(UPDATE_FEATURES, version, feature_updates=updates, timeout=1000).error_code))
    return found


def clusters(kafka: Kafka, topic: str) -> Answers:
    found = []
    for version in versions(DESCRIBE_CLUSTER):
        for kind in (1, 2, 7):
            given = {"endpoint_type": kind, "include_cluster_authorized_operations": True}
            answer = kafka.ask(DESCRIBE_CLUSTER, version, **given)
            brokers = [(each.broker_id, each.host, each.rack) for each in answer.brokers]
            shown = (int(answer.error_code), answer.error_message, answer.controller_id, brokers)
            found.append((*shown, len(answer.cluster_id), answer.cluster_authorized_operations))
    return found


def collisions(kafka: Kafka, topic: str) -> Answers:
    name = f"{topic}.a_b"
    found = []
    for each in (name, f"{topic}_a.b", f"{topic}.a.b", f"{topic}.a-b", f"{topic}-a_b"):
        for only in (True, False):
            asked = [{"name": each, "num_partitions": 1, "replication_factor": 1}]
            (answer,) = kafka.ask(CREATE_TOPICS, 7, topics=asked, timeout=5000, validate_only=only).topics
            found.append((int(answer.error_code), answer.error_message))
    return [(code, None if said is None else said.replace(topic, "T")) for code, said in found]


def assignments(kafka: Kafka, topic: str) -> Answers:
    found = []
    for each in ([[1]], [[1], [1]], [[1, 2]], [[]], [[1, 1]], [[-1]], [[1], []]):
        parts = [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(each)]
        new = {"name": f"{topic}-new", "num_partitions": -1, "replication_factor": -1, "assignments": parts}
        (answer,) = kafka.ask(CREATE_TOPICS, 7, topics=[new], timeout=5000, validate_only=True).topics
        found.append((int(answer.error_code), answer.num_partitions, answer.replication_factor))
    return found


ID_PATTERNS = ("a+", "(a+)+b", "(?=a).*", r"(a)\1+", r"\pL+", "[[:alpha:]]+", "(?<name>a+)", "a++", "(a")


def transactions_by_pattern(kafka: Kafka, topic: str) -> Answers:
    """Of an id that takes a backtracking engine years where nested repetitions do not match it."""
    new = {"transactional_id": f"{topic}-{'a' * 60}", "transaction_timeout": 60_000}
    wait_for_coordinators(kafka)
    eventually(lambda: kafka.ask(INIT_PRODUCER_ID, 4, **new, producer_id=-1, producer_epoch=-1).error_code == 0)
    found = []
    for rest in ID_PATTERNS:
        pattern = rf"\Q{topic}-\E{rest}"
        answer = kafka.ask(LIST_TRANSACTIONS, 2, duration_filter=-1, transactional_id_pattern=pattern)
        found.append((int(answer.error_code), len(answer.transaction_states)))
    return found


SCENARIOS: list[Callable[[Kafka, str], Answers]] = [
    epochs,
    elections,
    reassignments,
    quotas,
    quota_changes,
    quotas_twice,
    features,
    clusters,
    collisions,
    assignments,
    transactions_by_pattern,
]


# -- here


def test_epochs(kafka: Kafka, made: str) -> None:
    found = epochs(kafka, made)
    assert found[:3] == [(0, 0, 0, True)] * 3, "of the epoch that there is"
    assert (75, 0, -1, -1) in found


def test_elections(kafka: Kafka, made: str) -> None:
    code, said = elections(kafka, made)[0]
    assert code == 0
    assert "84, 'Leader election not needed for topic partition.'" in said
    assert "3, 'No such partition as T-9'" in said


def test_reassignments(kafka: Kafka, made: str) -> None:
    found = reassignments(kafka, made)
    assert found[:4] == [(0, 0, "None")] * 2 + [(0, 85, "")] * 2
    assert found[-2:] == [(), ()]


def test_quotas(kafka: Kafka, made: str) -> None:
    found = quotas(kafka, made)
    assert found[:4] == [(0, "", ())] * 4
    assert {code for code, _, _ in found[4:]} == {35, 42}


def test_quotas_twice(kafka: Kafka, made: str) -> None:
    assert quotas_twice(kafka, made) == [{42}, {42}, {0}]


def test_features_and_quorum(kafka: Kafka, made: str) -> None:
    assert features(kafka, made) == [0, 95, 95] * 3
    for version in versions(DESCRIBE_QUORUM):
        asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        assert kafka.ask(DESCRIBE_QUORUM, version, topics=asked).error_code == 35


def test_clusters(kafka: Kafka, broker: KetchServer, made: str) -> None:
    found = clusters(kafka, made)
    assert found[0] == (0, None, 1, [(1, "127.0.0.1", None)], 22, 8096)
    assert [code for code, *_ in found] == [0, 0, 0, 0, 114, 115, 0, 114, 115]
    assert kafka.ask(DESCRIBE_CLUSTER, 2).brokers[0].port == broker.port


def test_transactions_by_pattern(kafka: Kafka, made: str) -> None:
    is_one, is_none, no_pattern = (0, 1), (0, 0), (128, 0)
    matched = [is_one, is_none, *[no_pattern] * 2, *[is_one] * 3, *[no_pattern] * 2]
    assert transactions_by_pattern(kafka, made) == matched


def test_names_that_collide(kafka: Kafka, made: str) -> None:
    codes = [code for code, _ in collisions(kafka, made)]
    assert codes[:6] == [0, 0, 17, 17, 17, 17]
    (found,) = kafka.metadata(f"{made}_a_b").topics
    assert found.error_code == 17, "nor does asking for its metadata create one"


def test_an_assignment_names_live_brokers(kafka: Kafka, made: str) -> None:
    found = assignments(kafka, made)
    assert found == [(0, 1, 1), (0, 2, 1)] + [(39, -1, -1)] * 5


def test_a_replication_factor_is_taken_or_refused(kafka: Kafka, topic: str, start_ketch: Callable[..., Any]) -> None:
    def create(client: Kafka, factor: int) -> tuple[int, int]:
        asked = [{"name": f"{topic}-{factor}", "num_partitions": 1, "replication_factor": factor}]
        (answer,) = client.ask(CREATE_TOPICS, 7, topics=asked, timeout=5000).topics
        return int(answer.error_code), answer.replication_factor

    assert [create(kafka, factor) for factor in (3, 1, 0, -2)] == [(0, 1), (0, 1), (38, -1), (38, -1)]
    assert kafka.metadata(f"{topic}-3").topics[0].partitions[0].replica_nodes == (1,)
    with Kafka(start_ketch("--no-any-replication-factor").port) as strict:
        assert [create(strict, factor) for factor in (3, 1, -1)] == [(38, -1), (0, 1), (0, 1)]


# -- directories


def directories(kafka: Kafka, version: int = 4, topics: Any = None) -> dict[str, dict[tuple[str, int], int]]:
    """Bytes by directory and partition."""
    answer = kafka.ask(DESCRIBE_LOG_DIRS, version, topics=topics)
    assert {each.error_code for each in answer.results} == {0}
    return {
        each.log_dir: {
            (topic.name, part.partition_index): part.partition_size
            for topic in each.topics
            for part in topic.partitions
        }
        for each in answer.results
    }


@pytest.mark.parametrize("version", versions(DESCRIBE_LOG_DIRS))
def test_what_partitions_take_in_redis(kafka: Kafka, broker: KetchServer, made: str, version: int) -> None:
    kafka.stored(made, batch(records([bytes(1000)] * 50)))
    asked = [{"topic": made, "partitions": [0, 1, 7]}, {"topic": f"{made}-no", "partitions": [0]}]
    ((name, sizes),) = directories(kafka, version, asked).items()
    assert name.startswith(("redis://", "unix://", "redis+cluster://"))
    assert set(sizes) == {(made, 0), (made, 1)}
    usage = broker.redis().memory_usage(f"korvet:stream:{made}:0")
    assert sizes[made, 0] == usage > 50_000
    assert sizes[made, 1] == 0
    assert (made, 0) in directories(kafka, version)[name]
    assert directories(kafka, version, []) == {name: {}}


def test_the_size_of_the_redis(start_ketch: Callable[..., KetchServer]) -> None:
    server = start_ketch()
    with Kafka(server.port) as kafka:
        for maxmemory in (0, 300 << 20):
            for node in server.redis_nodes():
                node.config_set("maxmemory", maxmemory)
            (found,) = kafka.ask(DESCRIBE_LOG_DIRS, 4, topics=None).results
            machines = [node.info("memory")["total_system_memory"] for node in server.redis_nodes()]
            assert found.total_bytes == sum(maxmemory or machine for machine in machines)
            assert 0 < found.usable_bytes < found.total_bytes


def test_what_partitions_take_in_the_archive(kafka: Kafka, broker: KetchServer, made: str, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="the spark extra is not installed")
    from tests.support.archives import Job

    kafka.stored(made, batch(records([bytes(1000)] * 50)), partition=1)
    Job(tmp_path, kafka, broker.redis(), made).run(partition=1, files=2)
    files = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    asked = [{"topic": made, "partitions": [0, 1]}]

    def archive() -> dict[tuple[str, int], int]:
        return directories(kafka, 4, asked).get("iceberg:ketch", {})

    assert eventually(archive) == {(made, 0): 0, (made, 1): files}


def test_an_archive_that_cannot_be_read(kafka: Kafka, broker: KetchServer, made: str) -> None:
    pytest.importorskip("pyiceberg", reason="the spark extra is not installed")
    told = {"table": "ketch.x", "metadata": "file:///no/such/file", "through:0": 5, "start:0": 0}
    broker.redis().hset(f"korvet:archive:{made}", mapping=told)
    asked = [{"topic": made, "partitions": [0]}]
    redis, archive = kafka.ask(DESCRIBE_LOG_DIRS, 4, topics=asked).results
    assert (redis.error_code, archive.error_code, archive.log_dir) == (0, 56, "iceberg:ketch")


def test_each_broker_tells_of_what_it_leads(start_ketch: Callable[..., KetchServer]) -> None:
    first = start_ketch()
    second = start_ketch("--redis", first.redis_url, "--node-id", "2")
    with Kafka(first.port) as one, Kafka(second.port) as two:
        for client in (one, two):
            eventually(lambda client=client: len(client.metadata().brokers) == 2)  # type: ignore[misc]
        one.create("shared", 16)
        led = [set(next(iter(directories(client).values()))) for client in (one, two)]
        assert led[0] | led[1] == {("shared", n) for n in range(16)}
        assert not led[0] & led[1]
        leaders = {(part.partition_index, part.leader_id) for part in one.metadata("shared").topics[0].partitions}
        assert {n for _, n in led[1]} == {n for n, leader in leaders if leader == 2}
        (answer,) = one.ask(
            ALTER_REASSIGNMENTS,
            1,
            topics=[{"name": "shared", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}],
            timeout=1000,
        ).responses
        assert answer.partitions[0].error_code == 39
