"""`ketch topics copy` between topics of Ketch: straight into Redis and over the protocol, killed and taken up again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ketch.cli import broker_redis
from ketch.cli.copying.into_redis import RedisWriter
from tests.support import copies
from tests.support.batches import batch, records
from tests.support.cli import Ketch
from tests.support.copies import contents, ends, read
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually

WAYS = {"redis": (), "protocol": ("--protocol",)}
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


def copied(ketch: Ketch, broker: KetchServer, topic: str, name: str, *options: str, code: int = 0) -> str:
    """What it says."""
    words = ("topics", "copy", topic, "--as", name, "--from", broker.bootstrap, *options)
    done = ketch(*words, code=code)
    return (done.stderr if code else done.stdout).decode()


@ways
@pytest.mark.parametrize("layout", ["record", "batch"])
def test_records_of_all_kinds(ketch: Ketch, broker: KetchServer, topic: str, way: str, layout: str) -> None:
    copies.make(broker.bootstrap, topic, 3, offset_ids="dense", retention_ms="-1")
    copies.produce_all_kinds(broker.bootstrap, topic, 3, 600)
    copies.commit(broker.bootstrap, f"g-{topic}", topic, {0: 17, 1: 200})
    said = copied(ketch, broker, topic, f"{topic}-2", *WAYS[way], "--config", f"storage.layout={layout}")
    assert said.startswith(
        f"{topic} as {topic}-2: 600 records of 3 partitions with their offsets, the position of group"
    )
    assert read(broker.bootstrap, f"{topic}-2", 3) == read(broker.bootstrap, topic, 3)
    assert copies.config(broker.bootstrap, f"{topic}-2", "retention.ms") == "-1"
    assert copies.position(broker.bootstrap, f"g-{topic}", f"{topic}-2", 0) == 17
    assert copies.position(broker.bootstrap, f"g-{topic}", f"{topic}-2", 1) == 200
    # what has come since
    copies.produce_all_kinds(broker.bootstrap, topic, 3, 30)
    assert " 30 records of 3 partitions" in copied(ketch, broker, topic, f"{topic}-2", *WAYS[way])
    assert read(broker.bootstrap, f"{topic}-2", 3) == read(broker.bootstrap, topic, 3)


@pytest.mark.parametrize("stored", [0, 3])
def test_brokers_see_where_a_log_ends_that_ends_without_records(broker: KetchServer, topic: str, stored: int) -> None:
    copies.make(broker.bootstrap, topic, 1)
    with Kafka(broker.port) as kafka:
        for _ in range(stored):
            kafka.stored(topic, batch(records([b"x"])))
    (end,) = ends(broker.bootstrap, topic, 1)  # which the broker keeps
    found = broker_redis.find(AdminClient({"bootstrap.servers": broker.bootstrap}))
    RedisWriter(found, topic, 1).finish({0: end + 10})
    eventually(lambda: ends(broker.bootstrap, topic, 1) == [end + 10])
    assert {broker.redis().ttl(key) for key in broker.redis().keys(f"korvet:stream:*{topic}*")} == {-1}


def test_gaps_stay_in_redis_and_are_closed_by_the_protocol(ketch: Ketch, broker: KetchServer, topic: str) -> None:
    copies.make(broker.bootstrap, topic, 1, offset_ids="dense")
    copies.produce_transactions(broker.bootstrap, topic, 6)
    (rows,) = read(broker.bootstrap, topic, 1)
    assert len(rows) == 20
    (end,) = ends(broker.bootstrap, topic, 1)
    fourth = rows[10][0]  # in the third transaction that was committed
    copies.commit(broker.bootstrap, f"g-{topic}", topic, {0: fourth})
    copies.commit(broker.bootstrap, f"h-{topic}", topic, {0: end})
    assert "20 records of 1 partition with their offsets" in copied(ketch, broker, topic, f"{topic}-same")
    assert read(broker.bootstrap, f"{topic}-same", 1) == [rows]
    assert ends(broker.bootstrap, f"{topic}-same", 1) == [end]
    assert copies.position(broker.bootstrap, f"g-{topic}", f"{topic}-same") == fourth
    assert copies.position(broker.bootstrap, f"h-{topic}", f"{topic}-same") == end
    said = copied(ketch, broker, topic, f"{topic}-other", "--protocol")
    assert "20 records of 1 partition with other offsets, positions of 2 groups" in said
    closed = read(broker.bootstrap, f"{topic}-other", 1)
    assert contents(closed) == contents([rows])
    assert [row[0] for row in closed[0]] == list(range(20))
    assert copies.position(broker.bootstrap, f"g-{topic}", f"{topic}-other") == 10
    assert copies.position(broker.bootstrap, f"h-{topic}", f"{topic}-other") == 20


def test_time_ids_stay_in_redis(ketch: Ketch, broker: KetchServer, topic: str) -> None:
    copies.make(broker.bootstrap, topic, 1, offset_ids="time")
    copies.produce_all_kinds(broker.bootstrap, topic, 1, 50)
    copied(ketch, broker, topic, f"{topic}-2")
    assert copies.config(broker.bootstrap, f"{topic}-2", "offset.ids") == "time"
    assert read(broker.bootstrap, f"{topic}-2", 1) == read(broker.bootstrap, topic, 1)


def test_what_the_log_has_lost_before(ketch: Ketch, broker: KetchServer, topic: str) -> None:
    copies.make(broker.bootstrap, topic, 1, offset_ids="dense", storage_layout="record")
    copies.produce_many(broker.bootstrap, topic, 1, 0, 100)
    stream = f"korvet:stream:{topic}:0"
    broker.redis_of(stream).xtrim(stream, minid="0-81", approximate=False)  # offset 80 is entry 81
    copied(ketch, broker, topic, f"{topic}-2")
    (rows,) = read(broker.bootstrap, f"{topic}-2", 1)
    assert [row[0] for row in rows] == list(range(80, 100))
    assert "20 records of 1 partition with other offsets" in copied(
        ketch, broker, topic, f"{topic}-3", "--protocol", "--compression", "zstd"
    )
    (moved,) = read(broker.bootstrap, f"{topic}-3", 1)
    assert [row[0] for row in moved] == list(range(20))
    broker.redis_of(stream).xtrim(stream, maxlen=0, approximate=False)
    copied(ketch, broker, topic, f"{topic}-4")
    assert ends(broker.bootstrap, f"{topic}-4", 1) == [100]


@ways
def test_killed_and_taken_up(ketch: Ketch, broker: KetchServer, topic: str, way: str) -> None:
    copies.make(broker.bootstrap, topic, 2, offset_ids="dense")
    copies.produce_many(broker.bootstrap, topic, 2, 0, 80_000)
    name = f"{topic}-2"
    copies.make(broker.bootstrap, name, 2, offset_ids="dense")
    arguments = [topic, "--as", name, "--from", broker.bootstrap, *WAYS[way]]
    killed = copies.copy_with_kills(arguments, ketch.environment, lambda: sum(ends(broker.bootstrap, name, 2)), 2)
    assert killed
    assert read(broker.bootstrap, name, 2) == read(broker.bootstrap, topic, 2)


@ways
def test_another_writer_is_noticed(ketch: Ketch, broker: KetchServer, topic: str, way: str) -> None:
    copies.make(broker.bootstrap, topic, 1, offset_ids="dense")
    copies.produce_many(broker.bootstrap, topic, 1, 0, 10)
    copied(ketch, broker, topic, f"{topic}-2", *WAYS[way])
    copies.produce_many(broker.bootstrap, f"{topic}-2", 1, 500, 1)
    copies.produce_many(broker.bootstrap, topic, 1, 10, 5)
    said = copied(ketch, broker, topic, f"{topic}-2", *WAYS[way], code=1)
    assert f"Somebody else writes to {topic}-2" in said


def test_log_append_time(ketch: Ketch, broker: KetchServer, topic: str) -> None:
    """The copy keeps the times of the source, and gives its own to what is produced to it later."""
    copies.make(broker.bootstrap, topic, 1, offset_ids="dense", message_timestamp_type="LogAppendTime")
    copies.produce_all_kinds(broker.bootstrap, topic, 1, 20)
    for way, options in WAYS.items():
        copied(ketch, broker, topic, f"{topic}-{way}", *options)
        copies.produce_all_kinds(broker.bootstrap, topic, 1, 20)
        copied(ketch, broker, topic, f"{topic}-{way}", *options)
        assert contents(read(broker.bootstrap, f"{topic}-{way}", 1)) == contents(read(broker.bootstrap, topic, 1))
        assert copies.config(broker.bootstrap, f"{topic}-{way}", "message.timestamp.type") == "LogAppendTime"


def test_patterns(start_ketch: Callable[..., KetchServer], ketch: Ketch, broker: KetchServer, topic: str) -> None:
    for name in ("a", "b"):
        copies.make(broker.bootstrap, f"{topic}.{name}", 1)
        copies.produce_many(broker.bootstrap, f"{topic}.{name}", 1, 0, 3)
    other = start_ketch()
    words = ("topics", "copy", f"{topic}.*", "--from", broker.bootstrap, "-b", other.bootstrap, "--json", "--no-groups")
    done = json.loads(ketch(*words).stdout)
    assert [(each["topic"], each["records"], each["offsets_kept"]) for each in done] == [
        (f"{topic}.a", 3, True),
        (f"{topic}.b", 3, True),
    ]
    for name in ("a", "b"):
        assert read(other.bootstrap, f"{topic}.{name}", 1) == read(broker.bootstrap, f"{topic}.{name}", 1)


def test_mistakes(ketch: Ketch, broker: KetchServer, topic: str, tmp_path: Path) -> None:
    copies.make(broker.bootstrap, topic, 2)
    origin = ("--from", broker.bootstrap)

    def told(*words: str, code: int) -> str:
        return ketch("topics", "copy", *words, code=code).stderr.decode().splitlines()[-1]

    assert "the source has none of this name" in told(f"{topic}x", *origin, code=1)
    assert f"did you mean {topic}?" in told(f"{topic}x", *origin, code=1)
    assert "cannot be copied onto itself: name the copy with --as" in told(topic, *origin, code=2)
    assert "No Kafka broker at 127.0.0.1:1" in told(topic, "--from", "127.0.0.1:1", code=1)
    assert "--as names one copy, and " in told("*", "--as", "x", *origin, code=2)
    missing = tmp_path / "none"
    assert f"--from-config {missing} cannot be read" in told(topic, *origin, "--from-config", str(missing), code=2)
    copies.make(broker.bootstrap, f"{topic}-one", 1)
    assert "has 1 partitions, the source 2" in told(topic, "--as", f"{topic}-one", *origin, code=2)
    copies.make(broker.bootstrap, f"{topic}-full", 2)
    copies.produce_many(broker.bootstrap, f"{topic}-full", 2, 0, 2)
    assert "has records already that were not copied from there" in told(
        topic, "--as", f"{topic}-full", *origin, code=1
    )
