"""A connection and a topic for tests that need nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka import INIT_PRODUCER_ID, Kafka
from tests.support.ketch import KetchServer, eventually


@pytest.fixture
def kafka(broker: KetchServer) -> Iterator[Kafka]:
    with Kafka(broker.port) as client:
        yield client


@pytest.fixture
def made(kafka: Kafka, topic: str) -> str:
    """A topic of its own with two partitions."""
    kafka.create(topic, 2)
    return topic


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """Kafka itself with share groups, which tests leave as it is; `conftest.APACHE_KAFKA` names them."""
    with ApacheKafka(features=("share.version=1",)) as server:
        with Kafka(server.port) as client:  # its first block of producer ids takes a moment (14 until then)
            eventually(lambda: client.ask(INIT_PRODUCER_ID, 4, transactional_id=None).error_code == 0)
        yield server
