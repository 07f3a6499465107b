"""`ketch top`: topics, groups, brokers and Redis's nodes as they move, again and again."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from ketch.cli import broker_redis, client
from ketch.cli.broker_redis import Where
from ketch.cli.options import grouped
from ketch.cli.output import Json, show_json, show_rows
from ketch.cli.units import amount
from ketch.cli.watch import repeat
from ketch.views import moving, nodes
from ketch.views.kafka import cluster
from ketch.views.moving import Look

Sort = Literal["in", "out", "size", "lag", "age", "name"]
_TOPIC_KEYS = {"in": "in_per_s", "out": "out_per_s", "size": "bytes", "lag": "in_per_s", "age": "in_per_s"}
_GROUP_KEYS = {"lag": "lag", "age": "age", "out": "out_per_s", "in": "lag", "size": "lag"}


@grouped
def command(
    interval: Annotated[float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Between two looks.")] = 2.0,
    sort: Annotated[
        Sort, typer.Option("--sort", help="What comes first: the most of this, or names by alphabet.")
    ] = "in",
    count: Annotated[int, typer.Option("--count", min=1, help="Topics, and groups, that are shown.")] = 15,
    once: Annotated[bool, typer.Option("--once", help="Show it once, after one interval.")] = False,
    *,
    where: Where,
    as_json: Json = False,
) -> None:
    """Show rates of topics, lag of groups, brokers and Redis's nodes, again every few seconds until Ctrl-C.

    Records out are what groups commit. Lag and rates come from the Redis that the broker names.
    """
    admin = client.admin(where.bootstrap)
    redis = broker_redis.find(admin, where.redis, where.keyspace)
    last: list[Look] = []

    def fetch() -> dict[str, Any]:
        if not last:
            last.append(redis.ask(moving.look(redis.keys)))
            time.sleep(interval)
        before = last.pop()
        now = redis.ask(moving.look(redis.keys, before))
        last.append(now)
        topics, groups = moving.rates(before, now)
        brokers = cluster.leaders(admin, cluster.cluster(admin))
        return {
            "topics": _sorted([asdict(each) for each in topics], "topic", _TOPIC_KEYS.get(sort), count),
            "groups": _sorted([asdict(each) for each in groups], "group", _GROUP_KEYS.get(sort), count),
            "brokers": [asdict(each) for each in brokers],
            "redis": [asdict(each) for each in redis.ask_each(nodes.node)],
            "left_out": now.left_out,
        }

    repeat(None if once else interval, fetch, show_json if as_json else _show)


def _sorted(rows: list[dict[str, Any]], name: str, key: str | None, count: int) -> list[dict[str, Any]]:
    rows.sort(key=lambda row: (-(row[key] or 0) if key else 0, row[name]))
    return rows[:count]


def _show(found: dict[str, Any]) -> None:
    """A table for each kind; in a pipe lines that begin with the kind."""
    columns = ("topic", "partitions", "in/s", "out/s", "records", "size")
    rows = [
        (
            *(row["topic"], row["partitions"], round(row["in_per_s"]), round(row["out_per_s"])),
            *(row["records"], amount(row["bytes"])),
        )
        for row in found["topics"]
    ]
    _table("topic", columns, rows)
    columns = ("group", "state", "members", "lag", "lag s", "out/s")
    rows = [
        (
            *(row["group"], row["state"], row["members"], row["lag"]),
            *(None if row["age"] is None else round(row["age"], 1), round(row["out_per_s"])),
        )
        for row in found["groups"]
    ]
    _table("group", columns, rows)
    _table(
        "broker",
        ("broker", "address", "leads"),
        [(b["id"], f"{b['host']}:{b['port']}", b["leads"]) for b in found["brokers"]],
    )
    columns = ("redis", "role", "commands/s", "clients", "memory", "maxmemory")
    rows = [
        (
            *(row["name"], row["role"], row["commands_per_second"], row["clients"], amount(row["memory"])),
            amount(row["memory_max"]) if row["memory_max"] else "unlimited",
        )
        for row in found["redis"]
    ]
    _table("redis", columns, rows)
    if found["left_out"]:
        print(f"ketch: {found['left_out']} partitions are not looked at: there are too many.", file=sys.stderr)


def _table(kind: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if sys.stdout.isatty():
        show_rows(columns, rows)
    else:
        show_rows(("kind", *columns), [(kind, *row) for row in rows])
