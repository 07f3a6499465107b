"""Servers with and without the append module, and batches as the broker has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ketch.append_module.library import module_path
from ketch.embedded.valkey import server_binary
from ketch.store.keys import Keyspace
from ketch.store.scripts import AppendKeys
from tests.support.ketch import eventually
from tests.support.redis_servers import RedisServer, binaries

NAMES = ("valkey", "redis-server", "redis-6.2")


def binary(name: str) -> str:
    """Of NAMES; skips the test where it is not installed."""
    if name == "valkey":
        return str(server_binary())
    found = binaries().get(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def with_module(name: str, directory: Path, *options: str, library: Path | None = None, env: Any = None) -> RedisServer:
    """A server that has loaded the module; a build of it other than the installed one where `library` is given."""
    path = library or module_path()
    assert path is not None, "the append module was not built"
    return RedisServer(binary(name), directory, "--loadmodule", str(path), *options, env=env)


def cluster_node(directory: Path) -> RedisServer:
    """The one node of a cluster: it has all slots, and the module."""
    server = with_module("valkey", directory, "--cluster-enabled", "yes")
    client = server.client()
    client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
    return server


def append_keys(topic: str) -> AppendKeys:
    keys = Keyspace("korvet")
    stream = keys.stream(topic, 0)
    return AppendKeys(stream, keys.producers(stream), keys.fence(stream, b"test"))


def transactions_key(keys: AppendKeys) -> bytes:
    """Of the transactions that are open on the stream."""
    return Keyspace("korvet").transactions(keys.stream)


def content(client: Any, keys: AppendKeys) -> tuple[Any, ...]:
    """All that an append leaves: entries as they are on the wire, with repeated fields, the end, the producers, and the
    transactions that are open."""
    exists = client.exists(keys.stream)
    entries = client.execute_command("EVAL", "return redis.call('XRANGE', KEYS[1], '-', '+')", 1, keys.stream)
    last = client.xinfo_stream(keys.stream)["last-generated-id"] if exists else None
    return entries, last, client.hgetall(keys.producers), client.hgetall(transactions_key(keys))
