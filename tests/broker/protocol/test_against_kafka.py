"""The same requests to Ketch and to Apache Kafka, side by side: they agree, or the difference is written here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.broker.protocol.test_alter import CONFIG_VALUES, REFUSED_CHANGES, change, grow
from tests.broker.protocol.test_broker_configs import REFUSED_BROKER_CHANGES
from tests.broker.protocol.test_cluster_admin import SCENARIOS
from tests.broker.protocol.test_consumer_groups import SCENARIOS as CONSUMER_GROUPS
from tests.broker.protocol.test_group_migration import MIGRATIONS
from tests.broker.protocol.test_produce import REFUSED
from tests.support.apache_kafka import ApacheKafka, missing_tools
from tests.support.batches import batch, records
from tests.support.kafka import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    Kafka,
    fetch,
    part,
)
from tests.support.ketch import KetchServer, eventually

NO_KAFKA = missing_tools()
pytestmark = pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA))

SOME_ID = UUID(int=0xDEADBEEF)

# Produce errors: what Ketch answers where Kafka 4.1 answers otherwise, with Kafka's code.
CORRUPT, UNKNOWN, UNSUPPORTED = 2, -1, 76
STRICTER = {
    # Kafka says INVALID_RECORD (87). A header that contradicts itself is CORRUPT_MESSAGE here.
    **dict.fromkeys(
        [
            "magic 1",
            "magic 0",
            "count above the last offset delta",
            "count below the last offset delta",
            "last offset delta above the count",
            "count 0",
            "count 0, last offset delta -1",
            "count -1",
        ],
        (CORRUPT, 87),
    ),
    # Kafka's decompressors throw what it has no code for (UNKNOWN_SERVER_ERROR).
    **dict.fromkeys([f"{codec} that is none" for codec in ("gzip", "snappy", "lz4", "zstd")], (CORRUPT, UNKNOWN)),
    **dict.fromkeys(["codec 5", "codec 7"], (UNSUPPORTED, UNKNOWN)),
    "no varint": (87, UNKNOWN),
    # Kafka reads 100 zeros as the header of a further batch.
    "bytes behind": (87, CORRUPT),
}


def until_led(client: Kafka, topic: str) -> None:
    """Kafka's controller answers a creation before its broker leads the partitions."""
    eventually(lambda: all(client.list_offsets(topic, -1, partition=p).error_code == 0 for p in range(2)))


@pytest.fixture
def both(broker: KetchServer, apache_kafka: ApacheKafka) -> Iterator[tuple[Kafka, Kafka]]:
    with Kafka(broker.port) as ketch, Kafka(apache_kafka.port) as reference:
        yield ketch, reference


@pytest.fixture
def compare(both: tuple[Kafka, Kafka], topic: str) -> Callable[[Callable[[Kafka, str], Any]], None]:
    """Runs one and the same scenario on a new topic of both."""

    def run(scenario: Callable[[Kafka, str], Any]) -> None:
        answers = []
        for client in both:
            client.create(topic, 2, retention_ms=-1)
            until_led(client, topic)
            answers.append(scenario(client, topic))
        assert answers[0] == answers[1]

    return run


# Kafka dies of null records and of a record count of a billion without an answer.
@pytest.mark.parametrize("case", [name for name in REFUSED if name not in ("null", "a billion records")])
@pytest.mark.only_storage("record", "record-dense")
def test_what_produce_refuses(both: tuple[Kafka, Kafka], topic: str, case: str) -> None:
    codes = []
    for client in both:
        client.create(topic, 2, retention_ms=-1)
        until_led(client, topic)
        answer = client.produce(topic, REFUSED[case][0])
        assert answer.base_offset == -1
        codes.append(int(answer.error_code))
    if case in STRICTER:
        assert tuple(codes) == STRICTER[case]
    else:
        assert codes[0] == codes[1]


