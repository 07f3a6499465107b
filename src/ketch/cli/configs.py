"""Topic configs on the command line: KEY=VALUE with sizes and durations, as arguments and as what a broker is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from ketch.cli import completion
from ketch.cli.units import config_value
from ketch.errors import ConfigError

Config = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        autocompletion=completion.assignments,
        help="A topic config, such as retention.ms=7d or retention.bytes=10mb; more KEY=VALUE may follow.",
    ),
]


def pairs(items: Iterable[str]) -> dict[str, str]:
    """Of KEY=VALUE each, values in Kafka's units.

    Raises:
        ConfigError: one has no key or no "=".
    """
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--config {item!r} should be KEY=VALUE.")
        found[key.strip()] = config_value(key.strip(), value)
    return found


def split(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """Names of topics, and KEY=VALUE: no topic has "=" in its name."""
    given = list(arguments)
    return [item for item in given if "=" not in item], [item for item in given if "=" in item]


def alteration(name: str, changes: dict[str, str | None]) -> Any:
    """What is to become of a topic's configs; None sets one back to its default."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

    operations = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
    entries = [
        ConfigEntry(key, value, incremental_operation=operations[value is None]) for key, value in changes.items()
    ]
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
