"""What a client says is not taken on trust: another client looks at what it left behind in the broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.clients.matrix import scenario
from tests.clients.matrix.client import Client, Run, corrected
from tests.clients.matrix.scenario import Record

SECONDS = 30.0
_names = count(1)


def run(client: Client, bootstrap: str, layout: str) -> Run:
    """A client's run over a topic of its own, with what proved wrong corrected."""
    topic = f"matrix-{client.name}-{layout}-{uuid.uuid4().hex[:6]}"
    if not client.creates:
        Broker(bootstrap).create(topic, layout)
    said = client.run(bootstrap, topic, layout)
    return said if client.application else corrected(said, _wrong(client, said, bootstrap, topic, layout))


def _wrong(client: Client, said: Run, bootstrap: str, topic: str, layout: str) -> dict[str, str]:
    """The features that were said to work and do not, and what another client found instead."""
    worked = {feature for feature, outcome in said.outcomes.items() if outcome.state == "works"}
    broker = Broker(bootstrap)
    checks: dict[str, Callable[[], str | None]] = {
        "create topic": lambda: broker.created(topic, layout),
        "alter config": lambda: broker.config(topic, "max.message.bytes", str(scenario.MAX_MESSAGE_BYTES)),
        "commit": lambda: broker.committed(topic, "lag" in worked),
        "delete records": lambda: broker.keys(scenario.short_topic(topic), scenario.left_short()),
        "delete topic": lambda: broker.gone(scenario.gone_topic(topic)),
        "transaction": lambda: broker.keys(scenario.transaction_topic(topic), scenario.left_of_transactions()),
    }
    found = {feature: _answer(check) for feature, check in checks.items() if feature in worked}
    wrong = {feature: why for feature, why in found.items() if why}
    there = not client.creates or "create topic" in worked
    return wrong | (broker.records(topic, worked, timestamps=client.timestamps) if there else {})


def _answer(check: Callable[[], str | None]) -> str | None:
    try:
        return check()
    except KafkaException as e:
        return str(e)


class Broker:
    """A broker, looked at through librdkafka. Its questions answer what is wrong, or None."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topic: str, layout: str) -> None:
        """The topics that the scenario begins with."""
        config = {"retention.ms": "-1"} | ({} if layout == "-" else {"storage.layout": layout})
        others = (scenario.short_topic(topic), scenario.gone_topic(topic), scenario.transaction_topic(topic))
        partitions = {topic: scenario.PARTITIONS, **dict.fromkeys(others, 1)}
        new = [NewTopic(name, count, 1, config=config) for name, count in partitions.items()]
        for future in self.admin.create_topics(new).values():
            future.result(SECONDS)

    def created(self, topic: str, layout: str) -> str | None:
        partitions = len(self.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)
        if partitions != scenario.PARTITIONS:
            return f"{topic} has {partitions} partitions"
        return None if layout == "-" else self.config(topic, "storage.layout", layout)

    def config(self, topic: str, name: str, expected: str) -> str | None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        value = self.admin.describe_configs([resource])[resource].result(SECONDS)[name].value
        return None if value == expected else f"{name} of {topic} is {value}, not {expected}"

    def gone(self, topic: str) -> str | None:
        return f"{topic} is still there" if topic in self.admin.list_topics(timeout=SECONDS).topics else None

    def committed(self, topic: str, late: bool) -> str | None:
        """The group is at the end of each partition, but for the record that came late."""
        asked = ConsumerGroupTopicPartitions(f"{topic}-group")
        (answer,) = self.admin.list_consumer_group_offsets([asked]).values()
        offsets = {p.partition: p.offset for p in answer.result(SECONDS).topic_partitions if p.topic == topic}
        if not offsets:
            return "nothing is committed"
        for partition, records in self._read(topic).items():
            read = records[:-1] if late and partition == 0 else records
            expected = (read[-1][0] + 1) if read else None
            if expected is not None and offsets.get(partition) != expected:
                return f"committed is {offsets.get(partition)} of partition {partition}, not {expected}"
        return None

    def keys(self, topic: str, expected: list[bytes]) -> str | None:
        found = [record.key for _, record in self._read(topic).get(0, [])]
        return None if found == expected else f"{topic} holds the keys {found}"

    def records(self, topic: str, worked: set[str], *, timestamps: bool) -> dict[str, str]:
        """By feature that produces, what is missing or different of its records."""
        found = [record for records in self._read(topic).values() for _, record in records]
        wrong = {}
        for feature in scenario.FEATURES:
            for expected in scenario.records(worked & {feature}):
                alike = next((r for r in found if (r.key, r.value) == (expected.key, expected.value)), None)
                if alike is None:
                    wrong[feature] = f"the record {expected.key!r} was not stored"
                elif _comparable(alike, timestamps) != _comparable(expected, timestamps):
                    wrong[feature] = f"stored as {alike}"
        return wrong

    def _read(self, topic: str) -> dict[int, list[tuple[int, Record]]]:
        """By partition the offsets and records that it holds, without those of aborted transactions."""
        reader = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"checks-{next(_names)}",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        partitions = self.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        found: dict[int, list[tuple[int, Record]]] = {partition: [] for partition in partitions}
        try:
            reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
            ends = 0
            while ends < len(partitions):
                message = reader.poll(SECONDS)
                assert message is not None, f"{topic} could not be read to its end"
                if message.error():
                    ends += 1
                    continue
                headers = tuple(message.headers() or ())
                record = Record(message.partition(), message.key(), message.value(), message.timestamp()[1], headers)
                found[record.partition].append((message.offset(), record))
        finally:
            reader.close()
        return found


def _comparable(record: Record, timestamps: bool) -> Record:
    """With headers in one order, which a client that has them in a map does not choose."""
    headers = tuple(sorted(record.headers))
    return replace(record, headers=headers, timestamp=record.timestamp if timestamps else 0)
