"""Replies of Redis that come in pieces of any size, those of the lane and others mixed, with pushes between them."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.batches import batch, records
from tests.support.http import metrics
from tests.support.kafka import METADATA, PRODUCE, Kafka, produce
from tests.support.ketch import KetchServer, eventually
from tests.support.modules import with_module
from tests.support.redis_servers import RedisServer

TAKEN = ("ketch_lane_requests_total", "produce")
DATA = batch(records([b"a", b"b"]))


class Shredder:
    """Stands between a broker and Redis, and hands on what Redis says in small pieces."""

    def __init__(self, port: int, seed: int) -> None:
        self._to, self._random = port, random.Random(seed)
        self.cutting = False  # else it hands on what comes as it comes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                broker = self._listener.accept()[0]
                redis = socket.create_connection(("127.0.0.1", self._to))
                for each in (broker, redis):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._hand_on, args=(broker, redis, False), daemon=True).start()
                threading.Thread(target=self._hand_on, args=(redis, broker, True), daemon=True).start()

    def _hand_on(self, source: socket.socket, to: socket.socket, replies: bool) -> None:
        with suppress(OSError), source, to:
            while data := source.recv(1 << 16):
                while replies and self.cutting and len(data) > 1:
                    cut = self._random.randint(1, min(len(data), self._random.choice((1, 3, 40, 200))))
                    to.sendall(data[:cut])
                    data = data[cut:]
                to.sendall(data)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = with_module("valkey", tmp_path)
    yield server
    server.stop()


def test_replies_in_pieces(redis: RedisServer, start_ketch: Callable[..., KetchServer]) -> None:
    shredder = Shredder(redis.port, 11)
    lane = ("--lane", "on", "--default-storage-layout", "batch", "--http-port", "0")
    server = start_ketch(*lane, "--redis", f"redis://127.0.0.1:{shredder.port}", "--metadata-max-age-ms", "600000")
    some, client = random.Random(5), redis.client()
    with Kafka(server.port) as kafka:
        kafka.create("t", 3)
        shredder.cutting = True
        stored = 0

        def is_taken() -> bool:
            nonlocal stored
            before, stored = metrics(server).get(TAKEN, 0.0), stored + 1
            assert kafka.produce("t", DATA).error_code == 0
            return metrics(server).get(TAKEN, 0.0) > before

        eventually(is_taken, what="the lane to take a request")
        for n in range(24):
            sent = [
                (METADATA, kafka.send(METADATA, 9, topics=[{"name": "t"}]))
                if some.random() < 0.1
                else (PRODUCE, kafka.send(PRODUCE, 9, **produce("t", DATA, partition=some.choice((0, 0, 1, 2)))))
                for _ in range(some.choice((1, 5, 20)))
            ]
            if n % 8 == 3:
                client.xadd("korvet:stream:t:1", {"value": "by another writer"})
            for key, number in sent:
                got, answer = kafka.answer(key, 9)
                assert got == number
                if key == PRODUCE:
                    assert answer.responses[0].partition_responses[0].error_code == 0
                    stored += 1
        assert metrics(server)[TAKEN] > 30
        assert sum(len(kafka.read_all("t", partition=n)) for n in range(3)) == 2 * stored + 3
    assert server.stop() == 0
    assert "Traceback" not in server.log
    shredder.close()
