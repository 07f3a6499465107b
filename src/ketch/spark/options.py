"""The options of `format("ketch")`: those of Spark's Kafka source and sink, and where Redis is.

Names are case-insensitive, as everywhere in Spark. An unknown one is an error that lists the right ones; options that
speak to a Kafka client (`kafka.*` and the like) have no meaning here and are passed over with a warning, so that a job
moves from `kafka` to `ketch` by its format and its address.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from ketch.errors import ConfigError
from ketch.redis.server import Server
from ketch.similar import hint
from ketch.store.keys import TopicPartition

EARLIEST = -2
LATEST = -1

FIRST_S = 3.0  # how long the first question of a read or write waits for Redis

Offsets: TypeAlias = dict[TopicPartition, int]
Tier = Literal["all", "hot", "archive"]

_REDIS = ("redis.url", "redis.ca", "redis.cert", "redis.key", "redis.timeout.ms", "redis.retry.ms", "keyspace")
_READ = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss",
    "includeHeaders", "tier", "archive.catalog", "isolation.level",
)  # fmt: skip
_READ_BATCH = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_READ_STREAM = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_WRITE = ("topic", "includeHeaders")
_SPARKS_OWN = frozenset(("checkpointlocation", "queryname"))  # come along from DataStreamWriter
_KAFKA_CLIENT = re.compile(
    r"kafka\..*|kafkaconsumer\..*|fetchoffset\..*|groupidprefix|usedeprecatedoffsetfetching", re.IGNORECASE
)
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, None: 0.001}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a read begins or ends: at `everywhere` (EARLIEST, LATEST), at offsets, or at times (ms)."""

    everywhere: int = EARLIEST
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] | None = None
    option: str = ""  # where it was given, for errors


@dataclass(frozen=True, slots=True)
class Topics:
    """Which partitions are read; one of the three is given."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a reader. Sizes are numbers of records."""

    server: Server
    keyspace: str
    topics: Topics
    start: Position
    end: Position
    unmatched_start: Literal["error", "latest"] = "error"
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_per_trigger: int | None = None
    min_per_trigger: int | None = None
    max_trigger_delay: float = 900.0  # s
    fail_on_data_loss: bool = True
    include_headers: bool = False
    tier: Tier = "all"
    catalog: str = "ketch"  # of the archive, in pyiceberg's configuration
    committed: bool = True  # no records of transactions that are open or were aborted


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a writer."""

    server: Server
    keyspace: str
    topic: str | None = None


def include_headers(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column `headers`."""
    return _Given(options).flag("includeHeaders", False)


