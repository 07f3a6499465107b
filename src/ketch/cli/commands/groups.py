"""`ketch groups`: list, describe, reset and delete consumer groups, with lag in records."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import broker_redis, client, completion
from ketch.cli.broker_redis import BrokerRedis, Where
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.cli.options import grouped
from ketch.cli.output import Json, Stats, Yes, confirm, raise_all, show_done, show_json, show_rows, wants_stats
from ketch.cli.watch import Watch, repeat
from ketch.errors import ConfigError
from ketch.store.keys import TopicPartition
from ketch.views.kafka import groups, topics
from ketch.views.kafka.answers import TIMEOUT, ClientError, explain, result
from ketch.views.kafka.groups import Group, Lag, Member
from ketch.views.partitions import shifted

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(
    help="List, describe, reset and delete consumer groups.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Names = Annotated[list[str], typer.Argument(help="One or more groups.", autocompletion=completion.groups)]


@app.command("list")
@grouped
def list_(stats: Stats = None, watch: Watch = None, *, where: Where, as_json: Json = False) -> None:
    """List groups: their states, and with --stats the number of members and the lag in records."""
    admin = client.admin(where.bootstrap)
    with_stats = wants_stats(stats, as_json)

    def fetch() -> list[dict[str, Any]]:
        if with_stats:
            lag = _lag(admin, where)
            return [_renamed(asdict(group)) for group in groups.summary(admin, lag)]
        redis = broker_redis.find_if_any(admin, where.redis, where.keyspace)
        return [_renamed(asdict(group)) for group in groups.listed(admin, redis)]

    repeat(watch, fetch, lambda found: _show_list(found, with_stats, as_json))


def _renamed(group: dict[str, Any]) -> dict[str, Any]:
    """As lines and JSON name the fields."""
    return {"group": group.pop("name"), **group}


def _lag(admin: AdminClient, where: Where) -> Lag:
    """Says on stderr where the broker's Redis cannot be asked, once it is needed."""
    return Lag(admin, lambda: broker_redis.find_or_say(admin, where.redis, where.keyspace, "lag in records is"))


def _show_list(found: list[dict[str, Any]], with_stats: bool, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    columns = ("group", "state", *(("members", "lag") if with_stats else ()))
    show_rows(columns, [[group[column] for column in columns] for group in found], optional=("members", "state"))


@app.command()
@grouped
def describe(names: Names, watch: Watch = None, *, where: Where, as_json: Json = False) -> None:
    """Show members, positions and lag in records.

    Lag is counted in the Redis that the broker names. Where that cannot be asked it is left out, save for topics with
    offset.ids=dense. The epochs of a consumer group, which --json shows with those of its members, come from that
    Redis, too, and are left out where it cannot be asked.
    """
    admin = client.admin(where.bootstrap)
    unique = list(dict.fromkeys(names))

    def fetch() -> tuple[list[dict[str, Any]], list[ClientError]]:
        return _described(admin, _lag(admin, where), unique)

    def show(answer: tuple[list[dict[str, Any]], list[ClientError]]) -> None:
        found, missing = answer
        if as_json and (found or not missing):
            show_json(found)
        elif not as_json:
            _show(found)
        raise_all(missing)

    repeat(watch, fetch, show)


def _described(admin: AdminClient, lag: Lag, names: list[str]) -> tuple[list[dict[str, Any]], list[ClientError]]:
    """Those that can be described, and why the others cannot."""
    found, missing = [], []
    for name in names:
        try:
            found.append(_as_json(groups.description(admin, lag, name)))
        except ClientError as error:
            missing.append(error)
    return found, missing


def _as_json(group: Group) -> dict[str, Any]:
    return {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor,
        **_known(epoch=group.epoch, assignment_epoch=group.assignment_epoch),
        "members": [
            {**_member(member), **_known(epoch=member.epoch, upgraded=member.upgraded)} for member in group.members
        ],
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                **_member(each.member),
            }
            for each in group.partitions
        ],
    }


def _known(**fields: int | None) -> dict[str, int]:
    """The fields that have a value. The others are not known, or are none that a classic group has."""
    return {name: value for name, value in fields.items() if value is not None}


def _member(member: Member | None) -> dict[str, str | None]:
    if member is None:
        return {"member": None, "client": None, "host": None}
    return {"member": member.id, "client": member.client, "host": member.host}


_OF_GROUP = ("group", "state")
_OF_PARTITION = ("topic", "partition", "committed", "end", "lag", "member", "client", "host")


def _show(found: list[dict[str, Any]]) -> None:
    """A table for each group under its name; in a pipe a line for each partition, which begins with the group."""
    columns = _OF_PARTITION if sys.stdout.isatty() else (*_OF_GROUP, *_OF_PARTITION)
    for group in found:
        busy = {row["member"] for row in group["partitions"]}
        idle = [member for member in group["members"] if member["member"] not in busy]
        rows = [{**group, **row} for row in [*group["partitions"], *idle]] or [group]
        members = "1 member" if len(group["members"]) == 1 else f"{len(group['members'])} members"
        kind = "" if group["type"] == "classic" else f"type {group['type']}, "
        if "epoch" in group:
            kind += f"epoch {group['epoch']}, assignment epoch {group['assignment_epoch']}, "
        title = f"Group {group['group']}: {group['state']}, {kind}{members}"
        cells = [[row.get(column) for column in columns] for row in rows]
        show_rows(columns, cells, title, optional=("member", "host", "client", "end"))


