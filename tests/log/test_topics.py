"""The topic catalog: races of two brokers, remains of one that died, deletion while in use, what a reader may see."""

from __future__ import annotations

import asyncio
import base64
import gc
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ketch.configs.settings import Settings
from ketch.configs.topic_checks import defaults
from ketch.errors import StorageUnavailable
from ketch.log.appending.notes import CODEC_NAMES, TopicNotes
from ketch.log.log import Log
from ketch.log.sharing.batch import BatchShare
from ketch.log.sharing.record import RecordShare
from ketch.log.topic_cache import TopicCache
from ketch.redis.link import Link
from ketch.redis.links import links
from ketch.redis.url import RedisAddress
from ketch.store.keys import Keyspace
from ketch.store.layouts.record import RecordSet
from tests.support.batches import batch, records
from tests.support.brokers import SilentBroker, acquainted
from tests.support.groups import Member, group_of
from tests.support.kafka import CREATE_PARTITIONS, DELETE_TOPICS, DESCRIBE_CONFIGS, Kafka, split
from tests.support.ketch import KetchServer, eventually

UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 3, 100


@pytest.fixture
def brokers(start_ketch: Callable[..., KetchServer]) -> Iterator[tuple[KetchServer, KetchServer]]:
    first = start_ketch("--no-auto-create-topics", name="first")
    second = start_ketch("--redis", first.redis_url, "--node-id", "2", "--no-auto-create-topics", name="second")
    yield first, second
    second.stop()


async def topic_cache(broker: KetchServer, max_age: float) -> tuple[Link, TopicCache]:
    """A cache of its own, and its connection, which is to be stopped."""
    link = Link("test", RedisAddress.parse(broker.redis_url), 5)
    await link.start()
    return link, TopicCache(Keyspace("korvet"), link, max_age, defaults(Settings()))


