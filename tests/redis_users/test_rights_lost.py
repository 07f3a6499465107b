"""A right that the broker's Redis user loses while it runs: what is answered with an error is not stored.

So a client that tries again, idempotent or not, has its batch stored once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ketch.store.keys import Keyspace
from ketch.store.rights import BROKER, NEEDED
from tests.support.batches import batch, records
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.modules import binary
from tests.support.redis_servers import RedisServer


class Way(NamedTuple):
    """How a batch is appended; see `ketch.store.append.appends`.

    Attributes:
        count: its records.
        contended: another client has just written.
    """

    count: int
    contended: bool = False


WAYS = {"transaction": Way(3), "single": Way(1), "chosen by Redis": Way(3, contended=True)}


class Stage(NamedTuple):
    server: RedisServer
    kafka: Kafka

    def allow(self, *rules: str) -> None:
        with self.server.client() as client:
            client.execute_command("ACL", "SETUSER", "revoked", *rules)

    def stored(self, topic: str) -> int:
        with self.server.client() as client:
            return int(client.xlen(f"korvet:stream:{topic}:0"))

    def write(self, topic: str) -> None:
        with self.server.client() as client:
            client.xadd(f"korvet:stream:{topic}:0", {"value": "of another"})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("rights")
    server = RedisServer(binary("valkey"), directory / "redis")
    with server.client() as client:
        rules = BROKER.rules(Keyspace("korvet"))
        client.execute_command("ACL", "SETUSER", "revoked", "reset", "on", ">secret", "resetchannels", *rules)
    url = f"redis://revoked:secret@127.0.0.1:{server.port}"
    ketch = KetchServer(directory, "--redis", url, "--append", "multi")
    ketch.start()
    with Kafka(ketch.port) as kafka:
        yield Stage(server, kafka)
    assert ketch.stop() == 0
    assert "Traceback" not in ketch.log
    server.stop()


class Writer(NamedTuple):
    """One client, on a topic of its own."""

    stage: Stage
    way: Way
    topic: str
    producer: dict[str, int]

    def write(self, sequence: int = 0) -> int:
        """The error code of a batch."""
        given = self.producer and {**self.producer, "base_sequence": sequence}
        data = batch(records([b"x"] * self.way.count), **given)
        return int(self.stage.kafka.produce(self.topic, data).error_code)

    def without(self, right: str, known: bool) -> str | None:
        """What is wrong with a batch that comes while a right is missing, and comes again where it is refused."""
        before = sequence = self.way.count if known else 0
        if known:
            assert self.write() == 0
        if self.way.contended:
            self.stage.write(self.topic)
            before += 1
        self.stage.allow(f"-{right}")
        code = self.write(sequence)
        stored = self.stage.stored(self.topic) - before
        self.stage.allow(f"+{right}")
        if stored != (0 if code else self.way.count):
            return f"-{right}: error {code}, {stored} stored"
        if code:
            eventually(lambda: self.write(sequence) == 0, 10.0, f"it is taken again: {right}")
            stored = self.stage.stored(self.topic) - before
        return None if stored == self.way.count else f"-{right}: {stored} stored after a retry"


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("name", WAYS)
def test_what_is_refused_is_not_stored(stage: Stage, name: str, idempotent: bool, known: bool) -> None:
    wrong = []
    for n, right in enumerate(NEEDED):
        topic = f"{name.replace(' ', '-')}-{idempotent}-{known}-{n}"
        stage.kafka.create(topic)
        producer = {"producer_id": stage.kafka.producer_id(), "producer_epoch": 0} if idempotent else {}
        wrong.append(Writer(stage, WAYS[name], topic, producer).without(right, known))
    assert not any(wrong), [each for each in wrong if each]
