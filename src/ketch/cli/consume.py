"""`ketch consume`: the records of a topic of any Kafka broker, as lines.

Partitions are assigned, not subscribed to: no consumer group comes to be, nothing is committed.
"""

from __future__ import annotations

import base64
import json
import string
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import client
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap, ClientError
from ketch.cli.output import unescape, until_interrupted
from ketch.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message
    from confluent_kafka.admin import AdminClient

_FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
_BATCH = 1000  # records a call into librdkafka gives at most
_WAIT = 0.1  # seconds it waits for that many: the delay of a lone record under --follow

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Formatter = Callable[["Message"], bytes]


class Format(StrEnum):
    """How a record is printed."""

    RAW = "raw"
    JSON = "json"
    TEMPLATE = "template"


def command(
    topic: Annotated[str, typer.Argument(help="The topic to read.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="beginning|end|OFFSET|TIMESTAMP",
            help="Where to begin; a timestamp is ISO 8601 (UTC where it has no zone) or @ and epoch milliseconds.",
        ),
    ] = "beginning",
    partition: Annotated[list[int] | None, typer.Option(min=0, help="Only this partition; may be repeated.")] = None,
    maximum: Annotated[int | None, typer.Option("--max", min=1, help="Stop after so many records.")] = None,
    form: Annotated[Format | None, typer.Option("--format", help="Values as lines (raw), JSON, or --template.")] = None,
    template: Annotated[
        str | None, typer.Option(help=f"For example '{{offset}} {{key}} {{value}}'; fields: {', '.join(_FIELDS)}.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on when the end is reached.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print records, one a line. Without --follow it ends where the topic ended when it began."""
    formatter = _formatter(form, template)
    position = _Position(start)
    with until_interrupted():
        admin = client.admin(bootstrap)
        (found,) = client.describe(admin, [topic])
        wanted = _wanted(found, partition)
        begin = position.offsets(admin, topic, wanted)
        end = None if follow else client.offsets(admin, topic, wanted, "latest")
        _Reader(topic, begin, end, client.configuration(bootstrap)).run(formatter, maximum)


def _wanted(topic: client.Topic, chosen: list[int] | None) -> list[int]:
    missing = sorted(set(chosen or ()) - set(topic.leaders))
    if missing:
        raise ClientError(f"Topic {topic.name} has no partition {missing[0]}; it has 0 to {max(topic.leaders)}.")
    return sorted(set(chosen)) if chosen else list(topic.leaders)


class _Position:
    """What --from says.

    Raises:
        ConfigError: it says nothing that is known.
    """

    def __init__(self, text: str) -> None:
        self.offset: int | None = None
        self.timestamp: int | None = None
        self.at_end = text == "end"
        if text in ("beginning", "end"):
            return
        try:
            if text.startswith("@"):
                self.timestamp = int(text[1:])
            elif text.isdecimal():
                self.offset = int(text)
            else:
                self.timestamp = _epoch_ms(datetime.fromisoformat(text))
        except ValueError:
            known = "beginning, end, an offset, a time such as 2026-01-31T12:00, or @ and epoch milliseconds"
            raise ConfigError(f"--from {text!r} should be {known}.") from None

    def offsets(self, admin: AdminClient, topic: str, partitions: list[int]) -> dict[int, int]:
        """The first offset to read of each partition."""
        earliest = client.offsets(admin, topic, partitions, "earliest")
        if self.offset is not None:
            return {p: max(self.offset, earliest[p]) for p in partitions}
        if self.at_end:
            return client.offsets(admin, topic, partitions, "latest")
        if self.timestamp is None:
            return earliest
        latest = client.offsets(admin, topic, partitions, "latest")
        found = client.offsets(admin, topic, partitions, self.timestamp)
        # Offset -1: no record is that late, so only what is still to come.
        return {p: latest[p] if found[p] < 0 else found[p] for p in partitions}


def _epoch_ms(moment: datetime) -> int:
    """UTC where there is no zone, as in Kafka's own tools (Utils.getDateTime)."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


class _Reader:
    """Reads partitions from `begin` up to `end`, or for ever where that is None. Offsets by partition."""

    def __init__(
        self, topic: str, begin: dict[int, int], end: dict[int, int] | None, configuration: dict[str, Any]
    ) -> None:
        self.topic = topic
        self.begin = begin
        self.end = end
        self.open = {p for p in begin if end is None or begin[p] < end[p]}
        self.down = False
        self.configuration = {
            **configuration,
            "group.id": "ketch-consume",  # the library wants one; assign() with offsets makes no use of it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",
            "error_cb": self._connection_failed,
            "fetch.queue.backoff.ms": 10,  # by default a full queue stops fetching for a second
            "queued.min.messages": 200_000,
        }

    def run(self, formatter: Formatter, maximum: int | None) -> None:
        """Prints. Raises ClientError when a partition cannot be read any more."""
        if not self.open:
            return
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self.configuration)
        try:
            consumer.assign([TopicPartition(self.topic, p, self.begin[p]) for p in sorted(self.open)])
            self._print(consumer, formatter, maximum)
        finally:
            consumer.close()

    def _print(self, consumer: Consumer, formatter: Formatter, maximum: int | None) -> None:
        write, flush = sys.stdout.buffer.write, sys.stdout.buffer.flush
        left, heard = maximum, time.monotonic()
        while self.open and left != 0:
            messages = consumer.consume(_BATCH if left is None else min(left, _BATCH), _WAIT)
            if messages:
                self.down, heard = False, time.monotonic()
            elif self.down and self.end is not None and time.monotonic() - heard > client.TIMEOUT:
                raise ClientError("The broker went away before the end of the topic.")
            for message in self._wanted(messages):
                write(formatter(message) + b"\n")
                if left is not None:
                    left -= 1
            flush()

    def _connection_failed(self, error: KafkaError) -> None:
        """Under --follow a broker may come back; without it there is an end to reach."""
        self.down = self.down or error.code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN)

    def _wanted(self, messages: list[Any]) -> Iterator[Message]:
        """The records among them that lie before the end; partitions that are through leave `open`."""
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if error := message.error():
                self._note(error, partition, offset)
                continue
            if self.end is None:
                yield message
                continue
            end = self.end[partition]
            if partition in self.open and offset < end:
                yield message
            if offset + 1 >= end:
                self.open.discard(partition)

    def _note(self, error: Any, partition: int, offset: int) -> None:
        from confluent_kafka import KafkaError

        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            # Its offset is where the next record would be: the tail of a log may hold none (transaction markers).
            if self.end is not None and offset >= self.end[partition]:
                self.open.discard(partition)
        elif code == KafkaError._AUTO_OFFSET_RESET:
            raise ClientError(f"Partition {partition} has no offset {offset}; it may have been trimmed meanwhile.")
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
            raise ClientError(f"Topic {self.topic} cannot be read any more: {client.explain(error)}.")


# -- formats


def _formatter(form: Format | None, template: str | None) -> Formatter:
    form = form or (Format.RAW if template is None else Format.TEMPLATE)
    if (form is Format.TEMPLATE) != (template is not None):
        raise ConfigError("--template and --format template go together.")
    if form is Format.JSON:
        return _json
    return _raw if template is None else _Template(template)


def _raw(message: Message) -> bytes:
    return message.value() or b""


def _json(message: Message) -> bytes:
    record: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": _timestamp(message),
        **_text("key", message.key()),
        **_text("value", message.value()),
        "headers": None,
    }
    if (headers := _headers(message)) is not None:
        record["headers"] = [{"key": name, **_text("value", value)} for name, value in headers]
    return _encode(record).encode()


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    """{name: text}, or {name_base64: ...} for what is not UTF-8; null stays null."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _timestamp(message: Message) -> int | None:
    """Epoch milliseconds; None where the record has none."""
    ms = message.timestamp()[1]
    return None if ms < 0 else ms


def _headers(message: Any) -> list[tuple[str, bytes | None]] | None:
    """None where a name is not UTF-8: confluent-kafka cannot give any of them then (it raises a SystemError)."""
    try:
        return message.headers() or []
    except (SystemError, UnicodeDecodeError):
        return None


class _Template:
    """str.format over a record. Bytes that are not UTF-8 pass through as they are; null is printed as `null`."""

    def __init__(self, template: str) -> None:
        self.template = unescape("--template", template).decode(errors="surrogateescape")
        try:
            names = {name for _, name, _, _ in string.Formatter().parse(self.template) if name is not None}
        except ValueError as error:
            raise ConfigError(f"--template {template!r} is not allowed: {error}.") from None
        if unknown := sorted(names - set(_FIELDS)):
            raise ConfigError(f"--template has no field {unknown[0]!r}; the fields are {', '.join(_FIELDS)}.")

    def __call__(self, message: Message) -> bytes:
        timestamp = _timestamp(message)
        text = self.template.format(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            timestamp="null" if timestamp is None else timestamp,
            time="null" if timestamp is None else _iso(timestamp),
            key=_lossless(message.key()),
            value=_lossless(message.value()),
            headers=",".join(f"{name}={_lossless(value)}" for name, value in _headers(message) or ()),
        )
        return text.encode(errors="surrogateescape")


def _lossless(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="surrogateescape")


def _iso(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):  # beyond the year 9999
        return str(ms)
