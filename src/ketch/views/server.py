"""The Redis server, or those of a cluster: kind, version and memory. Questions to Redis alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ketch.redis.question import Question, call
from ketch.store.keys import Keyspace


@dataclass(frozen=True, slots=True)
class RedisServer:
    """The Redis server; of a cluster, all nodes that take writes.

    Attributes:
        version: with its kind: "Valkey 9.0.1"; several with commas.
        memory: bytes that it uses.
        memory_max: bytes that it may use at most; 0 for no limit.
        nodes: how many servers it is.
    """

    version: str
    memory: int
    memory_max: int
    nodes: int = 1


def server() -> Question[RedisServer]:
    """One server as it is now."""
    info = parse_info((yield from call(None, "INFO")))
    kind, version = kind_and_version(info)
    return RedisServer(f"{kind} {version}", int(info["used_memory"]), int(info.get("maxmemory", 0)))


def together(nodes: Sequence[RedisServer]) -> RedisServer:
    """All nodes as one; its memory has no limit where that of one node has none."""
    limits = [node.memory_max for node in nodes]
    return RedisServer(
        version=", ".join(dict.fromkeys(node.version for node in nodes)),
        memory=sum(node.memory for node in nodes),
        memory_max=sum(limits) if all(limits) else 0,
        nodes=sum(node.nodes for node in nodes),
    )


def kind_and_version(info: Mapping[str, str]) -> tuple[str, str]:
    """ "Redis" or "Valkey", and its version, empty where INFO does not say it."""
    version = info.get("redis_version", "")
    if info.get("server_name") == "valkey" or "valkey_version" in info:
        # redis_version is 7.2.4 for all of them; only Valkey 7.2 has no field of its own.
        return "Valkey", info.get("valkey_version", version)
    return "Redis", version


def parse_info(text: bytes) -> dict[str, str]:
    """INFO's `name:value` lines."""
    lines = text.decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


def cluster_id(keys: Keyspace) -> Question[str]:
    """Kafka's cluster id of the brokers on this keyspace; empty where no broker has begun here."""
    found: bytes | None = yield from call(keys.cluster_id, "GET", keys.cluster_id)
    return (found or b"").decode(errors="replace")
