"""`ketch consume`: the records of a topic of any Kafka broker, as lines."""

from __future__ import annotations

from enum import StrEnum
from functools import partial as bound
from typing import Annotated

import typer

from ketch.cli import client, completion
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.cli.output import unescape, until_interrupted
from ketch.cli.records import formats, tail
from ketch.cli.records.formats import FIELDS, Encoding, Formatter, KeyFormat, ValueFormat
from ketch.cli.records.reader import GroupReader, Printer, RecordReader, configuration
from ketch.cli.records.starts import Start
from ketch.errors import ConfigError
from ketch.views.kafka import topics
from ketch.views.kafka.answers import ClientError
from ketch.views.kafka.topics import Topic


class Format(StrEnum):
    """How a record is printed."""

    RAW = "raw"
    JSON = "json"
    TEMPLATE = "template"


class Isolation(StrEnum):
    """Which records of transactions are read (Kafka's `isolation.level`)."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


def command(
    topic: Annotated[str, typer.Argument(help="The topic to read.", autocompletion=completion.topics)],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="beginning|end|OFFSET|TIMESTAMP|-DURATION",
            help="Where to begin: a timestamp is ISO 8601 (UTC where it has no zone) or @ and epoch milliseconds; "
            "-1h is an hour ago. With --group: beginning or end, where the group has committed nothing.",
        ),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--tail", min=1, help="Begin at the last so many records of each partition.")
    ] = None,
    partition: Annotated[list[int] | None, typer.Option(min=0, help="Only this partition; may be repeated.")] = None,
    maximum: Annotated[int | None, typer.Option("--max", min=1, help="Stop after so many records.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Only records with this key (\\x00 and the like are allowed).")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Read as a member of this group, and commit what was read.", autocompletion=completion.groups
        ),
    ] = None,
    form: Annotated[Format | None, typer.Option("--format", help="Values as lines (raw), JSON, or --template.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    template: Annotated[
        str | None, typer.Option(help=f"For example '{{offset}} {{key}} {{value}}'; fields: {', '.join(FIELDS)}.")
    ] = None,
    key_format: KeyFormat = Encoding.TEXT,
    value_format: ValueFormat = Encoding.TEXT,
    isolation: Annotated[
        Isolation,
        typer.Option(help="read_committed: no records of transactions that are open or were aborted."),
    ] = Isolation.UNCOMMITTED,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on when the end is reached.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print records, one a line. Without --follow it ends where the topic ended when it began."""
    formatter = _formatter(_format(form, as_json, template), template, key_format, value_format)
    printer = Printer(formatter, maximum, _key(key, key_format))
    if last is not None and start is not None:
        raise ConfigError("Give one of --from and --tail.")
    if group is not None and (partition or last is not None or start not in (None, "beginning", "end")):
        raise ConfigError("--group takes no --partition, no --tail, and of --from only beginning or end.")
    beginning = Start(start or "beginning")
    with until_interrupted():
        admin = client.admin(bootstrap)
        common = configuration(client.configuration(bootstrap), isolation)
        committed = isolation is Isolation.COMMITTED
        (found,) = topics.describe(admin, [topic])
        if group is not None:
            ends = None if follow else bound(topics.offsets, admin, topic, spec="latest", committed=committed)
            GroupReader(topic, group, ends, beginning.at_end, common).run(printer)
            return
        wanted = _wanted(found, partition)
        latest = topics.offsets(admin, topic, wanted, "latest", committed)
        if last is None:
            begin = beginning.offsets(admin, topic, wanted)
        else:
            begin = tail.begin(common, topic, topics.offsets(admin, topic, wanted, "earliest"), latest, last)
        RecordReader(topic, begin, None if follow else latest, common).run(printer)


def _wanted(topic: Topic, chosen: list[int] | None) -> list[int]:
    missing = sorted(set(chosen or ()) - set(topic.places))
    if missing:
        raise ClientError(f"Topic {topic.name} has no partition {missing[0]}; it has 0 to {max(topic.places)}.")
    return sorted(set(chosen)) if chosen else list(topic.places)


def _key(text: str | None, encoding: Encoding) -> bytes | None:
    if text is None:
        return None
    try:
        return encoding.from_text(text.encode()) if encoding is not Encoding.TEXT else unescape("--key", text)
    except ValueError as error:
        raise ConfigError(f"--key: {error}.") from None


def _format(form: Format | None, as_json: bool, template: str | None) -> Format:
    if as_json and form not in (None, Format.JSON):
        raise ConfigError(f"--json and --format {form} contradict each other.")
    form = Format.JSON if as_json else form or (Format.RAW if template is None else Format.TEMPLATE)
    if (form is Format.TEMPLATE) != (template is not None):
        raise ConfigError("--template and --format template go together.")
    return form


def _formatter(form: Format, template: str | None, key: Encoding, value: Encoding) -> Formatter:
    if form is Format.JSON:
        return formats.as_json(key, value)
    return formats.raw(value) if template is None else formats.Template(template, key, value)
