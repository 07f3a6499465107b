"""`ketch topics`: create, list, describe, alter, copy and delete topics of any Kafka broker."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import broker_redis, client, completion, configs
from ketch.cli.broker_redis import Where
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.cli.configs import Config
from ketch.cli.copying.command import copy
from ketch.cli.options import grouped
from ketch.cli.output import Json, Stats, Yes, confirm, raise_all, show_done, show_json, show_rows, wants_stats
from ketch.cli.units import amount, config_shown
from ketch.cli.watch import Watch, repeat
from ketch.errors import ConfigError
from ketch.views.kafka import topics
from ketch.views.kafka.answers import TIMEOUT, result
from ketch.views.topics import TopicFigures, figures

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(
    help="Create, list, describe, alter, copy and delete topics.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="A topic.", autocompletion=completion.topics)]
Names = Annotated[list[str], typer.Argument(help="One or more topics.", autocompletion=completion.topics)]
NewNames = Annotated[list[str], typer.Argument(help="One or more topics.")]

app.command("copy")(copy)


@app.command()
def create(
    names: NewNames,
    partitions: Annotated[int | None, typer.Option(min=1, help="Number of partitions; default: the broker's.")] = None,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no error.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Create topics."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    names, further = configs.split(names)
    if not names:
        raise ConfigError("Name a topic to create.")
    settings = configs.pairs([*(config or ()), *further])
    admin = client.admin(bootstrap)
    wanted = [NewTopic(name, partitions or -1, -1, config=settings) for name in dict.fromkeys(names)]
    futures = admin.create_topics(wanted, operation_timeout=TIMEOUT, request_timeout=TIMEOUT)
    done: list[dict[str, Any]] = []
    failures = []
    for name, future in futures.items():
        error = future.exception()
        exists = isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        if error is None or (exists and if_not_exists):
            done.append({"name": name, "created": error is None})
        else:
            failures.append((name, future))
    show_done("Topic", done, {True: "was created", False: "exists already"}, as_json)
    for name, future in failures:
        result(future, f"Topic {name} was not created")


@app.command("list")
@grouped
def list_(stats: Stats = None, watch: Watch = None, *, where: Where, as_json: Json = False) -> None:
    """List topics: partitions, and with --stats the records and bytes in Redis, and whether all is archived."""
    admin = client.admin(where.bootstrap)
    with_stats = wants_stats(stats, as_json)

    def fetch() -> list[dict[str, Any]]:
        found = topics.listed(admin)
        known = _figures(admin, found, where) if with_stats else {}
        return [
            {"name": name, "partitions": partitions, **(asdict(known[name]) if name in known else {})}
            for name, partitions in found
        ]

    repeat(watch, fetch, lambda found: _show_list(found, with_stats, as_json))


def _figures(admin: AdminClient, of: list[tuple[str, int]], where: Where) -> dict[str, TopicFigures]:
    """Nothing where the broker's Redis cannot be asked, which stderr then says."""
    found = broker_redis.find_or_say(admin, where.redis, where.keyspace, "records, bytes and archives are")
    return {} if found is None else found.ask(figures(found.keys, of))