def read_options(options: Mapping[str, str], streaming: bool) -> ReadOptions:
    """The options of a batch or a streaming read.

    Raises:
        ConfigError: one sentence that says what is wrong and what would be right.
    """
    given = _Given(options)
    given.check((*_REDIS, *_READ, *_READ_BATCH, *_READ_STREAM))
    for name in _READ_BATCH if streaming else ():
        given.refuse(name, "is for batch reads, a stream has no end")
    for name in () if streaming else _READ_STREAM:
        given.warn(name, "is for streams and has no effect on a batch read")
    end = _position(given, "ending", LATEST)
    start = _position(given, "starting", LATEST if streaming else EARLIEST)
    if not streaming:
        _refuse_offset(start, LATEST, "latest")
        _refuse_offset(end, EARLIEST, "earliest")
    return ReadOptions(
        server=_server(given),
        keyspace=given.text("keyspace") or "korvet",
        topics=_topics(given),
        start=start,
        end=end,
        unmatched_start=cast(Any, given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        max_per_trigger=given.count("maxOffsetsPerTrigger"),
        min_per_trigger=given.count("minOffsetsPerTrigger"),
        max_trigger_delay=given.seconds("maxTriggerDelay", 900.0),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_headers=given.flag("includeHeaders", False),
        catalog=given.text("archive.catalog") or "ketch",
        committed=given.choice("isolation.level", ("read_committed", "read_uncommitted")) == "read_committed",
        tier=cast(Tier, given.choice("tier", ("all", "hot", "archive"))),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a batch or a streaming write; raises as `read_options`."""
    given = _Given(options)
    given.check((*_REDIS, *_WRITE))
    return WriteOptions(_server(given), given.text("keyspace") or "korvet", given.text("topic"))


class _Given:
    """Options as they were given, looked up in any case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def check(self, known: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in known}
        for name in self._values.keys() - names.keys() - _SPARKS_OWN:
            if _KAFKA_CLIENT.fullmatch(name):
                log.warning("option %s is for Kafka's client and has no effect on the format ketch", name)
                continue
            options = sorted(names.values())
            raise ConfigError(f"Unknown option {name}{hint(name, options)}. The options are {', '.join(options)}.")

    def refuse(self, name: str, reason: str) -> None:
        if name.lower() in self._values:
            raise ConfigError(f"Option {name} {reason}.")

    def warn(self, name: str, reason: str) -> None:
        if name.lower() in self._values:
            log.warning("option %s %s", name, reason)

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return value.strip() if value is not None and value.strip() else None

    def flag(self, name: str, default: bool) -> bool:
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise ConfigError(f"Option {name} is true or false, not {value!r}.")
        return value == "true"

    def count(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and int(value) > 0):
            raise ConfigError(f"Option {name} is a number of at least 1, not {value!r}.")
        return int(value)

    def choice(self, name: str, values: tuple[str, ...]) -> str:
        value = (self.text(name) or values[0]).lower()
        if value not in values:
            raise ConfigError(f"Option {name} is one of {', '.join(values)}, not {value!r}.")
        return value

    def seconds(self, name: str, default: float) -> float:
        value = self.text(name)
        match = _DURATION.fullmatch(value) if value else None
        if value and not match:
            raise ConfigError(f"Option {name} is a time such as 500ms, 30s or 15m, not {value!r}.")
        return int(match[1]) * _SECONDS[match[2]] if match else default


def _server(given: _Given) -> Server:
    url = given.text("redis.url")
    if url is None:
        raise ConfigError(
            "Option redis.url is missing: the Redis that holds the topics, e.g. redis://localhost:6379"
            " (kafka.bootstrap.servers has no meaning here)."
        )
    timeout = given.count("redis.timeout.ms") or 10_000
    retry = given.count("redis.retry.ms") or 60_000
    ca, cert, key = (given.text(name) for name in ("redis.ca", "redis.cert", "redis.key"))
    server = Server(url, ca, cert, key, timeout / 1000, retry / 1000)
    server.address()
    return server


def _topics(given: _Given) -> Topics:
    values = {name: value for name in ("subscribe", "subscribePattern", "assign") if (value := given.text(name))}
    if len(values) != 1:
        raise ConfigError("Give exactly one of the options subscribe, subscribePattern and assign.")
    if "subscribe" in values:
        names = tuple(dict.fromkeys(part for part in re.split(r"[,\s]+", values["subscribe"]) if part))
        if not names:
            raise ConfigError("Option subscribe names no topic.")
        return Topics(names=names)
    if "subscribePattern" in values:
        try:
            re.compile(values["subscribePattern"])
        except re.error as error:
            raise ConfigError(f"Option subscribePattern is no regular expression: {error}.") from None
        return Topics(pattern=values["subscribePattern"])
    return Topics(assigned=_assigned(values["assign"]))


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    table = _json("assign", value, '{"orders":[0,1]}')
    if not all(isinstance(parts, list) and all(map(_natural, parts)) for parts in table.values()):
        raise ConfigError('Option assign is JSON such as {"orders":[0,1]}.')
    assigned = tuple((topic, part) for topic, parts in table.items() for part in parts)
    if not assigned:
        raise ConfigError("Option assign names no partition.")
    return assigned


def _position(given: _Given, which: str, default: int) -> Position:
    """startingTimestamp before startingOffsetsByTimestamp before startingOffsets, as in Spark's Kafka source."""
    option = f"{which}Timestamp"
    timestamp = given.text(option)
    if timestamp is not None:
        if not (timestamp.isascii() and timestamp.isdigit()):
            raise ConfigError(f"Option {option} is ms since the epoch, not {timestamp!r}.")
        return Position(timestamp=int(timestamp), option=option)
    option = f"{which}OffsetsByTimestamp"
    if value := given.text(option):
        return Position(timestamps=_by_partition(option, value, least=0), option=option)
    option = f"{which}Offsets"
    value = given.text(option)
    if value is None or value.lower() in ("earliest", "latest"):
        word = {None: default, "earliest": EARLIEST, "latest": LATEST}[value.lower() if value else None]
        return Position(everywhere=word, option=option)
    return Position(offsets=_by_partition(option, value, least=EARLIEST), option=option)


def _refuse_offset(position: Position, offset: int, word: str) -> None:
    given = (position.offsets or {}).values()
    if offset in given or (position.everywhere == offset and position.option.endswith("Offsets") and not given):
        raise ConfigError(f"Option {position.option} cannot be {word} ({offset}) in a batch read.")


def _by_partition(option: str, value: str, least: int) -> Offsets:
    example = '{"orders":{"0":23,"1":-2}}' if least < 0 else '{"orders":{"0":1795263435633}}'
    table = _json(option, value, example)
    parsed: Offsets = {}
    for topic, partitions in table.items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"Option {option} is JSON such as {example}.")
        for partition, number in partitions.items():
            if not (partition.isascii() and partition.isdigit() and _integer(number) and number >= least):
                raise ConfigError(f"Option {option} is JSON such as {example}.")
            parsed[topic, int(partition)] = number
    return parsed


def _json(option: str, value: str, example: str) -> dict[str, Any]:
    try:
        table = json.loads(value)
    except ValueError:
        table = None
    if not isinstance(table, dict):
        raise ConfigError(f"Option {option} is JSON such as {example}, not {value!r}.")
    return table


def _integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
