"""Retention by time and size, with both kinds of ids, and the expiry of producer states."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.ketch import KetchServer, eventually

OLD_MS = 1_600_000_000_000


def create(server: KetchServer, topic: str, **config: str) -> str:
    """Makes a topic with one partition; the stream's key."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(10)
    return f"korvet:stream:{topic}:0"


@pytest.fixture
def server(start_ketch: Callable[..., KetchServer]) -> KetchServer:
    return start_ketch("--retention-check-interval-ms", "100", "--producer-id-expiration-ms", "300")


@pytest.mark.only_storage("record")
def test_by_time(server: KetchServer, topic: str) -> None:
    stream = create(server, topic, **{"retention.ms": "3600000"})
    redis = server.redis()
    for n in range(1000):
        redis.xadd(stream, {"value": n}, id=f"{OLD_MS}-{n}")
    redis.xadd(stream, {"value": "new"})
    # Whole nodes go: up to a hundred old entries share theirs with the new one.
    eventually(lambda: redis.xlen(stream) <= 101)
    assert redis.xrevrange(stream, count=1)[0][1] == {b"value": b"new"}


@pytest.mark.only_storage("record")
def test_a_limit_that_is_no_number_harms_no_other_topic(server: KetchServer, topic: str) -> None:
    """Nobody checks what is written into the hash by hand. What cannot be read deletes nothing."""
    redis = server.redis()
    kept = create(server, f"a-{topic}")
    redis.hset(f"korvet:topic:a-{topic}", "retentionTime", "long")
    redis.xadd(kept, {"value": "old"}, id=f"{OLD_MS}-0")
    stream = create(server, topic, **{"retention.ms": "3600000"})
    for n in range(1000):
        redis.xadd(stream, {"value": n}, id=f"{OLD_MS}-{n}")
    eventually(lambda: redis.xlen(stream) <= 101)
    assert server.log.count(f"topic a-{topic}: retentionTime: ") == 1
    assert redis.xlen(kept) == 1


@pytest.mark.only_storage("record", "batch")
@pytest.mark.parametrize("limit", ["0", "100"])
@pytest.mark.parametrize("layout", ["record", "batch"])
def test_by_size_the_newest_node_stays(server: KetchServer, topic: str, layout: str, limit: str) -> None:
    """A stream without entries takes more than such a limit; Kafka, too, never deletes the active segment."""
    stream = create(server, topic, **{"retention.bytes": limit, "storage.layout": layout})
    other = create(server, f"{topic}-z", **{"retention.ms": "3600000"})
    redis = server.redis()
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for n in range(20):
        producer.produce(topic, b"%d" % n)
    assert producer.flush(10) == 0
    entries = redis.xlen(stream)
    for _ in range(2):  # a whole round of retention lies between
        for n in range(1000):
            redis.xadd(other, {"value": n}, id=f"{OLD_MS + redis.incr('korvet-test-ids')}-0")
        eventually(lambda: redis.xlen(other) <= 100)
    assert redis.xlen(stream) == entries


