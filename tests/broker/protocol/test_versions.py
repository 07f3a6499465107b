"""Every API in every version that ApiVersions names, and what happens to those it does not name."""

from __future__ import annotations

import pytest

from tests.support.batches import batch, records
from tests.support.kafka import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    ON_DEMAND,
    PRODUCE,
    SERVED,
    Kafka,
    fetch,
    part,
    split,
    versions,
)
from tests.support.ketch import KetchServer

CLIENT = {"client_software_name": "raw", "client_software_version": "1.0"}
TABLE = {key: (least[0], least[-1]) for key, least in SERVED.items() if key not in ON_DEMAND} | {PRODUCE: (0, 13)}


def ranges(answer: object) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", versions(API_VERSIONS))
def test_api_versions(kafka: Kafka, version: int) -> None:
    answer = kafka.ask(API_VERSIONS, version, **CLIENT)
    assert answer.error_code == 0
    assert ranges(answer).items() >= TABLE.items()
    assert list(ranges(answer)) == sorted(ranges(answer))


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_of_an_unknown_version(kafka: Kafka, version: int) -> None:
    frame = bytearray(kafka.request(API_VERSIONS, 0))
    frame[2:4] = version.to_bytes(2, signed=True)
    kafka.send_frame(bytes(frame))
    correlation_id, answer = kafka.answer(API_VERSIONS, 0)
    assert correlation_id == kafka.correlation_id
    assert answer.error_code == 35
    assert ranges(answer).items() >= TABLE.items()


@pytest.mark.parametrize(("name", "software"), [("", "1"), ("-x", "1"), ("r w", "1"), ("raw", ""), ("raw", "1-")])
def test_api_versions_of_an_ill_named_client(kafka: Kafka, name: str, software: str) -> None:
    answer = kafka.ask(API_VERSIONS, 3, client_software_name=name, client_software_version=software)
    assert answer.error_code == 42
    assert not answer.api_keys
    assert kafka.ask(API_VERSIONS, 3, **CLIENT).error_code == 0


@pytest.mark.parametrize("version", versions(PRODUCE))
def test_produce(kafka: Kafka, made: str, version: int) -> None:
    key = kafka.topic_id(made) if version >= 13 else made
    first = kafka.produce(key, batch(records([b"a", b"b", b"c"])), version)
    assert (first.error_code, first.log_append_time) == (0, None)
    assert first.base_offset >= 0
    if version >= 5:
        assert 0 <= first.log_start_offset <= first.base_offset
    if version >= 8:
        assert (first.record_errors, first.error_message) == ((), None)
    second = kafka.produce(key, batch(records([b"d"])), version, acks=1)
    assert second.base_offset >= first.base_offset + 3
    read = kafka.read_all(made)
    assert [record.value for record in read] == [b"a", b"b", b"c", b"d"]
    assert [record.offset for record in read] == [first.base_offset + n for n in range(3)] + [second.base_offset]


@pytest.mark.parametrize("version", [0, 1, 2, 14])
def test_produce_of_a_version_that_is_not_served(kafka: Kafka, version: int) -> None:
    frame = bytearray(kafka.request(PRODUCE, 3, acks=1, timeout=1000))
    frame[2:4] = version.to_bytes(2)
    kafka.send_frame(bytes(frame))
    assert kafka.closed()


@pytest.mark.parametrize("version", versions(FETCH))
def test_fetch(kafka: Kafka, made: str, version: int) -> None:
    base = kafka.stored(made, batch(records([b"a", None, b""])))
    answer = kafka.fetch(kafka.topic_id(made) if version >= 13 else made, base, version)
    assert (answer.partition_index, answer.error_code) == (0, 0)
    assert answer.high_watermark == answer.last_stable_offset == base + 3
    assert not answer.aborted_transactions
    if version >= 5:
        assert answer.log_start_offset <= base
    if version >= 11:
        assert answer.preferred_read_replica == -1
    (read,) = split(answer.records)
    assert [(record.offset, record.value) for record in read.records] == [
        (base, b"a"),
        (base + 1, None),
        (base + 2, b""),
    ]


@pytest.mark.parametrize("version", versions(LIST_OFFSETS))
def test_list_offsets(kafka: Kafka, made: str, version: int) -> None:
    base = kafka.stored(made, batch(records([b"a", b"b"]), base_timestamp=1000))
    latest = kafka.list_offsets(made, -1, version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, base + 2, -1)
    earliest = kafka.list_offsets(made, -2, version)
    assert (earliest.error_code, earliest.timestamp) == (0, -1)
    assert earliest.offset <= base
    found = kafka.list_offsets(made, 500, version)
    assert (found.error_code, found.offset, found.timestamp) == (0, base, 1000)
    if version >= 4:
        assert {latest.leader_epoch, earliest.leader_epoch, found.leader_epoch} == {0}


