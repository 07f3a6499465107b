"""DeleteRecords with time ids and with dense ones, DescribeTopicPartitions page by page, ListConfigResources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.batches import batch, records
from tests.support.kafka import (
    DELETE_RECORDS,
    DESCRIBE_TOPIC_PARTITIONS,
    LIST_CONFIG_RESOURCES,
    Kafka,
    versions,
)
from tests.support.ketch import KetchServer

OUT_OF_RANGE, UNKNOWN_PARTITION, INVALID_NAME, UNSUPPORTED_VERSION, INVALID = 1, 3, 17, 35, 42


@pytest.fixture(params=["time", "dense"])
def either(request: pytest.FixtureRequest, kafka: Kafka, topic: str) -> str:
    """A topic with time ids and one with dense ids."""
    kafka.create(topic, offset_ids=request.param)
    return topic


def ten(kafka: Kafka, topic: str) -> list[int]:
    """Writes ten records in two batches; their offsets."""
    bases = [kafka.stored(topic, batch(records([b"x"] * 5))) for _ in range(2)]
    return [base + n for base in bases for n in range(5)]


def delete(kafka: Kafka, topic: str, offset: int, partition: int = 0, version: int = 2) -> tuple[int, int]:
    """(error code, low watermark)."""
    asked = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
    answer = kafka.ask(DELETE_RECORDS, version, topics=asked, timeout=1000)
    assert answer.topics[0].name == topic
    (found,) = answer.topics[0].partitions
    assert found.partition_index == partition
    return int(found.error_code), found.low_watermark


def ends(kafka: Kafka, topic: str) -> tuple[int, int]:
    """Log start and high watermark, on which ListOffsets and Fetch must agree."""
    start, end = (kafka.list_offsets(topic, timestamp).offset for timestamp in (-2, -1))
    answer = kafka.fetch(topic, end)
    assert (answer.error_code, answer.log_start_offset, answer.high_watermark) == (0, start, end)
    assert kafka.fetch(topic, start).error_code == 0
    if start > 0:
        assert kafka.fetch(topic, start - 1).error_code == OUT_OF_RANGE
    return start, end


def offsets(kafka: Kafka, topic: str) -> list[int]:
    return [record.offset for record in kafka.read_all(topic)]


@pytest.mark.parametrize("version", versions(DELETE_RECORDS))
@pytest.mark.only_storage("record", "record-dense")
def test_records_deleted(kafka: Kafka, broker: KetchServer, either: str, version: int) -> None:
    written = ten(kafka, either)
    assert delete(kafka, either, written[7], version=version) == (0, written[7])
    assert ends(kafka, either) == (written[7], written[9] + 1)
    assert offsets(kafka, either) == written[7:]
    assert broker.redis().xlen(f"korvet:stream:{either}:0") == 3


def test_all_records_deleted(kafka: Kafka, broker: KetchServer, either: str) -> None:
    end = ten(kafka, either)[9] + 1
    assert delete(kafka, either, -1) == (0, end)
    assert ends(kafka, either) == (end, end)
    assert broker.redis().xlen(f"korvet:stream:{either}:0") == 0
    assert delete(kafka, either, -1) == (0, end), "once more"
    written = ten(kafka, either)
    assert written[0] >= end
    assert ends(kafka, either) == (end, written[9] + 1)
    assert offsets(kafka, either) == written


@pytest.mark.only_storage("record", "record-dense")
def test_the_log_starts_where_it_was_asked_to(kafka: Kafka, broker: KetchServer, either: str) -> None:
    """No record lies there: the next one is later, or there is none."""
    written = ten(kafka, either)
    stream = f"korvet:stream:{either}:0"
    redis = broker.redis()
    redis.xdel(stream, *[entry for entry, _ in redis.xrange(stream)[4:8]])
    assert delete(kafka, either, written[6]) == (0, written[6])
    assert ends(kafka, either) == (written[6], written[9] + 1)
    assert offsets(kafka, either) == written[8:]
    redis.xdel(stream, *[entry for entry, _ in redis.xrange(stream)])
    assert delete(kafka, either, written[9]) == (0, written[9] + 1), "it was trimmed up to the end by someone else"


@pytest.mark.only_storage("record", "batch")
def test_nothing_lies_below(kafka: Kafka, topic: str) -> None:
    """With time ids the log starts when the topic was made, before its first record."""
    kafka.create(topic)
    first = ten(kafka, topic)[0]
    start, end = ends(kafka, topic)
    assert start < first
    assert delete(kafka, topic, first - 1) == (0, first - 1)
    assert ends(kafka, topic) == (first - 1, end)


def test_below_the_log_start(kafka: Kafka, either: str) -> None:
    written = ten(kafka, either)
    delete(kafka, either, written[5])
    for offset in (0, written[3], written[5]):
        assert delete(kafka, either, offset) == (0, written[5])
    assert offsets(kafka, either) == written[5:]


def test_records_not_deleted(kafka: Kafka, either: str) -> None:
    written = ten(kafka, either)
    for offset in (written[9] + 2, 2**63 - 1, -2):
        assert delete(kafka, either, offset) == (OUT_OF_RANGE, -1)
    assert delete(kafka, either, 0, partition=1) == (UNKNOWN_PARTITION, -1)
    assert delete(kafka, f"no-{either}", 0) == (UNKNOWN_PARTITION, -1)
    assert offsets(kafka, either) == written


def test_a_record_of_a_native_client_counts_at_once(kafka: Kafka, broker: KetchServer, either: str) -> None:
    ten(kafka, either)
    broker.redis().xadd(f"korvet:stream:{either}:0", {"value": "native"})
    error, end = delete(kafka, either, -1)
    assert error == 0
    assert ends(kafka, either) == (end, end)
    assert offsets(kafka, either) == []


# -- DescribeTopicPartitions


def page(kafka: Kafka, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    after = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
    topics = [{"name": name} for name in names]
    return kafka.ask(DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, response_partition_limit=limit, cursor=after)


def partitions(answer: Any) -> list[tuple[str, int, list[int]]]:
    return [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics]


def cursor(answer: Any) -> tuple[str, int] | None:
    return answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


@pytest.fixture
def three(kafka: Kafka, topic: str) -> list[str]:
    """Topics with one, two and three partitions, sorted."""
    for n in (3, 1, 2):
        kafka.create(f"{topic}-{n}", n)
    return [f"{topic}-{n}" for n in (1, 2, 3)]


def test_a_topic_described(kafka: Kafka, three: list[str]) -> None:
    answer = page(kafka, three[1])
    assert cursor(answer) is None
    (found,) = answer.topics
    (same,) = kafka.metadata(three[1]).topics
    assert (found.topic_id, found.topic_authorized_operations) == (same.topic_id, 3576)
    for ours, theirs in zip(found.partitions, same.partitions, strict=True):
        for name in ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert ours.eligible_leader_replicas == ours.last_known_elr == ours.offline_replicas == ()


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 5, 6, 2000])
def test_page_by_page(kafka: Kafka, three: list[str], limit: int) -> None:
    found, after = [], None
    while True:
        answer = page(kafka, *reversed(three), three[0], limit=limit, cursor=after)
        now = [(name, index) for name, error, indices in partitions(answer) for index in indices if error == 0]
        found += now
        after = cursor(answer)
        if after is None:
            break
        assert len(now) == max(1, limit)
    assert found == [(name, index) for name, count in zip(three, (1, 2, 3), strict=True) for index in range(count)]


def test_all_topics_described(kafka: Kafka, three: list[str]) -> None:
    answer = page(kafka, limit=4, cursor=(three[0], 0))
    assert partitions(answer) == [(three[0], 0, [0]), (three[1], 0, [0, 1]), (three[2], 0, [0])]
    assert cursor(answer) == (three[2], 1)


def test_cursors_beside_the_topics(kafka: Kafka, three: list[str]) -> None:
    assert partitions(page(kafka, *three[:2], cursor=(three[2], 0))) == [(name, INVALID, []) for name in three[:2]]
    assert partitions(page(kafka, three[0], cursor=(three[0], -1))) == [(three[0], INVALID, [])]
    assert partitions(page(kafka, *three, cursor=(three[2], 7))) == [(three[2], 0, [])]
    assert partitions(page(kafka, *three, cursor=(three[1], 1), limit=1)) == [(three[1], 0, [1])]


def test_topics_that_do_not_exist_are_not_created(kafka: Kafka, topic: str) -> None:
    for _ in range(2):
        assert partitions(page(kafka, topic, "a b")) == [("a b", INVALID_NAME, []), (topic, UNKNOWN_PARTITION, [])]


# -- ListConfigResources


def resources(kafka: Kafka, *types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    answer = kafka.ask(LIST_CONFIG_RESOURCES, version, resource_types=types)
    found = [(getattr(each, "resource_type", 0), each.resource_name) for each in answer.config_resources]
    return int(answer.error_code), found


def test_config_resources(kafka: Kafka, made: str) -> None:
    broker = (4, str(kafka.metadata().brokers[0].node_id))
    error, topics = resources(kafka, 2)
    assert error == 0
    assert (2, made) in topics
    assert {kind for kind, _ in topics} == {2}
    assert resources(kafka, 4) == (0, [broker])
    assert {(2, made), broker} <= set(resources(kafka)[1])
    error, others = resources(kafka, 8, 16, 32)
    assert error == 0
    assert {kind for kind, _ in others} <= {32}  # groups of other tests
    assert resources(kafka, 2, 3) == (UNSUPPORTED_VERSION, [])
    assert resources(kafka, version=0) == (0, [])