def test_idempotence(compare: Callable[..., None]) -> None:
    steps = [  # epoch, sequence, records
        *[(0, 5, 1), (0, 6, 3), (0, 8, 1), (0, 9, 2), (0, 9, 2), (0, 9, 1), (0, 10, 2), (0, 11, 1), (0, 12, 1)],
        *[(0, 13, 1), (0, 14, 1), (0, 9, 2), (0, 6, 3), (0, 11, 1), (1, 5, 1), (1, 15, 1), (1, 0, 1), (0, 15, 1)],
        *[(0, 14, 1), (3, 0, 2), (3, 2, 1), (2, 0, 1), (3, 0, 2), (3, -1, 1)],
    ]

    def scenario(client: Kafka, topic: str) -> list[tuple[int, int]]:
        producer, found = client.producer_id(), []
        for epoch, sequence, count in steps:
            data = batch(records([b"x"] * count), producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
            answer = client.produce(topic, data)
            found.append(
                (int(answer.error_code), answer.error_code == 0 and record_number(client, topic, answer.base_offset))
            )
        return found

    compare(scenario)


def record_number(client: Kafka, topic: str, offset: int) -> int:
    """Offsets differ, the number of records before one does not."""
    return sum(record.offset < offset for record in client.read_all(topic))


@pytest.mark.parametrize("first", [2**31 - 2, 2**31 - 1])
def test_sequences_wrap(compare: Callable[..., None], first: int) -> None:
    def scenario(client: Kafka, topic: str) -> list[int]:
        producer = client.producer_id()
        steps = [(first, 3), ((first + 3) % 2**31, 1), ((first + 3) % 2**31, 1), (0, 1)]
        return [
            int(
                client.produce(
                    topic, batch(records([b"x"] * n), producer_id=producer, producer_epoch=0, base_sequence=s)
                ).error_code
            )
            for s, n in steps
        ]

    compare(scenario)


def test_list_offsets(compare: Callable[..., None]) -> None:
    def scenario(client: Kafka, topic: str) -> list[Any]:
        def ask(timestamp: int, version: int = 9, partition: int = 0, name: str = topic) -> Any:
            answer = client.list_offsets(name, timestamp, version, partition)
            number = answer.offset if answer.offset < 0 or partition else record_number(client, topic, answer.offset)
            return int(answer.error_code), answer.timestamp, number

        start = 1_700_000_000_000
        for n in (0, 2, 1, 4):
            client.stored(topic, batch(records([b"x"] * 2), base_timestamp=start + n * 1000))
        times = (0, start - 1, start, start + 1, start + 1000, start + 2001, start + 4000, start + 4001)
        found = [ask(special) for special in (-1, -2, -3, -4, -5)] + [ask(time) for time in times]
        found += [ask(-3, 6), ask(-4, 7), ask(-5, 8), ask(-7), ask(-1, partition=9), ask(-1, name=topic + "no")]
        empty = [client.list_offsets(topic, special, partition=1) for special in (-3, -5, start)]
        return [*found, [(int(e.error_code), e.timestamp, e.offset, e.leader_epoch) for e in empty]]

    compare(scenario)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_fetch_errors(compare: Callable[..., None], version: int) -> None:
    def scenario(client: Kafka, topic: str) -> list[Any]:
        client.stored(topic, batch(records([b"x"] * 3)))
        latest = client.list_offsets(topic, -1).offset
        asked = [(topic, 0, latest + 1), (topic, 0, -1), (topic, 9, 0), (topic + "no", 0, 0), (topic, 0, latest)]
        answers = [client.fetch(name, offset, version, partition) for name, partition, offset in asked]
        return [(int(a.error_code), a.high_watermark == latest, a.high_watermark < 0, a.records) for a in answers]

    compare(scenario)


def test_fetch_by_id_and_sessions(compare: Callable[..., None]) -> None:
    def scenario(client: Kafka, topic: str) -> list[Any]:
        topic_id = client.topic_id(topic)
        latest = client.list_offsets(topic, -1).offset

        def ask(session: int, epoch: int, *asked: tuple[UUID, int, int], version: int = 13) -> Any:
            topics = [part(name, partition, offset) for name, partition, offset in asked]
            answer = client.ask(FETCH, version, **fetch(topics, session_id=session, session_epoch=epoch))
            found = [[(p.partition_index, int(p.error_code)) for p in t.partitions] for t in answer.responses]
            return answer.session_id, (int(answer.error_code), answer.session_id != 0, found)

        here, elsewhere = (topic_id, 0, latest), (SOME_ID, 0, 0)
        session, opened = ask(0, 0, here, elsewhere)
        found = [opened]
        for epoch, asked in ((1, ()), (2, ((topic_id, 9, 0),)), (3, ()), (3, ()), (7, ()), (4, ())):
            found.append(ask(session, epoch, *asked)[1])
        found += [ask(session, 5, version=12)[1], ask(12345, 1)[1], ask(0, 3)[1], ask(12345, -1, here)[1]]
        return [*found, ask(session, -1, here)[1], ask(session, 5)[1]]

    compare(scenario)


def test_metadata(compare: Callable[..., None]) -> None:
    def scenario(client: Kafka, topic: str) -> list[Any]:
        def ask(*topics: dict[str, Any]) -> Any:
            answer = client.metadata(topics=topics, create=False)
            shown = [(t.name, int(t.error_code), t.is_internal, len(t.partitions)) for t in answer.topics]
            return sorted(shown, key=str), len(answer.brokers)

        names = ["a b", "", ".", "..", "x" * 250, topic + "no", topic]
        known, unknown = {"topic_id": client.topic_id(topic), "name": None}, {"topic_id": SOME_ID, "name": None}
        return [ask({"name": name, "topic_id": None}) for name in names] + [ask(known), ask(unknown), ask()]

    compare(scenario)


BAD_TOPICS: dict[str, dict[str, Any]] = {
    "exists": {},
    "a space": {"name": "a b"},
    "no name": {"name": ""},
    "a dot": {"name": "."},
    "two dots": {"name": ".."},
    "250 characters": {"name": "x" * 250},
    "no partition": {"num_partitions": 0},
    "-2 partitions": {"num_partitions": -2},
    "no replica": {"replication_factor": 0},
    "an unknown config": {"configs": [{"name": "no.such", "value": "1"}]},
    "a config of another type": {"configs": [{"name": "retention.ms", "value": "abc"}]},
    "a config out of range": {"configs": [{"name": "retention.ms", "value": "-5"}]},
    "a config of other words": {"configs": [{"name": "compression.type", "value": "foo"}]},
    "a null config": {"configs": [{"name": "retention.ms", "value": None}]},
    "an empty config": {"configs": [{"name": "retention.ms", "value": ""}]},
    "assignments and a number": {"assignments": [{"partition_index": 0, "broker_ids": [1]}]},
    "a gap": {**{"num_partitions": -1}, "assignments": [{"partition_index": n, "broker_ids": [1]} for n in (0, 2)]},
    "an unknown broker": {"num_partitions": -1, "assignments": [{"partition_index": 0, "broker_ids": [9]}]},
    "no broker": {"num_partitions": -1, "assignments": [{"partition_index": 0, "broker_ids": []}]},
}


@pytest.mark.parametrize("case", BAD_TOPICS)
def test_what_create_topics_refuses(compare: Callable[..., None], case: str) -> None:
    def scenario(client: Kafka, topic: str) -> Any:
        new = {"name": topic if case == "exists" else topic + "new", "num_partitions": 1, "replication_factor": -1}
        answer = client.ask(CREATE_TOPICS, 7, topics=[{**new, **BAD_TOPICS[case]}], timeout=5000)
        (found,) = answer.topics
        assert found.error_message
        return int(found.error_code), found.num_partitions, found.replication_factor, found.configs

    compare(scenario)


def test_delete_topics(compare: Callable[..., None]) -> None:
    def scenario(client: Kafka, topic: str) -> list[Any]:
        known = client.topic_id(topic)

        def ask(*topics: tuple[str | None, UUID | None]) -> Any:
            asked = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
            answer = client.ask(DELETE_TOPICS, 6, topics=asked, timeout=5000)
            return [(r.name, int(r.error_code)) for r in answer.responses]

        by_name = client.ask(DELETE_TOPICS, 1, topic_names=[topic + "no"], timeout=5000).responses
        found = [[(r.name, int(r.error_code)) for r in by_name]]
        for topics in (
            [(None, SOME_ID)],
            [(None, None)],
            [(topic, known)],
            [(topic, None), (topic, None)],
            [("a b", None)],
        ):
            found.append(ask(*topics))
        return [*found, ask((None, known)), ask((None, known)), ask((topic, None))]

    compare(scenario)


def test_describe_configs(compare: Callable[..., None]) -> None:
    def scenario(client: Kafka, topic: str) -> list[Any]:
        keys = ["cleanup.policy", "compression.type", "max.message.bytes", "retention.ms", "no.such"]
        asked = [
            (2, topic, keys),
            (2, topic + "no", None),
            (2, "a b", None),
            (2, "", None),
            (4, "7", None),
            (4, "x", None),
        ]
        resources = [{"resource_type": t, "resource_name": n, "configuration_keys": k} for t, n, k in asked]
        answer = client.ask(DESCRIBE_CONFIGS, 4, resources=resources)
        return [
            (
                r.resource_name,
                int(r.error_code),
                sorted((c.name, c.value, c.config_source, c.config_type, c.read_only) for c in r.configs),
            )
            for r in answer.results
        ]

    compare(scenario)


@pytest.mark.parametrize("case", REFUSED_CHANGES)
def test_what_altering_configs_refuses(compare: Callable[..., None], case: str) -> None:
    compare(lambda client, topic: change(client, topic, *REFUSED_CHANGES[case][0])[0])


@pytest.mark.parametrize("case", REFUSED_BROKER_CHANGES)
def test_what_altering_broker_configs_refuses(both: tuple[Kafka, Kafka], case: str) -> None:
    node, asked, _ = REFUSED_BROKER_CHANGES[case]
    codes = [change(client, node, asked, kind=4, only=True)[0] for client in both]
    assert codes[0] == codes[1]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_cluster_admin(compare: Callable[..., None], scenario: Callable[[Kafka, str], Any]) -> None:
    compare(scenario)


@pytest.mark.parametrize("scenario", CONSUMER_GROUPS, ids=lambda scenario: scenario.__name__)
def test_consumer_groups(compare: Callable[..., None], scenario: Callable[[Kafka, str], Any]) -> None:
    compare(scenario)


@pytest.mark.parametrize("scenario", MIGRATIONS, ids=lambda scenario: scenario.__name__)
def test_group_migrations(compare: Callable[..., None], scenario: Callable[[Kafka, str], Any]) -> None:
    compare(scenario)


def test_what_topic_configs_may_be(compare: Callable[..., None]) -> None:
    def scenario(client: Kafka, topic: str) -> list[Any]:
        return [change(client, topic, (name, 0, value), only=True)[0] for name, value in CONFIG_VALUES]

    compare(scenario)


def test_topic_configs_are_those_of_kafka(both: tuple[Kafka, Kafka], topic: str) -> None:
    """Their names, types and defaults; what Ketch adds, and a default that it has another of, left out."""
    found = []
    for client in both:
        client.create(topic, 2)
        until_led(client, topic)
        resources = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]
        configs = client.ask(DESCRIBE_CONFIGS, 4, resources=resources).results[0].configs
        found.append({c.name: (c.value, c.config_type, c.read_only, c.is_sensitive) for c in configs})
    ketch, kafka = found
    own = {"valueType", "value.validation", "batch.validation", "offset.ids", "offsetSequenceBits", "storage.layout"}
    assert set(ketch) == set(kafka) | own
    assert {name for name in kafka if ketch[name] != kafka[name]} == {"message.timestamp.after.max.ms"}


def test_create_partitions(compare: Callable[..., None]) -> None:
    def scenario(client: Kafka, topic: str) -> Any:
        counts = [grow(client, topic, count) for count in (2, 1, 0, -1, 3, 3)]
        assignments: list[list[tuple[int, ...]]] = [[(1,)], [(1,), (5,)], [(1, 1), (1,)], [(), (1,)]]
        refused = [grow(client, topic, 5, assignments=each)[0] for each in assignments]
        unknown = grow(client, f"{topic}-not", 2)[0]
        grown = grow(client, topic, 4, assignments=[(1,)])
        # Kafka names the topic in what it says.
        return [(code, str(said).replace(topic, "T")) for code, said in counts], refused, unknown, grown

    compare(scenario)