def test_by_time_with_dense_ids(server: KetchServer, topic: str) -> None:
    stream = create(server, topic, **{"retention.ms": "3600000", "offset.ids": "dense"})
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for n in range(1000):
        producer.produce(topic, str(n), timestamp=OLD_MS + n)
    producer.produce(topic, "new", timestamp=time.time_ns() // 1_000_000)
    producer.flush(10)
    redis = server.redis()
    eventually(lambda: redis.xlen(stream) <= 101)
    assert redis.xrevrange(stream, count=1)[0][0] == b"0-1001"


def test_by_time_with_dense_ids_and_timestamps_that_do_not_rise(server: KetchServer, topic: str) -> None:
    """Somebody fills in what is old, before and behind what is new."""
    now = time.time_ns() // 1_000_000
    stream = create(server, topic, **{"retention.ms": "3600000", "offset.ids": "dense"})
    redis = server.redis()
    with redis.pipeline(transaction=True) as writes:
        for n in range(1, 25_001):
            timestamp = now if 2_000 < n <= 5_000 else OLD_MS
            writes.xadd(stream, {"value": n, "timestamp": timestamp}, id=f"{n >> 10}-{n & 1023}")
        writes.execute()
    eventually(lambda: redis.xlen(stream) <= 23_100)
    assert redis.xlen(stream) >= 23_000


@pytest.mark.only_storage("record")
def test_a_topic_made_anew_does_not_go_by_the_limits_of_the_old_one(
    start_ketch: Callable[..., KetchServer], topic: str
) -> None:
    """The other broker, which does the trimming, has not heard of it yet."""
    first = start_ketch("--retention-check-interval-ms", "1000000", name="first")
    start_ketch("--redis", first.redis_url, "--node-id", "2", "--retention-check-interval-ms", "20", name="second")
    redis = first.redis()
    stream, other = create(first, topic, **{"retention.ms": "1"}), create(first, f"{topic}-z", **{"retention.ms": "1"})

    def write(key: str) -> None:
        with redis.pipeline() as writes:
            for n in range(1_000):
                writes.xadd(key, {"value": n})
            writes.execute()

    write(stream)
    eventually(lambda: redis.xlen(stream) <= 100)
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    admin.delete_topics([topic])[topic].result(10)
    create(first, topic, **{"retention.ms": "-1"})
    write(stream)
    for _ in range(2):  # a whole round lies between
        write(other)
        eventually(lambda: redis.xlen(other) <= 100)
    assert redis.xlen(stream) == 1_000


@pytest.mark.only_storage("record", "record-dense")
def test_by_size(server: KetchServer, topic: str) -> None:
    stream = create(server, topic, **{"retention.bytes": "100000"})
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for _ in range(2000):
        producer.produce(topic, b"x" * 1000)
    producer.flush(10)
    redis = server.redis()
    eventually(lambda: redis.xlen(stream) <= 200)
    # Redis allots nodes of 4 KB, and three such records lie in each.
    assert redis.xlen(stream) >= 70


def test_by_size_all_at_once(server: KetchServer, topic: str) -> None:
    """However much is too much, no more goes than has to."""
    stream = create(server, topic, **{"retention.bytes": "1000000"})
    redis = server.redis()
    with redis.pipeline() as pipe:  # lands as a whole, between two rounds of retention
        for _ in range(6000):
            pipe.xadd(stream, {"value": b"x" * 1000})
        pipe.execute()
    eventually(lambda: redis.memory_usage(stream, samples=0) <= 1_020_000)
    assert redis.memory_usage(stream, samples=0) >= 900_000
    assert redis.xlen(stream) >= 650


@pytest.mark.only_storage("record", "batch")
def test_by_size_whatever_the_sizes_of_batches(server: KetchServer, topic: str) -> None:
    """A large batch behind many small ones does not make these go before the limit is reached."""
    stream = create(server, topic, **{"retention.bytes": "2000000", "storage.layout": "batch"})
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
    redis = server.redis()
    for _ in range(100):
        producer.produce(topic, b"x" * 5000)
        producer.flush(10)
    producer.produce(topic, b"y" * 900_000)
    producer.flush(10)
    expired = f"{topic}-expired"
    gone = create(server, expired, **{"retention.ms": "3600000"})
    for n in range(300):
        redis.xadd(gone, {"value": n}, id=f"{OLD_MS}-{n}")
    eventually(lambda: redis.xlen(gone) <= 100)  # a round has been made since
    assert redis.xlen(stream) == 101
    producer.produce(topic, b"z" * 900_000)
    producer.flush(10)
    eventually(lambda: redis.memory_usage(stream, samples=0) <= 2_030_000)
    assert redis.memory_usage(stream, samples=0) >= 1_800_000


@pytest.mark.only_storage("record", "batch")
def test_kept_forever(server: KetchServer, topic: str) -> None:
    other = f"{topic}-other"
    kept = create(server, topic, **{"retention.ms": "-1"})
    gone = create(server, other, **{"retention.ms": "3600000"})
    redis = server.redis()
    for n in range(300):
        redis.xadd(kept, {"value": n}, id=f"{OLD_MS}-{n}")
        redis.xadd(gone, {"value": n}, id=f"{OLD_MS}-{n}")
    eventually(lambda: redis.xlen(gone) <= 100)
    assert redis.xlen(kept) == 300


def test_dense_records_without_a_timestamp_have_no_age(server: KetchServer, topic: str) -> None:
    dense = {"retention.ms": "3600000", "offset.ids": "dense"}
    by_hand, gone = create(server, topic, **dense), create(server, f"{topic}-gone", **dense)
    redis = server.redis()
    for n in range(1, 301):
        redis.xadd(by_hand, {"value": n}, id=f"0-{n}")
        redis.xadd(gone, {"value": n, "timestamp": OLD_MS}, id=f"0-{n}")
    eventually(lambda: redis.xlen(gone) <= 100)
    assert redis.xlen(by_hand) == 300


@pytest.mark.only_storage("record")
def test_producer_states_expire(server: KetchServer, topic: str) -> None:
    stream = create(server, topic)
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    producer.produce(topic, "a")
    assert producer.flush(10) == 0
    redis = server.redis()
    eventually(lambda: redis.hlen(f"korvet:producers:{{{stream}}}") == 0)
    producer.produce(topic, "b")  # goes on with its sequence all the same
    assert producer.flush(10) == 0
    assert [fields[b"value"] for _, fields in redis.xrange(stream)] == [b"a", b"b"]
