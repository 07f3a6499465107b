"""Client metrics (KIP-714): subscriptions, what clients are told, what they push, and what Prometheus sees of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import cramjam
import pytest
from confluent_kafka import Producer
from prometheus_client import Metric

from ketch.broker.telemetry import Client, Telemetry, Wanted
from tests.broker.protocol.test_alter import DELETE, SET, change
from tests.support.http import get, url
from tests.support.kafka import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    GET_TELEMETRY_SUBSCRIPTIONS,
    LIST_CONFIG_RESOURCES,
    PUSH_TELEMETRY,
    Kafka,
)
from tests.support.ketch import KetchServer, eventually
from tests.support.otlp import metric, metrics_data, point

CLIENT_METRICS = 16
INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_CODEC, INVALID_RECORD, TOO_EARLY, UNKNOWN_ID, TOO_LARGE = (
    40, 42, 76, 87, 89, 117, 118,
)  # fmt: skip
ONE = UUID(int=1)
DATA = metrics_data(metric("org.apache.kafka.producer.sent", point(42, topic="orders"), point(1.5)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    server = KetchServer(tmp_path_factory.mktemp("telemetry"), "--http-port", "0").start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def kafka(server: KetchServer) -> Iterator[Kafka]:
    with Kafka(server.port, client_id="orders-1") as client:
        yield client
        for name in names(client):
            assert change(client, name, *((each, DELETE, None) for each in CONFIGS), kind=CLIENT_METRICS) == (0, None)


CONFIGS = ("interval.ms", "match", "metrics")


def names(kafka: Kafka) -> list[str]:
    return [each.resource_name for each in kafka.ask(LIST_CONFIG_RESOURCES, 0).config_resources]


def subscribe(kafka: Kafka, name: str, metrics: str = "*", interval: int = 60_000, match: str = "") -> None:
    values = {"metrics": metrics, "interval.ms": str(interval), "match": match}
    assert change(kafka, name, *((k, SET, v) for k, v in values.items()), kind=CLIENT_METRICS) == (0, None)


def subscriptions(kafka: Kafka, instance: UUID | None = ONE) -> Any:
    answer = kafka.ask(GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=instance)
    assert answer.error_code == 0
    return answer


def push(kafka: Kafka, data: bytes = DATA, codec: int = 0, instance: UUID | None = ONE, **given: Any) -> int:
    wanted = given.pop("subscription_id", None) or subscriptions(kafka, instance).subscription_id
    fields = {"client_instance_id": instance, "subscription_id": wanted, "compression_type": codec, "metrics": data}
    return int(kafka.ask(PUSH_TELEMETRY, 0, **{"terminating": False, **fields, **given}).error_code)


def shown(server: KetchServer) -> list[str]:
    text = get(f"{url(server)}/metrics")[1]
    return [line for line in text.splitlines() if line.startswith("ketch_client_metric{")]


def test_without_a_subscription_nothing_is_asked_for(kafka: Kafka, server: KetchServer) -> None:
    answer = subscriptions(kafka, None)
    assert answer.client_instance_id is not None
    assert (answer.requested_metrics, answer.push_interval.total_seconds()) == ((), 300)
    assert (answer.accepted_compression_types, answer.telemetry_max_bytes) == ((4, 3, 1, 2), 1 << 20)
    assert push(kafka) == 0
    assert shown(server) == []


def test_it_is_offered_while_there_is_a_subscription(kafka: Kafka) -> None:
    """librdkafka logs a line for each client that it is offered to."""

    def offered() -> bool:
        answer = kafka.ask(API_VERSIONS, 0)
        return {GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY} <= {api.api_key for api in answer.api_keys}

    assert not offered()
    subscribe(kafka, "offered")
    assert offered()


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_what_is_pushed_is_shown(kafka: Kafka, server: KetchServer, codec: int) -> None:
    packed = [bytes, cramjam.gzip.compress, cramjam.snappy.compress_raw, cramjam.lz4.compress, cramjam.zstd.compress]
    subscribe(kafka, "all")
    assert subscriptions(kafka).requested_metrics == ("*",)
    instance = UUID(int=codec + 10)
    assert push(kafka, bytes(packed[codec](DATA)), codec, instance) == 0
    labels = f'client="orders-1",instance="{instance}",metric="org.apache.kafka.producer.sent"'
    assert shown(server) == [
        f'ketch_client_metric{{attributes="topic=orders",{labels}}} 42.0',
        f'ketch_client_metric{{attributes="",{labels}}} 1.5',
    ]
    assert push(kafka, instance=instance) == TOO_EARLY
    assert push(kafka, instance=instance, terminating=True) == 0
    assert shown(server) == []


def test_who_is_asked_for_what(kafka: Kafka, server: KetchServer) -> None:
    subscribe(kafka, "producers", "a.,b.", 30_000, "client_id=orders-.*")
    subscribe(kafka, "others", "c.", 20_000, "client_id=x,client_software_name=kcat")
    subscribe(kafka, "mine", "b.,d.", 50_000, "client_software_name=kcat,client_source_address=127\\.0\\.0\\.1")
    answer = subscriptions(kafka)
    assert (answer.requested_metrics, answer.push_interval.total_seconds()) == (("a.", "b."), 30)
    kafka.ask(API_VERSIONS, 3, client_software_name="kcat", client_software_version="1")
    assert subscriptions(kafka).requested_metrics == ("a.", "b.", "d.")
    assert push(kafka, subscription_id=answer.subscription_id) == UNKNOWN_ID
    with Kafka(server.port, client_id="x") as other:
        assert subscriptions(other).requested_metrics == ()


def test_pushes_that_are_refused(kafka: Kafka) -> None:
    subscribe(kafka, "all")
    assert push(kafka, instance=None) == INVALID_REQUEST
    assert push(kafka, b"\xff" * 20) == INVALID_RECORD
    assert push(kafka, b"no gzip", 1) == INVALID_RECORD
    assert push(kafka, DATA, 7) == UNKNOWN_CODEC
    assert push(kafka, bytes(cramjam.zstd.compress(bytes(2 << 20))), 4) == TOO_LARGE
    assert push(kafka, bytes((1 << 20) + 1)) == TOO_LARGE


def test_subscriptions_are_configs(kafka: Kafka, server: KetchServer, start_ketch: Callable[..., Any]) -> None:
    subscribe(kafka, "one", "a.", 1000)
    assert names(kafka) == ["one"]
    asked = [{"resource_type": CLIENT_METRICS, "resource_name": "one", "configuration_keys": None}]
    (found,) = kafka.ask(DESCRIBE_CONFIGS, 4, resources=asked).results
    assert [(each.name, each.value, each.config_source) for each in found.configs] == [
        ("interval.ms", "1000", 7),
        ("match", "", 7),
        ("metrics", "a.", 7),
    ]
    other = start_ketch("--redis", server.redis_url, "--node-id", "2", "--broker-heartbeat-interval-ms", "100")
    with Kafka(other.port) as client:
        assert eventually(lambda: subscriptions(client).requested_metrics) == ("a.",)


REFUSED_SUBSCRIPTIONS = {
    "too often": ("m", ("interval.ms", SET, "5"), INVALID_REQUEST),
    "often": ("m", ("interval.ms", SET, "100"), 0),
    "too seldom": ("m", ("interval.ms", SET, "3600001"), INVALID_REQUEST),
    "no number": ("m", ("interval.ms", SET, "x"), INVALID_CONFIG),
    "no selector": ("m", ("match", SET, "x"), INVALID_CONFIG),
    "an unknown selector": ("m", ("match", SET, "bad=x"), INVALID_CONFIG),
    "no expression": ("m", ("match", SET, "client_id=["), INVALID_CONFIG),
    "a selector": ("m", ("match", SET, "client_id=a"), 0),
    "an unknown config": ("m", ("foo", SET, "x"), INVALID_REQUEST),
    "no name": ("", ("interval.ms", SET, "1000"), INVALID_REQUEST),
}


@pytest.mark.parametrize("case", REFUSED_SUBSCRIPTIONS)
def test_subscriptions_that_are_refused(kafka: Kafka, case: str) -> None:
    name, asked, code = REFUSED_SUBSCRIPTIONS[case]
    assert change(kafka, name, asked, kind=CLIENT_METRICS, only=True)[0] == code
    assert names(kafka) == []


def test_a_client_pushes(kafka: Kafka, server: KetchServer) -> None:
    """librdkafka, with what it takes for an interval of 100 ms."""
    subscribe(
        kafka,
        "librdkafka",
        "org.apache.kafka.producer.",
        100,
        "client_id=pushing,client_software_name=confluent-kafka.*",
    )
    producer = Producer({"bootstrap.servers": server.bootstrap, "client.id": "pushing"})
    producer.produce("pushed", b"x")
    producer.flush(20)
    lines = eventually(lambda: [line for line in shown(server) if 'client="pushing"' in line])
    assert any('metric="org.apache.kafka.producer.' in line for line in lines)


def test_pushes_come_while_a_page_is_made() -> None:
    """Prometheus's page is made in a thread, and clients come and go meanwhile."""
    telemetry = Telemetry(Mock(), 1)
    families: list[Metric] = []

    def push() -> None:
        wanted = Wanted(("*",), 1)  # a client counts as gone after 3 ms
        for number in range(5_000):
            client = Client(UUID(int=number), {"client_id": "c"})
            telemetry.push(client, wanted, [("m", (), 1.0)], time.monotonic())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as threads:
            pushing = threads.submit(push)
            while not pushing.done():
                families.extend(telemetry.collect())
            pushing.result()
    finally:
        sys.setswitchinterval(interval)
    assert any(family.samples for family in families)
    time.sleep(0.01)
    assert not [sample for family in telemetry.collect() for sample in family.samples], "all are gone"
