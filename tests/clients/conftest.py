"""What several files of tests with real clients share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka_tools import KafkaTools


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with KafkaTools(tmp_path_factory.mktemp("tools")) as tools:
        yield tools
