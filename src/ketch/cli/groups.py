"""`ketch groups`: list, describe, reset and delete consumer groups, with lag in records."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import client, records
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap, ClientError
from ketch.cli.output import Json, Yes, confirm, show_json, show_rows
from ketch.cli.records import DEFAULT_DATA_DIR, DEFAULT_KEYSPACE, DataDir, KeyspaceName, Records, RedisUrl
from ketch.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(
    help="List, describe, reset and delete consumer groups.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Names = Annotated[list[str], typer.Argument(help="One or more groups.")]
Place = tuple[str, int]


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List groups and their states."""
    admin = client.admin(bootstrap)  # it has to live until the answer is there
    future = admin.list_consumer_groups(request_timeout=client.TIMEOUT)
    found = client.result(future, "Groups cannot be listed")
    if found.errors:
        raise ClientError(f"Groups cannot be listed: {found.errors[0]}.")
    groups = sorted((group.group_id, _state(group.state)) for group in found.valid)
    if as_json:
        show_json([{"group": name, "state": state} for name, state in groups])
    else:
        show_rows(("group", "state"), groups)


@app.command()
def describe(
    names: Names,
    redis: RedisUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    keyspace: KeyspaceName = DEFAULT_KEYSPACE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show members, positions and lag in records.

    Lag is counted in the broker's Redis. Where that cannot be found it is left out, save for topics with
    offset.ids=dense.
    """
    admin = client.admin(bootstrap)
    counter = records.find(redis, data_dir, keyspace)
    found = [_describe(admin, counter, name) for name in dict.fromkeys(names)]
    if as_json:
        show_json(found)
        return
    columns = ("group", "state", "topic", "partition", "committed", "end", "lag", "member", "client", "host")
    for group in found:
        busy = {place["member"] for place in group["partitions"]}
        idle = [member for member in group["members"] if member["member"] not in busy]
        rows = [{**group, **row} for row in [*group["partitions"], *idle]] or [group]
        show_rows(columns, [[row.get(column) for column in columns] for row in rows])
    if counter is None and any(place["lag"] is None for group in found for place in group["partitions"]):
        print("ketch: lag in records needs the broker's Redis: give --redis or --data-dir.", file=sys.stderr)


def _describe(admin: AdminClient, counter: Records | None, name: str) -> dict[str, Any]:
    group = _group(admin, name)
    members = [{"member": m.member_id, "client": m.client_id, "host": m.host} for m in group.members]
    owners = {
        (place.topic, place.partition): member
        for member, described in zip(members, group.members, strict=True)
        for place in described.assignment.topic_partitions
    }
    committed = _committed(admin, name)
    ends = _ends(admin, sorted({*committed, *owners}))
    return {
        "group": name,
        "state": _state(group.state),
        "assignor": group.partition_assignor,
        "members": members,
        "partitions": [
            {
                "topic": place[0],
                "partition": place[1],
                "committed": committed.get(place),
                "end": end,
                "lag": _lag(admin, counter, name, place, committed.get(place), (earliest, end)),
                **owners.get(place, dict.fromkeys(("member", "client", "host"))),
            }
            for place, (earliest, end) in ends.items()
        ],
    }


def _lag(
    admin: AdminClient,
    counter: Records | None,
    group: str,
    place: Place,
    committed: int | None,
    bounds: tuple[int, int],
) -> int | None:
    if committed is None:
        return None
    if counter is not None:
        return counter.lag(group, *place, committed)
    from ketch.cli.topics import configs_of

    dense = any(c["name"] == "offset.ids" and c["value"] == "dense" for c in configs_of(admin, place[0]))
    return max(0, bounds[1] - max(committed, bounds[0])) if dense else None


@app.command("reset-offsets")
def reset_offsets(
    name: Annotated[str, typer.Argument(help="A group without members.")],
    topic: Annotated[
        list[str], typer.Option(metavar="TOPIC[:PARTITION,...]", help="What to reset; default: all it has committed.")
    ] = [],  # noqa: B006
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To an offset.")] = None,
    to_datetime: Annotated[str | None, typer.Option(metavar="ISO8601", help="To the first record that late.")] = None,
    shift_by: Annotated[int | None, typer.Option(help="So many records on, or back below 0.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without, it is only shown.")] = False,
    redis: RedisUrl = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    keyspace: KeyspaceName = DEFAULT_KEYSPACE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Set committed offsets. Shows what would be done; --execute does it."""
    if [to_earliest, to_latest, to_offset is not None, bool(to_datetime), shift_by is not None].count(True) != 1:
        raise ConfigError("Give one of --to-earliest, --to-latest, --to-offset, --to-datetime and --shift-by.")
    moment = _milliseconds(to_datetime) if to_datetime else None
    admin = client.admin(bootstrap)
    if _group(admin, name, new=True).members:
        raise ClientError(f"Group {name} has members; stop them before its offsets are reset.")
    committed = _committed(admin, name)
    places = _places(admin, topic) if topic else sorted(committed)
    if not places:
        raise ConfigError(f"Group {name} has committed nothing; say with --topic what to reset.")
    counter = records.find(redis, data_dir, keyspace) if shift_by is not None else None
    targets: dict[Place, int] = {}
    for place, (earliest, latest) in _ends(admin, places).items():
        wanted = earliest if to_earliest else latest
        if to_offset is not None:
            wanted = to_offset
        elif moment is not None:
            late = client.offsets(admin, place[0], [place[1]], moment)[place[1]]
            wanted = latest if late < 0 else late
        elif shift_by is not None:
            shifted = _shifted(counter, place, committed.get(place), shift_by)
            wanted = shifted if shifted is not None else (latest if shift_by > 0 else earliest)
        targets[place] = min(max(wanted, earliest), latest)
    if execute:
        _alter(admin, name, targets)
    _say(name, committed, targets, execute, as_json)


def _shifted(counter: Records | None, place: Place, committed: int | None, by: int) -> int | None:
    if counter is None:
        raise ConfigError("--shift-by counts records in the broker's Redis: give --redis or --data-dir.")
    if committed is None:
        raise ConfigError(f"--shift-by: nothing is committed for {place[0]}:{place[1]}.")
    return counter.shifted(*place, committed, by)


def _say(name: str, committed: dict[Place, int], targets: dict[Place, int], done: bool, as_json: bool) -> None:
    rows = [(name, *place, committed.get(place), target) for place, target in targets.items()]
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


def _places(admin: AdminClient, topics: Iterable[str]) -> list[Place]:
    found: list[Place] = []
    for item in topics:
        name, _, numbers = item.partition(":")
        (described,) = client.describe(admin, [name])
        if not all(number.isdecimal() for number in numbers.split(",")) and numbers:
            raise ConfigError(f"--topic {item!r} should be TOPIC or TOPIC:PARTITION,...")
        indexes = [int(number) for number in numbers.split(",")] if numbers else list(described.leaders)
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
    futures = admin.delete_consumer_groups(unique, request_timeout=client.TIMEOUT)
    gone = [name for name, future in futures.items() if future.exception() is None]
    if as_json:
        show_json([{"group": name, "deleted": True} for name in gone])
    else:
        for name in gone:
            typer.echo(f"Group {name} was deleted.")
    for name, future in futures.items():
        client.result(future, f"Group {name} was not deleted")


# -- what the commands share


def _state(state: Any) -> str:
    """As Kafka writes it: PreparingRebalance."""
    return "".join(word.capitalize() for word in state.name.split("_")).replace("balancing", "balance")


def _group(admin: AdminClient, name: str, new: bool = False) -> Any:
    """
    Args:
        new: a group that does not exist is fine.
    """
    (future,) = admin.describe_consumer_groups([name], request_timeout=client.TIMEOUT).values()
    group = client.result(future, f"Group {name} cannot be described")
    if _state(group.state) == "Dead" and not new:
        raise ClientError(f"Group {name} cannot be described: there is no such group.")
    return group


def _committed(admin: AdminClient, name: str) -> dict[Place, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(name)]
    (future,) = admin.list_consumer_group_offsets(asked, request_timeout=client.TIMEOUT).values()
    found = client.result(future, f"Offsets of group {name} cannot be listed").topic_partitions
    return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}


def _ends(admin: AdminClient, places: list[Place]) -> dict[Place, tuple[int, int]]:
    """(earliest, latest) of each."""
    found: dict[Place, tuple[int, int]] = {}
    for topic in dict.fromkeys(topic for topic, _ in places):
        indexes = [index for name, index in places if name == topic]
        earliest = client.offsets(admin, topic, indexes, "earliest")
        latest = client.offsets(admin, topic, indexes, "latest")
        found |= {(topic, index): (earliest[index], latest[index]) for index in indexes}
    return found


def _alter(admin: AdminClient, name: str, targets: dict[Place, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(topic, index, offset) for (topic, index), offset in targets.items()]
    asked = [ConsumerGroupTopicPartitions(name, places)]
    (future,) = admin.alter_consumer_group_offsets(asked, request_timeout=client.TIMEOUT).values()
    done = client.result(future, f"Offsets of group {name} were not reset")
    for place in done.topic_partitions:
        if place.error:
            why = client.explain(place.error)
            raise ClientError(f"{place.topic} partition {place.partition} was not reset: {why}.")
