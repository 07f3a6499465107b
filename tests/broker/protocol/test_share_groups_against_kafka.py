"""The same requests about share groups to Ketch and to Apache Kafka, side by side: they agree, but for what a scenario
leaves out and says so. Kafka 4.1 has share groups where the feature `share.version` is on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.protocol.test_against_kafka import until_led
from tests.broker.protocol.test_share_groups import SCENARIOS
from tests.support.apache_kafka import ApacheKafka, missing_tools
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer

NO_KAFKA = missing_tools()
pytestmark = pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_share_groups(
    broker: KetchServer, apache_kafka: ApacheKafka, topic: str, scenario: Callable[[Kafka, str], Any]
) -> None:
    answers = []
    for port in (apache_kafka.port, broker.port):
        with Kafka(port) as client:
            client.create(topic, 2, retention_ms=-1)
            until_led(client, topic)
            answers.append(scenario(client, topic))
    assert answers[0] == answers[1]
