"""Requests of every API and version from keyword arguments, through kio's own entities (not through ketch.wire).

A field that a version does not know is left out, one that is not given gets kio's default, or the type's zero.
Durations are given in milliseconds.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from kio.index import load_request_schema, load_response_schema

from tests.support import batches
from tests.support.raw import RawClient

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID, DESCRIBE_CONFIGS = 19, 20, 21, 22, 32
ALTER_CONFIGS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS = 33, 37, 44
LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS = 74, 75
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_LOG_DIRS, ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 23, 35, 43, 45, 46
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS, DESCRIBE_QUORUM, UPDATE_FEATURES, DESCRIBE_CLUSTER = 48, 49, 55, 57, 60
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = 24, 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
FIND_COORDINATOR = 10
SASL_HANDSHAKE, SASL_AUTHENTICATE, DESCRIBE_USERS, ALTER_USERS = 17, 36, 50, 51
CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKEN = TOKENS = range(38, 42)
ON_DEMAND = GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72  # named by ApiVersions while there is a subscription
SERVED = {
    PRODUCE: range(3, 14),
    FETCH: range(4, 17),
    LIST_OFFSETS: range(1, 10),
    METADATA: range(13),
    API_VERSIONS: range(5),
    SASL_HANDSHAKE: range(2),
    SASL_AUTHENTICATE: range(3),
    CREATE_TOKEN: range(1, 4),
    RENEW_TOKEN: range(1, 3),
    EXPIRE_TOKEN: range(1, 3),
    DESCRIBE_TOKEN: range(1, 4),
    DESCRIBE_USERS: range(1),
    ALTER_USERS: range(1),
    CREATE_TOPICS: range(2, 8),
    DELETE_TOPICS: range(1, 7),
    DELETE_RECORDS: range(3),
    INIT_PRODUCER_ID: range(6),
    OFFSET_FOR_LEADER_EPOCH: range(2, 5),
    DESCRIBE_CONFIGS: range(1, 5),
    ALTER_CONFIGS: range(3),
    DESCRIBE_LOG_DIRS: range(1, 5),
    CREATE_PARTITIONS: range(4),
    ELECT_LEADERS: range(3),
    INCREMENTAL_ALTER_CONFIGS: range(2),
    ALTER_REASSIGNMENTS: range(2),
    LIST_REASSIGNMENTS: range(1),
    DESCRIBE_CLIENT_QUOTAS: range(2),
    ALTER_CLIENT_QUOTAS: range(2),
    DESCRIBE_QUORUM: range(3),
    UPDATE_FEATURES: range(3),
    DESCRIBE_CLUSTER: range(3),
    GET_TELEMETRY_SUBSCRIPTIONS: range(1),
    PUSH_TELEMETRY: range(1),
    LIST_CONFIG_RESOURCES: range(2),
    DESCRIBE_TOPIC_PARTITIONS: range(1),
    ADD_PARTITIONS_TO_TXN: range(6),
    ADD_OFFSETS_TO_TXN: range(5),
    END_TXN: range(6),
    WRITE_TXN_MARKERS: range(1, 2),
    TXN_OFFSET_COMMIT: range(6),
    DESCRIBE_PRODUCERS: range(1),
    DESCRIBE_TRANSACTIONS: range(1),
    LIST_TRANSACTIONS: range(3),
}
NO_ID = UUID(int=0)


def versions(key: int) -> list[int]:
    return list(SERVED[key])


def entity(schema: type[Any], given: Mapping[str, Any]) -> Any:
    """The kio entity with the fields given, as far as this version knows them."""
    values = {}
    for name, kind, inner, optional, default in _shape(schema):
        if name in given:
            values[name] = _convert(kind, inner, given[name])
        elif default is MISSING:
            values[name] = () if inner[0] else None if optional else _zero(kind)
    return schema(**values)


@cache
def _shape(schema: type[Any]) -> tuple[tuple[str, str | None, tuple[bool, Any], bool, Any], ...]:
    hints = typing.get_type_hints(schema)
    shape = []
    for f in fields(schema):
        optional = type(None) in typing.get_args(hints[f.name])
        shape.append((f.name, f.metadata.get("kafka_type"), _inside(hints[f.name]), optional, f.default))
    return tuple(shape)


def _inside(hint: Any) -> tuple[bool, Any]:
    """(is it an array, the type in it)."""
    options = [option for option in typing.get_args(hint) if option not in (type(None), Ellipsis)]
    if typing.get_origin(hint) is tuple:
        return True, options[0]
    return _inside(options[0]) if len(options) == 1 else (False, hint)


def _convert(kind: str | None, inner: tuple[bool, Any], value: Any) -> Any:
    array, of = inner
    if value is None:
        return None
    if array:
        return tuple(_convert(kind, (False, of), item) for item in value)
    if kind is None:
        return entity(of, value)
    if kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    return value


def _zero(kind: str | None) -> Any:
    if kind is not None and kind.startswith("timedelta"):
        return timedelta()
    return {"string": "", "bool": False, "uuid": None, "bytes": b""}.get(kind or "", 0)


def ms(moment: datetime | None) -> int:
    """Milliseconds since the epoch; -1 for none."""
    return -1 if moment is None else (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Kafka(RawClient):
    """A connection with a method for every API; answers are kio's entities, or the one partition's part of them."""

    def __init__(self, port: int, timeout: float = 10.0, client_id: str | None = "raw", source: str = "") -> None:
        super().__init__("127.0.0.1", port, timeout, client_id, source)

    def request(self, key: int, version: int, /, **given: Any) -> bytes:
        """The frame without its length."""
        return self.encode(entity(load_request_schema(key, version), given))

    def send(self, key: int, version: int, /, **given: Any) -> int:
        """Sends it and gives the correlation id; the answer is for `answer`."""
        self.send_frame(self.request(key, version, **given))
        return self.correlation_id

    def answer(self, key: int, version: int) -> tuple[int, Any]:
        frame = self.receive()
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        return self.decode(frame, load_response_schema(key, version))

    def ask(self, key: int, version: int, /, **given: Any) -> Any:
        sent = self.send(key, version, **given)
        correlation_id, answer = self.answer(key, version)
        assert correlation_id == sent
        return answer

    def closed(self) -> bool:
        """Whether the broker has closed the connection without another answer; waits for it."""
        return self.receive() is None

    # -- Produce

    def produce(self, topic: str | UUID, data: bytes | None, version: int = 9, partition: int = 0, **given: Any) -> Any:
        answer = self.ask(PRODUCE, version, **produce(topic, data, partition, **given))
        return answer.responses[0].partition_responses[0]

    def stored(self, topic: str | UUID, data: bytes, version: int = 9, partition: int = 0, **given: Any) -> int:
        """The base offset of what must be stored."""
        answer = self.produce(topic, data, version, partition, **given)
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    # -- Fetch

    def fetch(self, topic: str | UUID, offset: int, version: int = 12, partition: int = 0, **given: Any) -> Any:
        answer = self.ask(FETCH, version, **fetch([part(topic, partition, offset, **given)], **given))
        assert answer.responses, answer
        return answer.responses[0].partitions[0]

    def read_all(self, topic: str, offset: int | None = None, partition: int = 0) -> list[Record]:
        """Every record from an offset on, or from the log's start, by as many fetches as it takes."""
        offset = self.list_offsets(topic, -2, partition=partition).offset if offset is None else offset
        found: list[Record] = []
        while True:
            answer = self.fetch(topic, offset, partition=partition, max_wait=0)
            assert answer.error_code == 0, answer
            if offset >= answer.high_watermark:
                return found
            read = split(answer.records)
            found += [record for batch in read for record in batch.records if record.offset >= offset]
            assert read, f"nothing at {offset} below {answer.high_watermark}"
            offset = read[-1].last_offset + 1

    # -- the rest

    def list_offsets(self, topic: str, timestamp: int, version: int = 9, partition: int = 0, **given: Any) -> Any:
        asked = {"partition_index": partition, "timestamp": timestamp, **given}
        answer = self.ask(LIST_OFFSETS, version, replica_id=-1, topics=[{"name": topic, "partitions": [asked]}])
        return answer.topics[0].partitions[0]

    def metadata(self, *names: str, version: int = 12, create: bool = True, **given: Any) -> Any:
        topics = [{"name": name} for name in names]
        return self.ask(METADATA, version, **{"topics": topics, "allow_auto_topic_creation": create, **given})

    def topic_id(self, name: str) -> UUID:
        found = self.metadata(name, create=False).topics[0].topic_id
        assert isinstance(found, UUID)
        return found

    def create(self, name: str, partitions: int = 1, version: int = 7, timeout: int = 10_000, **configs: Any) -> Any:
        """Creates a topic; config names with `_` for `.`."""
        settings = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": -1, "configs": settings}
        answer = self.ask(CREATE_TOPICS, version, topics=[topic], timeout=timeout)
        assert answer.topics[0].error_code == 0, answer
        return answer.topics[0]

    def producer_id(self) -> int:
        answer = self.ask(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=60_000)
        assert answer.error_code == 0
        return int(answer.producer_id)


