"""kill -9 of the broker and of ZooKeeper under load: registration comes back, positions hold, what was stored stays.

A 0.7 producer knows that a set is stored when a request with a response, sent behind it on its connection, is answered.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from tests.legacy07.conftest import SESSION_MS, legacy_port
from tests.support import legacy07, zookeeper
from tests.support.ketch import KetchServer, eventually
from tests.support.legacy07 import Legacy, fetch, message, produce
from tests.support.zookeeper import ZooKeeperServer, free_port

pytestmark = [
    pytest.mark.long(minutes=3),
    pytest.mark.skipif(zookeeper.MISSING is not None, reason=str(zookeeper.MISSING)),
    pytest.mark.storage("record", "batch-dense"),
]

TOPIC = "killed"
_ROUNDS = 4
_SET = 20


class Load:
    """Threads that go on over all failures until the test ends; `run` does one connection's work until it breaks."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    @property
    def going(self) -> bool:
        return not self._done.is_set()

    def _go_on(self) -> None:
        while self.going:
            try:
                with Legacy(self.port, timeout=10.0) as client:
                    self.run(client)
            except OSError:
                self._done.wait(0.05)

    def run(self, client: Legacy) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._done.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


class OldProducer(Load):
    """Sends sets of numbered messages, each once."""

    def __init__(self, port: int) -> None:
        self.next = 0
        self.stored: set[str] = set()
        super().__init__(port)

    def run(self, client: Legacy) -> None:
        while self.going:
            sent = [f"old-{self.next + n}" for n in range(_SET)]
            self.next += _SET
            client.send(produce(TOPIC, 0, b"".join(message(each.encode()) for each in sent)))
            client.send(legacy07.offsets(TOPIC, 0, -1, 1))
            answer = client.response()
            if answer is None:
                raise ConnectionError
            if answer[0] == 0:
                self.stored.update(sent)


class OldConsumer(Load):
    """Walks the log, and starts anew where it stands."""

    def __init__(self, port: int) -> None:
        self.position = 0
        self.seen: dict[int, bytes] = {}  # position -> message
        super().__init__(port)

    def run(self, client: Legacy) -> None:
        while self.going:
            client.send(fetch(TOPIC, 0, self.position, 10_000))
            answer = client.response()
            if answer is None:
                raise ConnectionError
            code, chunk = answer
            assert code in (0, -1), (code, self.position)  # -1: the store is just coming up
            start = self.position
            for at, whole in legacy07.messages(chunk):
                self.seen[start + at] = whole
                self.position = start + at + len(whole)
            if not chunk:
                self._done.wait(0.01)


def walk(port: int) -> Iterator[tuple[int, bytes]]:
    """The whole log: positions and messages."""
    with Legacy(port) as client:
        (position,) = client.positions(TOPIC, 0, -2)
        while True:
            code, chunk = client.call(fetch(TOPIC, 0, position, 1 << 20))
            assert code == 0
            if not chunk:
                return
            for at, whole in legacy07.messages(chunk):
                yield position + at, whole
            position += sum(len(whole) for _, whole in legacy07.messages(chunk))


def test_broker_and_zookeeper_are_killed_under_load(start_ketch: Callable[..., KetchServer], tmp_path: Path) -> None:
    zoo = ZooKeeperServer(tmp_path / "zookeeper").start()
    options = ("--legacy-port", str(free_port()), "--zookeeper", zoo.hosts)
    server = start_ketch(*options, "--zookeeper-session-timeout-ms", str(SESSION_MS), "--fsync", "always")
    port = legacy_port(server)
    with Legacy(port) as client:
        client.send(produce(TOPIC, 0, message(b"first")))
        eventually(lambda: client.positions(TOPIC, 0, -1)[0] > 0)
    registry = KazooClient(zoo.hosts)
    registry.start(timeout=30)
    old, reader = OldProducer(port), OldConsumer(port)
    today = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "log_level": 0})
    acknowledged: set[str] = set()
    try:
        for number in range(_ROUNDS):
            for n in range(200):
                value = f"new-{number}-{n}"
                today.produce(
                    TOPIC, value, on_delivery=lambda error, sent: error or acknowledged.add(sent.value().decode())
                )
            enough = len(old.stored) + 20 * _SET
            eventually(lambda enough=enough: len(old.stored) > enough, 60.0)  # type: ignore[misc]
            if number % 2:
                zoo.kill()
                zoo.start()
            else:
                server.kill()
                server.start()
            eventually(lambda: _registered(registry, port), 60.0)
            assert today.flush(60) == 0
    finally:
        for load in (old, reader):
            load.stop()
        registry.stop()
        registry.close()
        zoo.kill()
    log = dict(walk(port))
    assert {position: log.get(position) for position in reader.seen} == reader.seen
    values = Counter(legacy07.payload(whole).decode() for whole in log.values())
    assert set(values.values()) == {1}
    assert old.stored | acknowledged <= set(values)
    assert server.stop() == 0


def _registered(registry: KazooClient, port: int) -> bool:
    """Whether ZooKeeper has broker and topic; False while it can't be asked."""
    try:
        found: str = registry.get("/brokers/ids/1")[0].decode()
        return found.endswith(f":{port}") and registry.get(f"/brokers/topics/{TOPIC}/1")[0] == b"1"
    except Exception:  # kazoo has many for this
        return False
