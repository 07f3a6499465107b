"""Compacted topics, seen by consumers and in Redis: what stays is the newest record of each key, at its offset.

The model is a dict. A consumer that reads from the start must end with the same dict, and a stream that was compacted
to its end holds one record for each key, and the very last record.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import batches
from tests.support.entries import offset_of
from tests.support.kafka import DELETE_RECORDS, Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.long import rest_long
from tests.support.redis_servers import RedisServer, binaries

FAST = ("--log-cleaner-backoff-ms", "30", "--metadata-max-age-ms", "50", "--retention-check-interval-ms", "100")
KINDS = [(layout, ids) for layout in ("record", "batch") for ids in ("time", "dense")]
Model = dict[bytes, bytes]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    found = KetchServer(tmp_path_factory.mktemp("compaction"), *FAST).start()
    yield found
    assert found.stop() == 0, found.log
    assert "Traceback" not in found.log


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test's topics go with it: the broker looks at every compacted topic 30 times a second."""
    yield
    if "server" in request.fixturenames:
        admin = AdminClient({"bootstrap.servers": request.getfixturevalue("server").bootstrap})
        if topics := list(admin.list_topics(timeout=10).topics):
            for deleted in admin.delete_topics(topics).values():
                deleted.result(10)


def create(server: KetchServer, topic: str, **configs: str) -> str:
    """Makes a compacted topic; the key of its stream."""
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", **configs}
    new = NewTopic(topic, 1, config={name.replace("_", "."): value for name, value in configs.items()})
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([new])[topic].result(10)
    return f"korvet:stream:{topic}:0"


def producer(server: KetchServer, **configs: Any) -> Producer:
    return Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 2, "batch.num.messages": 40, **configs})


def write(to: Producer, topic: str, model: Model, rng: random.Random, count: int, keys: int) -> None:
    """Random records, a tenth of them tombstones; the model follows."""
    for n in range(count):
        key = b"k%d" % int(keys * rng.random() ** 3)
        value = None if rng.random() < 0.1 else b"%d-%d" % (n, rng.randrange(1 << 40))
        to.produce(topic, value, key)
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value
    assert to.flush(30) == 0