def create(server: KetchServer, topic: str, partitions: int = 1) -> int:
    """The error code of a creation, 0 for none."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return 0


def delete(server: KetchServer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics([topic])[topic].result(20)


def keys(server: KetchServer) -> set[bytes]:
    return set(server.redis().keys("korvet:*"))


def test_two_brokers_create_the_same_topics(brokers: tuple[KetchServer, KetchServer], topic: str) -> None:
    first, _ = brokers
    names = [f"{topic}-{n}" for n in range(15)]
    codes: dict[tuple[str, str], int] = {}

    def create_all(server: KetchServer, partitions: int) -> None:
        for name in names:
            codes[server.bootstrap, name] = create(server, name, partitions)

    threads = [threading.Thread(target=create_all, args=(server, n)) for n, server in enumerate(brokers, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    redis = first.redis()
    for name in names:
        answers = sorted(codes[server.bootstrap, name] for server in brokers)
        assert answers == [0, KafkaError.TOPIC_ALREADY_EXISTS]
        made = 1 if codes[first.bootstrap, name] == 0 else 2
        assert int(redis.hget(f"korvet:topic:{name}", "partitions")) == made
    assert redis.hlen("korvet:topic-ids") == redis.scard("korvet:topics") == len(names)
    for name in names:
        assert redis.hget("korvet:topic-ids", redis.hget(f"korvet:topic:{name}", "id")) == name.encode()
    assert {len(AdminClient({"bootstrap.servers": s.bootstrap}).list_topics(timeout=10).topics) for s in brokers} == {
        len(names)
    }


def test_what_redis_did_not_note_is_noted_with_the_batch_that_comes_again(broker: KetchServer, topic: str) -> None:
    create(broker, topic)

    async def run() -> None:
        link, topics = await topic_cache(broker, 3600.0)
        asked, notes = await topics.get(topic), TopicNotes(topics)
        assert asked is not None
        sent, snappy = RecordSet(b"some", 1, 0, 0, None), CODEC_NAMES.index("snappy")
        news = notes.news(asked, snappy, 0, sent, 0)
        assert "producerCompression" not in notes.news(asked, snappy, 0, sent, 0), "it is being noted"
        await link.stop()
        with pytest.raises(StorageUnavailable):
            await notes.write(asked, news)
        assert notes.news(asked, snappy, 0, sent, 0)["producerCompression"] == news["producerCompression"] == "snappy"

    asyncio.run(run())


def test_what_a_dead_broker_left_is_purged(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch()
    redis = server.redis()
    # A creation that died before the topic came to exist, and a record that somebody wrote meanwhile.
    long_ago = int(time.time() * 1000) - 60_000
    redis.hset(f"korvet:topic:{topic}", mapping={"id": "0" * 32, "name": topic, "partitions": 7, "created": long_ago})
    redis.xadd(f"korvet:stream:{topic}:3", {"value": "left over"})
    assert create(server, topic, 2) == 0
    assert redis.hget(f"korvet:topic:{topic}", "partitions") == b"2"
    assert redis.exists(f"korvet:stream:{topic}:3") == 0


def test_deletion_leaves_nothing(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch()
    before = keys(server) | {b"korvet:next-producer-id"}
    assert create(server, topic, 3) == 0
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for n in range(300):
        producer.produce(topic, str(n), partition=n % 3)
    assert producer.flush(10) == 0
    assert len(keys(server) - before) == 3 + 3 + 3  # hash, id map and set; streams; producer states
    delete(server, topic)
    assert keys(server) <= before


def test_deletion_under_a_producer_of_another_broker(brokers: tuple[KetchServer, KetchServer], topic: str) -> None:
    """The other broker's producer gets errors, and never makes the stream anew behind the deletion."""
    first, second = brokers
    eventually(lambda: len(AdminClient({"bootstrap.servers": first.bootstrap}).list_topics(timeout=10).brokers) == 2)
    assert create(first, topic, 20) == 0
    producer = Producer({"bootstrap.servers": second.bootstrap, "message.timeout.ms": 2000, "linger.ms": 0})
    found = producer.list_topics(topic, 10).topics[topic].partitions.values()
    partition = next(part.id for part in found if part.leader == 2)
    outcomes: list[object] = []
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            producer.produce(topic, "x", partition=partition, on_delivery=lambda error, _: outcomes.append(error))
            producer.poll(0.001)
        producer.flush(10)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        eventually(lambda: len(outcomes) > 50)
        delete(first, topic)
        eventually(lambda: any(outcomes), what="an error")
    finally:
        stop.set()
        thread.join()
    assert not [key for key in keys(first) if topic.encode() in key]


@pytest.fixture
def forgetful(start_ketch: Callable[..., KetchServer]) -> tuple[KetchServer, KetchServer]:
    """Two brokers; the second one is slow to hear of topics that go."""
    first = start_ketch(name="first")
    slow = ("--node-id", "2", "--metadata-max-age-ms", "600000")
    return first, start_ketch("--redis", first.redis_url, *slow, name="second")