@app.command("reset-offsets")
@grouped
def reset_offsets(
    name: Annotated[str, typer.Argument(help="A group without members.", autocompletion=completion.groups)],
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC[:PARTITION,...]",
            help="What to reset; default: all it has committed.",
            autocompletion=completion.topics,
        ),
    ] = [],  # noqa: B006
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To an offset.")] = None,
    to_datetime: Annotated[str | None, typer.Option(metavar="ISO8601", help="To the first record that late.")] = None,
    shift_by: Annotated[int | None, typer.Option(help="So many records on, or back below 0.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without, it is only shown.")] = False,
    *,
    where: Where,
    as_json: Json = False,
) -> None:
    """Set committed offsets. Shows what would be done; --execute does it."""
    if [to_earliest, to_latest, to_offset is not None, bool(to_datetime), shift_by is not None].count(True) != 1:
        raise ConfigError("Give one of --to-earliest, --to-latest, --to-offset, --to-datetime and --shift-by.")
    moment = _milliseconds(to_datetime) if to_datetime else None
    admin = client.admin(where.bootstrap)
    if groups.has_members(admin, name):
        raise ClientError(f"Group {name} has members; stop them before its offsets are reset.")
    committed = groups.committed(admin, name)
    partitions = _partitions(admin, topic) if topic else sorted(committed)
    if not partitions:
        raise ConfigError(f"Group {name} has committed nothing; say with --topic what to reset.")
    counter = broker_redis.find(admin, where.redis, where.keyspace) if shift_by is not None else None
    targets: dict[TopicPartition, int] = {}
    for partition, (earliest, latest) in groups.bounds(admin, partitions).items():
        wanted = earliest if to_earliest else latest
        if to_offset is not None:
            wanted = to_offset
        elif moment is not None:
            late = topics.offsets(admin, partition[0], [partition[1]], moment)[partition[1]]
            wanted = latest if late < 0 else late
        elif shift_by is not None and counter is not None:
            moved = _shifted(counter, partition, committed.get(partition), shift_by)
            wanted = moved if moved is not None else (latest if shift_by > 0 else earliest)
        targets[partition] = min(max(wanted, earliest), latest)
    if execute:
        _alter(admin, name, targets)
    _say(name, committed, targets, execute, as_json)


def _shifted(counter: BrokerRedis, partition: TopicPartition, committed: int | None, by: int) -> int | None:
    if committed is None:
        raise ConfigError(f"--shift-by: nothing is committed for {partition[0]}:{partition[1]}.")
    return counter.ask(shifted(counter.keys, partition, committed, by))


def _say(
    name: str, committed: dict[TopicPartition, int], targets: dict[TopicPartition, int], done: bool, as_json: bool
) -> None:
    rows = [(name, *partition, committed.get(partition), target) for partition, target in targets.items()]
    columns = ("group", "topic", "partition", "from", "to")
    if as_json:
        show_json([{**dict(zip(columns, row, strict=True)), "executed": done} for row in rows])
        return
    show_rows(columns, rows)
    if not done:
        print("ketch: nothing was changed; --execute does it.", file=sys.stderr)


def _milliseconds(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ConfigError(f"--to-datetime {text!r} is no time like 2025-01-31T12:00:00+00:00.") from None


def _partitions(admin: AdminClient, named: Iterable[str]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for item in named:
        name, _, numbers = item.partition(":")
        (described,) = topics.describe(admin, [name])
        if not all(number.isdecimal() for number in numbers.split(",")) and numbers:
            raise ConfigError(f"--topic {item!r} should be TOPIC or TOPIC:PARTITION,...")
        indexes = [int(number) for number in numbers.split(",")] if numbers else list(described.places)
        found += [(name, index) for index in indexes]
    return sorted(set(found))


@app.command()
def delete(
    names: Names,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete groups without members, with their committed offsets."""
    confirm(f"Delete {', '.join(names)} with all committed offsets?", yes)
    unique = list(dict.fromkeys(names))
    admin = client.admin(bootstrap)
    futures = admin.delete_consumer_groups(unique, request_timeout=TIMEOUT)
    gone = [{"group": name, "deleted": True} for name, future in futures.items() if future.exception() is None]
    show_done("Group", gone, {True: "was deleted"}, as_json)
    for name, future in futures.items():
        result(future, f"Group {name} was not deleted", groups.near(admin, name))


def _alter(admin: AdminClient, name: str, targets: dict[TopicPartition, int]) -> None:
    import confluent_kafka

    wanted = [confluent_kafka.TopicPartition(topic, index, offset) for (topic, index), offset in targets.items()]
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(name, wanted)]
    (future,) = admin.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT).values()
    done = result(future, f"Offsets of group {name} were not reset")
    for each in done.topic_partitions:
        if each.error:
            why = explain(each.error)
            raise ClientError(f"{each.topic} partition {each.partition} was not reset: {why}.")
