"""The slot of a key is the one that a node of a real cluster reckons."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.redis.slots import slot
from tests.support.modules import cluster_node
from tests.support.redis_servers import RedisServer

KEY_PARTS = st.lists(st.sampled_from([b"{", b"}", b"a", b"korvet:", b"\xff", b"{}", b""]) | st.binary(max_size=4))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = cluster_node(tmp_path_factory.mktemp("node"))
    yield server
    server.stop()


def test_slots_are_those_of_redis(node: RedisServer) -> None:
    client = node.client()

    @given(KEY_PARTS.map(b"".join))
    def check(key: bytes) -> None:
        assert slot(key) == client.execute_command("CLUSTER", "KEYSLOT", key)

    check()
