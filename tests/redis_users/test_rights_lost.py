"""A right that the broker's Redis user loses while it runs: what is answered with an error is not stored.

So a client that tries again, idempotent or not, has its batch stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
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


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("name", WAYS)
def test_what_is_refused_is_not_stored(stage: Stage, name: str, idempotent: bool, known: bool) -> None:
    way, kafka = WAYS[name], stage.kafka
    wrong = []
    for n, right in enumerate(NEEDED):
        topic = f"{name.replace(' ', '-')}-{idempotent}-{known}-{n}"
        kafka.create(topic)
        producer = {"producer_id": kafka.producer_id(), "producer_epoch": 0} if idempotent else {}
        written, sequence = 0, 0

        def data() -> bytes:
            given = producer and {**producer, "base_sequence": sequence}
            return batch(records([b"x"] * way.count), **given)

        if known:
            assert kafka.stored(topic, data()) >= 0
            written, sequence = way.count, way.count
        if way.contended:
            stage.write(topic)
            written += 1
        stage.allow(f"-{right}")
        code = kafka.produce(topic, data()).error_code
        stored = stage.stored(topic) - written
        stage.allow(f"+{right}")
        if stored != (0 if code else way.count):
            wrong.append(f"-{right}: error {code}, {stored} stored")
        elif code:
            eventually(lambda: not kafka.produce(topic, data()).error_code, 10.0, f"it is taken again: {right}")
            if stage.stored(topic) - written != way.count:
                wrong.append(f"-{right}: {stage.stored(topic) - written} stored after a retry")
    assert not wrong
