"""Quotas of clients: set through the protocol or in Redis, and what becomes of clients that use too much."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.batches import batch, records
from tests.support.kafka import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLIENT_QUOTAS,
    FETCH,
    LIST_OFFSETS,
    PRODUCE,
    Kafka,
    fetch,
    part,
    produce,
    versions,
)
from tests.support.ketch import KetchServer, eventually

INVALID_REQUEST, THROTTLED = 42, 89
Parts = dict[str, str | None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    data = tmp_path_factory.mktemp("quotas")
    server = KetchServer(data, "--quota-window-num", "2", "--broker-heartbeat-interval-ms", "100").start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def admin(server: KetchServer) -> Iterator[Kafka]:
    with Kafka(server.port, client_id="admin") as client:
        yield client
        for entry in described(client):
            removed = dict.fromkeys(entry[1])
            assert alter(client, dict(entry[0]), **removed) == (0, None)


@pytest.fixture
def app(server: KetchServer, admin: Kafka) -> Iterator[Kafka]:
    with Kafka(server.port, client_id="app") as client:
        yield client


def alter(kafka: Kafka, whom: Parts, version: int = 1, only: bool = False, **limits: float | None) -> tuple[int, Any]:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()]
    entry = {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in whom.items()], "ops": ops}
    answer = kafka.ask(ALTER_CLIENT_QUOTAS, version, entries=[entry], validate_only=only).entries[0]
    assert [(each.entity_type, each.entity_name) for each in answer.entity] == list(whom.items())
    return int(answer.error_code), answer.error_message


def described(kafka: Kafka, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    asked = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
    answer = kafka.ask(DESCRIBE_CLIENT_QUOTAS, version, components=asked, strict=strict)
    assert answer.error_code == 0
    found = [
        (
            [(each.entity_type, each.entity_name) for each in entry.entity],
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]
    return sorted(found, key=str)


APP: Parts = {"client-id": "app"}


@pytest.mark.parametrize("version", versions(ALTER_CLIENT_QUOTAS))
def test_what_was_set_is_described(admin: Kafka, version: int) -> None:
    assert alter(admin, {"user": "a/b %", "client-id": "app"}, version, producer_byte_rate=1000.0) == (0, None)
    assert alter(admin, {"user": "a/b %"}, version, request_percentage=12.5, consumer_byte_rate=5.0) == (0, None)
    assert alter(admin, {"user": None}, version, consumer_byte_rate=7.0) == (0, None)
    assert alter(admin, {"ip": "10.0.0.1"}, version, connection_creation_rate=3.0) == (0, None)
    both = ([("user", "a/b %"), ("client-id", "app")], {"producer_byte_rate": 1000.0})
    user = ([("user", "a/b %")], {"request_percentage": 12.5, "consumer_byte_rate": 5.0})
    default = ([("user", None)], {"consumer_byte_rate": 7.0})
    assert described(admin, ("user", 0, "a/b %"), version=version) == [both, user]
    assert described(admin, ("user", 0, "a/b %"), strict=True, version=version) == [user]
    assert described(admin, ("user", 1, None), version=version) == [default]
    assert len(described(admin, ("user", 2, None), version=version)) == 3
    assert described(admin, ("user", 2, None), ("client-id", 2, None), version=version) == [both]
    assert len(described(admin)) == 4
    assert alter(admin, {"user": "a/b %"}, version, request_percentage=None) == (0, None)
    assert described(admin, ("user", 0, "a/b %"), strict=True)[0][1] == {"consumer_byte_rate": 5.0}


def test_what_cannot_be_changes_nothing(server: KetchServer, admin: Kafka) -> None:
    assert alter(admin, APP, producer_byte_rate=10.0, bad=1.0) == (INVALID_REQUEST, "Invalid configuration key bad")
    assert alter(admin, {}, producer_byte_rate=10.0) == (INVALID_REQUEST, "Invalid empty client quota entity")
    assert alter(admin, APP, only=True, producer_byte_rate=10.0) == (0, None)
    assert described(admin) == []
    said = next(line for line in server.log.splitlines() if "AlterClientQuotas refused with INVALID_REQUEST" in line)
    assert " INFO " in said, "the client is to blame, not the broker"


def test_they_lie_in_one_hash_that_can_be_written(server: KetchServer, admin: Kafka) -> None:
    alter(admin, {"user": "alice", "client-id": None}, producer_byte_rate=1048576.0)
    redis = server.redis()
    assert redis.hgetall("korvet:quotas") == {b"users/alice/clients/<default>/producer_byte_rate": b"1048576"}
    redis.hset("korvet:quotas", mapping={"clients/app/consumer_byte_rate": "5", "clients/app/bad": "x", "odd": "1"})
    found = ([("client-id", "app")], {"consumer_byte_rate": 5.0})
    eventually(lambda: found in described(admin))
    redis.hdel("korvet:quotas", "clients/app/bad", "odd")


@pytest.mark.parametrize(
    ("path", "whom"),
    [("users/a%2fb", {"user": "a/b"}), ("clients/me@home", {"client-id": "me@home"})],
)
def test_a_limit_that_was_written_otherwise_than_a_broker_writes_it_is_changed_and_removed(
    server: KetchServer, admin: Kafka, path: str, whom: Parts
) -> None:
    redis, entity = server.redis(), list(whom.items())
    for changed, left in ((7.0, [(entity, {"producer_byte_rate": 7.0})]), (None, [])):
        redis.hset("korvet:quotas", f"{path}/producer_byte_rate", "5")
        eventually(lambda: (entity, {"producer_byte_rate": 5.0}) in described(admin))
        assert alter(admin, whom, producer_byte_rate=changed) == (0, None)
        assert described(admin) == left
        assert redis.hlen("korvet:quotas") == len(left)
        redis.delete("korvet:quotas")


def test_a_limit_is_an_address_s_however_that_is_written(admin: Kafka) -> None:
    long = {"ip": "0:0:0:0:0:0:0:1"}
    assert alter(admin, long, connection_creation_rate=3.0) == (0, None)
    found = [([("ip", "::1")], {"connection_creation_rate": 3.0})]
    assert described(admin, ("ip", 0, "::1")) == described(admin, ("ip", 0, "0:0:0:0:0:0:0:1")) == found
    assert alter(admin, {"ip": "::1"}, connection_creation_rate=None) == (0, None)
    assert described(admin) == []


def _produced(kafka: Kafka, topic: str, size: int) -> int:
    answer = kafka.ask(PRODUCE, 9, **produce(topic, batch(records((None, b"x" * size)))))
    assert answer.responses[0].partition_responses[0].error_code == 0
    return round(answer.throttle_time.total_seconds() * 1000)


def test_a_producer_over_its_limit_is_told_to_wait_and_has_to(app: Kafka, admin: Kafka, topic: str) -> None:
    app.create(topic)
    alter(admin, APP, producer_byte_rate=100_000.0)
    assert _produced(app, topic, 1000) == 0
    before = time.monotonic()
    told = _produced(app, topic, 130_000)
    assert 200 <= told <= 2000
    # Whoever does not keep to it is not read from for as long.
    app.ask(API_VERSIONS, 0)
    assert time.monotonic() - before >= told / 1000 - 0.05


def test_others_are_not_held_up(app: Kafka, admin: Kafka, topic: str) -> None:
    app.create(topic)
    alter(admin, APP, producer_byte_rate=10.0)
    assert _produced(app, topic, 10_000) > 100_000
    assert _produced(admin, topic, 10_000) == 0
    sent = app.send(LIST_OFFSETS, 1, replica_id=-1, topics=[])  # lies there until then, or the quota is gone
    assert sent


def test_without_acknowledgement_the_connection_is_held_up_all_the_same(app: Kafka, admin: Kafka, topic: str) -> None:
    app.create(topic)
    alter(admin, APP, producer_byte_rate=100_000.0)
    before = time.monotonic()
    app.send(PRODUCE, 9, **produce(topic, batch(records((None, b"x" * 150_000))), acks=0))
    eventually(lambda: admin.read_all(topic))
    app.ask(API_VERSIONS, 0)
    assert time.monotonic() - before >= 0.4


def test_a_consumer_over_its_limit_is_told_to_wait(app: Kafka, admin: Kafka, topic: str) -> None:
    app.create(topic)
    for _ in range(4):
        admin.stored(topic, batch(records((None, b"x" * 60_000))))
    alter(admin, APP, consumer_byte_rate=100_000.0)
    asked = fetch([part(topic, 0, app.list_offsets(topic, -2).offset)], max_bytes=1 << 20)
    answer = app.ask(FETCH, 12, **asked)
    assert len(answer.responses[0].partitions[0].records) <= 100_000  # no more than a whole window's worth at once
    assert answer.throttle_time.total_seconds() == 0
    told = app.ask(FETCH, 12, **asked).throttle_time.total_seconds()
    assert 0 < told <= 2


def test_time_of_requests_is_limited(app: Kafka, admin: Kafka) -> None:
    alter(admin, APP, request_percentage=0.000001)
    times = [app.ask(API_VERSIONS, 4).throttle_time.total_seconds() for _ in range(2)]
    assert times == [1.0, 1.0]  # never longer than a sample's time


def _create(kafka: Kafka, name: str, partitions: int, version: int) -> tuple[int, float]:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": -1}
    answer = kafka.ask(CREATE_TOPICS, version, topics=[topic], timeout=10_000)
    return int(answer.topics[0].error_code), answer.throttle_time.total_seconds()


def test_partitions_are_created_and_deleted_at_a_rate(
    app: Kafka, admin: Kafka, server: KetchServer, topic: str
) -> None:
    alter(admin, APP, controller_mutation_rate=5.0)
    assert _create(app, topic, 30, 7) == (0, 0.0)  # more than a burst, once
    code, wait = _create(app, f"{topic}-2", 1, 7)
    assert code == THROTTLED
    assert 3 < wait <= 4
    with Kafka(server.port, client_id="app") as another:  # the first waits
        grow = [{"name": topic, "count": 31, "assignments": None}]
        answer = another.ask(CREATE_PARTITIONS, 3, topics=grow, timeout=10_000)
        assert (int(answer.results[0].error_code), answer.throttle_time.total_seconds() > 0) == (THROTTLED, True)
    with Kafka(server.port, client_id="app") as another:
        answer = another.ask(DELETE_TOPICS, 6, topics=[{"name": topic, "topic_id": None}], timeout=10_000)
        assert answer.responses[0].error_code == THROTTLED
    with Kafka(server.port, client_id="app") as another:  # an old client gets what it wants, and waits after it
        code, wait = _create(another, f"{topic}-3", 1, 5)
        assert (code, wait > 3) == (0, True)


def test_connections_of_an_address_come_at_a_rate(server: KetchServer, admin: Kafka) -> None:
    alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=1.0)
    closed = 0
    for _ in range(4):
        with Kafka(server.port, client_id="many") as client:
            try:
                client.ask(API_VERSIONS, 0)
            except OSError:
                closed += 1
    assert closed >= 2
    assert "too many connections from this address" in server.log


def test_a_connection_too_many_is_not_asked_who_it_is(tmp_path: Path) -> None:
    """Nothing that it says is read: a line that it has not authenticated in time would be no news, and of nobody."""
    server = KetchServer(
        tmp_path,
        *("--listeners", "SASL_PLAINTEXT://127.0.0.1:0", "--authentication-timeout-ms", "300"),
        *("--quota-window-num", "2", "--broker-heartbeat-interval-ms", "100"),
    ).start()
    with ExitStack() as stack:
        server.redis().hset("korvet:quotas", "ips/127.0.0.1/connection_creation_rate", "1")
        eventually(lambda: "client quotas changed" in server.log)
        for _ in range(12):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.ports["SASL_PLAINTEXT"])))

        def said(what: str) -> set[str]:
            return set(re.findall(rf"(127\.0\.0\.1:\d+): {what}", server.log))

        late = "connection closed: not authenticated"
        refused = eventually(lambda: said("too many connections"))
        eventually(lambda: len(said(late)) >= 12 - len(said("too many connections")))
        refused |= said("too many connections")
    assert server.stop() == 0
    assert not refused & said(late)


def test_real_clients_keep_to_their_quotas(server: KetchServer, admin: Kafka, topic: str) -> None:
    admin.create(topic)
    alter(admin, {"client-id": "slow"}, producer_byte_rate=200_000.0, consumer_byte_rate=400_000.0)
    told: list[int] = []
    config: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{server.port}", "client.id": "slow"}
    throttled = {"throttle_cb": lambda event: told.append(event.throttle_time)}
    producer = Producer({**config, **throttled, "linger.ms": 5, "batch.size": 50_000})
    for n in range(60):
        producer.produce(topic, b"x" * 10_000, str(n).encode())
        producer.poll(0)
    assert producer.flush(30) == 0
    eventually(lambda: producer.poll(0) or told)
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: list[Any] = []
    deadline = time.monotonic() + 30
    while len(seen) < 60 and time.monotonic() < deadline:
        seen += [message.key() for message in consumer.consume(100, 0.5)]
    consumer.close()
    assert seen == [str(n).encode() for n in range(60)]


def test_a_limit_of_more_bytes_than_there_are_numbers_for(start_ketch: type[KetchServer], topic: str) -> None:
    """The limit itself fits into 64 bits; what it allows in a whole window of ten seconds does not."""
    with Kafka(start_ketch().port, client_id="app") as client:
        client.create(topic)
        assert alter(client, {"client-id": "app"}, consumer_byte_rate=2.0**62) == (0, None)
        offset = client.stored(topic, batch(records([b"x"])))
        for _ in range(3):
            assert client.fetch(topic, offset).records
