"""Metadata, CreateTopics, DeleteTopics and DescribeConfigs: what they refuse and how."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.support.batches import batch, records
from tests.support.kafka import CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, METADATA, NO_ID, Kafka
from tests.support.ketch import KetchServer

ILLEGAL = ["a b", "", ".", "..", "x" * 250, "a/b", "büro", "a\nb"]
UNKNOWN, BAD_NAME, EXISTS, BAD_PARTITIONS, BAD_FACTOR, BAD_ASSIGNMENT, BAD_CONFIG = 3, 17, 36, 37, 38, 39, 40
INVALID, POLICY, TIMED_OUT, UNKNOWN_ID = 42, 44, 7, 100


# -- Metadata


@pytest.mark.parametrize("version", [1, 4, 12])
def test_metadata_creates_a_topic_at_once(kafka: Kafka, topic: str, version: int) -> None:
    (made,) = kafka.metadata(topic, version=version).topics
    assert (made.error_code, made.name, len(made.partitions)) == (0, topic, 1)


def test_metadata_creates_nothing_unasked(kafka: Kafka, topic: str) -> None:
    for version in (4, 9, 12):
        (missing,) = kafka.metadata(topic, version=version, create=False).topics
        assert (missing.error_code, missing.name, missing.partitions) == (UNKNOWN, topic, ())
    assert topic not in {found.name for found in kafka.metadata(topics=None).topics}


@pytest.mark.parametrize("name", ILLEGAL)
@pytest.mark.parametrize("create", [True, False])
def test_metadata_of_an_illegal_name(kafka: Kafka, name: str, create: bool) -> None:
    (refused,) = kafka.metadata(name, create=create).topics
    assert (refused.error_code, refused.name, refused.partitions) == (BAD_NAME, name, ())


@pytest.mark.parametrize("version", [0, 1, 12])
def test_metadata_of_all_and_of_none(kafka: Kafka, made: str, version: int) -> None:
    everything: Any = () if version == 0 else None
    assert made in {topic.name for topic in kafka.metadata(version=version, topics=everything).topics}
    if version:
        answer = kafka.metadata(version=version, topics=())
        assert answer.topics == ()
        assert len(answer.brokers) == 1


def test_metadata_of_a_name_twice(kafka: Kafka, made: str) -> None:
    assert [topic.name for topic in kafka.metadata(made, "nowhere?", made).topics] == [made, "nowhere?"]


def test_metadata_by_id(kafka: Kafka, made: str) -> None:
    topic_id = kafka.topic_id(made)

    def ask(*topics: dict[str, Any], version: int = 12) -> list[tuple[int, str | None, UUID | None]]:
        found = kafka.ask(METADATA, version, topics=topics).topics
        return [(topic.error_code, topic.name, topic.topic_id) for topic in found]

    assert ask({"topic_id": topic_id, "name": None}) == [(0, made, topic_id)]
    assert ask({"topic_id": UUID(int=7), "name": None}) == [(UNKNOWN_ID, None, UUID(int=7))]
    assert ask({"topic_id": topic_id, "name": "other"}, {"topic_id": None, "name": made}) == [(0, made, topic_id)]
    assert ask({"topic_id": topic_id, "name": made}, version=10) == [(INVALID, "", topic_id)]


def test_metadata_with_authorized_operations(kafka: Kafka, made: str) -> None:
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = kafka.metadata(made, version=8, **asked)
    assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == (3576, 8096)
    answer = kafka.metadata(made, version=8)
    assert answer.topics[0].topic_authorized_operations == answer.cluster_authorized_operations == -(2**31)


# -- CreateTopics


def create(kafka: Kafka, *topics: dict[str, Any], version: int = 7, **given: Any) -> list[tuple[int, str | None]]:
    full = [{"num_partitions": 1, "replication_factor": -1, **topic} for topic in topics]
    answer = kafka.ask(CREATE_TOPICS, version, **{"topics": full, "timeout": 10_000, **given})
    for topic in answer.topics:
        if topic.error_code:
            assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, ())
    return [(topic.error_code, topic.error_message) for topic in answer.topics]


def config(name: str, value: str | None) -> dict[str, Any]:
    return {"configs": [{"name": name, "value": value}]}


def assigned(*partitions: tuple[int, list[int]]) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": brokers} for index, brokers in partitions]


REFUSED = {
    "no partitions": ({"num_partitions": 0}, BAD_PARTITIONS, "non-positive"),
    "negative partitions": ({"num_partitions": -2}, BAD_PARTITIONS, "non-positive"),
    "too many partitions": ({"num_partitions": 10_001}, POLICY, "Excessively"),
    "2^31 - 1 partitions": ({"num_partitions": 2**31 - 1}, POLICY, "Excessively"),
    "factor 0": ({"replication_factor": 0}, BAD_FACTOR, "larger than 0"),
    "an unknown config": (config("no.such", "1"), BAD_CONFIG, "Unknown topic config name: no.such"),
    "no number": (config("retention.ms", "abc"), BAD_CONFIG, "Not a number of type LONG"),
    "nothing for a number": (config("retention.ms", ""), BAD_CONFIG, "Not a number"),
    "below the least": (config("retention.ms", "-5"), BAD_CONFIG, "at least -1"),
    "beyond the most": (config("max.message.bytes", str(2**31)), BAD_CONFIG, ""),
    "no such choice": (config("compression.type", "foo"), BAD_CONFIG, "one of"),
    "null": (config("retention.ms", None), BAD_CONFIG, "Null value not supported for topic configs: retention.ms"),
    "too many bits": (config("offsetSequenceBits", "17"), BAD_CONFIG, "16"),
    "assignment and partitions": ({"assignments": assigned((0, [1]))}, INVALID, "manual"),
    "a gap": ({"num_partitions": -1, "assignments": assigned((0, [1]), (2, [1]))}, BAD_ASSIGNMENT, ""),
    "another broker": ({"num_partitions": -1, "assignments": assigned((0, [7]))}, BAD_ASSIGNMENT, ""),
    "no broker": ({"num_partitions": -1, "assignments": assigned((0, []))}, BAD_ASSIGNMENT, ""),
    "a broker twice": ({"num_partitions": -1, "assignments": assigned((0, [1, 1]))}, BAD_ASSIGNMENT, ""),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_refused(kafka: Kafka, topic: str, case: str) -> None:
    fields, code, words = REFUSED[case]
    ((found, message),) = create(kafka, {"name": topic, **fields})
    assert found == code
    assert message is not None
    assert words in message
    assert kafka.metadata(topic, create=False).topics[0].error_code == UNKNOWN


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_names(kafka: Kafka, name: str) -> None:
    ((code, message),) = create(kafka, {"name": name})
    assert code == BAD_NAME
    assert message is not None
    assert message.startswith("Topic name is invalid: ")


def test_it_exists(kafka: Kafka, made: str) -> None:
    expected = (EXISTS, f"Topic '{made}' already exists.")
    assert create(kafka, {"name": made}) == create(kafka, {"name": made}, validate_only=True) == [expected]


def test_only_validated(kafka: Kafka, topic: str) -> None:
    assert create(kafka, {"name": topic}, validate_only=True) == [(0, None)]
    assert kafka.metadata(topic, create=False).topics[0].error_code == UNKNOWN


def test_the_others_of_a_request_are_created(kafka: Kafka, topic: str) -> None:
    names = [f"{topic}-1", f"{topic}-2", "a b", f"{topic}-2", f"{topic}-3"]
    codes = sorted(code for code, _ in create(kafka, *({"name": name} for name in names)))
    assert codes == [0, 0, BAD_NAME, INVALID]
    found = [found.error_code for found in kafka.metadata(*sorted(set(names)), create=False).topics]
    assert found == [BAD_NAME, 0, UNKNOWN, 0]


def test_more_topics_than_a_request_may_create(kafka: Kafka, topic: str) -> None:
    told = create(kafka, *({"name": f"{topic}-{n}"} for n in range(10_001)), validate_only=True)
    assert (len(told), set(told)) == (10_001, {(POLICY, "Excessively large number of partitions per request.")})


def test_defaults_and_spaces(kafka: Kafka, topic: str) -> None:
    twice = {"configs": [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": " 5000 "}]}
    fields = {"name": topic, "num_partitions": -1, "replication_factor": 1, **twice}
    answer = kafka.ask(CREATE_TOPICS, 5, topics=[fields], timeout=5000).topics[0]
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 1, 1)
    assert {c.name: c.value for c in answer.configs}["retention.ms"] == "5000"


def test_assigned_to_this_broker(kafka: Kafka, topic: str) -> None:
    node = kafka.metadata().brokers[0].node_id
    fields = {"name": topic, "num_partitions": -1, "assignments": assigned((1, [node]), (0, [node]))}
    assert create(kafka, fields) == [(0, None)]
    assert len(kafka.metadata(topic, create=False).topics[0].partitions) == 2


def test_no_time(kafka: Kafka, topic: str) -> None:
    assert [code for code, _ in create(kafka, {"name": topic}, timeout=0)] == [TIMED_OUT]
    assert kafka.metadata(topic, create=False).topics[0].error_code == UNKNOWN


# -- DeleteTopics


def delete(kafka: Kafka, *topics: tuple[str | None, UUID | None], **given: Any) -> list[tuple[int, str | None]]:
    states = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    answer = kafka.ask(DELETE_TOPICS, 6, **{"topics": states, "timeout": 10_000, **given})
    return [(topic.error_code, topic.name) for topic in answer.responses]


def test_deleted_by_id(kafka: Kafka, made: str) -> None:
    topic_id = kafka.topic_id(made)
    assert delete(kafka, (None, topic_id)) == [(0, made)]
    assert delete(kafka, (None, topic_id)) == [(UNKNOWN_ID, None)]


def test_not_deleted(kafka: Kafka, made: str) -> None:
    topic_id = kafka.topic_id(made)
    assert delete(kafka, (made, None), (made, None)) == [(INVALID, made)]
    assert delete(kafka, (made, topic_id)) == [(INVALID, made)]
    assert delete(kafka, (None, None)) == delete(kafka, (None, NO_ID)) == [(INVALID, None)]
    assert delete(kafka, (made, None), timeout=0) == [(TIMED_OUT, made)]
    assert delete(kafka) == []
    assert delete(kafka, ("nowhere", None), ("a b", None)) == [(UNKNOWN, "nowhere"), (UNKNOWN, "a b")]
    assert kafka.metadata(made, create=False).topics[0].error_code == 0


def test_a_deleted_topic_leaves_nothing_behind(broker: KetchServer, kafka: Kafka, made: str) -> None:
    kafka.stored(made, batch(records([b"a"]), producer_id=kafka.producer_id(), producer_epoch=0, base_sequence=0))
    delete(kafka, (made, None))
    assert broker.redis().keys(f"*{made}*") == []
    assert kafka.produce(made, batch(records([b"a"]))).error_code == UNKNOWN
    kafka.create(made)
    assert kafka.read_all(made) == []


# -- DescribeConfigs


def describe(kafka: Kafka, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **given: Any) -> Any:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return kafka.ask(DESCRIBE_CONFIGS, version, resources=[asked], **given).results[0]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "nowhere", 3),
        (2, "a b", 17),
        (2, "", 17),
        (4, "7", 42),
        (4, "abc", 42),
        (0, "x", 42),
        (3, "x", 42),
        (8, "1", 42),
    ],
)
def test_nothing_to_describe(kafka: Kafka, kind: int, name: str, code: int) -> None:
    result = describe(kafka, kind, name)
    assert (result.error_code, result.resource_type, result.resource_name, result.configs) == (code, kind, name, ())
    assert result.error_message is not None


def test_the_broker_described(kafka: Kafka, broker: KetchServer) -> None:
    node = str(kafka.metadata().brokers[0].node_id)
    shown = {config.name: config for config in describe(kafka, 4, node).configs}
    assert shown["message.max.bytes"].value == "1048588"
    assert shown["auto.create.topics.enable"].value == "true"
    for name in ("listeners", "advertised.listeners"):
        assert shown[name].value == f"PLAINTEXT://127.0.0.1:{broker.port}"
    assert shown["auto.create.topics.enable"].read_only
    assert describe(kafka, 4, "").configs == ()


def test_only_what_is_asked_for(kafka: Kafka, made: str) -> None:
    keys = ["retention.ms", "no.such", "cleanup.policy"]
    assert [config.name for config in describe(kafka, 2, made, keys).configs] == ["cleanup.policy", "retention.ms"]
    assert len(describe(kafka, 2, made, []).configs) == len(describe(kafka, 2, made).configs) > 5


def test_synonyms_and_documentation(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, retention_ms=5000)
    shown = describe(kafka, 2, topic, include_synonyms=True, include_documentation=True).configs
    found = {config.name: [(s.name, s.value, s.source) for s in config.synonyms] for config in shown}
    assert found["retention.ms"][0] == ("retention.ms", "5000", 1)
    assert found["max.message.bytes"] == [("message.max.bytes", "1048588", 5)]
    assert all(config.documentation for config in shown)
