"""What a broker reads from Redis again and again: an error does not end that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ketch import KetchServer, eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    server = KetchServer(tmp_path_factory.mktemp("following"), "--broker-heartbeat-interval-ms", "50").start()
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("broker-configs", "broker configs"),
        ("client-metrics", "client metrics"),
        ("group-configs", "group configs"),
        ("quotas", "quotas"),
    ],
)
def test_it_goes_on_after_an_error(server: KetchServer, key: str, what: str) -> None:
    redis = server.redis()
    redis.set(f"korvet:{key}", "no hash")
    for times in (1, 2):
        eventually(lambda times=times: server.log.count(f" {what}: WRONGTYPE") >= times)
    redis.delete(f"korvet:{key}")