def read(server: KetchServer, topic: str, start: int = -2, **config: Any) -> list[Any]:
    """Every record from the start on."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": f"r-{time.monotonic_ns()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            **config,
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found = []
    try:
        while (message := consumer.poll(20)) is not None and message.error() is None:
            found.append(message)
        assert message is not None
        assert message.error().name() == "_PARTITION_EOF"
    finally:
        consumer.close()
    return found


def replayed(messages: list[Any]) -> Model:
    """What a table that is built from the records holds."""
    offsets = [message.offset() for message in messages]
    assert all(before < after for before, after in pairwise(offsets))
    model: Model = {}
    for message in messages:
        if message.value() is None:
            model.pop(message.key(), None)
        else:
            model[message.key()] = message.value()
    return model


def state(server: KetchServer, stream: str) -> dict[str, str]:
    found = server.redis().hgetall(f"korvet:compaction:{{{stream}}}")
    return {name.decode(): value.decode() for name, value in found.items()}


def await_compacted(server: KetchServer, stream: str, end: int, timeout: float = 20.0) -> dict[str, str]:
    """Waits until all below `end` was compacted and nobody compacts."""

    def done() -> dict[str, str] | None:
        now = state(server, stream)
        return now if int(now.get("cleaned", -1)) >= end and now["until"] == "0" else None

    return eventually(done, timeout, f"compaction up to {end}: {state(server, stream)}")


@pytest.mark.parametrize(("layout", "ids"), rest_long(KINDS, [("record", "time"), ("batch", "dense")]))
def test_against_a_dict(server: KetchServer, topic: str, layout: str, ids: str) -> None:
    """Passes run all the time, at their own pace, between and during the writes."""
    configs = {"storage.layout": layout, "offset.ids": ids, "delete.retention.ms": "100"}
    stream = create(server, topic, **configs)
    rng, model = random.Random(f"{layout}{ids}"), Model()
    to = producer(
        server, **{"compression.type": rng.choice(["none", "gzip", "lz4", "zstd"]), "enable.idempotence": True}
    )
    for _ in range(6):
        write(to, topic, model, rng, 500, 300)
        assert replayed(read(server, topic)) == model
    write(to, topic, model, rng, 1, 1_000)
    last = read(server, topic)[-1].offset()
    await_compacted(server, stream, last)
    messages = read(server, topic)
    assert replayed(messages) == model
    assert messages[-1].offset() == last  # the newest record stays, tombstone or not
    keys = [message.key() for message in messages[:-1]]
    assert len(keys) == len(set(keys))
    info = server.redis().xinfo_stream(stream)
    assert info["entries-added"] == info["length"]  # nothing counts as trimmed
    assert server.redis().ttl(stream) == -1


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_offsets_and_bounds_stay(server: KetchServer, topic: str, layout: str) -> None:
    stream = create(server, topic, **{"storage.layout": layout, "offset.ids": "dense"})
    to = producer(server, **{"batch.num.messages": 5})
    for n in range(50):
        to.produce(topic, b"%d" % n, b"a" if n < 45 else b"b", headers={"n": str(n)}, timestamp=1_700_000_000_000 + n)
    assert to.flush(10) == 0
    await_compacted(server, stream, 49)
    assert [(m.offset(), m.value(), m.timestamp()[1]) for m in read(server, topic)] == [
        (offset, b"%d" % offset, 1_700_000_000_000 + offset) for offset in (44, 48, 49)
    ]
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "x"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0)) == (0, 50)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1_700_000_000_003)])
    consumer.close()
    assert found.offset == 44
    for start in (0, 7, 44):  # within the gap, too
        assert read(server, topic, start)[0].offset() == 44


@pytest.mark.only_storage("record")
def test_a_log_that_was_trimmed_keeps_its_start(server: KetchServer, topic: str) -> None:
    """Where the first records go by compaction, a consumer that is behind them reads on, whichever broker it asks."""
    stream = create(server, topic, **{"offset.ids": "dense", "min.compaction.lag.ms": "3600000"})
    to = producer(server)
    for n in range(300):
        to.produce(topic, b"%d" % n, b"same")
    assert to.flush(10) == 0
    redis = server.redis()
    redis.xtrim(stream, minid="0-101")
    eventually(lambda: read(server, topic)[0].offset() == 100)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    alter(admin, topic, "min.compaction.lag.ms", "0")
    await_compacted(server, stream, 299)
    assert [m.offset() for m in read(server, topic, 100)] == [298, 299]
    with pytest.raises((KafkaException, AssertionError)):
        read(server, topic, 99)
    other = KetchServer(
        server.directory.parent / f"{topic}-other", "--redis", server.redis_url, "--node-id", "7"
    ).start()
    try:
        assert [m.offset() for m in read(other, topic, 100)] == [298, 299]
    finally:
        other.stop()


def alter(admin: AdminClient, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_a_record_without_key_is_refused(server: KetchServer, topic: str, layout: str) -> None:
    create(server, topic, **{"storage.layout": layout})
    to, errors = producer(server, **{"compression.type": "gzip"}), []
    to.produce(topic, b"v", b"k", on_delivery=lambda error, _: errors.append(error))
    assert to.flush(10) == 0
    to.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert to.flush(10) == 0
    assert errors[0] is None
    assert errors[1].name() == "INVALID_RECORD"
    assert "refused with INVALID_RECORD" in server.log


def test_records_of_it_are_not_deleted_by_request(server: KetchServer, topic: str) -> None:
    create(server, topic)
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]
    answer = Kafka(server.port).ask(DELETE_RECORDS, 2, topics=asked, timeout=1000).topics[0].partitions[0]
    assert answer.error_code.name == "policy_violation"


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_tombstones_go_when_their_time_is_over(server: KetchServer, topic: str, layout: str) -> None:
    stream = create(server, topic, **{"storage.layout": layout, "delete.retention.ms": "3600000"})
    to = producer(server, **{"batch.num.messages": 1})

    def put(key: bytes, value: bytes | None) -> int:
        placed: list[int] = []
        to.produce(topic, value, key, on_delivery=lambda _, message: placed.append(message.offset()))
        assert to.flush(10) == 0
        return placed[0]

    put(b"a", b"1")
    put(b"a", None)
    await_compacted(server, stream, put(b"b", b"1"))
    assert [(m.key(), m.value()) for m in read(server, topic)] == [(b"a", None), (b"b", b"1")]
    alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "delete.retention.ms", "1")

    def gone() -> bool:
        put(b"c", b"1")
        return read(server, topic)[0].key() == b"b"

    eventually(gone)


@pytest.mark.parametrize(("layout", "ids"), KINDS)
def test_young_records_are_left_alone(server: KetchServer, topic: str, layout: str, ids: str) -> None:
    stream = create(server, topic, **{"storage.layout": layout, "offset.ids": ids, "min.compaction.lag.ms": "3600000"})
    other = create(server, f"{topic}-z")
    to = producer(server)
    for name in (topic, f"{topic}-z"):
        for n in range(100):
            to.produce(name, b"%d" % n, b"k")
        assert to.flush(10) == 0
    await_compacted(server, other, read(server, f"{topic}-z")[-1].offset())
    assert len(read(server, topic)) == 100
    assert int(state(server, stream).get("cleaned", 0)) == 0


@pytest.mark.only_storage("record")
def test_a_dirty_ratio_that_is_not_reached(server: KetchServer, topic: str) -> None:
    stream = create(server, topic, **{"min.cleanable.dirty.ratio": "0.5"})
    to = producer(server)

    def put(count: int) -> None:
        for n in range(count):
            to.produce(topic, b"v", b"%d" % n)
        assert to.flush(10) == 0

    put(100)
    await_compacted(server, stream, read(server, topic)[-1].offset())
    put(40)
    runs = server.log.count(f"{topic}-0: compacted")
    other = create(server, f"{topic}-z")
    to.produce(f"{topic}-z", b"1", b"k")
    to.produce(f"{topic}-z", b"2", b"k")
    assert to.flush(10) == 0
    await_compacted(server, other, read(server, f"{topic}-z")[-1].offset())
    assert len(read(server, topic)) == 140
    put(100)
    eventually(lambda: server.log.count(f"{topic}-0: compacted") > runs)
    alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "min.cleanable.dirty.ratio", "1")
    put(3)
    alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "max.compaction.lag.ms", "1")
    await_compacted(server, stream, read(server, topic)[-1].offset())


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_more_keys_than_the_memory_takes(start_ketch: Callable[..., KetchServer], topic: str, layout: str) -> None:
    """65,536 bytes are 2,457 keys: several passes."""
    server = start_ketch(*FAST, "--log-cleaner-dedupe-buffer-size", "65536")
    stream = create(server, topic, **{"storage.layout": layout, "min.compaction.lag.ms": "3600000"})
    to, model = producer(server, **{"batch.num.messages": 10_000, "linger.ms": 50}), Model()
    for n in range(20_000):
        key, value = b"%d" % (n % 9_000), b"%d" % n
        to.produce(topic, value, key)
        model[key] = value
    assert to.flush(30) == 0
    alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "min.compaction.lag.ms", "0")
    await_compacted(server, stream, read(server, topic)[-1].offset())
    messages = read(server, topic)
    assert replayed(messages) == model
    assert len(messages) <= 9_001
    assert server.log.count(f"{topic}-0: compacted") > 3


@pytest.mark.only_storage("record")
@pytest.mark.parametrize("ids", ["time", "dense"])
def test_native_groups_stay(server: KetchServer, topic: str, ids: str) -> None:
    """Positions, deliveries that are pending, lag: as before, save what is gone."""
    stream = create(server, topic, **{"min.compaction.lag.ms": "3600000", "offset.ids": ids})
    to = producer(server)
    for n in range(200):
        to.produce(topic, b"%d" % n, b"%d" % (n % 50))
    assert to.flush(10) == 0
    redis = server.redis()
    entries = [entry for entry, _ in redis.xrange(stream)]
    redis.xgroup_create(stream, "at-start", "0")
    redis.xgroup_create(stream, "at-end", "$", entries_read=200)
    redis.xgroup_create(stream, "reading", entries[119], entries_read=120)
    redis.xreadgroup("reading", "one", {stream: ">"}, count=50)
    redis.xreadgroup("reading", "two", {stream: ">"}, count=10)
    redis.xack(stream, "reading", entries[160])
    redis.xgroup_createconsumer(stream, "reading", "idle")
    before = [(row["message_id"], row["consumer"], row["times_delivered"]) for row in pending(redis, stream)]
    alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "min.compaction.lag.ms", "0")
    await_compacted(server, stream, offset_of(entries[-1], ids == "dense"))
    left = {entry for entry, _ in redis.xrange(stream)}
    assert left == {*entries[149:]}  # the newest record of the partition is not looked at
    after = [(row["message_id"], row["consumer"], row["times_delivered"]) for row in pending(redis, stream)]
    assert after == [row for row in before if row[0] in left]
    assert len(after) == 30
    groups = {row["name"]: row for row in redis.xinfo_groups(stream)}
    assert groups[b"at-end"]["lag"] == 0
    assert groups[b"at-start"]["lag"] in (51, None)
    assert groups[b"reading"]["last-delivered-id"] == entries[179]
    assert {row["name"] for row in redis.xinfo_consumers(stream, "reading")} == {b"one", b"two", b"idle"}
    to.produce(topic, b"x", b"x")
    assert to.flush(10) == 0
    assert redis.xinfo_groups(stream)[0]["lag"] == 1
    ((_, given),) = redis.xreadgroup("reading", "two", {stream: ">"}, count=100)
    assert len(given) == 21


def pending(redis: Any, stream: str) -> list[Any]:
    found: list[Any] = redis.xpending_range(stream, "reading", "-", "+", 1_000)
    return found


@pytest.mark.only_storage("record")
def test_native_groups_that_go_on_while_it_runs(server: KetchServer, topic: str) -> None:
    """Much is pending, more than a step carries; consumers read, claim and acknowledge until the swap and after it."""
    stream = create(server, topic, **{"min.compaction.lag.ms": "3600000"})
    to, redis, rng = producer(server), server.redis(), random.Random(4)
    for n in range(9_000):
        to.produce(topic, b"%d" % n, b"%d" % (n if n % 3 else n % 50))
    assert to.flush(10) == 0
    entries = [entry for entry, _ in redis.xrange(stream)]
    held: dict[str, dict[bytes, bytes]] = {"resting": {}, "busy": {}}

    def read(group: str, consumer: bytes, count: int) -> None:
        for _, rows in redis.xreadgroup(group, consumer, {stream: ">"}, count=count):
            held[group] |= dict.fromkeys((entry for entry, _ in rows), consumer)

    for group, consumers in {"resting": (b"one", b"two"), "busy": (b"acks", b"claims", b"rests")}.items():
        redis.xgroup_create(stream, group, "0")
        for consumer in consumers:
            read(group, consumer, 1_700)

    def go_on() -> None:
        read("busy", b"acks", 3)
        mine = [entry for entry, consumer in held["busy"].items() if consumer == b"acks"]
        gone = rng.sample(mine, min(5, len(mine)))
        for entry in gone:
            redis.xack(stream, "busy", entry)
            del held["busy"][entry]
        (other,) = rng.sample(sorted(held["busy"]), 1)
        for entry in redis.xclaim(stream, "busy", b"claims", 0, [other], justid=True):
            held["busy"][entry] = b"claims"

    def swapped() -> bool:
        go_on()
        found = state(server, stream)
        return int(found.get("cleaned", -1)) >= offset_of(entries[-1], False) and found["until"] == "0"

    alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "min.compaction.lag.ms", "0")
    eventually(swapped, 30)
    go_on()
    left = {entry for entry, _ in redis.xrange(stream)}
    assert len(left) < len(entries)
    for group, by_entry in held.items():
        found = redis.xpending_range(stream, group, "-", "+", 10_000)
        assert {row["message_id"]: row["consumer"] for row in found} == {
            entry: consumer for entry, consumer in by_entry.items() if entry in left
        }
    to.produce(topic, b"x", b"x")
    assert to.flush(10) == 0
    read("resting", b"one", 10_000)
    assert {entry for entry, _ in redis.xrange(stream)} >= {*list(held["resting"])[3_400:]}


@pytest.mark.long(minutes=0.5)
@pytest.mark.only_storage("record")
@pytest.mark.parametrize("change", ["xadd", "xdel", "produce"])
def test_others_change_the_stream_during_a_pass(
    start_ketch: Callable[..., KetchServer], topic: str, change: str
) -> None:
    """The throttle makes the pass so slow that it is underway for sure."""
    server = start_ketch(*FAST, "--log-cleaner-io-max-bytes-per-second", "500000", name="slow")
    stream = create(server, topic, **{"min.compaction.lag.ms": "3600000"})
    to, redis = producer(server, **{"batch.num.messages": 1_000}), server.redis()
    for n in range(8_000):
        to.produce(topic, b"%d" % n, b"%d" % (n % 4_000))
    assert to.flush(30) == 0
    alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "min.compaction.lag.ms", "0")
    eventually(lambda: redis.keys("korvet:compacting:*"), what="a copy")
    (copy,) = redis.keys("korvet:compacting:*")
    if change == "xadd":
        for n in range(20):
            redis.xadd(stream, {"key": str(n), "value": "native"})
    elif change == "xdel":
        deleted = eventually(lambda: redis.xrange(copy, count=2)[1:])[0][0]  # of key 0
        assert redis.xdel(stream, deleted) == 1
    else:
        for n in range(20):
            to.produce(topic, b"native", str(n))
        assert to.flush(10) == 0
    eventually(lambda: redis.xlen(stream) <= 4_001, 60)
    eventually(lambda: not redis.keys("korvet:compacting:*"), 60)
    model = replayed(read(server, topic))
    want = {b"%d" % n: b"%d" % (4_000 + n) for n in range(4_000)}
    if change == "xdel":
        want[b"0"] = b"0"  # the older record is the newest one then
        assert "begins anew" in server.log
    else:
        want |= {b"%d" % n: b"native" for n in range(20)}
    assert model == want


@pytest.mark.only_storage("record")
def test_open_transactions_are_not_passed(server: KetchServer, topic: str) -> None:
    stream = create(server, topic, **{"min.compaction.lag.ms": "3600000"})
    to, redis = producer(server), server.redis()
    for n in range(100):
        to.produce(topic, b"%d" % n, b"k")
    assert to.flush(10) == 0
    entries = [entry for entry, _ in redis.xrange(stream)]
    opened = f"korvet:transactions:{{{stream}}}"
    redis.hset(opened, "77", b"0 %b 1" % entries[60])
    alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "min.compaction.lag.ms", "0")
    await_compacted(server, stream, offset_of(entries[60]))
    assert [entry for entry, _ in redis.xrange(stream)] == entries[59:]
    redis.delete(opened)
    await_compacted(server, stream, offset_of(entries[99]))
    assert redis.xlen(stream) == 2


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_both_policies(server: KetchServer, topic: str, layout: str) -> None:
    stream = create(
        server, topic, **{"cleanup.policy": "compact,delete", "storage.layout": layout, "retention.bytes": "60000"}
    )
    to, rng, model = producer(server), random.Random(layout), Model()
    for _ in range(3):
        write(to, topic, model, rng, 2_000, 5_000)
    redis = server.redis()
    eventually(lambda: redis.memory_usage(stream, samples=0) < 90_000)
    await_compacted(server, stream, read(server, topic)[-1].offset())
    found = replayed(read(server, topic))
    assert found
    assert {key: model[key] for key in found} == found


@pytest.mark.long(minutes=0.5)
def test_two_brokers(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    first = start_ketch(*FAST, name="first")
    start_ketch(*FAST, "--redis", first.redis_url, "--node-id", "2", name="second")
    streams = [create(first, f"{topic}-{n}") for n in range(6)]
    rng, models = random.Random(2), [Model() for _ in streams]
    to = producer(first)
    for _ in range(5):
        for n, model in enumerate(models):
            write(to, f"{topic}-{n}", model, rng, 200, 100)
    for n, (stream, model) in enumerate(zip(streams, models, strict=True)):
        messages = read(first, f"{topic}-{n}")
        await_compacted(first, stream, messages[-1].offset())
        assert replayed(read(first, f"{topic}-{n}")) == model


@pytest.mark.parametrize("name", sorted(binaries()))
@pytest.mark.parametrize("layout", ["record", "batch"])
def test_on_other_servers(
    start_ketch: Callable[..., KetchServer], tmp_path: Any, topic: str, name: str, layout: str
) -> None:
    """Before Redis 7 a stream does not say how many entries were removed: the start is kept beside it."""
    redis_server = RedisServer(binaries()[name], tmp_path / name)
    try:
        server = start_ketch(*FAST, "--redis", redis_server.url, name="broker")
        create(server, topic, **{"storage.layout": layout, "offset.ids": "dense"})
        to, rng, model = producer(server), random.Random(name), Model()
        write(to, topic, model, rng, 1_000, 50)
        redis_server.client().xgroup_create(f"korvet:stream:{topic}:0", "g", "0")
        write(to, topic, model, rng, 1_000, 50)
        last = read(server, topic)[-1].offset()
        key = f"korvet:compaction:{{korvet:stream:{topic}:0}}"
        eventually(lambda: int(redis_server.client().hget(key, "cleaned") or 0) >= last)
        messages = read(server, topic, 0)
        assert replayed(messages) == model
        assert len(messages) <= 51
    finally:
        redis_server.stop()


def test_a_deleted_topic_leaves_nothing(server: KetchServer, topic: str) -> None:
    stream = create(server, topic)
    to, model = producer(server), Model()
    write(to, topic, model, random.Random(1), 500, 20)
    await_compacted(server, stream, read(server, topic)[-1].offset())
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics([topic])[topic].result(10)
    eventually(lambda: not server.redis().keys(f"*{topic}:*"))


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_aborted_records_stand_for_no_key(server: KetchServer, topic: str, layout: str) -> None:
    """They go; markers stay as long as tombstones, and the index of aborted transactions as long as the markers."""
    stream = create(server, topic, **{"storage.layout": layout, "offset.ids": "dense", "min.compaction.lag.ms": "1000"})
    redis = server.redis()
    log: list[tuple[bytes, bytes, int | None]] = [
        (b"a", b"1", None), (b"a", b"2", 7), (b"abort", b"", 7), (b"b", b"1", 8), (b"c", b"1", 8), (b"commit", b"", 8),
        (b"b", b"2", None), (b"d", b"1", None),
    ]  # fmt: skip
    with redis.pipeline(transaction=True) as pipe:
        for number, (key, value, producer) in enumerate(log, 1):
            pipe.xadd(stream, _entry(layout, key, value, producer), f"0-{number}")
        pipe.xadd(f"korvet:aborted:{{{stream}}}", {"producer": 7, "first": "0-2"}, "0-3")
        pipe.execute()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    alter(admin, topic, "min.compaction.lag.ms", "0")
    await_compacted(server, stream, 7)
    assert [entry for entry, _ in redis.xrange(stream)] == [b"0-%d" % n for n in (1, 3, 5, 6, 7, 8)]
    assert redis.xlen(f"korvet:aborted:{{{stream}}}") == 1
    assert [(m.offset(), m.key()) for m in read(server, topic)] == [(0, b"a"), (4, b"c"), (6, b"b"), (7, b"d")]
    alter(admin, topic, "delete.retention.ms", "1")
    other = create(server, f"{topic}-z")  # the sweep that compacts it knows the new value
    to = Producer({"bootstrap.servers": server.bootstrap})
    for _ in range(2):
        to.produce(f"{topic}-z", b"1", b"k")
    assert to.flush(10) == 0
    await_compacted(server, other, read(server, f"{topic}-z")[-1].offset())
    redis.xadd(stream, _entry(layout, b"d", b"2", None), "0-9")
    redis.xadd(stream, _entry(layout, b"e", b"1", None), "0-10")
    await_compacted(server, stream, 9)
    assert [entry for entry, _ in redis.xrange(stream)] == [b"0-%d" % n for n in (1, 5, 7, 9, 10)]
    assert redis.xlen(f"korvet:aborted:{{{stream}}}") == 0


def _entry(layout: str, key: bytes, value: bytes, producer: int | None) -> dict[Any, Any]:
    control = key in (b"abort", b"commit")
    if layout == "record":
        mark = {} if producer is None else {"transaction": f"{producer}:0"}
        plain = {"control": key, "coordinator.epoch": 0} if control else {"key": key, "value": value}
        return {**plain, "timestamp": 5, **mark}
    kind = (
        {}
        if producer is None
        else {"producer_id": producer, "producer_epoch": 0, "attributes": 0x30 if control else 0x10}
    )
    if not control:
        return {"batch": batches.batch([batches.record(value, key)], **kind)}
    marker = batches.record(b"\0" * 6, b"\0\0\0" + bytes([key == b"commit"]))
    return {"batch": batches.batch([marker], **kind), "control": key}


@pytest.mark.only_storage("record")
def test_who_waits_in_redis_keeps_waiting(server: KetchServer, topic: str) -> None:
    stream = create(server, topic, **{"min.compaction.lag.ms": "3600000"})
    to, redis = producer(server), server.redis()
    for n in range(100):
        to.produce(topic, b"%d" % n, b"k")
    assert to.flush(10) == 0
    last = redis.xinfo_stream(stream)["last-generated-id"]
    redis.xgroup_create(stream, "native", "$")
    waits = {
        "XREAD": lambda: server.redis().xread({stream: last}, block=60_000),
        "XREADGROUP": lambda: server.redis().xreadgroup("native", "one", {stream: ">"}, block=60_000),
    }
    with ThreadPoolExecutor() as threads:
        waiting = {name: threads.submit(wait) for name, wait in waits.items()}
        eventually(lambda: redis.info("clients")["blocked_clients"] == 2)
        alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "min.compaction.lag.ms", "0")
        await_compacted(server, stream, offset_of(last))
        assert redis.info("clients")["blocked_clients"] == 2
        redis.xadd(stream, {"key": "k", "value": "new"})
        for answer in waiting.values():
            ((_, entries),) = answer.result(30)
            assert [fields[b"value"] for _, fields in entries] == [b"new"]
