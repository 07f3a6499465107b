"""`ketch produce`: lines of text to a topic of any Kafka broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import client, completion
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.cli.output import Json, show_json
from ketch.cli.progress import progress
from ketch.cli.records import lines
from ketch.cli.records.formats import Encoding, KeyFormat, ValueFormat
from ketch.cli.records.lines import Source
from ketch.cli.records.producing import Acks, Compression
from ketch.cli.records.sink import InputRecord, Sink
from ketch.errors import ConfigError
from ketch.views.kafka.answers import TIMEOUT, ClientError

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class Format(StrEnum):
    """What a line of input is."""

    LINES = "lines"
    JSON = "json"


def command(
    topic: Annotated[str, typer.Argument(help="The topic to write to.", autocompletion=completion.topics)],
    files: Annotated[list[Path] | None, typer.Argument(help="Files to read instead of standard input.")] = None,
    form: Annotated[
        Format, typer.Option("--format", help="A line is text, or a record in JSON as ketch consume --json writes it.")
    ] = Format.LINES,
    key_separator: Annotated[
        str | None, typer.Option(help="Ends the key of a line (\\t is a tab); a line without it has a null key.")
    ] = None,
    key_format: KeyFormat = Encoding.TEXT,
    value_format: ValueFormat = Encoding.TEXT,
    null_value: Annotated[
        str | None, typer.Option(metavar="MARKER", help="A line with this value becomes a null value (a tombstone).")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A header of every record; may be repeated.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Default: by key, as the Java client does.")] = None,
    same_partitions: Annotated[
        bool, typer.Option("--same-partitions", help="With --format json: the partition that each line names.")
    ] = False,
    compression: Annotated[Compression, typer.Option(help="Compression of batches.")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option(help="Acknowledgements to wait for.")] = Acks.ALL,
    idempotent: Annotated[bool, typer.Option("--idempotent", help="No duplicates when the client retries.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Write lines, one record each, and wait until the broker has them.

    Ctrl-C ends the input; records that the broker does not acknowledge within a second are then given up, with exit
    code 1. The first record that cannot be delivered ends the input too, with exit code 1.
    """
    if idempotent and acks is not Acks.ALL:
        raise ConfigError(f"--idempotent needs --acks all, not {acks}.")
    if same_partitions and (form is Format.LINES or partition is not None):
        raise ConfigError("--same-partitions needs --format json, and takes no --partition.")
    options: dict[str, Any] = {"headers": [_header(item) for item in headers or ()]} if headers else {}
    if partition is not None:
        options["partition"] = partition
    as_text = (key_separator, null_value, key_format, value_format)
    parse: Callable[[bytes], InputRecord | None]
    if form is Format.LINES:
        parse = lines.Text(*as_text, options)
    elif as_text == (None, None, Encoding.TEXT, Encoding.TEXT):
        parse = lines.JsonLines(same_partitions, options)
    else:
        raise ConfigError("--format json takes no --key-separator, --null-value, --key-format or --value-format.")
    with ExitStack() as stack:
        source = Source([stack.enter_context(lines.opened(path)) for path in files or ()])
        sink = Sink(topic, _configuration(bootstrap, compression, acks, idempotent))
        with _progress(source, sink) as advance:
            sink.write(source.records(parse), advance)
    _report(sink, as_json)
    if source.problem:
        raise ClientError(source.problem)


def _header(item: str) -> tuple[str, bytes]:
    name, equals, value = item.partition("=")
    if not equals:
        raise ConfigError(f"--headers {item!r} should be KEY=VALUE.")
    return name, value.encode(errors="surrogateescape")


def _configuration(bootstrap: str, compression: Compression, acks: Acks, idempotent: bool) -> dict[str, Any]:
    return {
        **client.configuration(bootstrap),
        "compression.type": compression.value,
        "acks": acks.value,
        "enable.idempotence": idempotent,
        "delivery.report.only.error": True,  # success needs no call into Python
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 262_144,
        "topic.metadata.propagation.max.ms": int(TIMEOUT * 1000),
        "message.max.bytes": 100_000_000,  # the broker's max.message.bytes is to decide
        "message.timeout.ms": 120_000,  # the Java client's delivery.timeout.ms
    }


def _report(sink: Sink, as_json: bool) -> None:
    stored = sink.records - sink.failed
    if as_json:
        figures = {"records": stored, "bytes": sink.size, "failed": sink.failed, "seconds": round(sink.seconds, 3)}
        show_json({"topic": sink.topic, **figures})
    else:
        rate = f"{stored / sink.seconds:,.0f} records/s" if sink.seconds else ""
        typer.echo(f"{stored:,} records to {sink.topic} in {sink.seconds:.1f} s ({rate})", err=True)
    if sink.interrupted:
        lost = f"{sink.failed:,} {'was' if sink.failed == 1 else 'were'} not acknowledged"
        raise ClientError(f"Interrupted: {stored:,} of {sink.records:,} records were stored, {lost}.")
    if sink.failed:
        raise ClientError(f"{sink.failed:,} of {sink.records:,} records were not delivered: {sink.reason}.")


@contextmanager
def _progress(source: Source, sink: Sink) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, unless someone is typing there; gives the function that brings it up to date."""

    def columns() -> list[ProgressColumn]:
        from rich.progress import BarColumn, FileSizeColumn, TextColumn, TimeRemainingColumn

        return [BarColumn(), FileSizeColumn(), TextColumn("{task.fields[records]:,} records"), TimeRemainingColumn()]

    with progress(columns, source.size, not source.interactive, records=0) as update:
        # Keys and values without separators and newlines: near enough for a bar.
        yield lambda: update(completed=sink.size + sink.records, records=sink.records - len(sink.producer))
