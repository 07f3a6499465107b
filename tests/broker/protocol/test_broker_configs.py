"""Broker configs: what DescribeConfigs says of them, and that a change while the broker runs takes effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.protocol.test_alter import DELETE, SET, change
from tests.support.batches import batch, records
from tests.support.kafka import ALTER_CONFIGS, DESCRIBE_CONFIGS, Kafka
from tests.support.ketch import KetchServer, eventually

TOPIC, BROKER = 2, 4
OF_TOPIC, OF_BROKER, OF_ALL, STATIC, DEFAULT = range(1, 6)
TOO_LARGE, INVALID_CONFIG, INVALID_REQUEST = 10, 40, 42
START = ("--metadata-max-age-ms", "200", "--broker-heartbeat-interval-ms", "100")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """A broker whose configs may be changed."""
    server = KetchServer(tmp_path_factory.mktemp("configs"), *START, "--max-connections", "500").start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def kafka(server: KetchServer) -> Iterator[Kafka]:
    with Kafka(server.port) as client:
        yield client
        for node in ("", "1"):
            undo = [(name, DELETE, None) for name, (_, source) in described(client, node).items() if source < STATIC]
            assert alter(client, node, *undo) == (0, None)


def alter(kafka: Kafka, node: str, *changes: tuple[str, int, str | None], **given: Any) -> tuple[int, str | None]:
    return change(kafka, node, *changes, kind=BROKER, **given)


def described(kafka: Kafka, name: str, kind: int = BROKER) -> dict[str, tuple[str | None, int]]:
    """Value and source by config."""
    return {name: (config.value, config.config_source) for name, config in everything(kafka, name, kind).items()}


def everything(kafka: Kafka, name: str, kind: int = BROKER) -> dict[str, Any]:
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    given = {"include_synonyms": True, "include_documentation": True}
    (found,) = kafka.ask(DESCRIBE_CONFIGS, 4, resources=asked, **given).results
    assert found.error_code == 0, found
    return {config.name: config for config in found.configs}


def test_every_config_says_all_of_itself(kafka: Kafka, server: KetchServer) -> None:
    found = everything(kafka, "1")
    assert len(found) > 70
    for config in found.values():
        assert config.documentation
        assert config.config_type in range(1, 10)
        if config.value is not None:
            assert (config.synonyms[0].value, config.synonyms[0].source) == (config.value, config.config_source)
    assert (found["node.id"].value, found["node.id"].read_only, found["node.id"].config_type) == ("1", True, 3)
    assert (found["max.connections"].value, found["max.connections"].read_only) == ("500", False)
    sources = [(each.value, each.source) for each in found["max.connections"].synonyms]
    assert sources == [("500", STATIC), ("10000", DEFAULT)]
    assert found["listeners"].value == f"PLAINTEXT://127.0.0.1:{server.port}"
    assert (found["delete.topic.enable"].value, found["broker.rack"].value) == ("true", None)
    assert found["ketch.broker.heartbeat.interval.ms".removeprefix("ketch.")].value == "100"
    assert found["ketch.metadata.max.age.ms"].value == "200"
    assert everything(kafka, "") == {}


def test_a_change_for_one_broker_and_for_all(kafka: Kafka) -> None:
    assert alter(kafka, "", ("max.connections", SET, "400")) == (0, None)
    assert alter(kafka, "1", ("max.connections", SET, "300")) == (0, None)
    assert described(kafka, "") == {"max.connections": ("400", OF_ALL)}
    config = everything(kafka, "1")["max.connections"]
    assert (config.value, config.config_source) == ("300", OF_BROKER)
    levels = [(each.value, each.source) for each in config.synonyms]
    assert levels == [("300", OF_BROKER), ("400", OF_ALL), ("500", STATIC), ("10000", DEFAULT)]
    assert alter(kafka, "1", ("max.connections", DELETE, None)) == (0, None)
    assert described(kafka, "1")["max.connections"] == ("400", OF_ALL)


def test_alter_configs_replaces_all(kafka: Kafka) -> None:
    assert alter(kafka, "1", ("max.connections", SET, "300"), ("log.retention.ms", SET, "5")) == (0, None)
    asked = [{"name": "max.connections", "value": "200"}]
    resources = [{"resource_type": BROKER, "resource_name": "1", "configs": asked}]
    (answer,) = kafka.ask(ALTER_CONFIGS, 2, resources=resources).responses
    assert answer.error_code == 0
    found = described(kafka, "1")
    assert (found["max.connections"], found["log.retention.ms"][1]) == (("200", OF_BROKER), DEFAULT)


def test_connections_are_bounded_by_what_is_set(kafka: Kafka, server: KetchServer) -> None:
    assert alter(kafka, "1", ("max.connections", SET, "1")) == (0, None)
    with Kafka(server.port) as second:
        assert second.closed()
    assert alter(kafka, "1", ("max.connections", DELETE, None)) == (0, None)
    with Kafka(server.port) as second:
        assert second.metadata().brokers


def test_defaults_of_topics_reach_topics_that_are_there(kafka: Kafka, server: KetchServer, topic: str) -> None:
    kafka.create(topic)
    kafka.create(f"{topic}-own", max_message_bytes=90_000)
    assert alter(kafka, "", ("message.max.bytes", SET, "1000"), ("log.segment.bytes", SET, "2000000")) == (0, None)
    assert kafka.produce(topic, batch(records([b"x" * 2000]))).error_code == TOO_LARGE
    kafka.stored(f"{topic}-own", batch(records([b"x" * 2000])))
    found = described(kafka, topic, TOPIC)
    assert (found["max.message.bytes"], found["segment.bytes"]) == (("1000", OF_ALL), ("2000000", OF_ALL))
    assert server.redis().hget(f"korvet:topic:{topic}", "max.message.bytes") == b"1000"
    assert described(kafka, f"{topic}-own", TOPIC)["max.message.bytes"] == ("90000", OF_TOPIC)
    kafka.create(f"{topic}-new")
    assert described(kafka, f"{topic}-new", TOPIC)["max.message.bytes"] == ("1000", OF_ALL)
    assert alter(kafka, "", ("message.max.bytes", DELETE, None)) == (0, None)
    for name in (topic, f"{topic}-new"):
        assert described(kafka, name, TOPIC)["max.message.bytes"] == ("1048588", DEFAULT)
        kafka.stored(name, batch(records([b"x" * 2000])))


def test_others_follow_within_a_heartbeat(kafka: Kafka, server: KetchServer, start_ketch: Callable[..., Any]) -> None:
    other = start_ketch("--redis", server.redis_url, "--node-id", "2", *START)
    with Kafka(other.port) as second:
        assert alter(kafka, "", ("max.connections", SET, "77")) == (0, None)
        assert alter(kafka, "1", ("log.retention.ms", SET, "5")) == (0, None)
        eventually(lambda: described(second, "2")["max.connections"] == ("77", OF_ALL))
        assert described(second, "2")["log.retention.ms"][1] == DEFAULT
        assert alter(second, "1", ("max.connections", SET, "5"))[0] == INVALID_REQUEST
        assert alter(second, "2", ("max.connections", SET, "66")) == (0, None)
        assert described(second, "2")["max.connections"] == ("66", OF_BROKER)
        assert alter(second, "2", ("max.connections", DELETE, None)) == (0, None)
    assert described(kafka, "1")["max.connections"] == ("77", OF_ALL)


def test_a_restart_keeps_it(start_ketch: Callable[..., KetchServer]) -> None:
    server = start_ketch()
    with Kafka(server.port) as kafka:
        assert alter(kafka, "", ("log.retention.ms", SET, "7777")) == (0, None)
    server.stop()
    server.start()
    with Kafka(server.port) as kafka:
        assert described(kafka, "1")["log.retention.ms"] == ("7777", OF_ALL)
        kafka.create("kept")
        assert described(kafka, "kept", TOPIC)["retention.ms"] == ("7777", OF_ALL)


def test_what_was_written_by_hand_and_cannot_be_is_passed_over(kafka: Kafka, server: KetchServer) -> None:
    fields = {"max.connections": "many", "node.id": "9", "nonsense": "1", "1:log.retention.ms": "9999"}
    server.redis().hset("korvet:broker-configs", mapping=fields)
    eventually(lambda: described(kafka, "1")["log.retention.ms"] == ("9999", OF_BROKER))
    found = described(kafka, "1")
    assert (found["max.connections"], found["node.id"][0]) == (("500", STATIC), "1")
    assert "max.connections: Not a number of type INT; it is passed over" in server.log
    server.redis().delete("korvet:broker-configs")
    eventually(lambda: described(kafka, "1")["log.retention.ms"][1] == DEFAULT)


# What Kafka 4.1 answers too, see test_against_kafka.
REFUSED_BROKER_CHANGES: dict[str, tuple[str, tuple[str, int, str | None], int]] = {
    "read only": ("1", ("node.id", SET, "2"), INVALID_REQUEST),
    "read only, for all": ("", ("num.partitions", SET, "2"), INVALID_REQUEST),
    "read only, deleted": ("1", ("num.partitions", DELETE, None), 0),
    "unknown, deleted": ("1", ("foo.bar", DELETE, None), 0),
    "no number": ("1", ("max.connections", SET, "x"), INVALID_REQUEST),
    "too low": ("1", ("max.connections", SET, "-1"), INVALID_REQUEST),
    "below the range of a topic": ("", ("log.segment.bytes", SET, "5"), INVALID_REQUEST),
    "another word": ("", ("compression.type", SET, "bad"), INVALID_REQUEST),
    "no boolean": ("", ("unclean.leader.election.enable", SET, "maybe"), INVALID_REQUEST),
    "empty": ("", ("log.retention.ms", SET, ""), INVALID_REQUEST),
    "null": ("1", ("message.max.bytes", SET, None), INVALID_REQUEST),
    "appended to a number": ("1", ("max.connections", 2, "5"), INVALID_CONFIG),
    "local beyond all": ("", ("log.local.retention.ms", SET, "999999999999"), INVALID_REQUEST),
    "another broker": ("7", ("max.connections", SET, "5"), INVALID_REQUEST),
    "no broker": ("x", ("max.connections", SET, "5"), INVALID_REQUEST),
    "a throttle": ("1", ("leader.replication.throttled.rate", SET, "5"), 0),
}


@pytest.mark.parametrize("case", REFUSED_BROKER_CHANGES)
def test_refused(kafka: Kafka, case: str) -> None:
    node, asked, code = REFUSED_BROKER_CHANGES[case]
    before = described(kafka, "1")
    found, message = alter(kafka, node, asked, only=True)
    assert found == code
    assert bool(message) == bool(code)
    assert described(kafka, "1") == before


def test_an_unknown_config_is_refused(kafka: Kafka) -> None:
    answer = alter(kafka, "1", ("no.such", SET, "1"), ("max.connections", SET, "5"))
    assert answer == (INVALID_REQUEST, "Cannot update these configs dynamically: Set(no.such)")
    assert described(kafka, "1")["max.connections"] == ("500", STATIC)
