"""A right that the broker's Redis user lacks: at the start one sentence, while it runs an error code and a line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ketch.store.keys import Keyspace
from ketch.store.rights import BROKER
from tests.support.batches import batch, records
from tests.support.kafka import CREATE_TOPICS, Kafka
from tests.support.ketch import KetchServer
from tests.support.modules import NAMES, binary
from tests.support.redis_servers import RedisServer

STORAGE_ERROR = 56
DATA = batch(records([b"x"] * 3))
URL = "redis://revoked:secret@127.0.0.1"


@pytest.fixture(params=NAMES)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(binary(request.param), tmp_path / "redis")
    allow(server, "reset", "on", ">secret", "resetchannels", *BROKER.rules(Keyspace("korvet")))
    yield server
    server.stop()


def allow(server: RedisServer, *rules: str) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "revoked", *rules)


def test_at_the_start(server: RedisServer) -> None:
    allow(server, "-xtrim", "-hincrby")
    command = [sys.executable, "-m", "ketch", "serve", "--port", "0"]
    environment = {**os.environ, "KETCH_REDIS": f"{URL}:{server.port}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ketch: rights: user revoked may not run XTRIM, HINCRBY; give it what `ketch redis user broker` prints.\n"
    )


def test_while_it_runs(server: RedisServer, start_ketch: Callable[..., KetchServer]) -> None:
    ketch = start_ketch("--redis", f"{URL}:{server.port}", "--append", "multi")
    with Kafka(ketch.port) as kafka:
        kafka.create("t")
        assert kafka.stored("t", DATA) >= 0
        allow(server, "-xadd")
        for _ in range(3):
            assert kafka.produce("t", DATA).error_code == STORAGE_ERROR
        assert len(kafka.read_all("t")) == 3, "nothing of a batch is stored"
        allow(server, "+xadd", "-xrange")
        with server.client() as client:  # an entry that the broker has not seen
            ms, seq = map(int, client.xadd("korvet:stream:t:0", {"value": "y"}).split(b"-"))
        assert kafka.fetch("t", (ms << 10) + seq).error_code == STORAGE_ERROR
        allow(server, "+xrange", "-eval")
        asked = {"name": "u", "num_partitions": 1, "replication_factor": -1}
        assert kafka.ask(CREATE_TOPICS, 7, topics=[asked], timeout=5000).topics[0].error_code == STORAGE_ERROR
        allow(server, "+eval")
        assert kafka.stored("t", DATA) >= 0
        kafka.create("u")
        assert len(kafka.read_all("t")) == 7
    assert ketch.stop() == 0
    assert "Traceback" not in ketch.log
    said = "the broker's user of Redis lacks a right, give it what `ketch redis user broker` prints"
    assert ketch.log.count(said) == 1, "a line, not one for each request"
    assert "run the 'xadd' command" in ketch.log
