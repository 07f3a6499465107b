"""Records as text, both ways: how `ketch consume` prints them, and the JSON lines that `ketch produce` reads again.

The JSON of a record: topic, partition, offset, timestamp (epoch ms or null), key, value, and headers, a list of
{key, value}. A key or value is text under its own name, null where there is none, or under NAME_base64 or NAME_hex.
Pure functions on bytes: nothing here reads, writes or knows a client.
"""

from __future__ import annotations

import base64
import binascii
import json
import string
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli.output import unescape
from ketch.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka import Message

FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")

Formatter = Callable[["Message"], bytes]

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Encoding(StrEnum):
    """How bytes are written as text."""

    TEXT = "text"
    BASE64 = "base64"
    HEX = "hex"

    def to_text(self, data: bytes) -> bytes:
        """`data` itself where it is to be text, which need not be UTF-8."""
        if self is Encoding.TEXT:
            return data
        return base64.b64encode(data) if self is Encoding.BASE64 else data.hex().encode()

    def from_text(self, text: bytes) -> bytes:
        """Raises ValueError, with a phrase that says why."""
        if self is Encoding.TEXT:
            return text
        try:
            return base64.b64decode(text, validate=True) if self is Encoding.BASE64 else binascii.unhexlify(text)
        except binascii.Error:
            shown = text[:40].decode(errors="replace")
            raise ValueError(f"{shown!r} is no {'Base64' if self is Encoding.BASE64 else 'hexadecimal'}") from None


KeyFormat = Annotated[Encoding, typer.Option("--key-format", help="How keys are written.")]
ValueFormat = Annotated[Encoding, typer.Option("--value-format", help="How values are written.")]

# -- printing


def raw(encoding: Encoding) -> Formatter:
    """Values alone; an empty line for null."""
    if encoding is Encoding.TEXT:
        return lambda message: message.value() or b""
    return lambda message: encoding.to_text(message.value() or b"")


def as_json(key: Encoding, value: Encoding) -> Formatter:
    def formatter(message: Message) -> bytes:
        record: dict[str, Any] = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": _timestamp(message),
            **_text("key", message.key(), key),
            **_text("value", message.value(), value),
            "headers": None,
        }
        if (headers := _headers(message)) is not None:
            record["headers"] = [{"key": name, **_text("value", data)} for name, data in headers]
        return _dump(record).encode()

    return formatter


def _text(name: str, data: bytes | None, encoding: Encoding = Encoding.TEXT) -> dict[str, str | None]:
    """{name: text}; {name_base64: ...} for what is not UTF-8 or where it is asked for; null stays null."""
    if data is None:
        return {name: None}
    if encoding is Encoding.TEXT:
        try:
            return {name: data.decode()}
        except UnicodeDecodeError:
            encoding = Encoding.BASE64
    return {f"{name}_{encoding}": encoding.to_text(data).decode()}


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


class Template:
    """str.format over a record. Bytes that are not UTF-8 pass through as they are; null is printed as `null`.

    Raises:
        ConfigError: an unknown field, or braces that do not match.
    """

    def __init__(self, template: str, key: Encoding, value: Encoding) -> None:
        self.template = unescape("--template", template).decode(errors="surrogateescape")
        self.key, self.value = key, value
        try:
            names = {name for _, name, _, _ in string.Formatter().parse(self.template) if name is not None}
        except ValueError as error:
            raise ConfigError(f"--template {template!r} is not allowed: {error}.") from None
        if unknown := sorted(names - set(FIELDS)):
            raise ConfigError(f"--template has no field {unknown[0]!r}; the fields are {', '.join(FIELDS)}.")

    def __call__(self, message: Message) -> bytes:
        timestamp = _timestamp(message)
        text = self.template.format(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            timestamp="null" if timestamp is None else timestamp,
            time="null" if timestamp is None else iso(timestamp),
            key=_lossless(message.key(), self.key),
            value=_lossless(message.value(), self.value),
            headers=",".join(f"{name}={_lossless(data)}" for name, data in _headers(message) or ()),
        )
        return text.encode(errors="surrogateescape")


def _lossless(data: bytes | None, encoding: Encoding = Encoding.TEXT) -> str:
    return "null" if data is None else encoding.to_text(data).decode(errors="surrogateescape")


def iso(ms: int) -> str:
    """Of epoch milliseconds, in UTC; the number itself beyond the year 9999."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(ms)


# -- reading JSON again

_NAMES = {
    name: {name: None, **{f"{name}_{e}": e for e in (Encoding.BASE64, Encoding.HEX)}} for name in ("key", "value")
}
_KNOWN = {"topic", "partition", "offset", "timestamp", "headers", *_NAMES["key"], *_NAMES["value"]}


def from_json(line: bytes, same_partition: bool) -> tuple[bytes | None, bytes | None, dict[str, Any]]:
    """Key, value, and arguments of Producer.produce: headers, timestamp and, where it is to be the same, partition.

    Raises:
        ValueError: it is no record; the message is a phrase.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({str(error).lower()})") from None
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    if unknown := sorted(fields.keys() - _KNOWN):
        raise ValueError(f"there is no field {unknown[0]!r}")
    if not fields.keys() & _NAMES["value"].keys():
        raise ValueError("it has no value, which may be null")
    options: dict[str, Any] = {}
    if headers := fields.get("headers"):
        options["headers"] = _headers_of(headers)
    if fields.get("timestamp") is not None:
        options["timestamp"] = _number(fields, "timestamp", least=1)  # librdkafka takes 0 for now
    if same_partition:
        options["partition"] = _number(fields, "partition", least=0)
    return _bytes(fields, "key"), _bytes(fields, "value"), options


def _number(fields: Mapping[str, Any], name: str, least: int) -> int:
    number = fields.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number < 2**63:
        raise ValueError(f"{name} {number!r} is no number from {least} on")
    return number


def _headers_of(headers: Any) -> list[tuple[str, bytes | None]]:
    if not isinstance(headers, list) or not all(isinstance(item, dict) for item in headers):
        raise ValueError("headers is no list of objects")
    found = []
    for item in headers:
        if unknown := sorted(item.keys() - {"key", *_NAMES["value"]}):
            raise ValueError(f"a header has no field {unknown[0]!r}")
        if not isinstance(item.get("key"), str):
            raise ValueError("a header has no key that is text")
        found.append((item["key"], _bytes(item, "value")))
    return found


def _bytes(fields: Mapping[str, Any], name: str) -> bytes | None:
    """Of a key or value under whichever of its names is there; None for null or none."""
    given = [field for field in _NAMES[name] if field in fields]
    if len(given) > 1:
        raise ValueError(f"it has both {given[0]} and {given[1]}")
    text = fields[given[0]] if given else None
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{given[0]} is neither text nor null")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{given[0]} has half a surrogate pair, which is no text") from None
    encoding = _NAMES[name][given[0]]
    return data if encoding is None else encoding.from_text(data)
