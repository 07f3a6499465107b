"""confluent-kafka through the matrix; see ../README.md."""

import json
import sys
import time

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

BOOTSTRAP, TOPIC, LAYOUT = sys.argv[1:]
GROUP, SHORT, GONE, TX = f"{TOPIC}-group", f"{TOPIC}.short", f"{TOPIC}.gone", f"{TOPIC}.tx"
T0 = 1_700_000_000_000
WAIT = 30
admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
produced = {}  # key -> (partition, value, timestamp, headers)
members = []  # the group's, which reads and then commits


def producer(**config):
    return Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all", "linger.ms": 5, **config})


def consumer(group=GROUP, **config):
    base = {"bootstrap.servers": BOOTSTRAP, "group.id": group, "auto.offset.reset": "earliest"}
    return Consumer({**base, "enable.auto.commit": False, **config})


def send(to, topic, partition, key, value, timestamp, headers=()):
    to.produce(topic, value, key, partition, timestamp=timestamp, headers=list(headers), on_delivery=delivered)
    if topic == TOPIC:
        produced[key] = (partition, value, timestamp, list(headers))


def delivered(error, message):
    if error:
        raise RuntimeError(f"not delivered: {error}")


def finish(to):
    assert to.flush(WAIT) == 0, "records were not delivered in time"


def create_topic():
    layout = {} if LAYOUT == "-" else {"storage.layout": LAYOUT}
    config = {"retention.ms": "-1", **layout}
    new = [NewTopic(name, 2 if name == TOPIC else 1, 1, config=config) for name in (TOPIC, SHORT, GONE, TX)]
    for future in admin.create_topics(new).values():
        future.result(WAIT)
    assert len(admin.list_topics(TOPIC, timeout=WAIT).topics[TOPIC].partitions) == 2


def produce(index, codec):
    to = producer(**{"compression.type": codec})
    for n in range(10):
        name = f"{codec}-{n}"
        send(to, TOPIC, n % 2, name.encode(), f"value of {name} {'x' * 100}".encode(), T0 + 1000 * index + n)
    finish(to)


def nulls():
    to = producer()
    send(to, TOPIC, 0, None, b"no key", T0 + 5000)
    send(to, TOPIC, 0, b"tombstone", None, T0 + 5001)
    finish(to)


def headers():
    to = producer()
    send(to, TOPIC, 0, b"headers", b"headers", T0 + 5002, [("text", b"plain"), ("bytes", b"\x00\xff")])
    finish(to)


def idempotent():
    to = producer(**{"enable.idempotence": True})
    for n in range(5):
        name = f"idempotent-{n}".encode()
        send(to, TOPIC, 1, name, name, T0 + 6000 + n)
    finish(to)


def poll(of, count, seconds=WAIT):
    """Up to so many records."""
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        message = of.poll(0.1)
        if message is not None:
            if message.error():
                raise RuntimeError(str(message.error()))
            found.append(message)
    return found


def as_sent(message):
    return message.partition(), message.value(), message.timestamp()[1], message.headers() or []


def group():
    member = consumer()
    members.append(member)
    member.subscribe([TOPIC])
    found = {m.key(): as_sent(m) for m in poll(member, len(produced))}
    assert found == produced, f"{len(found)} records came, or other ones"


def commit():
    (member,) = members
    done = member.commit(asynchronous=False)
    assert all(p.error is None for p in done), done
    positions = {p.partition: p.offset for p in member.position(member.assignment())}
    member.close()
    other = consumer()
    committed = {p.partition: p.offset for p in other.committed([TopicPartition(TOPIC, p) for p in (0, 1)], WAIT)}
    other.close()
    assert committed == positions, f"{committed}, not {positions}"


def lags():
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(WAIT)
    committed = {p.partition: p.offset for p in answer.topic_partitions}
    ends = admin.list_offsets({TopicPartition(TOPIC, p): OffsetSpec.latest() for p in (0, 1)})
    return [future.result(WAIT).offset - committed[p.partition] for p, future in ends.items()]


def lag():
    assert lags() == [0, 0], f"lag is {lags()}"
    to = producer()
    send(to, TOPIC, 0, b"late", b"late", T0 + 7000)
    finish(to)
    first, second = lags()
    assert first > 0, "no lag after one more record"
    assert second == 0, second


def seek():
    reader = consumer(f"{TOPIC}-seek")
    (found,) = reader.offsets_for_times([TopicPartition(TOPIC, 0, T0 + 2000)], WAIT)
    reader.assign([found])
    (first,) = poll(reader, 1)
    reader.close()
    assert first.key() == b"snappy-0", first.key()


def groups():
    names = [group.group_id for group in admin.list_consumer_groups().result(WAIT).valid]
    assert GROUP in names, names


def alter():
    entry = ConfigEntry("max.message.bytes", "123456", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])])[
        resource
    ].result(WAIT)
    assert admin.describe_configs([resource])[resource].result(WAIT)["max.message.bytes"].value == "123456"


def delete_records():
    to = producer()
    for n in range(10):
        send(to, SHORT, 0, f"short-{n}".encode(), b"", T0 + n)
    finish(to)
    reader = consumer(f"{TOPIC}-short")
    reader.assign([TopicPartition(SHORT, 0, OFFSET_BEGINNING)])
    border = poll(reader, 10)[5].offset()
    for future in admin.delete_records([TopicPartition(SHORT, 0, border)]).values():
        assert future.result(WAIT).low_watermark == border
    assert reader.get_watermark_offsets(TopicPartition(SHORT, 0), WAIT)[0] == border
    reader.close()


def delete_topic():
    admin.delete_topics([GONE])[GONE].result(WAIT)
    assert GONE not in admin.list_topics(timeout=WAIT).topics


def transaction():
    to = producer(**{"transactional.id": TOPIC, "transaction.timeout.ms": 10_000})
    to.init_transactions(10)
    for name, end in (("aborted", to.abort_transaction), ("committed", to.commit_transaction)):
        to.begin_transaction()
        for n in range(3):
            send(to, TX, 0, f"{name}-{n}".encode(), b"", T0 + n)
        to.flush(10)
        end(10)
    reader = consumer(f"{TOPIC}-tx", **{"isolation.level": "read_committed"})
    reader.assign([TopicPartition(TX, 0, OFFSET_BEGINNING)])
    keys = [m.key() for m in poll(reader, 3)]
    reader.close()
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

print(json.dumps({"version": f"{confluent_kafka.__version__}"}), flush=True)
for name, feature in FEATURES.items():
    try:
        feature()
        print(json.dumps({"feature": name, "ok": True}), flush=True)
    except Exception as e:
        print(json.dumps({"feature": name, "ok": False, "why": f"{type(e).__name__}: {e}"}), flush=True)
