"""DeleteRecords, with time ids and with dense ones: what goes, and that every API agrees on where the log starts."""

from __future__ import annotations

import pytest

from tests.protocol.kafka import DELETE_RECORDS, Kafka, versions
from tests.support.batches import batch, records
from tests.support.ketch import KetchServer

OUT_OF_RANGE, UNKNOWN_PARTITION = 1, 3


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
