"""`ketch topics`: create, list, describe, alter and delete topics of any Kafka broker."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import client
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.cli.output import Json, Yes, confirm, show_json, show_rows
from ketch.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(
    help="Create, list, describe, alter and delete topics.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="A topic.")]
Names = Annotated[list[str], typer.Argument(help="One or more topics.")]


@app.command()
def create(
    names: Names,
    partitions: Annotated[int | None, typer.Option(min=1, help="Number of partitions; default: the broker's.")] = None,
    config: Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="A topic config; may be repeated.")] = [],  # noqa: B006
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no error.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Create topics."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    settings = dict(_pair(item) for item in config)
    admin = client.admin(bootstrap)
    wanted = [NewTopic(name, partitions or -1, -1, config=settings) for name in dict.fromkeys(names)]
    futures = admin.create_topics(wanted, operation_timeout=client.TIMEOUT, request_timeout=client.TIMEOUT)
    done: list[dict[str, Any]] = []
    failures = []
    for name, future in futures.items():
        error = future.exception()
        exists = isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        if error is None or (exists and if_not_exists):
            done.append({"name": name, "created": error is None})
        else:
            failures.append((name, future))
    _say(done, "created", as_json, {True: "was created", False: "exists already"})
    for name, future in failures:
        client.result(future, f"Topic {name} was not created")


def _pair(item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--config {item!r} should be KEY=VALUE.")
    return key.strip(), value


def _say(done: list[dict[str, Any]], key: str, as_json: bool, verbs: dict[bool, str]) -> None:
    if as_json:
        show_json(done)
        return
    for topic in done:
        typer.echo(f"Topic {topic['name']} {verbs[topic[key]]}.")


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List topics and their numbers of partitions."""
    found = client.topics(client.admin(bootstrap))
    if as_json:
        show_json([{"name": name, "partitions": partitions} for name, partitions in found])
    else:
        show_rows(("topic", "partitions"), found)


@app.command()
def describe(names: Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show each partition's leader and offsets, and the configs that are not default."""
    admin = client.admin(bootstrap)
    found = [_describe(admin, topic) for topic in client.describe(admin, names)]
    if as_json:
        show_json(found)
        return
    for topic in found:
        configs = ", ".join(f"{key}={value}" for key, value in topic["configs"].items())
        ends = ("leader", "earliest", "latest")
        if sys.stdout.isatty():
            rows = [[p["partition"], *(p[end] for end in ends)] for p in topic["partitions"]]
            show_rows(("partition", *ends), rows, f"{topic['name']} ({topic['id']})", configs)
        else:
            head = [topic["name"], topic["id"]]
            show_rows((), [[*head, p["partition"], *(p[end] for end in ends), configs] for p in topic["partitions"]])


def _describe(admin: AdminClient, topic: client.Topic) -> dict[str, Any]:
    earliest = client.offsets(admin, topic.name, topic.leaders, "earliest")
    latest = client.offsets(admin, topic.name, topic.leaders, "latest")
    return {
        "name": topic.name,
        "id": topic.id,
        "partitions": [
            {"partition": p, "leader": leader, "earliest": earliest[p], "latest": latest[p]}
            for p, leader in topic.leaders.items()
        ],
        "configs": {c["name"]: c["value"] for c in configs_of(admin, topic.name) if not c["default"]},
    }


@app.command()
def alter(
    name: Name,
    partitions: Annotated[int | None, typer.Option(min=1, help="Number of partitions; it can only grow.")] = None,
    config: Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="A config to set; may be repeated.")] = [],  # noqa: B006
    delete_config: Annotated[list[str], typer.Option(metavar="KEY", help="A config to set back to its default.")] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Change a topic's configs and its number of partitions."""
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

    settings = dict(_pair(item) for item in config)
    if both := sorted(settings.keys() & set(delete_config)):
        raise ConfigError(f"{both[0]} is given to be set and to be deleted.")
    changes: dict[str, str | None] = {**dict.fromkeys(delete_config), **settings}
    if partitions is None and not changes:
        raise ConfigError("Nothing to alter: give --partitions, --config or --delete-config.")
    admin = client.admin(bootstrap)
    if changes:
        futures = admin.incremental_alter_configs([_alteration(name, changes)], request_timeout=client.TIMEOUT)
        (future,) = futures.values()
        client.result(future, f"Topic {name} was not altered")
    if partitions is not None:
        wanted = [NewPartitions(name, partitions)]
        grown = admin.create_partitions(wanted, operation_timeout=client.TIMEOUT, request_timeout=client.TIMEOUT)
        client.result(grown[name], f"Topic {name} did not get {partitions} partitions")
    _say([{"name": name, "altered": True}], "altered", as_json, {True: "was altered"})


def _alteration(name: str, changes: dict[str, str | None]) -> Any:
    """What is to become of a topic's configs; None sets one back to its default."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

    operations = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
    entries = [
        ConfigEntry(key, value, incremental_operation=operations[value is None]) for key, value in changes.items()
    ]
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)


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
    futures = admin.delete_topics(unique, operation_timeout=client.TIMEOUT, request_timeout=client.TIMEOUT)
    gone = [{"name": name, "deleted": True} for name, future in futures.items() if future.exception() is None]
    _say(gone, "deleted", as_json, {True: "was deleted"})
    for name, future in futures.items():
        client.result(future, f"Topic {name} was not deleted")


@app.command()
def configs(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show every config of a topic: value, where it comes from, whether it is the default."""
    found = configs_of(client.admin(bootstrap), name)
    if as_json:
        show_json(found)
    else:
        rows = [[c["name"], c["value"], c["source"], "yes" if c["default"] else "no"] for c in found]
        show_rows(("config", "value", "source", "default"), rows)


def configs_of(admin: AdminClient, name: str) -> list[dict[str, Any]]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType  # type: ignore[attr-defined]

    futures = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)], request_timeout=client.TIMEOUT)
    (future,) = futures.values()
    entries = client.result(future, f"Configs of {name} cannot be listed").values()
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": ConfigSource(entry.source).name.lower().removesuffix("_config").replace("_", "-"),
            "default": entry.is_default,
        }
        for entry in sorted(entries, key=lambda entry: entry.name)
    ]
