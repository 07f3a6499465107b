"""`ketch produce`: lines of text to a topic of any Kafka broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import client
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap, ClientError
from ketch.cli.output import Json, show_json, unescape
from ketch.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

# Records between two updates of the progress bar: often enough for an eye, seldom enough to cost nothing.
_STEP = 4096


class Compression(StrEnum):
    """KIP-110 and before."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Which replicas must have a record before it counts as delivered."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


def command(
    topic: Annotated[str, typer.Argument(help="The topic to write to.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Files to read instead of standard input.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="Ends the key of a line (\\t is a tab); a line without it has a null key.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A header of every record; may be repeated.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Default: by key, as the Java client does.")] = None,
    compression: Annotated[Compression, typer.Option(help="Compression of batches.")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option(help="Acknowledgements to wait for.")] = Acks.ALL,
    idempotent: Annotated[bool, typer.Option("--idempotent", help="No duplicates when the client retries.")] = False,
    null_value: Annotated[
        str | None, typer.Option(metavar="MARKER", help="A line with this value becomes a null value (a tombstone).")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Write lines, one record each, and wait until the broker has them.

    Ctrl-C ends the input. The first record that cannot be delivered ends it too, with exit code 1.
    """
    if idempotent and acks is not Acks.ALL:
        raise ConfigError(f"--idempotent needs --acks all, not {acks}.")
    split = _Splitter(_separator(key_separator), None if null_value is None else null_value.encode())
    options: dict[str, Any] = {"headers": [_header(item) for item in headers or ()]} if headers else {}
    if partition is not None:
        options["partition"] = partition
    with ExitStack() as stack:
        sources = _Sources([stack.enter_context(_open(path)) for path in files or ()])
        sink = _Sink(topic, _configuration(bootstrap, compression, acks, idempotent), options)
        with _progress(sources, sink) as advance:
            sink.write(split.records(sources.lines()), advance)
    _report(sink, as_json)


def _separator(text: str | None) -> bytes | None:
    separator = None if text is None else unescape("--key-separator", text)
    if separator == b"":
        raise ConfigError("--key-separator should not be empty.")
    return separator


def _header(item: str) -> tuple[str, bytes]:
    name, equals, value = item.partition("=")
    if not equals:
        raise ConfigError(f"--headers {item!r} should be KEY=VALUE.")
    return name, value.encode(errors="surrogateescape")


def _open(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None


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
        "topic.metadata.propagation.max.ms": int(client.TIMEOUT * 1000),
        "message.max.bytes": 100_000_000,  # the broker's max.message.bytes is to decide
        "message.timeout.ms": 120_000,  # the Java client's delivery.timeout.ms
    }


class _Sources:
    """Files, or standard input, as lines; counts bytes for the progress bar."""

    def __init__(self, files: list[Any]) -> None:
        self._files = files or [sys.stdin.buffer]
        self.size = sum(Path(file.name).stat().st_size for file in files) if files else None
        self.interactive = not files and sys.stdin.isatty()

    def lines(self) -> Iterator[bytes]:
        """Without the newline; a last line without one counts as well."""
        for file in self._files:
            for line in file:
                yield line[:-1] if line.endswith(b"\n") else line


@dataclass(slots=True)
class _Splitter:
    """Lines to (key, value)."""

    separator: bytes | None
    null: bytes | None

    def records(self, lines: Iterable[bytes]) -> Iterator[tuple[bytes | None, bytes | None]]:
        separator, null = self.separator, self.null
        for line in lines:
            key: bytes | None = None
            value: bytes | None = line
            if separator is not None:
                head, found, tail = line.partition(separator)
                if found:
                    key, value = head, tail
            yield key, None if value == null else value


class _Sink:
    """A producer and what became of its records.

    Args:
        configuration: librdkafka's properties.
        options: of every record: `partition`, `headers`.
    """

    def __init__(self, topic: str, configuration: dict[str, Any], options: dict[str, Any]) -> None:
        from confluent_kafka import Producer

        self.producer: Producer = Producer({**configuration, "on_delivery": self._delivered})
        self.topic, self.options = topic, options
        self.records = self.size = self.failed = 0
        self.reason = ""
        self.started = time.monotonic()
        self.seconds = 0.0

    def write(self, records: Iterable[tuple[bytes | None, bytes | None]], advance: Callable[[], None]) -> None:
        """Takes all records, until one fails, and waits for the broker."""
        # Ctrl-C is the end of the input; a second one, while records are on their way, gives those up.
        with suppress(KeyboardInterrupt):
            self._queue(records, advance)
        try:
            while self.producer.flush(0.2):
                advance()
        except KeyboardInterrupt:
            self.failed += len(self.producer)
            self.reason = self.reason or "interrupted"
            self.producer.purge()
        self.seconds = time.monotonic() - self.started

    def _queue(self, records: Iterable[tuple[bytes | None, bytes | None]], advance: Callable[[], None]) -> None:
        from confluent_kafka import KafkaException

        produce, poll, topic, options = self.producer.produce, self.producer.poll, self.topic, self.options
        for key, value in records:
            self.records += 1
            try:
                while True:
                    try:
                        produce(topic, value, key, **options)
                        break
                    except BufferError:  # the queue is full: the broker is slower than the input
                        poll(0.05)
            except KafkaException as error:
                self._delivered(error.args[0], None)
            self.size += len(value or b"") + len(key or b"")
            if not self.records % _STEP:
                advance()
            poll(0)
            if self.failed:
                break

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failed += 1
            self.reason = self.reason or client.explain(error)


def _report(sink: _Sink, as_json: bool) -> None:
    delivered = sink.records - sink.failed
    if as_json:
        figures = {"records": delivered, "bytes": sink.size, "failed": sink.failed, "seconds": round(sink.seconds, 3)}
        show_json({"topic": sink.topic, **figures})
    else:
        rate = f"{delivered / sink.seconds:,.0f} records/s" if sink.seconds else ""
        typer.echo(f"{delivered:,} records to {sink.topic} in {sink.seconds:.1f} s ({rate})", err=True)
    if sink.failed:
        raise ClientError(f"{sink.failed:,} of {sink.records:,} records were not delivered: {sink.reason}.")


@contextmanager
def _progress(sources: _Sources, sink: _Sink) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, unless someone is typing there; gives the function that brings it up to date."""
    if sources.interactive or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, FileSizeColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [BarColumn(), FileSizeColumn(), TextColumn("{task.fields[records]:,} records"), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=sources.size, records=0)

        def advance() -> None:
            # Keys and values without separators and newlines: near enough for a bar.
            progress.update(task, completed=sink.size + sink.records, records=sink.records - len(sink.producer))

        yield advance
