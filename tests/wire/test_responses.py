"""Responses against kio's own writer: slow, and obviously what Kafka's schemas say."""

from __future__ import annotations

import io
import struct
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from ketch.broker.dispatch import TABLE
from ketch.wire.pieces import Pieces, gather
from ketch.wire.responses import Kept, encode_response
from tests.support.entities import drawn_body, entity

pytestmark = pytest.mark.usefixtures("kernel")


def encoded(api_key: int, version: int, correlation_id: int, body: dict[str, Any]) -> bytes:
    return b"".join(encode_response(api_key, version, correlation_id, body))


def by_kio(api_key: int, version: int, correlation_id: int, body: dict[str, Any]) -> bytes:
    schema = load_response_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(schema.__header_schema__)(buffer, schema.__header_schema__(correlation_id=correlation_id))
    entity_writer(schema)(buffer, entity(schema, body))
    return len(buffer.getvalue()).to_bytes(4) + buffer.getvalue()


def keeping(body: dict[str, Any]) -> dict[str, Any]:
    """The body with Kept ones for the entities in it."""
    return {name: kept(value) for name, value in body.items()}


def kept(value: Any) -> Any:
    if isinstance(value, dict):
        return Kept(lambda: keeping(value))
    return [kept(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("api_key", [api.key for api in TABLE.values()])
def test_every_response_is_what_kio_writes(api_key: int) -> None:
    api, random = TABLE[api_key], Random(api_key)
    for version in range(api.oldest_answered or api.oldest, api.newest + 1):
        for _ in range(5):
            body = drawn_body(load_response_schema(api_key, version), random)
            assert encoded(api_key, version, 7, body) == by_kio(api_key, version, 7, body)


@pytest.mark.parametrize("api_key", [api.key for api in TABLE.values()])
def test_what_is_kept_of_a_version_is_that_version_s(api_key: int) -> None:
    api, random = TABLE[api_key], Random(api_key)
    bodies = {
        version: drawn_body(load_response_schema(api_key, version), random)
        for version in range(api.oldest_answered or api.oldest, api.newest + 1)
    }
    for version, body in bodies.items():
        for made in (kept(body), keeping(body)):
            for _ in range(2):
                assert encoded(api_key, version, 7, made) == by_kio(api_key, version, 7, body)


def test_one_kept_entity_is_written_as_each_version_asks() -> None:
    topic = {
        "error_code": ErrorCode.none,
        "name": "t",
        "topic_id": UUID(int=1),
        "is_internal": False,
        "partitions": [
            {
                "error_code": ErrorCode.none,
                "partition_index": 0,
                "leader_id": 1,
                "leader_epoch": 0,
                "replica_nodes": [1],
                "isr_nodes": [1],
                "offline_replicas": [],
            }
        ],
        "topic_authorized_operations": 0,
    }
    once = Kept(lambda: topic)
    body = {"throttle_time": 0, "brokers": [], "cluster_id": None, "controller_id": 1}
    for _ in range(2):
        for version in range(13):
            plain = encoded(3, version, 7, {**body, "topics": [topic]})
            assert encoded(3, version, 7, {**body, "topics": [once]}) == plain


@pytest.mark.parametrize("version", [4, 12, 16])
@pytest.mark.parametrize("sizes", [[], [0], [1], [16, 100_000], [16, 40_000, 16, 50_000], [60_000] * 3, [10] * 50])
def test_records_in_pieces(sizes: list[int], version: int) -> None:
    pieces = [memoryview(bytes([n]) * size) for n, size in enumerate(sizes)]
    whole = b"".join(pieces)
    partition = {"partition_index": 0, "error_code": ErrorCode.none, "high_watermark": 9, "aborted_transactions": None}
    partition |= {"last_stable_offset": 9, "log_start_offset": 0}
    topic = {"topic": "t", "topic_id": UUID(int=1)}

    def body(records: bytes | Pieces) -> dict[str, Any]:
        partitions = [{**partition, "records": records}, {**partition, "records": b"x" * 2000}]
        return {
            "throttle_time": 0,
            "error_code": ErrorCode.none,
            "session_id": 0,
            "responses": [{**topic, "partitions": partitions}],
        }

    expected = encoded(1, version, 7, body(whole))
    for records in (Pieces([*pieces], len(whole)), gather([*pieces])):
        assert len(records) == len(whole)
        assert encoded(1, version, 7, body(records)) == expected


def test_what_is_large_is_not_copied() -> None:
    large = memoryview(bytes(1 << 20))
    partition = {"partition_index": 0, "error_code": ErrorCode.none, "high_watermark": 9, "aborted_transactions": None}
    partition["records"] = gather([bytes(16), large[16:]])
    body = {"throttle_time": 0, "responses": [{"topic": "t", "partitions": [partition]}]}
    assert [len(piece) for piece in encode_response(1, 4, 7, body)[1:2]] == [len(large) - 16]


def test_a_body_may_know_more_than_the_version() -> None:
    body = {"throttle_time": 5, "error_code": ErrorCode.none, "coordinators": [], "node_id": 1, "host": "h", "port": 9}
    assert encoded(10, 0, 1, body) == by_kio(10, 0, 1, {k: body[k] for k in ("error_code", "node_id", "host", "port")})


def test_a_field_without_a_default_is_not_made_up() -> None:
    with pytest.raises(KeyError, match="brokers"):
        encoded(3, 12, 1, {"throttle_time": 0})


@pytest.mark.parametrize(("field", "value"), [("throttle_time", 2**31), ("error_code", 2**15), ("port", -(2**31) - 1)])
def test_a_number_that_does_not_fit_is_not_cut(field: str, value: int) -> None:
    body = {"throttle_time": 0, "error_code": 0, "error_message": None, "node_id": 1, "host": "h", "port": 9}
    encoded(10, 1, 1, body)
    with pytest.raises((OverflowError, struct.error)):
        encoded(10, 1, 1, {**body, field: value})


def test_a_string_that_is_too_long_for_its_length() -> None:
    body = {"throttle_time": 0, "error_code": 0, "error_message": None, "node_id": 1, "port": 9}
    encoded(10, 1, 1, {**body, "host": "h" * 32_767})
    with pytest.raises(OverflowError):
        encoded(10, 1, 1, {**body, "host": "h" * 32_768})


@pytest.mark.parametrize("value", [5, b"h", object()])
def test_a_string_that_is_no_string(value: object) -> None:
    body = {"throttle_time": 0, "error_code": 0, "error_message": None, "node_id": 1, "host": value, "port": 9}
    with pytest.raises((TypeError, AttributeError)):
        encoded(10, 1, 1, body)


def test_pieces_large_and_small() -> None:
    """What is large stays a piece of its own, what lies between is one, and none is empty."""
    sizes = [1 << 15, 10, 20, 1 << 16, 1 << 15, (1 << 15) - 1]
    partition = {"partition_index": 0, "error_code": ErrorCode.none, "high_watermark": 9, "aborted_transactions": None}
    partition["records"] = Pieces([bytes(size) for size in sizes], sum(sizes))
    pieces = encode_response(1, 4, 7, {"throttle_time": 0, "responses": [{"topic": "t", "partitions": [partition]}]})
    assert [len(piece) for piece in pieces[1:]] == [1 << 15, 30, 1 << 16, 1 << 15, (1 << 15) - 1]
    assert int.from_bytes(pieces[0][:4]) == sum(map(len, pieces)) - 4


@pytest.mark.parametrize("value", [1.0, 1.5, Decimal(2), "1", None, b"1"])
def test_a_number_that_is_no_whole_number(value: object) -> None:
    body = {"throttle_time": 0, "error_code": 0, "error_message": None, "node_id": 1, "host": "h", "port": value}
    with pytest.raises((TypeError, struct.error)):
        encoded(10, 1, 1, body)


def fetched(records: bytes | Pieces, partitions: int) -> dict[str, Any]:
    fields = {"error_code": ErrorCode.none, "high_watermark": 9, "aborted_transactions": None, "records": records}
    found = [{"partition_index": index, **fields} for index in range(partitions)]
    return {"throttle_time": 0, "responses": [{"topic": "t", "partitions": found}]}


def test_many_pieces_that_are_copied() -> None:
    body = fetched(b"r" * 31_000, 300)
    pieces = encode_response(1, 4, 7, body)
    assert b"".join(pieces) == by_kio(1, 4, 7, body)
    assert all(pieces)


def test_a_response_that_is_too_large_for_its_length() -> None:
    piece = memoryview(bytes(1 << 26))
    with pytest.raises(OverflowError):
        encode_response(1, 4, 7, fetched(Pieces([piece] * 16, 16 << 26), 2))
