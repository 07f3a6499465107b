"""`ketch top`: topics, groups, brokers and Redis's nodes as they move, again and again."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ketch.cli import broker_redis, client
from ketch.cli.broker_redis import Where
from ketch.cli.byte_rates import ByteRates, Bytes, Rates
from ketch.cli.options import grouped
from ketch.cli.output import Json, show_json, show_rows
from ketch.cli.units import amount
from ketch.cli.watch import repeat
from ketch.views import moving, nodes
from ketch.views.kafka import cluster
from ketch.views.moving import Look, TopicRate

Sort = Literal["in", "out", "bytes-in", "bytes-out", "size", "lag", "age", "name"]
_TOPIC_KEYS = {
    **{"in": "in_per_s", "out": "out_per_s", "bytes-in": "bytes_in_per_s", "bytes-out": "bytes_out_per_s"},
    **{"size": "bytes", "lag": "in_per_s", "age": "in_per_s"},
}
_GROUP_KEYS = {
    **{"lag": "lag", "age": "age", "out": "out_per_s"},
    **dict.fromkeys(("in", "bytes-in", "bytes-out", "size"), "lag"),
}


@grouped
def command(
    interval: Annotated[float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Between two looks.")] = 2.0,
    sort: Annotated[
        Sort, typer.Option("--sort", help="What comes first: the most of this, or names by alphabet.")
    ] = "in",
    count: Annotated[int, typer.Option("--count", min=1, help="Topics, and groups, that are shown.")] = 15,
    once: Annotated[bool, typer.Option("--once", help="Show it once, after one interval.")] = False,
    http_token_file: Annotated[
        Path | None,
        typer.Option("--http-token-file", envvar="KETCH_HTTP_TOKEN_FILE", help="The brokers' own, for rates in bytes."),
    ] = None,
    *,
    where: Where,
    as_json: Json = False,
) -> None:
    """Show rates of topics, lag of groups, brokers and Redis's nodes, again every few seconds until Ctrl-C.

    Records out are what groups commit. Lag and rates come from the Redis that the broker names; bytes per second from
    the brokers' /metrics, so they are known of brokers with an http_port that can be reached from here.
    """
    admin = client.admin(where.bootstrap)
    redis = broker_redis.find(admin, where.redis, where.keyspace)
    through = ByteRates(admin, http_token_file)
    last: list[Look] = []

    def fetch() -> dict[str, Any]:
        if not last:
            through.look(cluster.cluster(admin).brokers)
            last.append(redis.ask(moving.look(redis.keys)))
            time.sleep(interval)
        before = last.pop()
        now = redis.ask(moving.look(redis.keys, before))
        last.append(now)
        found = cluster.cluster(admin)
        moved = through.look(found.brokers)
        topics, groups = moving.rates(before, now)
        brokers = cluster.leaders(admin, found)
        return {
            "topics": _sorted([_topic(each, moved) for each in topics], "topic", _TOPIC_KEYS.get(sort), count),
            "total": {
                "in_per_s": sum(each.in_per_s for each in topics),
                "out_per_s": sum(each.out_per_s for each in topics),
                **_bytes(moved.total),
            },
            "groups": _sorted([asdict(each) for each in groups], "group", _GROUP_KEYS.get(sort), count),
            "brokers": [asdict(each) for each in brokers],
            "redis": [asdict(each) for each in redis.ask_each(nodes.node)],
            "left_out": now.left_out,
            "uncounted": moved.uncounted,
        }

    said: set[str] = set()
    repeat(None if once else interval, fetch, show_json if as_json else lambda found: _show(found, said))


def _topic(of: TopicRate, moved: Rates) -> dict[str, Any]:
    return {**asdict(of), **_bytes(None if moved.total is None else moved.topics.get(of.topic, Bytes()))}


def _bytes(of: Bytes | None) -> dict[str, float | None]:
    """None where nothing is known."""
    into, out = (None, None) if of is None else of
    return {"bytes_in_per_s": into, "bytes_out_per_s": out}


def _sorted(rows: list[dict[str, Any]], name: str, key: str | None, count: int) -> list[dict[str, Any]]:
    rows.sort(key=lambda row: (-(row[key] or 0) if key else 0, row[name]))
    return rows[:count]


def _show(found: dict[str, Any], said: set[str]) -> None:
    """A table for each kind; in a pipe lines that begin with the kind.

    Args:
        said: which brokers' bytes were said to be unknown; that is said once.
    """
    columns: tuple[str, ...] = ("topic", "partitions", "in/s", "out/s", "records", "size", "bytes in/s", "bytes out/s")
    rows = [
        (
            *(row["topic"], row["partitions"], round(row["in_per_s"]), round(row["out_per_s"])),
            *(row["records"], amount(row["bytes"]), *_amounts(row)),
        )
        for row in found["topics"]
    ]
    _table("topic", columns, rows, ("size", "records", "partitions"))
    total = found["total"]
    columns = ("all topics", "in/s", "out/s", "bytes in/s", "bytes out/s")
    _table("total", columns, [("", round(total["in_per_s"]), round(total["out_per_s"]), *_amounts(total))])
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
    for why in found["uncounted"]:
        if why not in said:
            said.add(why)
            print(f"ketch: bytes per second are without {why}.", file=sys.stderr)


def _amounts(row: dict[str, Any]) -> list[str | None]:
    values = (row["bytes_in_per_s"], row["bytes_out_per_s"])
    return [None if value is None else amount(round(value)) for value in values]


def _table(kind: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], optional: tuple[str, ...] = ()) -> None:
    if sys.stdout.isatty():
        show_rows(columns, rows, optional=optional)
    else:
        show_rows(("kind", *columns), [(kind, *row) for row in rows])
