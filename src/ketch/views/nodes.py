"""The nodes of Redis, each by itself: memory, persistence, clients, replicas, keys. A question to one node alone, for
`ask_each` and `ask_named`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ketch.redis.question import Question, call
from ketch.store.append.copies import followers
from ketch.views.server import kind_and_version, parse_info


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of a node: how many are connected, how many of them are in sync (`store.append.copies`), and how far
    behind the last one is, bytes of the replication stream.
    """

    connected: int
    in_sync: int
    behind: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a node has done since it started: numbers that only rise, as INFO names them."""

    commands: int
    connections: int
    rejected: int
    bytes_in: int
    bytes_out: int
    evicted: int
    expired: int
    hits: int
    misses: int
    cpu: float


@dataclass(frozen=True, slots=True)
class RedisNode:
    """One node.

    Attributes:
        name: kind, version and TCP port.
        version: kind and version.
        role: "master" or "slave", as Redis calls it.
        uptime: s.
        memory, memory_max: bytes in use and at most; 0 for no limit.
        memory_rss, memory_peak: bytes that the process has, and that were in use at most.
        appendonly: whether it has an append-only file; `append_ok`: whether the last write to it worked.
        append_bytes: of that file; None where there is none.
        saved: when it last wrote a snapshot, s since the epoch; 0 for never; `save_ok`: whether the last one worked.
        changes: since then.
        loading: whether it still reads its data.
        blocked: clients that wait in a blocking command.
        keys: in all databases.
    """

    name: str
    version: str
    role: str
    uptime: int
    memory: int
    memory_max: int
    memory_rss: int
    memory_peak: int
    appendonly: bool
    append_ok: bool
    append_bytes: int | None
    saved: int
    save_ok: bool
    changes: int
    loading: bool
    clients: int
    blocked: int
    following: Replicas
    commands_per_second: int
    done: Traffic
    keys: int


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
        version=f"{kind} {version}",
        role=info.get("role", "master"),
        uptime=number("uptime_in_seconds"),
        memory=number("used_memory"),
        memory_max=number("maxmemory"),
        memory_rss=number("used_memory_rss"),
        memory_peak=number("used_memory_peak"),
        appendonly=appends,
        append_ok=info.get("aof_last_write_status", "ok") == "ok",
        append_bytes=number("aof_current_size") if appends else None,
        saved=number("rdb_last_save_time"),
        save_ok=info.get("rdb_last_bgsave_status", "ok") == "ok",
        changes=number("rdb_changes_since_last_save"),
        loading=info.get("loading") == "1",
        clients=number("connected_clients"),
        blocked=number("blocked_clients"),
        following=_replicas(info, number("master_repl_offset")),
        commands_per_second=number("instantaneous_ops_per_sec"),
        done=Traffic(
            commands=number("total_commands_processed"),
            connections=number("total_connections_received"),
            rejected=number("rejected_connections"),
            bytes_in=number("total_net_input_bytes"),
            bytes_out=number("total_net_output_bytes"),
            evicted=number("evicted_keys"),
            expired=number("expired_keys"),
            hits=number("keyspace_hits"),
            misses=number("keyspace_misses"),
            cpu=_decimal(info, "used_cpu_user") + _decimal(info, "used_cpu_sys"),
        ),
        keys=_keys(info),
    )


def _replicas(info: Mapping[str, str], offset: int) -> Replicas:
    found = list(followers(info))
    behind = max((offset - each.offset for each in found), default=0)
    return Replicas(len(found), sum(each.in_sync for each in found), max(0, behind))


def _decimal(info: Mapping[str, str], name: str) -> float:
    try:
        return float(info.get(name, "0"))
    except ValueError:
        return 0.0


def _keys(info: Mapping[str, str]) -> int:
    """Of lines like `db0:keys=12,expires=3,avg_ttl=0`."""
    found = 0
    for name, about in info.items():
        if name.startswith("db") and name[2:].isdigit():
            text = dict(each.partition("=")[::2] for each in about.split(",")).get("keys", "0")
            found += int(text) if text.isdigit() else 0
    return found