def produce(
    topic: str | UUID, data: bytes | None, partition: int = 0, acks: int = -1, timeout: int = 10_000, **given: Any
) -> Any:
    """The fields of a Produce request to one partition."""
    parts = [{"name": topic, "topic_id": topic, "partition_data": [{"index": partition, "records": data}]}]
    return {"acks": acks, "timeout": timeout, "topic_data": parts, **given}


def part(topic: str | UUID, partition: int, offset: int, partition_max_bytes: int = 1 << 20, **given: Any) -> Any:
    """One partition of a Fetch request."""
    inner = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
    inner["current_leader_epoch"] = given.get("current_leader_epoch", -1)
    return {"topic": topic, "topic_id": topic, "partitions": [inner]}


def fetch(topics: list[Any], max_wait: int = 0, min_bytes: int = 1, **given: Any) -> Any:
    """The fields of a Fetch request."""
    return {"max_wait": max_wait, "min_bytes": min_bytes, "topics": topics, **given}


# -- reading batches, as plainly as tests.support.batches writes them


class Record(typing.NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class Batch(typing.NamedTuple):
    base_offset: int
    last_offset: int
    codec: int
    log_append_time: bool
    count: int
    records: tuple[Record, ...]


def split(data: bytes) -> list[Batch]:
    """The whole batches in a fetch's records, each checked against its CRC."""
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12])
        assert size <= len(data), "a batch is cut short"
        found.append(_batch(data[:size]))
        data = data[size:]
    return found


def _batch(data: bytes) -> Batch:
    base, length, _, magic, crc, attributes, last, first_ts, _, _, _, _, count = batches.HEADER.unpack_from(data)
    assert (magic, length + 12) == (2, len(data))
    assert crc == batches.crc32c.crc32c(data[21:])
    plain = batches.decompress(attributes & 7, data[batches.HEADER.size :])
    append_ts = batches.HEADER.unpack_from(data)[8] if attributes & 8 else None
    records = tuple(
        Record(base + r.offset_delta, first_ts + r.timestamp_delta if append_ts is None else append_ts, *r[2:])
        for r in batches.read_records(plain)
    )
    assert len(records) == count
    return Batch(base, base + last, attributes & 7, bool(attributes & 8), count, records)
