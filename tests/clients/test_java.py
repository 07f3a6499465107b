"""The Java clients with their defaults: an idempotent producer, a consumer that assigns itself, the admin client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.java import JavaDriver, JavaError, missing_tools
from tests.support.ketch import KetchServer, eventually

NO_JAVA = missing_tools()
pytestmark = pytest.mark.skipif(NO_JAVA is not None, reason=str(NO_JAVA))

PARTITIONS = 3
COUNT = 500
FIRST_TIMESTAMP = 1_700_000_000_000  # of the driver's record 0; record n is n ms later, on partition n % PARTITIONS


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    with JavaDriver() as driver:
        yield driver


def by_partition(records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [[r for r in records if r["partition"] == p] for p in range(PARTITIONS)]


def produce(java: JavaDriver, broker: KetchServer, topic: str, **properties: object) -> list[dict[str, Any]]:
    return java.run("produce", broker.bootstrap, topic=topic, partitions=PARTITIONS, count=COUNT, **properties)


def create(java: JavaDriver, broker: KetchServer, topic: str, **configs: object) -> dict[str, Any]:
    """Without retention: the driver's records are years old."""
    configs = {"config__retention__ms": -1, **configs}
    (created,) = java.run("create", broker.bootstrap, topic=topic, partitions=PARTITIONS, **configs)
    return created


@pytest.mark.storage("record", "batch-dense")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_a_default_producer_sent_them(
    java: JavaDriver, broker: KetchServer, topic: str, codec: str
) -> None:
    create(java, broker, topic)
    sent = produce(java, broker, topic, prop__compression__type=codec)
    assert len(sent) == COUNT
    received = java.run("consume", broker.bootstrap, topic=topic, partitions=PARTITIONS)
    assert by_partition(received) == by_partition(sent)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_the_broker_compressed_is_readable(java: JavaDriver, broker: KetchServer, topic: str, codec: str) -> None:
    create(java, broker, topic, config__compression__type=codec)
    sent = produce(java, broker, topic)
    received = java.run("consume", broker.bootstrap, topic=topic, partitions=PARTITIONS)
    assert by_partition(received) == by_partition(sent)


@pytest.mark.storage("record", "batch-dense")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_without_idempotence(java: JavaDriver, broker: KetchServer, topic: str, acks: str) -> None:
    create(java, broker, topic)
    sent = produce(java, broker, topic, prop__enable__idempotence="false", prop__acks=acks)

    def received() -> list[dict[str, Any]]:
        return java.run("consume", broker.bootstrap, topic=topic, partitions=PARTITIONS)

    if acks != "0":
        assert by_partition(received()) == by_partition(sent)
    else:  # such a producer learns no offsets, and returns before the broker has the records
        eventually(lambda: [r["timestamp"] for r in sorted(received(), key=by_time)] == [r["timestamp"] for r in sent])


def by_time(record: dict[str, Any]) -> int:
    return int(record["timestamp"])


@pytest.mark.parametrize("offset_ids", ["time", "dense"])
def test_list_offsets(java: JavaDriver, broker: KetchServer, topic: str, offset_ids: str) -> None:
    create(java, broker, topic, config__offset__ids=offset_ids)
    empty = java.run("offsets", broker.bootstrap, topic=topic, partitions=PARTITIONS, timestamp=0)
    assert all(p["beginning"] == p["end"] and p["offset"] is None for p in empty)

    sent = by_partition(produce(java, broker, topic))
    middle = FIRST_TIMESTAMP + COUNT // 2
    found = java.run("offsets", broker.bootstrap, topic=topic, partitions=PARTITIONS, timestamp=middle)
    for p, records in zip(found, sent, strict=True):
        first = next(r for r in records if r["timestamp"] >= middle)
        assert p["beginning"] <= records[0]["offset"]
        assert p["end"] == records[-1]["offset"] + 1
        assert (p["offset"], p["timestamp"]) == (first["offset"], first["timestamp"])

    late = java.run("offsets", broker.bootstrap, topic=topic, partitions=PARTITIONS, timestamp=FIRST_TIMESTAMP + COUNT)
    assert [p["offset"] for p in late] == [None] * PARTITIONS


def test_admin_creates_describes_and_deletes(java: JavaDriver, broker: KetchServer, topic: str) -> None:
    created = create(java, broker, topic, config__retention__ms=123_456)
    assert created["partitions"] == PARTITIONS

    described = java.run("describe", broker.bootstrap, topic=topic)
    assert [p["partition"] for p in described] == list(range(PARTITIONS))
    assert {p["id"] for p in described} == {created["id"]}
    assert {str(p["port"]) for p in described} == {broker.bootstrap.rpartition(":")[2]}

    configs = {c["name"]: c for c in java.run("configs", broker.bootstrap, topic=topic)}
    assert configs["retention.ms"] == {
        "name": "retention.ms",
        "value": "123456",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "type": "LONG",
    }
    assert configs["compression.type"]["value"] == "producer"
    assert configs["compression.type"]["source"] == "DEFAULT_CONFIG"

    with pytest.raises(JavaError, match="TopicExistsException"):
        create(java, broker, topic)
    java.run("delete", broker.bootstrap, topic=topic)
    with pytest.raises(JavaError, match="UnknownTopicOrPartitionException"):
        java.run("describe", broker.bootstrap, topic=topic)
    with pytest.raises(JavaError, match="UnknownTopicOrPartitionException"):
        java.run("delete", broker.bootstrap, topic=topic)


def test_admin_errors(java: JavaDriver, broker: KetchServer, topic: str) -> None:
    with pytest.raises(JavaError, match="InvalidConfigurationException"):
        create(java, broker, topic, config__no__such="1")
    with pytest.raises(JavaError, match="InvalidTopicException"):
        create(java, broker, "a b")


def test_a_batch_above_max_message_bytes_is_refused(java: JavaDriver, broker: KetchServer, topic: str) -> None:
    create(java, broker, topic, config__max__message__bytes=50)  # below the 61 bytes that every batch begins with
    with pytest.raises(JavaError, match="RecordTooLargeException"):
        java.run("produce", broker.bootstrap, topic=topic, partitions=1, count=1)
