"""The nodes of Redis, each by itself: memory, persistence, clients. A question to one node alone, for `ask_each`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ketch.redis.question import Question, call
from ketch.views.server import kind_and_version, parse_info


@dataclass(frozen=True, slots=True)
class RedisNode:
    """One node.

    Attributes:
        name: kind, version and TCP port.
        role: "master" or "slave", as Redis calls it.
        memory, memory_max: bytes in use and at most; 0 for no limit.
        appendonly: whether it has an append-only file; `append_ok`: whether the last write to it worked.
        append_bytes: of that file; None where there is none.
        saved: when it last wrote a snapshot, s since the epoch; 0 for never.
        changes: since then.
        replicas: that are connected.
        evicted: keys that it has thrown away for want of memory.
    """

    name: str
    role: str
    uptime: int
    memory: int
    memory_max: int
    appendonly: bool
    append_ok: bool
    append_bytes: int | None
    saved: int
    changes: int
    clients: int
    replicas: int
    commands_per_second: int
    evicted: int


def node() -> Question[RedisNode]:
    """One node as it is now."""
    info = parse_info((yield from call(None, "INFO")))
    return parse(info)


def ping() -> Question[None]:
    """A round trip, whose time says how fast Redis answers."""
    yield from call(None, "PING")


def parse(info: Mapping[str, str]) -> RedisNode:
    """The node that an INFO is of."""
    kind, version = kind_and_version(info)
    port = info.get("tcp_port", "0")
    appends = info.get("aof_enabled") == "1"

    def number(name: str) -> int:
        text = info.get(name, "0")
        return int(text) if text.isdigit() else 0

    return RedisNode(
        name=f"{kind} {version}" + (f", port {port}" if port != "0" else ""),
        role=info.get("role", "master"),
        uptime=number("uptime_in_seconds"),
        memory=number("used_memory"),
        memory_max=number("maxmemory"),
        appendonly=appends,
        append_ok=info.get("aof_last_write_status", "ok") == "ok",
        append_bytes=number("aof_current_size") if appends else None,
        saved=number("rdb_last_save_time"),
        changes=number("rdb_changes_since_last_save"),
        clients=number("connected_clients"),
        replicas=number("connected_slaves"),
        commands_per_second=number("instantaneous_ops_per_sec"),
        evicted=number("evicted_keys"),
    )
