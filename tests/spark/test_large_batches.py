"""Topics whose entries are batches of a megabyte: no question of a planner or of `ketch archive status` may fetch many
of them at once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.spark.conftest import MakeTopic
from tests.support.ketch import KetchServer

pytest.importorskip("pyiceberg", reason="the extra spark is not installed")
pytest.importorskip("pyspark", reason="the extra spark is not installed")

from ketch.archive.options import Job
from ketch.archive.status import status
from ketch.redis.blocking import Connection, Server, connected
from ketch.spark.options import Topics
from ketch.spark.topics import boundary, first_at_or_after, look
from ketch.store.keys import Keyspace

_BATCHES = 40
_FIRST_MS = 1_700_000_000_000


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each reply that a blocking connection has taken."""
    sizes: list[int] = []
    reply = Connection.reply

    def measured(connection: Connection, values: int = 1) -> bytes:
        found = reply(connection, values)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(Connection, "reply", measured)
    return sizes


@pytest.mark.parametrize("ids", ["time", "dense"])
def test_questions_about_large_batches_have_small_replies(
    broker: KetchServer, make_topic: MakeTopic, replies: list[int], tmp_path: Path, ids: str
) -> None:
    topic = make_topic(1, **{"storage.layout": "batch", "offset.ids": ids})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    for n in range(_BATCHES):
        producer.produce(topic, bytes(900_000), timestamp=_FIRST_MS + n)
    assert producer.flush(30) == 0
    server, name = Server(broker.redis_url), (topic, 0)
    with connected(server) as connection:
        partition = look(connection, Keyspace("korvet"), Topics(names=(topic,)), True)[name]
        late = first_at_or_after(connection, partition, _FIRST_MS + _BATCHES - 1)
        middle = boundary(connection, partition, partition.start, _BATCHES // 2)
        assert late is not None
        assert partition.start < middle < late == partition.end - 1
        assert first_at_or_after(connection, partition, _FIRST_MS + _BATCHES) is None
    (found,) = status(Job(server, "korvet", "test-of-ketch", str(tmp_path), (topic,)))
    assert found.lag == _BATCHES
    assert max(replies) < 4 << 20
