"""Brokers with the lane: by each of its settings, to be compared, and one with a client to bring about its states."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.lane.test_differential import WAYS, Side
from tests.lane.test_states import Bench
from tests.support.ketch import KetchServer

LASTING = ("--metadata-max-age-ms", "600000")  # so that nothing has to be asked again in between


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    """By the setting `lane`. Offsets are dense, so that they depend on nothing but the requests."""
    servers = {}
    dense = ("--default-storage-layout", "batch", "--default-offset-ids", "dense", *LASTING)
    for way in ("off", *WAYS):
        server = KetchServer(tmp_path_factory.mktemp(way), "--lane", way, *dense, "--http-port", "0")
        servers[way] = Side(server.start())
    yield servers
    for side in servers.values():
        assert side.server.stop() == 0, side.server.log
        side.server.close()


@pytest.fixture
def bench(start_ketch: Callable[..., KetchServer]) -> Iterator[Bench]:
    made = Bench(start_ketch("--lane", "on", "--default-storage-layout", "batch", "--http-port", "0", *LASTING))
    yield made
    made.kafka.close()
