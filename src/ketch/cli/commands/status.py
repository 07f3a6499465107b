"""`ketch status`: a broker at a glance. It only asks: the broker itself, and the Redis that it names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ketch.cli import broker_redis, client
from ketch.cli.broker_redis import Where
from ketch.cli.options import grouped
from ketch.cli.output import Json, raise_all, show_json, show_rows
from ketch.cli.units import amount
from ketch.views.kafka.status import Status, status
from ketch.views.server import RedisServer


@grouped
def command(*, where: Where, as_json: Json = False) -> None:
    """Show whether a broker is up, its Redis and memory, topics, groups and archives.

    Exits with 1 when the broker, or its Redis, does not answer; what does is shown all the same.
    """
    admin = client.admin(where.bootstrap)
    found = status(admin, lambda: broker_redis.find(admin, where.redis, where.keyspace))
    parts = _parts(found)
    if as_json:
        show_json(parts)
    else:
        show_rows(("what", "seen"), [(name, line(name, part)) for name, part in parts.items()])
    raise_all(found.failures)


def _parts(found: Status) -> dict[str, dict[str, Any] | None]:
    """The parts of the status as JSON has them, None for one that is not known."""
    return {
        "broker": {**asdict(found.broker), "version": found.version},
        "cluster": {"id": found.cluster.id, "brokers": len(found.cluster.brokers)},
        "redis": _redis_part(found.redis_address, found.redis) if found.redis else None,
        "topics": _topics_part(found),
        "groups": dict(found.groups) if found.groups is not None else None,
        "archive": dict(found.held.archived.items()) if found.held else None,
    }


def _redis_part(address: str | None, server: RedisServer) -> dict[str, Any]:
    nodes = {"nodes": server.nodes} if server.nodes > 1 else {}
    return {
        "address": address,
        **nodes,
        "version": server.version,
        "memory": server.memory,
        "maxmemory": server.memory_max or None,
    }


def _topics_part(found: Status) -> dict[str, Any] | None:
    if found.topics is None:
        return None
    held = {"records": found.held.records, "bytes": found.held.bytes} if found.held else {}
    return {"count": found.topics, "partitions": found.partitions, **held}


def line(name: str, part: dict[str, Any] | None) -> str:
    """A part of the status for a person."""
    if part is None:
        return "unknown"
    return _LINES[name](part)


def _broker(part: dict[str, Any]) -> str:
    software = f"ketch {part['version']}" if part["version"] else "not Ketch"
    return f"up at {part['host']}:{part['port']}, id {part['id']}, {software}"


def _redis(part: dict[str, Any]) -> str:
    limit = f"{amount(part['maxmemory'])}" if part["maxmemory"] else "unlimited"
    nodes = f", {_number(part['nodes'], 'node')}" if "nodes" in part else ""
    return f"{part['version']} at {part['address']}{nodes}, memory {amount(part['memory'])} of {limit}"


def _topics(part: dict[str, Any]) -> str:
    held = f", {part['records']:,} records in {amount(part['bytes'])}" if "records" in part else ""
    return f"{part['count']} with {_number(part['partitions'], 'partition')}{held}"


def _groups(part: dict[str, int]) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(part.items()))
    return f"{sum(part.values())}{f' ({states})' if states else ''}"


def _archive(part: dict[str, int]) -> str:
    return f"{_number(part['all'], 'topic')} archived, {part['behind']} behind, {part['no']} without an archive"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


_LINES = {
    "broker": _broker,
    "cluster": lambda part: f"{part['id']}, {_number(part['brokers'], 'broker')}",
    "redis": _redis,
    "topics": _topics,
    "groups": _groups,
    "archive": _archive,
}
