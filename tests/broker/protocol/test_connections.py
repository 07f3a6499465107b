"""Connections: order, frames, bounds and limits."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from tests.support.batches import batch, record, records
from tests.support.kafka import (
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    Kafka,
    fetch,
    part,
    produce,
    split,
)
from tests.support.ketch import KetchServer, eventually

THREE = records([b"a", b"b", b"c"])


def test_many_requests_of_all_kinds_are_answered_in_order(kafka: Kafka, made: str) -> None:
    start = kafka.list_offsets(made, -2).offset
    kinds = [
        (PRODUCE, 9, produce(made, batch(THREE))),
        (PRODUCE, 3, produce(made, batch(THREE, crc=1), partition=1)),
        (FETCH, 12, fetch([part(made, 0, start)])),
        (FETCH, 12, fetch([part("nowhere", 0, 0)])),
        (LIST_OFFSETS, 5, {"topics": [{"name": made, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}),
        (METADATA, 9, {"topics": [{"name": made}]}),
        (API_VERSIONS, 0, {}),
        (INIT_PRODUCER_ID, 2, {"transactional_id": None}),
    ]
    asked = random.Random(1).choices(kinds, k=400)
    sent = [(kafka.send(key, version, **given), key, version) for key, version, given in asked]
    answers = [kafka.answer(key, version) for _, key, version in sent]
    assert [correlation_id for correlation_id, _ in answers] == [correlation_id for correlation_id, _, _ in sent]
    stored = sum(key == PRODUCE and version == 9 for _, key, version in sent)
    assert len(kafka.read_all(made)) == 3 * stored


def test_a_fetch_sees_what_was_produced_before_it(kafka: Kafka, made: str) -> None:
    """Pipelined: the produce is not waited for."""
    end = kafka.list_offsets(made, -1).offset
    kafka.send(PRODUCE, 9, **produce(made, batch(THREE)))
    kafka.send(FETCH, 12, **fetch([part(made, 0, end)], max_wait=60_000))
    kafka.answer(PRODUCE, 9)
    _, answer = kafka.answer(FETCH, 12)
    assert split(answer.responses[0].partitions[0].records)[0].count == 3


def test_produced_in_the_order_sent(kafka: Kafka, made: str) -> None:
    for n in range(200):
        kafka.send(PRODUCE, 9, **produce(made, batch([record(b"%d" % n)])))
    bases = [kafka.answer(PRODUCE, 9)[1].responses[0].partition_responses[0].base_offset for _ in range(200)]
    assert bases == sorted(bases)
    assert [record.value for record in kafka.read_all(made)] == [b"%d" % n for n in range(200)]


def test_a_request_in_single_bytes(kafka: Kafka, made: str) -> None:
    kafka.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    payload = kafka.request(METADATA, 9, topics=[{"name": made}])
    for byte in len(payload).to_bytes(4) + payload:
        kafka.socket.sendall(bytes([byte]))
    assert kafka.answer(METADATA, 9)[1].topics[0].name == made


def test_what_came_before_a_bad_request_is_answered(kafka: Kafka, made: str) -> None:
    good = [kafka.request(PRODUCE, 9, **produce(made, batch(THREE))) for _ in range(20)]
    frames = b"".join(len(frame).to_bytes(4) + frame for frame in good)
    kafka.socket.sendall(frames + (-1).to_bytes(4, signed=True))
    for n in range(20):
        assert kafka.answer(PRODUCE, 9)[0] == n + 2, "1 was the topic's creation"
    assert kafka.closed()
    with Kafka(kafka.socket.getpeername()[1]) as other:
        assert len(other.read_all(made)) == 60


def test_what_came_before_a_failed_produce_without_acks_is_answered(kafka: Kafka, made: str) -> None:
    for _ in range(20):
        kafka.send(PRODUCE, 9, **produce(made, batch(THREE)))
    kafka.send(PRODUCE, 9, **produce("nowhere", batch(THREE), acks=0))
    for n in range(20):
        assert kafka.answer(PRODUCE, 9)[0] == n + 2, "1 was the topic's creation"
    assert kafka.closed()


def test_nothing_behind_a_bad_request_is_done(kafka: Kafka, made: str) -> None:
    port = kafka.socket.getpeername()[1]
    kafka.send_frame(b"\x7f\xff\0\0\0\0\0\0")
    try:
        kafka.send(PRODUCE, 9, **produce(made, batch(THREE)))
        assert kafka.closed()
    except ConnectionError:
        pass
    with Kafka(port) as other:
        assert other.read_all(made) == []


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_a_length_that_cannot_be_closes_at_once(kafka: Kafka, length: int) -> None:
    kafka.socket.sendall(length.to_bytes(4, signed=True))
    assert kafka.closed()


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x12\0", b"\0\x12\0\0\0\0\0"])
def test_a_frame_shorter_than_a_header(kafka: Kafka, frame: bytes) -> None:
    kafka.send_frame(frame)
    assert kafka.closed()


def test_a_reset_in_the_middle_of_everything(broker: KetchServer, kafka: Kafka, made: str) -> None:
    end = kafka.list_offsets(made, -1).offset
    for _ in range(20):
        client = Kafka(broker.port)
        client.send(PRODUCE, 9, **produce(made, batch(THREE)))
        client.send(FETCH, 12, **fetch([part(made, 1, end)], max_wait=60_000))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    assert kafka.stored(made, batch(THREE), partition=1) >= end


# -- settings


def test_max_request_size(start_ketch: type[KetchServer], topic: str) -> None:
    server = start_ketch("--socket-request-max-bytes", "10000")
    with Kafka(server.port) as kafka:
        kafka.create(topic)
        assert kafka.produce(topic, batch([record(bytes(9000))])).error_code == 0
        kafka.socket.sendall((10_001).to_bytes(4))
        assert kafka.closed()
    assert "a frame length of 10001 (allowed: 0 to 10000, socket_request_max_bytes)" in server.log


def test_max_connections(start_ketch: type[KetchServer]) -> None:
    server = start_ketch("--max-connections", "3")
    clients = [Kafka(server.port) for _ in range(3)]
    assert [client.ask(API_VERSIONS, 0).error_code for client in clients] == [0] * 3
    refused = Kafka(server.port)
    assert refused.closed()
    host, port = refused.socket.getsockname()
    assert f"{host}:{port}: connection refused: max_connections is 3" in server.log
    clients.pop().close()

    def admitted() -> bool:
        with Kafka(server.port) as client:
            try:
                return client.ask(API_VERSIONS, 0).error_code == 0
            except ConnectionError:
                return False

    assert eventually(admitted)
    assert [client.ask(API_VERSIONS, 0).error_code for client in clients] == [0] * 2


def test_idle_connections_are_closed(start_ketch: type[KetchServer]) -> None:
    server = start_ketch("--connections-max-idle-ms", "300", "--log-level", "debug")
    silent, asked = Kafka(server.port), Kafka(server.port)
    asked.ask(API_VERSIONS, 0)
    assert silent.closed()
    assert asked.closed()
    assert server.log.count("without a word") == 2


def test_idle_connections_are_no_news(start_ketch: type[KetchServer]) -> None:
    server = start_ketch("--connections-max-idle-ms", "300")
    with Kafka(server.port) as silent:
        assert silent.closed()
    assert "closed after" not in server.log


@pytest.mark.parametrize(
    "arguments", [("--queued-max-bytes-per-connection", "1000"), ("--queued-max-bytes", "1000000")]
)
def test_a_pipeline_longer_than_what_may_be_queued(
    start_ketch: type[KetchServer], topic: str, arguments: tuple[str, ...]
) -> None:
    server = start_ketch(*arguments, "--socket-request-max-bytes", "1000000")
    clients = [Kafka(server.port, timeout=30) for _ in range(4)]
    clients[0].create(topic)
    data = batch([record(bytes(100_000))])
    for client in clients:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
        for _ in range(20):
            client.send(PRODUCE, 9, **produce(topic, data))
    for client in clients:
        for n in range(20):
            assert client.answer(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code == 0, n