@pytest.mark.parametrize("version", versions(METADATA))
def test_metadata(kafka: Kafka, broker: KetchServer, made: str, version: int) -> None:
    answer = kafka.metadata(made, version=version)
    assert [(node.host, node.port) for node in answer.brokers] == [("127.0.0.1", broker.port)]
    node = answer.brokers[0].node_id
    if version >= 1:
        assert answer.controller_id == node
    if version >= 2:
        assert len(answer.cluster_id) == 22
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, made)
    assert [p.partition_index for p in topic.partitions] == [0, 1]
    assert all((p.error_code, p.leader_id, p.replica_nodes) == (0, node, (node,)) for p in topic.partitions)
    if version >= 7:
        assert {p.leader_epoch for p in topic.partitions} == {0}
    if version >= 10:
        assert topic.topic_id is not None


@pytest.mark.parametrize("version", versions(CREATE_TOPICS))
def test_create_topics(kafka: Kafka, topic: str, version: int) -> None:
    made = kafka.create(topic, 3, version, retention_ms=5000)
    assert made.name == topic
    assert made.error_message is None
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        shown = {config.name: (config.value, config.config_source, config.read_only) for config in made.configs}
        assert shown["retention.ms"] == ("5000", 1, False)
        assert shown["max.message.bytes"] == ("1048588", 5, False)
        assert list(shown) == sorted(shown)
    if version >= 7:
        assert made.topic_id == kafka.topic_id(topic)
    assert len(kafka.metadata(topic, create=False).topics[0].partitions) == 3


@pytest.mark.parametrize("version", versions(DELETE_TOPICS))
def test_delete_topics(kafka: Kafka, made: str, version: int) -> None:
    given = {"topic_names": [made], "topics": [{"name": made}], "timeout": 5000}
    (deleted,) = kafka.ask(DELETE_TOPICS, version, **given).responses
    assert (deleted.name, deleted.error_code) == (made, 0)
    assert kafka.metadata(made, create=False).topics[0].error_code == 3
    (again,) = kafka.ask(DELETE_TOPICS, version, **given).responses
    assert (again.name, again.error_code) == (made, 3)


@pytest.mark.parametrize("version", versions(INIT_PRODUCER_ID))
def test_init_producer_id(kafka: Kafka, version: int) -> None:
    answers = [kafka.ask(INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=0) for _ in range(3)]
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    assert len({answer.producer_id for answer in answers}) == 3


@pytest.mark.parametrize("version", versions(DESCRIBE_CONFIGS))
def test_describe_configs(kafka: Kafka, topic: str, version: int) -> None:
    kafka.create(topic, retention_ms=5000)
    asked = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]
    (result,) = kafka.ask(DESCRIBE_CONFIGS, version, resources=asked).results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, 2, topic)
    shown = {config.name: config for config in result.configs}
    assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("5000", 1)
    assert (shown["cleanup.policy"].value, shown["cleanup.policy"].config_source) == ("delete", 5)
    if version >= 3:
        assert shown["retention.ms"].config_type == 5
        assert shown["retention.ms"].documentation is None


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (999, 0),
        (-1, 0),
        (1000, 2),
        (1, 3),
        (1, 17),
        (2, 0),
        (2, 10),
        (3, 13),
        (3, -1),
        (19, 1),
        (19, 8),
        (22, 6),
        (32, 0),
    ],
)
def test_what_is_not_served_closes_the_connection(kafka: Kafka, key: int, version: int) -> None:
    frame = bytearray(kafka.request(METADATA, 1, topics=[]))
    frame[:4] = key.to_bytes(2, signed=True) + version.to_bytes(2, signed=True)
    kafka.send_frame(bytes(frame))
    assert kafka.closed()


NAMES_A_TRANSACTION = (25, 26, 28)  # AddOffsetsToTxn, EndTxn, TxnOffsetCommit: no request without a transactional id


@pytest.mark.parametrize("key", list(SERVED))
def test_no_client_id(broker: KetchServer, key: int) -> None:
    with Kafka(broker.port, client_id=None) as client:
        for version in versions(key):
            id = "id" if key in NAMES_A_TRANSACTION else None
            client.ask(key, version, timeout=1000, acks=1, **CLIENT, transactional_id=id, topics=())


@pytest.mark.parametrize(("key", "version"), [(METADATA, 1), (METADATA, 12), (API_VERSIONS, 0), (FETCH, 12)])
def test_bytes_behind_a_body_are_ignored(kafka: Kafka, key: int, version: int) -> None:
    given = fetch([part("nowhere", 0, 0)]) if key == FETCH else {"topics": []}
    kafka.send_frame(kafka.request(key, version, **given) + b"more")
    assert kafka.answer(key, version)[0] == kafka.correlation_id
