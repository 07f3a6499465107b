"""A connection and a topic for tests that need nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer


@pytest.fixture
def kafka(broker: KetchServer) -> Iterator[Kafka]:
    with Kafka(broker.port) as client:
        yield client


@pytest.fixture
def made(kafka: Kafka, topic: str) -> str:
    """A topic of its own with two partitions."""
    kafka.create(topic, 2)
    return topic
