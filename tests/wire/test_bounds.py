"""What a request claims to hold, counted before it is read, against kio's own reading of it: no server."""

from __future__ import annotations

import dataclasses
import io
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_writer

from ketch.broker.dispatch import TABLE
from ketch.wire.bounds import MAX_ELEMENTS, MAX_STRING, MalformedRequest, check_bounds
from ketch.wire.requests import decode_request
from tests.support.entities import drawn_body, entity
from tests.support.kafka import entity as request

pytestmark = pytest.mark.usefixtures("kernel")

METADATA = 3
REQUESTS = [
    (api.key, version) for api in TABLE.values() for version in range(api.oldest_answered or api.oldest, api.newest + 1)
]


def frame(api_key: int, version: int, body: Any) -> bytes:
    schema = load_request_schema(api_key, version)
    header = schema.__header_schema__
    fields = {"request_api_key": api_key, "request_api_version": version, "correlation_id": 7, "client_id": "c"}
    buffer = io.BytesIO()
    entity_writer(header)(
        buffer, header(**{f.name: fields[f.name] for f in dataclasses.fields(header) if f.name in fields})
    )
    entity_writer(schema)(buffer, body)
    return buffer.getvalue()


def drawn(api_key: int, version: int, random: Random) -> bytes:
    schema = load_request_schema(api_key, version)
    return frame(api_key, version, entity(schema, drawn_body(schema, random)))


@pytest.mark.parametrize(("api_key", "version"), REQUESTS)
def test_what_kio_writes_passes_and_what_is_cut_does_not(api_key: int, version: int) -> None:
    random = Random(api_key * 100 + version)
    for _ in range(5):
        data = drawn(api_key, version, random)
        check_bounds(data, api_key, version)
        for cut in {0, len(data) - 1, *(random.randrange(len(data)) for _ in range(10))}:
            with pytest.raises(MalformedRequest):
                check_bounds(data[:cut], api_key, version)


@pytest.mark.parametrize("api_key", [api.key for api in TABLE.values()])
def test_a_changed_request_is_read_or_malformed(api_key: int) -> None:
    """kio reserves memory for what an array claims; without the bounds some of these would end the process."""
    api, random = TABLE[api_key], Random(api_key)
    for version in range(api.oldest_answered or api.oldest, api.newest + 1):
        for _ in range(20):
            data = bytearray(drawn(api_key, version, random))
            for _ in range(random.randrange(1, 4)):
                data[random.randrange(8, len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            with suppress(MalformedRequest):
                header, _ = decode_request(bytes(data), api_key, version)
                assert header.correlation_id == 7


def test_tagged_fields_that_nobody_knows_are_passed_over() -> None:
    """KIP-482: what a newer client adds does not keep an older broker from reading the rest."""
    unknown = b"\x2a\3new"
    topic = bytes(16) + b"\2a\1" + unknown
    data = FLEXIBLE + b"\1" + unknown + b"\2" + topic + b"\1\0\2" + unknown + unknown
    header, body = decode_request(data, METADATA, 12)
    assert (header.correlation_id, body.topics[0].name, body.allow_auto_topic_creation) == (7, "a", True)


def test_a_tagged_field_that_is_known_stays_beside_one_that_is_not() -> None:
    fetch, version = 1, 12
    schema = load_request_schema(fetch, version)
    body = {**drawn_body(schema, Random(0)), "cluster_id": "us", "topics": [], "forgotten_topics_data": []}
    data = frame(fetch, version, entity(schema, body))
    assert data.endswith(b"\1\0\3\3us")  # one tagged field: 0, of 3 bytes
    for tagged in (b"\2\0\3\3us\x2a\3new", b"\x03\x2a\0\0\3\3us\xff\xff\xff\xff\x0f\0", b"\2\0\3\3xx\0\3\3us"):
        _, read = decode_request(data[:-6] + tagged, fetch, version)
        assert read.cluster_id == "us"


@given(st.binary(max_size=60), st.sampled_from(REQUESTS))
def test_random_bytes_are_read_or_malformed(data: bytes, request_: tuple[int, int]) -> None:
    with suppress(MalformedRequest):
        decode_request(data, *request_)


HEADER = b"\0\3\0\1\0\0\0\7\xff\xff"  # Metadata version 1, no client id
FLEXIBLE = b"\0\3\0\x0c\0\0\0\7\xff\xff"  # version 12


def varint(value: int) -> bytes:
    """Unsigned, as flexible versions write lengths (KIP-482)."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize(
    ("version", "data", "said"),
    [
        (1, HEADER + (MAX_ELEMENTS + 1).to_bytes(4) + bytes(2 * (MAX_ELEMENTS + 1)), "elements"),
        (1, HEADER + b"\x7f\xff\xff\xff", "elements"),
        (1, HEADER + b"\0\0\0\2\0\0", "cut short"),
        (0, HEADER + b"\xff\xff\xff\xff", "null"),
        (12, FLEXIBLE + varint(MAX_ELEMENTS + 1), "elements"),  # tagged fields of the header
        (12, FLEXIBLE + b"\0" + varint(MAX_ELEMENTS + 2), "elements"),
        (12, FLEXIBLE + b"\x80\x80\x80\x80\x80\x80", "varint"),
        (12, FLEXIBLE + b"\1\0" + varint(MAX_ELEMENTS + 1) + b"\0", "cut short"),
    ],
)
def test_more_than_a_request_may_have(version: int, data: bytes, said: str) -> None:
    with pytest.raises(MalformedRequest, match=said):
        check_bounds(data, METADATA, version)


def test_as_much_as_a_request_may_have() -> None:
    check_bounds(HEADER + MAX_ELEMENTS.to_bytes(4) + bytes(2 * MAX_ELEMENTS), METADATA, 1)
    check_bounds(HEADER + b"\xff\xff\xff\xff", METADATA, 1)  # null: all topics, from version 1 on
    topic = bytes(16) + b"\1\0"  # id, an empty name (a null one has length 0), tagged fields
    check_bounds(FLEXIBLE + b"\0" + varint(MAX_ELEMENTS + 1) + topic * MAX_ELEMENTS + b"\1\0\0", METADATA, 12)


COMMIT = 8


def commit(group: str, *names: str, metadata: str | None = None) -> bytes:
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
    topics = [{"name": name, "partitions": [part]} for name in names]
    body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    return frame(COMMIT, 8, request(load_request_schema(COMMIT, 8), body))


@pytest.mark.parametrize(
    "given",
    [
        commit("g" * (MAX_STRING + 1)),
        commit("g" * (MAX_STRING + 1), "t"),
        commit("g", "t", "t" * (MAX_STRING + 1)),
        commit("g", "t", metadata="é" * (MAX_STRING // 2 + 1)),
    ],
)
def test_a_string_that_is_longer_than_kafka_takes(given: bytes) -> None:
    with pytest.raises(MalformedRequest, match="string of more than 32767 bytes"):
        decode_request(given, COMMIT, 8)


def test_strings_as_long_as_kafka_takes() -> None:
    longest = "x" * MAX_STRING
    _, body = decode_request(commit(longest, longest, longest, metadata="é" * (MAX_STRING // 2)), COMMIT, 8)
    assert (body.group_id, [topic.name for topic in body.topics]) == (longest, [longest, longest])
