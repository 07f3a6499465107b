"""kill -9 of the broker, and of its Redis, in the middle of compactions: no key loses its newest record."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
import redis
from confluent_kafka import KafkaError, Message, Producer

from tests.log.test_compaction import KINDS, await_compacted, create, read, state
from tests.support.ketch import KetchServer, eventually

pytestmark = pytest.mark.long(minutes=4)

KEYS = 3_000
KILLS = 8
ARGUMENTS = ("--log-cleaner-backoff-ms", "20", "--log-cleaner-io-max-bytes-per-second", "20000000", "--fsync", "always")


class Writer(threading.Thread):
    """Writes rising numbers under random keys until it is told to stop, and knows which were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, seed: str) -> None:
        super().__init__()
        self.topic, self.rng = topic, random.Random(seed)
        self.tried: dict[bytes, int] = defaultdict(int)
        self.acknowledged: dict[bytes, int] = defaultdict(int)
        self.stop = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.num.messages": 200,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
            }
        )

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            while len(self.producer) > 5_000:  # the broker is away
                self.producer.poll(0.05)
            number += 1
            key = b"%d" % int(KEYS * self.rng.random() ** 2)
            self.tried[key] = number
            self.producer.produce(self.topic, b"%d" % number, key, on_delivery=self.delivered)
            self.producer.poll(0.001 if number % 20 == 0 else 0)
        assert self.producer.flush(120) == 0

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.key()] = int(message.value())


@pytest.mark.parametrize(("layout", "ids"), KINDS)
def test_kills(tmp_path: Path, topic: str, layout: str, ids: str) -> None:
    server = KetchServer(tmp_path / "ketch", *ARGUMENTS).start()
    rng = random.Random(f"{layout}-{ids}")
    try:
        stream = create(server, topic, **{"storage.layout": layout, "offset.ids": ids})
        writer = Writer(server.bootstrap, topic, f"{layout}-{ids}")
        writer.start()
        for kill in range(KILLS):
            _next_pass(server, stream)
            time.sleep(rng.random() / 2)  # anywhere in a pass
            if kill % 2:
                server.kill_valkey()
                eventually(lambda: _answers(server), 60)
            else:
                server.kill()
                server.start()
        writer.stop.set()
        writer.join()
        messages = read(server, topic)
        await_compacted(server, stream, messages[-1].offset(), 180)
        messages = read(server, topic)
        newest = {message.key(): int(message.value()) for message in messages}
        assert newest.keys() == writer.tried.keys()
        for key, number in newest.items():
            assert writer.acknowledged[key] <= number <= writer.tried[key]
        assert len(messages) <= len(newest) + 1 + 200 * (layout == "batch")
        offsets = [message.offset() for message in messages]
        assert offsets == sorted(set(offsets))
    finally:
        server.stop()


def _next_pass(server: KetchServer, stream: str) -> None:
    before = int(state(server, stream).get("term", 0))
    eventually(lambda: int(state(server, stream).get("term", 0)) > before, 60)


def _answers(server: KetchServer) -> bool:
    try:
        return bool(server.redis().ping())
    except redis.RedisError:
        return False