def _show_list(found: list[dict[str, Any]], with_stats: bool, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    columns = ("name", "partitions", *(("records", "bytes", "archived") if with_stats else ()))
    rows = [[topic.get(column) for column in columns] for topic in found]
    if sys.stdout.isatty() and with_stats:
        for row in rows:
            row[2:4] = ["" if row[2] is None else f"{row[2]:,}", "" if row[3] is None else amount(row[3])]
    show_rows(("topic", *columns[1:]), rows, optional=("archived", "bytes", "partitions"))


@app.command()
def describe(names: Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show each partition's leader, replicas and offsets, and the configs that are not default."""
    admin = client.admin(bootstrap)
    known, missing = topics.describe_known(admin, names)
    found = [asdict(topics.description(admin, topic)) for topic in known]
    if as_json and (found or not missing):
        show_json(found)
    elif sys.stdout.isatty():
        _show_tables(found)
    elif not as_json:
        _show_lines(found)
    raise_all(missing)


_NODES = ("replicas", "isr")
_ENDS = ("earliest", "latest")


def _nodes(partition: dict[str, Any]) -> list[str]:
    """Replicas and those in sync, as Kafka's tools write them."""
    return [",".join(map(str, partition[column])) for column in _NODES]


def _show_tables(found: list[dict[str, Any]]) -> None:
    columns, optional = ("partition", "leader", *_NODES, *_ENDS), (*_NODES, "leader")
    for topic in found:
        shown = ", ".join(f"{key}={config_shown(key, value)}" for key, value in topic["configs"].items())
        rows = [[p["partition"], p["leader"], *_nodes(p), *(p[end] for end in _ENDS)] for p in topic["partitions"]]
        show_rows(columns, rows, f"{topic['name']} ({topic['id']})", shown, optional)


def _show_lines(found: list[dict[str, Any]]) -> None:
    for topic in found:
        shown = ", ".join(f"{key}={value}" for key, value in topic["configs"].items())
        head = [topic["name"], topic["id"]]
        rows = [
            [*head, p["partition"], p["leader"], *(p[end] for end in _ENDS), shown, *_nodes(p)]
            for p in topic["partitions"]
        ]
        show_rows((), rows)


@app.command()
def alter(
    name: Name,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Further --config.", autocompletion=completion.assignments),
    ] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Number of partitions; it can only grow.")] = None,
    config: Config = None,
    delete_config: Annotated[
        list[str],
        typer.Option(metavar="KEY", help="A config to set back to its default.", autocompletion=completion.configs),
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Change a topic's configs and its number of partitions."""
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

    settings = configs.pairs([*(config or ()), *(pairs or ())])
    if both := sorted(settings.keys() & set(delete_config)):
        raise ConfigError(f"{both[0]} is given to be set and to be deleted.")
    changes: dict[str, str | None] = {**dict.fromkeys(delete_config), **settings}
    if partitions is None and not changes:
        raise ConfigError("Nothing to alter: give --partitions, --config or --delete-config.")
    admin = client.admin(bootstrap)
    near = topics.near(admin, name)
    if changes:
        wanted = [configs.alteration(name, changes)]
        (future,) = admin.incremental_alter_configs(wanted, request_timeout=TIMEOUT).values()
        result(future, f"Topic {name} was not altered", near)
    if partitions is not None:
        more = [NewPartitions(name, partitions)]
        grown = admin.create_partitions(more, operation_timeout=TIMEOUT, request_timeout=TIMEOUT)
        result(grown[name], f"Topic {name} did not get {partitions} partitions", near)
    show_done("Topic", [{"name": name, "altered": True}], {True: "was altered"}, as_json)


@app.command()
def delete(
    names: Names,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete topics and all their records."""
    confirm(f"Delete {', '.join(names)} with all records?", yes)
    admin = client.admin(bootstrap)
    unique = list(dict.fromkeys(names))
    futures = admin.delete_topics(unique, operation_timeout=TIMEOUT, request_timeout=TIMEOUT)
    gone = [{"name": name, "deleted": True} for name, future in futures.items() if future.exception() is None]
    show_done("Topic", gone, {True: "was deleted"}, as_json)
    for name, future in futures.items():
        result(future, f"Topic {name} was not deleted", topics.near(admin, name))


@app.command("configs")
def configs_(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show every config of a topic: value, where it comes from, whether it is the default."""
    found = topics.configs(client.admin(bootstrap), name)
    if as_json:
        show_json([asdict(config) for config in found])
        return
    value = config_shown if sys.stdout.isatty() else lambda _, plain: plain
    rows = [[c.name, value(c.name, c.value), c.source, "yes" if c.default else "no"] for c in found]
    show_rows(("config", "value", "source", "default"), rows, optional=("source", "default"))