def test_a_broker_forgets_topics_that_another_one_has_deleted(broker: KetchServer) -> None:
    """Else one that runs for long would keep all that it knew of every topic there ever was."""

    async def work() -> None:
        keyspace = f"deleted-{uuid.uuid4()}"
        ours, theirs = (SilentBroker(broker.redis_url, keyspace, node).log for node in (1, 2))
        await ours.start()
        await theirs.start()
        try:
            for name in ("goes", "stays"):
                await ours.topics.create(name, 2, {})
            known = [theirs.partition(await theirs.topic(name), 1) for name in ("goes", "stays")]
            await ours.delete(known[0].topic)
            waiter = theirs.watcher.waiter()
            waiter.add(known[0].key)
            await theirs.sweep()
            assert [each.state.closed for each in known] == [True, False]
            assert list(waiter.take()) == [known[0].key], "who waits there looks again"
            assert theirs.partition(await theirs.topic("stays"), 1) is known[1]
            await ours.topics.create("goes", 2, {})
            theirs.topics.forget_all()
            again = theirs.partition(await theirs.topic("goes"), 1)
            await theirs.sweep()
            assert not again.state.closed, "it is another topic"
        finally:
            await ours.stop()
            await theirs.stop()

    asyncio.run(work())


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_asking_for_a_share_groups_start_keeps_nothing(broker: KetchServer, layout: str) -> None:
    """A client may ask for any names."""

    def shares() -> int:
        gc.collect()
        return sum(isinstance(each, RecordShare | BatchShare) for each in gc.get_objects())

    async def work() -> None:
        ours = SilentBroker(broker.redis_url, f"shares-{uuid.uuid4()}", 1).log
        await ours.start()
        try:
            partition = ours.partition(await ours.topics.create("t", 1, {"storage.layout": layout}), 0)
            before = shares()
            assert [await partition.shares.start(f"made-up-{n}") for n in range(3)] == [None] * 3
            assert shares() == before
            assert await partition.shares.of("reads").start() is None
            assert shares() == before + 1
        finally:
            await ours.stop()

    asyncio.run(work())


@pytest.mark.parametrize("before", [[], [2], [1, 2, 1, 2]], ids=["nobody", "the other", "both"])
@pytest.mark.parametrize("anew", [True, False])
def test_a_broker_that_has_not_heard_of_a_deletion(
    forgetful: tuple[KetchServer, KetchServer], topic: str, anew: bool, before: list[int]
) -> None:
    """It neither makes the stream anew nor writes the old topic's entries into the new one's, whoever wrote before."""
    first, second = forgetful
    one = batch(records([b"x"]))
    with Kafka(first.port) as ours, Kafka(second.port) as theirs:
        ours.create(topic, storage_layout="batch")
        assert theirs.metadata(topic, create=False).topics[0].error_code == 0
        for broker in before:
            (ours if broker == 1 else theirs).stored(topic, one)
        delete(first, topic)
        if anew:
            ours.create(topic, storage_layout="record")
        assert theirs.produce(topic, one).error_code == UNKNOWN_TOPIC
        assert not first.redis().exists(f"korvet:stream:{topic}:0")
        if anew:
            theirs.stored(topic, one)
            assert [record.value for record in ours.read_all(topic)] == [b"x"]


def test_damaged_hash_is_a_topic_that_is_not_there(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch("--no-auto-create-topics")
    assert create(server, topic) == 0
    server.redis().hset(f"korvet:topic:{topic}", "partitions", "many")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, what="the topic to be gone")
    assert f"topic {topic}: its hash korvet:topic:{topic} is damaged: partitions is 'many'" in server.log
    assert create(server, f"{topic}-other") == 0
    server.redis().set(f"korvet:topic:{topic}", "many")
    eventually(lambda: f"topic {topic}: korvet:topic:{topic} is no hash" in server.log)
    assert list(admin.list_topics(timeout=10).topics) == [f"{topic}-other"], "the others are there all the same"


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_a_hash_written_by_hand_is_read_as_far_as_it_can_be(broker: KetchServer, topic: str, layout: str) -> None:
    client = broker.redis()
    with Kafka(broker.port) as kafka:
        kafka.create(topic, storage_layout=layout)
        topic_id = kafka.topic_id(topic)
        by_kafka = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
        written = {
            "id": by_kafka, "retentionTime": "86400000.4", "compression": "GZIP", "max.message.bytes": "lots",
            "messageBytes": "100.5", "largestRecord": "big", "timestampLead": "nan", "storage.layout": layout.upper(),
            "producerCompression": "LZ4", "message.timestamp.after.max.ms": "never",
        }  # fmt: skip
        client.hset(f"korvet:topic:{topic}", mapping=written)
        client.hdel("korvet:topic-ids", str(topic_id))
        client.hset("korvet:topic-ids", by_kafka, topic)
        resources = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]

        def configs() -> dict[str, str]:
            return {c.name: c.value for c in kafka.ask(DESCRIBE_CONFIGS, 4, resources=resources).results[0].configs}

        eventually(lambda: configs()["retention.ms"] == "86400000")
        assert (configs()["compression.type"], configs()["max.message.bytes"]) == ("gzip", "1048588")
        base = kafka.stored(topic, batch(records([b"a"])))
        assert kafka.topic_id(topic) == topic_id
        assert split(kafka.fetch(topic_id, base, 13).records)[0].codec == 1
        grown = [{"name": topic, "count": 2, "assignments": None}]
        assert kafka.ask(CREATE_PARTITIONS, 3, topics=grown, timeout=5000).results[0].error_code == 0
    assert broker.log.count(f"topic {topic}: max.message.bytes: ") == 1
    assert f"topic {topic}: max.message.bytes: 'lots' is no number, 1048588 is used instead" in broker.log


