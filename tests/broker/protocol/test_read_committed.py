"""Fetch and ListOffsets over transactions (KIP-98): what a native client has written, against a slow obvious model."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.support.batches import batch, read_records, records
from tests.support.kafka import DELETE_RECORDS, FETCH, Kafka, fetch, part
from tests.support.ketch import KetchServer, eventually
from tests.support.transactions import Written, read, visible

pytestmark = pytest.mark.storage("record", "batch-dense", long=("batch", "record-dense"))


class Seen(Written):
    """Waits after each write until the broker has heard of it: the push may come after the next fetch."""

    def __init__(self, connection: redis.Redis, topic: str, storage: str, client: Kafka) -> None:
        super().__init__(connection, topic, storage)
        self._client, self._topic = client, topic

    def append(self, values: Sequence[bytes], producer: int | None = None, gap: int = 0) -> int:
        base = super().append(values, producer, gap)
        self._wait()
        return base

    def finish(self, producer: int, commit: bool) -> int:
        offset = super().finish(producer, commit)
        self._wait()
        return offset

    def _wait(self) -> None:
        eventually(lambda: self._ends() == (self.last_stable, self.end))

    def _ends(self) -> tuple[int, int]:
        answer = self._client.fetch(self._topic, self.end)
        return answer.last_stable_offset, answer.high_watermark


@pytest.fixture
def client(broker: KetchServer) -> Iterator[Kafka]:
    with Kafka(broker.port) as client:
        yield client


@pytest.fixture
def written(broker: KetchServer, client: Kafka, topic: str, storage: str) -> Iterator[Written]:
    client.create(topic, retention_ms=-1)
    with broker.redis() as connection:
        yield Seen(connection, topic, storage, client)


def step(written: Written, chance: random.Random) -> None:
    """One more thing that a producer may do."""
    producer = chance.choice([None, 1, 2, 3])
    if producer in written.open and chance.random() < 0.4:
        written.finish(producer, chance.random() < 0.5)
    else:
        values = [b"%d" % chance.randrange(10**6) for _ in range(chance.randint(1, 5))]
        written.append(values, producer, chance.choice([0, 0, 0, 1, 3000]))


@pytest.mark.parametrize("seed", range(3))
def test_any_transactions(written: Written, client: Kafka, topic: str, seed: int) -> None:
    chance = random.Random(seed)
    positions = [client.list_offsets(topic, -2).offset]
    for n in range(40):
        step(written, chance)
        if n % 3:
            continue
        start = chance.choice(positions)
        found, position = read(client, topic, start, partition_max_bytes=chance.choice([1, 200, 1 << 20]))
        assert found == written.committed(start)
        assert position <= written.last_stable
        positions.append(position)
        answer = client.fetch(topic, start)
        assert (answer.last_stable_offset, answer.high_watermark) == (written.last_stable, written.end)
        assert answer.aborted_transactions is None
        assert read(client, topic, start, committed=False)[0] == written.all(start)


@pytest.mark.parametrize("seed", [100, 101])
def test_librdkafka(written: Written, broker: KetchServer, topic: str, seed: int) -> None:
    chance = random.Random(seed)
    for level in ("read_committed", "read_uncommitted"):
        for _ in range(40):
            step(written, chance)
        for producer in list(written.open):
            written.finish(producer, chance.random() < 0.5)
        expected = written.committed() if level == "read_committed" else written.all()
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True}
        consumer = Consumer({**settings, "isolation.level": level, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found = []
        while not (message := consumer.poll(10)).error():
            found.append((message.offset(), message.value()))
        consumer.close()
        assert found == expected


def test_the_aborted_are_named(written: Written, client: Kafka, topic: str) -> None:
    first = written.append([b"a"], 1)
    written.append([b"b"])
    second = written.append([b"c"], 2)
    written.finish(2, commit=False)
    marker = written.finish(1, commit=False)
    answer = client.fetch(topic, first, isolation_level=1)
    named = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
    assert named == [(2, second), (1, first)]
    assert [value for _, value in visible(answer)] == [b"b"]
    later = client.fetch(topic, marker, isolation_level=1)
    assert [(each.producer_id, each.first_offset) for each in later.aborted_transactions] == [(1, first)]


def test_many_that_were_aborted(written: Written, client: Kafka, topic: str) -> None:
    start = written.append([b"start"])
    long = written.append([b"long"], 9)
    for n in range(150):
        written.append([b"%d" % n], 1)
        written.finish(1, commit=n % 10 == 0)
    written.finish(9, commit=False)
    assert read(client, topic, start)[0] == written.committed()
    one = client.fetch(topic, long, isolation_level=1, partition_max_bytes=1)
    assert (9, long) in [(each.producer_id, each.first_offset) for each in one.aborted_transactions]


def test_a_fetch_waits_for_the_marker(written: Written, broker: KetchServer, client: Kafka, topic: str) -> None:
    start = written.append([b"a"], 1)
    assert client.fetch(topic, start, isolation_level=1).records == b""
    with Kafka(broker.port) as other:
        asked = fetch([part(topic, 0, start)], max_wait=60_000, isolation_level=1)
        answers: list[object] = []
        waiting = threading.Thread(target=lambda: answers.append(other.ask(FETCH, 12, **asked)))
        waiting.start()
        written.append([b"b"], 2)
        written.append([b"c"])
        written.finish(1, commit=True)
        waiting.join(30)
        assert answers
        found = visible(answers[0].responses[0].partitions[0])  # type: ignore[attr-defined]
        assert found == [(start, b"a")]


def test_a_fetch_is_not_woken_by_what_it_may_not_read(written: Written, client: Kafka, topic: str) -> None:
    start = written.append([b"a"], 1)
    written.append([b"b"] * 3)
    answer = client.fetch(topic, start, isolation_level=1, max_wait=50)
    assert (answer.records, answer.last_stable_offset, answer.high_watermark) == (b"", start, written.end)


def test_appends_through_the_broker_beside_a_transaction(written: Written, client: Kafka, topic: str) -> None:
    written.append([b"before"])
    start = written.append([b"open"], 1)
    base = client.stored(topic, batch(records([b"plain"] * 2)))
    assert [value for _, value in read(client, topic, client.list_offsets(topic, -2).offset)[0]] == [b"before"]
    written.end = base + 2
    written.finish(1, commit=False)
    base = client.stored(topic, batch(records([b"later"])))  # from memory
    found, position = read(client, topic, start)
    assert [value for _, value in found] == [b"plain", b"plain", b"later"]
    assert position == base + 1


def test_the_recipe_for_redis_clients(written: Written, broker: KetchServer) -> None:
    page = (Path(__file__).parents[3] / "docs/redis-layout.md").read_text()
    (recipe,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def committed(" in each]
    names: dict[str, Any] = {}
    exec(recipe, names)
    chance = random.Random(5)
    with broker.redis_of(written.stream) as connection:
        assert list(names["committed"](connection, written.stream)) == []
        for _ in range(60):
            step(written, chance)
            found = [fields for _, fields in names["committed"](connection, written.stream)]
            expected = [value for _, value in written.committed()]
            assert [value for fields in found for value in values(fields)] == expected


def values(fields: dict[bytes, bytes]) -> list[bytes | None]:
    """Of the records in an entry."""
    if b"batch" not in fields:
        return [fields[b"value"]]
    return [record.value for record in read_records(fields[b"batch"][61:])]


def test_list_offsets(written: Written, client: Kafka, topic: str) -> None:
    first = written.append([b"a"])
    start = written.append([b"b"], 1)
    for level, end in ((0, written.end), (1, start)):
        assert _list(client, topic, -1, level) == end
        assert _list(client, topic, 1, level) == first
        assert _list(client, topic, -3, level) == first  # the first of those with the latest timestamp
    marker = written.finish(1, commit=True)
    assert _list(client, topic, -1, 1) == marker + 1


def test_a_time_that_is_not_stable_yet(written: Written, client: Kafka, topic: str) -> None:
    written.append([b"a"], 1)
    assert _list(client, topic, 1, 0) >= 0
    assert _list(client, topic, 1, 1) == _list(client, topic, -3, 1) == -1


def _list(client: Kafka, topic: str, timestamp: int, level: int) -> int:
    asked = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
    answer = client.ask(2, 9, replica_id=-1, isolation_level=level, topics=[asked])
    assert answer.topics[0].partitions[0].error_code == 0
    return int(answer.topics[0].partitions[0].offset)


def test_records_of_transactions_are_deleted(written: Written, client: Kafka, topic: str, broker: KetchServer) -> None:
    written.append([b"a"], 1)
    written.append([b"a"], 2)
    marker = written.finish(1, commit=False)
    start = written.append([b"b"])
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": start}]}]
    answer = client.ask(DELETE_RECORDS, 2, topics=asked, timeout=5000)
    assert answer.topics[0].partitions[0].error_code == 0
    with broker.redis() as connection:
        assert connection.xlen(written.aborted) == 0, marker
    # The open transaction begins below the log's start: nothing there can be read, so what is stable begins with it.
    assert client.fetch(topic, start).last_stable_offset == start
    assert read(client, topic, start) == ([], start)
    written.finish(2, commit=False)
    # The broker hears of what another client writes by a push, which may come after the next fetch.
    assert eventually(lambda: read(client, topic, start)[0] == [(start, b"b")])


def test_what_cannot_be_read_is_not_taken_for_committed(
    written: Written, client: Kafka, topic: str, broker: KetchServer
) -> None:
    start = written.append([b"a"])
    with broker.redis() as connection:
        connection.hset(written.transactions, "7", "rubbish")
        assert eventually(lambda: client.fetch(topic, start, isolation_level=1).error_code == 56)
        connection.delete(written.transactions)
        assert eventually(lambda: client.fetch(topic, start, isolation_level=1).error_code == 0)


def test_a_topic_of_the_same_name_has_none_of_its_transactions(
    written: Written, client: Kafka, topic: str, broker: KetchServer
) -> None:
    written.append([b"a"], 1)
    written.append([b"a"], 2)
    written.finish(2, commit=False)
    assert client.ask(20, 4, topic_names=[topic], timeout=10_000).responses[0].error_code == 0
    client.create(topic)
    base = client.stored(topic, batch(records([b"x"])))
    assert read(client, topic, base)[0] == [(base, b"x")]
    with broker.redis() as connection:
        assert connection.exists(written.transactions, written.aborted) == 0


def test_a_topic_without_transactions_asks_nothing_more(client: Kafka, topic: str, broker: KetchServer) -> None:
    client.create(topic)
    base = client.stored(topic, batch(records([b"x"])))
    client.fetch(topic, base, isolation_level=1)
    stream = f"korvet:stream:{topic}:0"
    with broker.redis_of(stream) as connection, connection.monitor() as seen:
        for n in range(20):
            base = client.stored(topic, batch(records([b"%d" % n])))
            assert [value for _, value in visible(client.fetch(topic, base, isolation_level=1))] == [b"%d" % n]
        with broker.redis_of(stream) as other:
            other.echo("the end")
        asked: list[str] = []
        while "the end" not in "".join(asked[-1:]):
            asked.append(seen.next_command()["command"])
    assert not [each for each in asked if f"{{{stream}}}" in each and "aborted" in each]
