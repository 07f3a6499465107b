"""kafka-python through the matrix; see ../README.md."""

import json
import sys
import time

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

BOOTSTRAP, TOPIC, LAYOUT = sys.argv[1:]
GROUP, SHORT, GONE, TX = f"{TOPIC}-group", f"{TOPIC}.short", f"{TOPIC}.gone", f"{TOPIC}.tx"
T0 = 1_700_000_000_000
WAIT = 30
PARTITIONS = [TopicPartition(TOPIC, p) for p in (0, 1)]
admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
produced = {}  # key -> (partition, value, timestamp, headers)
members = []  # the group's, which reads and then commits


def consumer(*topics, group=None, **config):
    base = {"bootstrap_servers": BOOTSTRAP, "group_id": group, "auto_offset_reset": "earliest"}
    return KafkaConsumer(*topics, enable_auto_commit=False, **{**base, **config})


def send(records, topic=TOPIC, **config):
    defaults = {"acks": "all", "linger_ms": 5, "enable_idempotence": False}
    to = KafkaProducer(bootstrap_servers=BOOTSTRAP, **{**defaults, **config})
    sent = []
    for partition, key, value, timestamp, headers in records:
        sent.append(to.send(topic, value, key, headers, partition, timestamp))
        if topic == TOPIC:
            produced[key] = (partition, value, timestamp, headers)
    for future in sent:
        future.get(WAIT)
    to.close()


def create_topic():
    layout = {} if LAYOUT == "-" else {"storage.layout": LAYOUT}
    config = {"retention.ms": "-1", **layout}
    partitions = {TOPIC: 2, SHORT: 1, GONE: 1, TX: 1}
    admin.create_topics([NewTopic(name, count, 1, topic_configs=config) for name, count in partitions.items()])
    (described,) = admin.describe_topics([TOPIC])
    assert len(described["partitions"]) == 2, described


def produce(index, codec):
    def record(n):
        name = f"{codec}-{n}"
        return n % 2, name.encode(), f"value of {name} {'x' * 100}".encode(), T0 + 1000 * index + n, []

    send(map(record, range(10)), compression_type=None if codec == "none" else codec)


def nulls():
    send([(0, None, b"no key", T0 + 5000, []), (0, b"tombstone", None, T0 + 5001, [])])


def headers():
    send([(0, b"headers", b"headers", T0 + 5002, [("text", b"plain"), ("bytes", b"\x00\xff")])])


def idempotent():
    names = [f"idempotent-{n}".encode() for n in range(5)]
    send([(1, name, name, T0 + 6000 + n, []) for n, name in enumerate(names)], enable_idempotence=True)


def poll(of, count):
    """Up to so many records. A poll that ends while its group syncs leaves kafka-python 3.0 without partitions."""
    found, end = [], time.monotonic() + WAIT
    while len(found) < count and time.monotonic() < end:
        found += [r for records in of.poll(timeout_ms=10_000).values() for r in records]
    return found


def as_sent(record):
    return record.partition, record.value, record.timestamp, list(record.headers)


def group():
    member = consumer(TOPIC, group=GROUP)
    members.append(member)
    found = {r.key: as_sent(r) for r in poll(member, len(produced))}
    assert found == produced, f"{len(found)} records came, or other ones"


def commit():
    (member,) = members
    member.commit()
    positions = [member.position(p) for p in PARTITIONS]
    member.close()
    other = consumer(group=GROUP)
    committed = [other.committed(p) for p in PARTITIONS]
    other.close()
    assert committed == positions, f"{committed}, not {positions}"


def lags():
    committed = admin.list_group_offsets({GROUP: PARTITIONS})[GROUP]
    other = consumer()
    ends = other.end_offsets(PARTITIONS)
    other.close()
    return [ends[p] - committed[p].offset for p in PARTITIONS]


def lag():
    assert lags() == [0, 0], f"lag is {lags()}"
    send([(0, b"late", b"late", T0 + 7000, [])])
    first, second = lags()
    assert first > 0, "no lag after one more record"
    assert second == 0, second


def seek():
    reader = consumer()
    reader.assign(PARTITIONS[:1])
    reader.seek(PARTITIONS[0], reader.offsets_for_times({PARTITIONS[0]: T0 + 2000})[PARTITIONS[0]].offset)
    first, *_ = poll(reader, 1)
    reader.close()
    assert first.key == b"snappy-0", first.key


def groups():
    names = [group["group_id"] for group in admin.list_groups()]
    assert GROUP in names, names


def alter():
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs={"max.message.bytes": "123456"})])
    shown = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)])
    assert '"123456"' in json.dumps(shown, default=str), shown


def delete_records():
    send([(0, f"short-{n}".encode(), b"", T0 + n, []) for n in range(10)], topic=SHORT)
    short = TopicPartition(SHORT, 0)
    reader = consumer()
    reader.assign([short])
    border = poll(reader, 10)[5].offset
    admin.delete_records({short: border})
    assert reader.beginning_offsets([short]) == {short: border}
    reader.close()


def delete_topic():
    admin.delete_topics([GONE])
    assert GONE not in admin.list_topics()


def transaction():
    to = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=TOPIC)
    to.init_transactions()
    for name, end in (("aborted", to.abort_transaction), ("committed", to.commit_transaction)):
        to.begin_transaction()
        for n in range(3):
            to.send(TX, b"", f"{name}-{n}".encode(), None, 0, T0 + n)
        to.flush(WAIT)
        end()
    to.close()
    reader = consumer(isolation_level="read_committed")
    reader.assign([TopicPartition(TX, 0)])
    keys = [r.key for r in poll(reader, 3)]
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

print(json.dumps({"version": kafka.__version__}), flush=True)
for name, feature in FEATURES.items():
    try:
        feature()
        print(json.dumps({"feature": name, "ok": True}), flush=True)
    except Exception as e:
        print(json.dumps({"feature": name, "ok": False, "why": f"{type(e).__name__}: {e}"}), flush=True)
