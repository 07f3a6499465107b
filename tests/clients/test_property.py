"""Whatever a client writes it reads back byte for byte: records made up by hypothesis, through librdkafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.ketch import KetchServer

pytestmark = pytest.mark.storage("record", "batch-dense")

Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]

maybe = st.none() | st.binary(max_size=200)
# librdkafka takes 0 for "now" and below 0 for nothing it could send; the kernels' own tests have those.
timestamps = st.integers(1, 2**63 - 1) | st.integers(1_600_000_000_000, 1_900_000_000_000)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)  # C strings in librdkafka
rows = st.lists(st.tuples(maybe, maybe, timestamps, st.lists(st.tuples(names, maybe), max_size=4)), max_size=12)


class RoundTrip:
    """A producer and a consumer of one partition."""

    def __init__(self, server: KetchServer, topic: str, codec: str) -> None:
        common = {"bootstrap.servers": server.bootstrap}
        admin = AdminClient(common)
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
        self.topic = topic
        self.producer = Producer({**common, "compression.type": codec, "linger.ms": 2, "enable.idempotence": True})
        self.consumer = Consumer({**common, "group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 50})
        self.offset = 0

    def write(self, records: list[Row]) -> list[int]:
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            offsets.append(message.offset())

        for key, value, timestamp, headers in records:
            self.producer.produce(
                self.topic, value, key, timestamp=timestamp, headers=headers, on_delivery=delivered, partition=0
            )
        assert self.producer.flush(20) == 0
        return offsets

    def read(self, offsets: list[int]) -> list[Row]:
        self.consumer.assign([TopicPartition(self.topic, 0, offsets[0])])
        found: list[Message] = []
        while len(found) < len(offsets):
            found += self.consumer.consume(len(offsets) - len(found), 10)
        assert [m.offset() for m in found] == offsets
        return [(m.key(), m.value(), m.timestamp()[1], m.headers() or []) for m in found]


@pytest.fixture(params=["none", "zstd"])
def trip(request: pytest.FixtureRequest, broker: KetchServer, topic: str) -> Iterator[RoundTrip]:
    trip = RoundTrip(broker, topic, request.param)
    yield trip
    trip.consumer.close()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=rows)
def test_round_trip(trip: RoundTrip, records: list[Row]) -> None:
    if records:
        assert trip.read(trip.write(records)) == records