def test_the_average_size_of_records_is_kept(broker: KetchServer, topic: str) -> None:
    with Kafka(broker.port) as kafka:
        kafka.create(topic)
        for _ in range(3):
            kafka.stored(topic, batch(records([bytes(500)] * 20)))
    assert 500 <= int(broker.redis().hget(f"korvet:topic:{topic}", "messageBytes") or 0) <= 520


def test_a_change_is_seen_though_a_question_was_on_its_way(broker: KetchServer, topic: str) -> None:
    """Both replies come in at once: who asked before must not put what was before into the cache behind the change."""
    with Kafka(broker.port) as kafka:
        kafka.create(topic, 1)

    async def run() -> None:
        link, topics = await topic_cache(broker, 60)
        asked = await topics.get(topic)
        assert asked is not None
        await asyncio.gather(topics.reread(asked), topics.alter(asked, {"retention.ms": "77"}))
        altered = await topics.get(topic)
        assert altered is not None
        assert altered.configs["retention.ms"] == "77"
        await asyncio.gather(topics.reread(asked), topics.grow(asked, 3))
        grown = await topics.get(topic)
        assert grown is not None
        assert grown.partitions == 3
        altering = asyncio.create_task(topics.alter(asked, {"retention.ms": "78"}))
        await asyncio.sleep(0)
        altering.cancel()
        await asyncio.wait([altering])
        altered = await topics.get(topic)
        assert altered is not None
        assert altered.configs["retention.ms"] == "78", "though the client that wanted it has gone"
        await link.stop()

    asyncio.run(run())


def test_all_who_ask_at_the_same_time_share_a_question(broker: KetchServer, topic: str) -> None:
    with Kafka(broker.port) as kafka:
        kafka.create(topic, 1)

    async def run() -> None:
        link, topics = await topic_cache(broker, 0)  # every answer is too old at once
        before = [asyncio.create_task(topics.get(topic)) for _ in range(3)]
        await asyncio.sleep(0)
        topics.forget(topic)  # something has changed
        after = [asyncio.create_task(topics.get(topic)) for _ in range(3)]
        before[0].cancel()
        await asyncio.wait([*before, *after])
        answers = [task.result() for task in (*before[1:], *after)]
        assert len({id(answer) for answer in answers}) == 2
        assert answers[0] is answers[1]
        assert all(answer is not None and answer.name == topic for answer in answers)
        assert await topics.get(topic) is not answers[-1]
        await link.stop()

    asyncio.run(run())


