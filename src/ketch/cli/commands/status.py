"""`ketch status`: a broker at a glance. It only asks: the broker itself, and the Redis that it names."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ketch.cli import ask, client, figures, groupstate
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.cli.figures import Keyspace, RedisUrl
from ketch.cli.output import Json, raise_all, show_json, show_rows
from ketch.cli.units import amount
from ketch.errors import ConfigError, KetchError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def command(
    redis: RedisUrl = None,
    keyspace: Keyspace = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show whether a broker is up, its Redis and memory, topics, groups and archives.

    Exits with 1 when the broker, or its Redis, does not answer; what does is shown all the same.
    """
    found, failures = _look(client.admin(bootstrap), redis, keyspace)
    if as_json:
        show_json(found)
    else:
        show_rows(("what", "seen"), [(name, line(name, part)) for name, part in found.items()])
    raise_all(failures)


def _look(admin: AdminClient, redis: str | None, keyspace: str | None) -> tuple[dict[str, Any], list[KetchError]]:
    """The parts of the status, None for one that is not known, and why it is not."""
    failures: list[KetchError] = []
    cluster = client.cluster(admin)
    first = cluster.brokers[0]
    facts = ask.broker_facts(admin, first.id)
    found: dict[str, Any] = {
        "broker": {"id": first.id, "host": first.host, "port": first.port, "version": facts and facts.version},
        "cluster": {"id": cluster.id, "brokers": len(cluster.brokers)},
        **dict.fromkeys(("redis", "topics", "groups", "archive")),
    }
    try:
        store = ask.store(admin, redis, keyspace)
        server = store.server()
        found["redis"] = {
            "address": store.address,
            "version": server.version,
            "memory": server.memory,
            "maxmemory": server.memory_max or None,
        }
    except ConfigError:
        raise
    except KetchError as error:
        store = None
        failures.append(error)
    try:
        topics = client.topics(admin)
        found["topics"] = {"count": len(topics), "partitions": sum(count for _, count in topics)}
        found["groups"] = Counter(state for _, state in groupstate.listed(admin))
        if store is not None:
            _measure(found, figures.measured(admin, store, topics))
    except KetchError as error:
        failures.append(error)
    return found, failures


def _measure(found: dict[str, Any], topics: dict[str, dict[str, Any]]) -> None:
    for figure in ("records", "bytes"):
        found["topics"][figure] = sum(topic[figure] for topic in topics.values())
    states = Counter(topic["archived"] for topic in topics.values())
    found["archive"] = {state: states[state] for state in ("all", "behind", "no")}


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
    return f"{part['version']} at {part['address']}, memory {amount(part['memory'])} of {limit}"


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
