"""Records as a person looks at them are those that a consumer gets, cut to their beginnings: on a real server, both
layouts.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ketch.configs.settings import Settings
from ketch.configs.topic_checks import defaults
from ketch.console.actions import batch
from ketch.records import read_header, records_to_columns
from ketch.redis.blocking import Connection
from ketch.redis.question import Command, calls, keyed
from ketch.redis.server import Server
from ketch.store.keys import Keyspace
from ketch.store.offsets import OffsetNumbering
from ketch.store.stream import glances, ranges
from ketch.store.stream.glances import Beginning, Glimpse, Match
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics.topic import Topic
from tests.support.ketch import KetchServer

KEYS = Keyspace("glances")


@pytest.fixture
def redis(broker: KetchServer) -> Iterator[Connection]:
    connection = Connection(Server(f"redis://127.0.0.1:{broker.redis_port}", timeout=60))
    yield connection
    connection.close()


def stream_of(redis: Connection, layout: str, ids: str, name: str) -> PartitionStream:
    """A stream of batches, and of entries by hand."""
    configs = {**defaults(Settings()), "storage.layout": layout, "offset.ids": ids}
    topic = Topic(name, uuid.uuid4(), 1, 1000, OffsetNumbering(10, ids == "dense"), configs)
    return PartitionStream.of(topic, 0, KEYS)


def fill(redis: Connection, stream: PartitionStream, seed: int) -> None:
    chance, at = random.Random(seed), 5 << 20
    commands = []
    for n in range(60):
        key = chance.choice([None, b"", b"k%d" % (n % 7), b"long" * 40])
        value = chance.choice([None, b"", b"v%d" % n, b"x" * 5000])
        data = batch(key, value, [(b"h", b"1"), (b"h", b"y" * 900)][: n % 3])
        payload = stream.layout.payload(data, read_header(data), None, None, 1 << 20)
        commands.append(keyed_bytes(stream.key, payload.appends(stream.key, stream.numbering, at)))
        at += chance.choice([1, 1, 1, 5, 2000])
    redis.ask(calls([keyed("DEL", stream.key)]))
    redis.ask(calls(commands))


def keyed_bytes(key: bytes, payload: bytes) -> Command:
    """One XADD or several."""
    return Command(key, payload)


def expected(redis: Connection, stream: PartitionStream, most: int) -> list[Glimpse]:
    """What a consumer gets, cut."""
    chunk = redis.ask(ranges.read(stream, 0, 1000))
    found = []
    for each in chunk.decoded():
        found += list(glances._rows(each, 1 << 20))
    assert records_to_columns(chunk.decoded())[0] == len(found)

    def cut(cell: Beginning | None) -> Beginning | None:
        return None if cell is None else Beginning(cell.data[:most], cell.size)

    return [
        Glimpse(
            offset, "", timestamp, cut(key), cut(value), tuple((name, cut(content)) for name, content in headers), more
        )
        for offset, timestamp, key, value, headers, more in found
    ]


@pytest.mark.parametrize("ids", ["time", "dense"])
@pytest.mark.parametrize("layout", ["record", "batch"])
def test_they_are_what_a_consumer_gets_in_both_directions(redis: Connection, layout: str, ids: str) -> None:
    stream = stream_of(redis, layout, ids, f"{layout}-{ids}")
    fill(redis, stream, 7)
    info = redis.ask(ranges.info(stream))
    want = expected(redis, stream, 64)
    assert len(want) == 60
    end = want[-1].offset + 1
    forward, backward = list[Glimpse](), list[Glimpse]()
    at: int | None = 0
    while at is not None:
        step = redis.ask(glances.forward(stream, at, info.entry_bytes, 7, 1))
        forward, at = forward + step.found, step.next
    at = end
    while at is not None:
        step = redis.ask(glances.backward(stream, at, info.entry_bytes, 7, 1))
        backward, at = backward + step.found, step.next
    assert [replace(each, entry_id="") for each in forward] == want
    assert [replace(each, entry_id="") for each in backward] == want[::-1]
    for n in (0, 13, 59):
        step = redis.ask(glances.forward(stream, want[n].offset, info.entry_bytes, 1, 64))
        assert step.found[0].offset == want[n].offset
        step = redis.ask(glances.backward(stream, want[n].offset, info.entry_bytes, 1, 64))
        assert [each.offset for each in step.found] == ([want[n - 1].offset] if n else [])


@pytest.mark.parametrize("layout", ["record", "batch"])
@pytest.mark.parametrize(
    ("how", "key"), [("is", b"k3"), ("has", b"3"), ("is", b"long" * 40), ("has", b"g" * 9), ("is", b"")]
)
def test_keys_are_found(redis: Connection, layout: str, how: Match, key: bytes) -> None:
    stream = stream_of(redis, layout, "time", f"keys-{layout}")
    fill(redis, stream, 8)
    want = [
        each.offset
        for each in expected(redis, stream, 1 << 20)
        if each.key is not None and (each.key.data == key if how == "is" else key in each.key.data)
    ]
    step = redis.ask(glances.forward(stream, 0, 100, 1000, 1, how, key))
    assert [each.offset for each in step.found] == want
    assert (step.next, step.looked) == (None, 60)


def test_what_is_too_large_to_be_opened_says_so(redis: Connection) -> None:
    stream = stream_of(redis, "batch", "time", "large")
    redis.ask(calls([keyed("DEL", stream.key)]))
    data = batch(b"k", b"x" * (2 << 20), [])
    payload = stream.layout.payload(data, read_header(data), None, None, 4 << 20)
    redis.ask(calls([keyed_bytes(stream.key, payload.appends(stream.key, stream.numbering, 1 << 20))]))
    (found,) = redis.ask(glances.forward(stream, 0, 9, 5, 64)).found
    assert (found.offset, found.batch, found.key, found.value) == (1 << 20, 1, None, None)
    assert "too large to be opened" in found.note