def test_many_topics_are_asked_for_at_once(broker: KetchServer, topic: str) -> None:
    names = [f"{topic}-{n}" for n in range(3)]
    with Kafka(broker.port) as kafka:
        for name in names:
            kafka.create(name, 1)

    async def run() -> None:
        link, topics = await topic_cache(broker, 3600.0)
        asking = asyncio.create_task(topics.prefetch([*names, "nowhere", "no/name", names[0]]))
        await asyncio.sleep(0)
        assert (await topics.get(names[1])) is topics.known(names[1]) is not None, "by the same question"
        await asking
        ids = [found.id for name in names if (found := topics.known(name)) is not None]
        assert len(ids) == 3
        assert "nowhere" in topics.cached
        assert "no/name" not in topics.cached, "there can be none of this name"
        topics.forget(names[0])
        topics.forget(names[2])
        await topics.prefetch([*ids, uuid.uuid4()])
        assert [topics.known(id_) is None for id_ in ids] == [False, False, False]
        await link.stop()
        topics.forget_all()
        await topics.prefetch(names)  # leaves it to those who need them to say it
        with pytest.raises(StorageUnavailable):
            await topics.get(names[0])

    asyncio.run(run())


def test_a_deletion_knows_of_partitions_that_another_broker_has_added(
    forgetful: tuple[KetchServer, KetchServer], topic: str
) -> None:
    first, second = forgetful
    acquainted(2, first)
    group = group_of(1, first, f"g-{topic}-")
    with Member(first.port, group) as ours, Kafka(second.port) as theirs:
        ours.create(topic, 1)
        topic_id = theirs.topic_id(topic)
        grown = [{"name": topic, "count": 3, "assignments": None}]
        assert ours.ask(CREATE_PARTITIONS, 3, topics=grown, timeout=5000).results[0].error_code == 0
        ours.stored(topic, batch(records([b"x"])), partition=2)
        eventually(lambda: ours.commit(topic, 7, partition=2) == 0, what="the commit to be taken")
        gone = [{"name": None, "topic_id": topic_id}]
        assert theirs.ask(DELETE_TOPICS, 6, topics=gone, timeout=5000).responses[0].error_code == 0
        assert not [key for key in keys(first) if topic.encode() in key and b"g-" not in key]
        assert not first.redis().hkeys(f"korvet:offsets:{group}")


def test_a_deletion_by_id_spares_the_topic_that_has_the_name_now(
    forgetful: tuple[KetchServer, KetchServer], topic: str
) -> None:
    first, second = forgetful
    with Kafka(first.port) as ours, Kafka(second.port) as theirs:
        ours.create(topic, 1)
        gone = [{"name": None, "topic_id": theirs.topic_id(topic)}]
        delete(first, topic)
        ours.create(topic, 1)
        ours.stored(topic, batch(records([b"x"])))
        assert theirs.ask(DELETE_TOPICS, 6, topics=gone, timeout=5000).responses[0].error_code == UNKNOWN_TOPIC_ID
        assert [record.value for record in ours.read_all(topic)] == [b"x"]


def test_what_was_read_of_a_topic_is_not_given_to_readers_of_its_successor(broker: KetchServer, topic: str) -> None:
    """Whoever had not heard of it took the successor's stream for the old one's."""
    with Kafka(broker.port) as kafka:
        kafka.create(topic, storage_layout="record", offset_ids="dense")

        async def run() -> None:
            logs = Log(Settings(metadata_max_age_ms=600_000), links(RedisAddress.parse(broker.redis_url), 5))
            await logs.start()
            old = logs.partition(await logs.topic(topic), 0)
            delete(broker, topic)
            kafka.create(topic, storage_layout="batch", offset_ids="dense")
            assert kafka.stored(topic, batch(records([b"x", b"y"]))) == 0
            await old.reader.read(0, 1 << 20, await old.bounds.get(), zstd=True)
            logs.topics.forget(topic)
            new = logs.partition(await logs.topic(topic), 0)
            read = await new.reader.read(0, 1 << 20, await new.bounds.get(), zstd=True)
            assert isinstance(read.records, bytes)
            assert [record.value for one in split(read.records) for record in one.records] == [b"x", b"y"]
            await logs.stop()

        asyncio.run(run())
