"""Java's share consumers (KIP-932) on Ketch, alone and beside native Redis consumers of the same group.

The native consumers run the recipe of docs/share-groups.md as it stands there.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ketch.embedded.valkey import server_binary
from tests.support.batches import batch, records
from tests.support.java import missing_tools
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer
from tests.support.share import Member, acquired, begins
from tests.support.sharers import Sharer

NO_JAVA = missing_tools()
pytestmark = pytest.mark.skipif(NO_JAVA is not None, reason=str(NO_JAVA))

DESCRIBE_SHARE_GROUP_OFFSETS = 90
PAGE = Path(__file__).parents[2] / "docs" / "share-groups.md"
WAIT = 120.0


@pytest.fixture
def kafka(broker: KetchServer, topic: str) -> Iterator[Kafka]:
    with Kafka(broker.port) as client:
        client.create(topic, 2, retention_ms=-1)
        begins(client, topic)
        yield client


def store(kafka: Kafka, topic: str, start: int, count: int) -> list[str]:
    """Records whose values count on from `start`, ten in a batch; the values."""
    values = [str(n) for n in range(start, start + count)]
    for n in range(0, count, 10):
        kafka.stored(topic, batch(records([each.encode() for each in values[n : n + 10]])), partition=n // 10 % 2)
    return values


@pytest.mark.storage("record", long=("batch-dense",))
@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_two_members(broker: KetchServer, kafka: Kafka, topic: str, tmp_path: Path, mode: str) -> None:
    arguments = (broker.bootstrap, topic, topic)
    with Sharer(*arguments, tmp_path / "a", mode) as one, Sharer(*arguments, tmp_path / "b", mode) as other:
        values = store(kafka, topic, 0, 200)

        def all_are_accepted() -> bool:
            return len(one.accepted) + len(other.accepted) == len(values)

        while not (one.accepted and other.accepted):
            eventually(all_are_accepted, WAIT)
            values += store(kafka, topic, len(values), 100)
        eventually(all_are_accepted, WAIT)
        one.leave()
        other.leave()
    assert sorted(one.accepted + other.accepted) == sorted(values)
    given = Counter(value for value, _ in one.read + other.read)
    assert all(given[each] == 1 + (mode == "explicit" and each.endswith("0")) for each in values)


@pytest.mark.storage("batch-dense", long=("record",))
def test_what_a_killed_member_has_goes_to_another(
    broker: KetchServer, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    arguments = (broker.bootstrap, topic, topic)
    values: list[str] = []
    with Sharer(*arguments, tmp_path / "a") as one, Sharer(*arguments, tmp_path / "b") as other:

        def all_are_accepted() -> bool:
            return len(one.accepted) + len(other.accepted) == len(values)

        while not (one.read and other.read):
            values += store(kafka, topic, len(values), 50)
            eventually(all_are_accepted, WAIT)
        values += store(kafka, topic, len(values), 500)
        one.kill()
        eventually(lambda: all_is_settled(kafka, topic), WAIT, "every record to be settled")
        other.leave()
    # The broker may have taken the last acknowledgement of the killed one, which did not live to say so.
    unsaid = {value for value, _ in one.read} - set(one.accepted)
    assert set(values) - unsaid <= set(one.accepted) | set(other.accepted) <= set(values)
    assert set(one.accepted) & set(other.accepted) == set()


def all_is_settled(kafka: Kafka, topic: str) -> bool:
    """Whether the group of the topic's name stands at the end of both partitions."""
    asked = [{"topic_name": topic, "partitions": [0, 1]}]
    (group,) = kafka.ask(DESCRIBE_SHARE_GROUP_OFFSETS, 0, groups=[{"group_id": topic, "topics": asked}]).groups
    starts = {part.partition_index: part.start_offset for part in group.topics[0].partitions}
    return all(starts[n] == kafka.list_offsets(topic, -1, partition=n).offset for n in (0, 1))


def recipe() -> SimpleNamespace:
    """The functions of the page."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    return SimpleNamespace(**names)


@pytest.mark.storage("record-dense", long=("record",))
def test_native_consumers_of_the_same_group(broker: KetchServer, kafka: Kafka, topic: str, tmp_path: Path) -> None:
    native, streams = recipe(), [f"korvet:stream:{topic}:{n}" for n in (0, 1)]
    done: list[str] = []
    ended = threading.Event()

    def work(stream: str, name: str) -> None:
        client = broker.redis_of(stream)
        native.join(client, stream, topic)
        while not ended.is_set():
            native.work(client, stream, topic, name, lambda _, fields: done.append(fields[b"value"].decode()))

    workers = [threading.Thread(target=work, args=(stream, f"n{n}")) for n, stream in enumerate(streams)]
    values = store(kafka, topic, 0, 100)
    with Sharer(broker.bootstrap, topic, topic, tmp_path / "a") as sharer:
        eventually(lambda: sharer.accepted, WAIT)
        for worker in workers:
            worker.start()

        def all_are_done() -> bool:
            return len(done) + len(sharer.accepted) == len(values)

        while len(done) < 100 or len(sharer.accepted) < 200:
            values += store(kafka, topic, len(values), 50)
            eventually(all_are_done, WAIT)
        ended.set()
        for worker in workers:
            worker.join(30)
        sharer.leave()
    assert sorted(done + sharer.accepted) == sorted(values)
    for stream in streams:
        (group,) = broker.redis_of(stream).xinfo_groups(stream)
        assert group["pending"] == 0


@pytest.mark.storage("record")
def test_a_native_consumer_gets_what_a_killed_broker_had_given(
    start_ketch: Callable[..., KetchServer], topic: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Nobody is there to give anything back: the lock's time is all that counts."""
    lock = ("--group-share-record-lock-duration-ms=1000", "--group-share-min-record-lock-duration-ms=1000")
    valkey, stream = RedisServer(str(server_binary()), tmp_path / "valkey"), f"korvet:stream:{topic}:0"
    request.addfinalizer(valkey.kill)
    server = start_ketch(*lock, "--redis", valkey.url)
    native = recipe()
    seen: list[str] = []
    native.work.__globals__["LOCK_MS"] = 1_000
    with Kafka(server.port) as client:
        client.create(topic, retention_ms=-1)
        begins(client, topic)
        store(client, topic, 0, 10)
        with Sharer(server.bootstrap, topic, topic, tmp_path / "a") as sharer:
            eventually(lambda: len(sharer.accepted) == 10, WAIT)
        store(client, topic, 10, 10)
        member = Member(client, topic)
        assert sum(last - first + 1 for first, last, _ in acquired(member.fetch(topic, max_wait=5_000))) == 10
        server.kill()
    redis = valkey.client()
    assert redis.xautoclaim(stream, topic, "n", min_idle_time=60_000)[1] == []

    def handle(_: bytes, fields: dict[bytes, bytes]) -> None:
        seen.append(fields[b"value"].decode())

    eventually(lambda: native.work(redis, stream, topic, "n", handle))
    assert seen == [str(n) for n in range(10, 20)]
