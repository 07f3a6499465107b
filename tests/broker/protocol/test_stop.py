"""SIGTERM and SIGINT: what is in flight is answered, then the broker goes. A second signal does not wait."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ketch.embedded.valkey import server_binary
from tests.support.batches import batch, record, records
from tests.support.kafka import API_VERSIONS, FETCH, INIT_PRODUCER_ID, PRODUCE, Kafka, fetch, part, produce
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer

THREE = records([b"a", b"b", b"c"])
MB = 1 << 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_flight_is_answered(start_ketch: type[KetchServer], topic: str, number: signal.Signals) -> None:
    server = start_ketch()
    idle, writer = Kafka(server.port), Kafka(server.port)
    writer.create(topic, 2)
    end = writer.list_offsets(topic, -1, partition=1).offset
    waiting = [Kafka(server.port) for _ in range(20)]
    for client in waiting:
        client.ask(API_VERSIONS, 0)  # a connection that is not yet accepted has nothing in flight
    for client in waiting:
        client.send(FETCH, 12, **fetch([part(topic, 1, end)], max_wait=60_000))
    sent = [writer.send(PRODUCE, 9, **produce(topic, batch(THREE))) for _ in range(300)]
    first = writer.answer(PRODUCE, 9)
    half = Kafka(server.port)
    half.socket.sendall((1000).to_bytes(4) + bytes(500))

    assert server.stop(number, timeout=5) == 0

    for client in waiting:
        _, answer = client.answer(FETCH, 12)
        assert (answer.responses[0].partitions[0].error_code, answer.responses[0].partitions[0].records) == (0, b"")
    answers = [first]
    while (frame := writer.receive()) is not None:
        answers.append(writer.decode(frame, type(first[1])))
    assert [correlation_id for correlation_id, _ in answers] == sent[: len(answers)]
    assert {answer.responses[0].partition_responses[0].error_code for _, answer in answers} == {0}
    assert all(client.closed() for client in (idle, half, *waiting))
    with pytest.raises(ConnectionRefusedError):
        Kafka(server.port)
    server.start()
    with Kafka(server.port) as again:
        kept = len(again.read_all(topic))
    assert kept >= 3 * len(answers), "what was acknowledged is there"


class Stalled:
    """A client that asks for 20 MB and reads nothing."""

    def __init__(self, server: KetchServer, topic: str) -> None:
        self.kafka = Kafka(server.port, timeout=20)
        self.kafka.create(topic)
        start = self.kafka.list_offsets(topic, -2).offset
        for _ in range(20):
            self.kafka.stored(topic, batch([record(bytes(MB - 1000))]))
        self.kafka.send(FETCH, 12, **fetch([part(topic, 0, start, partition_max_bytes=30 * MB)]))
        # The answer has begun to come: it is in the broker's hands.
        eventually(lambda: self.kafka.socket.recv(4, socket.MSG_PEEK))


def test_an_answer_on_its_way_is_finished(start_ketch: type[KetchServer], topic: str) -> None:
    server = start_ketch()
    stalled = Stalled(server, topic)
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    eventually(lambda: "finishing requests in flight" in server.log)
    _, answer = stalled.kafka.answer(FETCH, 12)
    assert len(answer.responses[0].partitions[0].records) > 10 * MB
    assert server.process.wait(5) == 0  # no second signal: it could come when nobody handles it any more


def test_a_reader_that_never_reads_is_cut_off(start_ketch: type[KetchServer], topic: str) -> None:
    server = start_ketch("--drain-timeout-ms", "300")
    stalled = Stalled(server, topic)
    assert server.stop(timeout=5) == 0
    assert stalled.kafka.socket.fileno() >= 0


def test_a_second_signal_does_not_wait(start_ketch: type[KetchServer], topic: str) -> None:
    server = start_ketch("--drain-timeout-ms", "600000")
    stalled = Stalled(server, topic)
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    eventually(lambda: "finishing requests in flight" in server.log)
    assert server.process.poll() is None
    assert server.stop(timeout=5) == 1
    assert stalled.kafka.socket.fileno() >= 0


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that is no broker's own, so that it hangs on while a broker ends."""
    server = RedisServer(str(server_binary()), tmp_path / "apart")
    yield server
    server.process.send_signal(signal.SIGCONT)
    server.kill()


def test_a_stop_at_once_makes_no_more_answers(start_ketch: type[KetchServer], apart: RedisServer, topic: str) -> None:
    """Batches of a transaction wait for a Redis that hangs, one of them is sent again: the log has no error of it."""
    waits = ("--drain-timeout-ms", "600000", "--redis-timeout-ms", "20000")
    server = start_ketch("--redis", apart.url, "--lane", "off", *waits)
    client, other = Kafka(server.port), Kafka(server.port)
    client.create(topic)
    made = client.ask(INIT_PRODUCER_ID, 4, transactional_id=topic, transaction_timeout=60_000)
    given = {"attributes": 0x10, "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    client.stored(topic, batch(THREE, **given, base_sequence=0), 12, transactional_id=topic)
    second = produce(topic, batch(THREE, **given, base_sequence=3), transactional_id=topic)
    apart.process.send_signal(signal.SIGSTOP)
    for each in (client, other):
        each.send(PRODUCE, 12, **second)
    Kafka(server.port).ask(API_VERSIONS, 0)  # what came before has been read
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    eventually(lambda: "finishing requests in flight" in server.log)
    assert server.stop(timeout=10) == 1
    assert "Traceback" not in server.log


def test_a_redis_that_hangs_does_not_make_a_stop_longer(start_ketch: type[KetchServer], apart: RedisServer) -> None:
    server = start_ketch("--redis", apart.url, "--drain-timeout-ms", "300", "--redis-timeout-ms", "60000")
    apart.process.send_signal(signal.SIGSTOP)
    assert server.stop(timeout=10) == 0
