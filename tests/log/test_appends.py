"""Where a batch lands: behind whatever is there, on consecutive offsets, however many or wide its records."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.ketch import KetchServer, eventually

HOUR_MS = 3_600_000


def create(server: KetchServer, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    return f"korvet:stream:{topic}:0"


class Produced:
    """Produces and remembers the offsets."""

    def __init__(self, server: KetchServer, topic: str, **settings: object) -> None:
        self.topic, self.offsets = topic, dict[bytes, int]()
        self.producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20, **settings})

    def send(self, value: str, **given: object) -> None:
        self.producer.produce(self.topic, value, on_delivery=self._delivered, **given)
        self.producer.poll(0)

    def flush(self) -> list[int]:
        assert self.producer.flush(30) == 0
        return sorted(self.offsets.values())

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.offsets[message.value()] = message.offset()


@pytest.mark.only_storage("record")
def test_behind_a_stream_that_is_ahead_of_the_clock(broker: KetchServer, topic: str) -> None:
    stream = create(broker, topic)
    ahead = int(time.time() * 1000) + HOUR_MS
    broker.redis().xadd(stream, {"value": "from the future"}, id=f"{ahead}-1022")
    produced = Produced(broker, topic)
    for n in range(5):
        produced.send(str(n))
    # Sequence 1023 of that millisecond, then the next millisecond: the clock has no say.
    assert produced.flush() == [(ahead << 10) + 1023 + n for n in range(5)]
    ids = [entry_id for entry_id, _ in broker.redis().xrange(stream)]
    assert ids[-5:] == [b"%d-1023" % ahead, *(b"%d-%d" % (ahead + 1, n) for n in range(4))]


def test_more_records_than_a_millisecond_has_sequences(broker: KetchServer, topic: str) -> None:
    create(broker, topic)
    produced = Produced(broker, topic, **{"linger.ms": 60_000, "batch.num.messages": 5000})
    for n in range(3000):
        produced.send(str(n))
    offsets = produced.flush()
    assert offsets == list(range(offsets[0], offsets[0] + 3000))


@pytest.mark.only_storage("record")
def test_a_record_too_wide_for_lua_among_other_writers(broker: KetchServer, topic: str) -> None:
    """10,000 headers, while a native client writes: no script can choose its id, and it lands all the same."""
    stream = create(broker, topic)
    redis = broker.redis()
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.002):
            redis.xadd(stream, {"value": "native"})

    native = threading.Thread(target=write)
    native.start()
    produced = Produced(broker, topic, **{"linger.ms": 0})
    try:
        for n in range(10):
            produced.send(f"wide {n}", headers=[(f"h{i}", b"%d" % i) for i in range(10_000)])
            produced.send(f"narrow {n}")
        produced.flush()
    finally:
        stop.set()
        native.join()
    wide = [fields for _, fields in redis.xrange(stream) if fields.get(b"value", b"").startswith(b"wide")]
    assert [fields[b"value"] for fields in wide] == [b"wide %d" % n for n in range(10)]
    assert all(fields[b"header.h9999"] == b"9999" and len(fields) == 10_002 for fields in wide)
    assert eventually(lambda: not redis.keys(f"korvet:fence:*{topic}*"))
