"""aiokafka through the matrix; see ../README.md."""

import asyncio
import json
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

BOOTSTRAP, TOPIC, LAYOUT = sys.argv[1:]
GROUP, SHORT, GONE, TX = f"{TOPIC}-group", f"{TOPIC}.short", f"{TOPIC}.gone", f"{TOPIC}.tx"
T0 = 1_700_000_000_000
WAIT = 30
PARTITIONS = [TopicPartition(TOPIC, p) for p in (0, 1)]
produced = {}  # key -> (partition, value, timestamp, headers)
members = []  # the group's, which reads and then commits


def producer(**config):
    return AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks=config.pop("acks", "all"), linger_ms=5, **config)


def consumer(*topics, group=None, **config):
    base = {"bootstrap_servers": BOOTSTRAP, "group_id": group, "auto_offset_reset": "earliest"}
    return AIOKafkaConsumer(*topics, enable_auto_commit=False, **{**base, **config})


def admin():
    return AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)


class Started:
    """A client while it runs; the admin client has no context manager of its own in all versions."""

    def __init__(self, client):
        self.client = client

    async def __aenter__(self):
        await self.client.start()
        return self.client

    async def __aexit__(self, *error):
        await getattr(self.client, "stop" if hasattr(self.client, "stop") else "close")()


async def send(records, topic=TOPIC, **config):
    async with Started(producer(**config)) as to:
        sent = []
        for partition, key, value, timestamp, headers in records:
            sent.append(await to.send(topic, value, key, partition, timestamp, headers))
            if topic == TOPIC:
                produced[key] = (partition, value, timestamp, headers)
        await asyncio.gather(*sent)


async def create_topic():
    layout = {} if LAYOUT == "-" else {"storage.layout": LAYOUT}
    config = {"retention.ms": "-1", **layout}
    new = [NewTopic(name, 2 if name == TOPIC else 1, 1, topic_configs=config) for name in (TOPIC, SHORT, GONE, TX)]
    async with Started(admin()) as client:
        answer = await client.create_topics(new)
        assert all(error[1] == 0 for error in answer.topic_errors), answer
        (described,) = await client.describe_topics([TOPIC])
        assert len(described["partitions"]) == 2, described


async def produce(index, codec):
    def record(n):
        name = f"{codec}-{n}"
        return n % 2, name.encode(), f"value of {name} {'x' * 100}".encode(), T0 + 1000 * index + n, []

    await send(map(record, range(10)), compression_type=None if codec == "none" else codec)


async def nulls():
    await send([(0, None, b"no key", T0 + 5000, []), (0, b"tombstone", None, T0 + 5001, [])])


async def headers():
    await send([(0, b"headers", b"headers", T0 + 5002, [("text", b"plain"), ("bytes", b"\x00\xff")])])


async def idempotent():
    names = [f"idempotent-{n}".encode() for n in range(5)]
    await send([(1, name, name, T0 + 6000 + n, []) for n, name in enumerate(names)], enable_idempotence=True)


async def poll(of, count):
    """So many records."""
    found = []
    async with asyncio.timeout(WAIT):
        while len(found) < count:
            found += [r for records in (await of.getmany(timeout_ms=200)).values() for r in records]
    return found


def as_sent(record):
    return record.partition, record.value, record.timestamp, list(record.headers)


async def group():
    member = consumer(TOPIC, group=GROUP)
    await member.start()
    members.append(member)
    found = {r.key: as_sent(r) for r in await poll(member, len(produced))}
    assert found == produced, f"{len(found)} records came, or other ones"


async def commit():
    (member,) = members
    await member.commit()
    positions = [await member.position(p) for p in PARTITIONS]
    await member.stop()
    async with Started(consumer(group=GROUP)) as other:
        other.assign(PARTITIONS)
        committed = [await other.committed(p) for p in PARTITIONS]
    assert committed == positions, f"{committed}, not {positions}"


async def lags():
    async with Started(admin()) as client:
        committed = await client.list_consumer_group_offsets(GROUP)
    async with Started(consumer()) as other:
        ends = await other.end_offsets(PARTITIONS)
    return [ends[p] - committed[p].offset for p in PARTITIONS]


async def lag():
    assert await lags() == [0, 0], f"lag is {await lags()}"
    await send([(0, b"late", b"late", T0 + 7000, [])])
    first, second = await lags()
    assert first > 0, "no lag after one more record"
    assert second == 0, second


async def seek():
    async with Started(consumer()) as reader:
        reader.assign(PARTITIONS[:1])
        found = await reader.offsets_for_times({PARTITIONS[0]: T0 + 2000})
        reader.seek(PARTITIONS[0], found[PARTITIONS[0]].offset)
        first = await asyncio.wait_for(reader.getone(), WAIT)
    assert first.key == b"snappy-0", first.key


async def groups():
    async with Started(admin()) as client:
        names = [name for name, _ in await client.list_consumer_groups()]
    assert GROUP in names, names


async def alter():
    async with Started(admin()) as client:
        wanted = ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs={"max.message.bytes": "123456"})
        for answer in await client.alter_configs([wanted]):
            assert all(resource[0] == 0 for resource in answer.resources), answer
        (answer,) = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)])
        shown = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert shown["max.message.bytes"] == "123456", shown


async def delete_records():
    await send([(0, f"short-{n}".encode(), b"", T0 + n, []) for n in range(10)], topic=SHORT)
    short = TopicPartition(SHORT, 0)
    async with Started(consumer()) as reader:
        reader.assign([short])
        await reader.seek_to_beginning(short)
        border = (await poll(reader, 10))[5].offset
        async with Started(admin()) as client:
            await client.delete_records({short: RecordsToDelete(border)})
        assert await reader.beginning_offsets([short]) == {short: border}


async def delete_topic():
    async with Started(admin()) as client:
        await client.delete_topics([GONE])
        assert GONE not in await client.list_topics()


async def transaction():
    async with asyncio.timeout(WAIT), Started(producer(transactional_id=TOPIC)) as to:
        for name, end in (("aborted", to.abort_transaction), ("committed", to.commit_transaction)):
            await to.begin_transaction()
            for n in range(3):
                await to.send_and_wait(TX, b"", f"{name}-{n}".encode(), 0, T0 + n)
            await end()
    tx = TopicPartition(TX, 0)
    async with Started(consumer(isolation_level="read_committed")) as reader:
        reader.assign([tx])
        await reader.seek_to_beginning(tx)
        keys = [r.key for r in await poll(reader, 3)]
    assert keys == [b"committed-0", b"committed-1", b"committed-2"], keys


FEATURES = {
    "create topic": create_topic,
    **{
        f"produce {codec}": lambda index=index, codec=codec: produce(index, codec)
        for index, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"])
    },
    "null key and value": nulls,
    "headers": headers,
    "idempotent producer": idempotent,
    "consume in a group": group,
    "commit": commit,
    "lag": lag,
    "seek by timestamp": seek,
    "list groups": groups,
    "alter config": alter,
    "delete records": delete_records,
    "delete topic": delete_topic,
    "transaction": transaction,
}


async def main():
    print(json.dumps({"version": aiokafka.__version__}), flush=True)
    for name, feature in FEATURES.items():
        try:
            await feature()
            print(json.dumps({"feature": name, "ok": True}), flush=True)
        except Exception as e:
            print(json.dumps({"feature": name, "ok": False, "why": f"{type(e).__name__}: {e}"}), flush=True)


asyncio.run(main())
