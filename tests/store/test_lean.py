"""Where logs start and end, asked so that large entries are not read: the same as asked plainly, on every server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ketch.configs.settings import Settings
from ketch.configs.topic_checks import defaults
from ketch.redis.blocking import Connection
from ketch.redis.server import Server
from ketch.store.keys import Keyspace
from ketch.store.offsets import OffsetNumbering
from ketch.store.stream import extents, ranges
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics.topic import Topic
from ketch.views import figures
from tests.support.batches import batch, records
from tests.support.modules import NAMES, binary
from tests.support.redis_servers import RedisServer

KEYS = Keyspace("korvet")
LARGE = 300_000  # bytes of an entry


@pytest.fixture(scope="module", params=NAMES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(binary(request.param), tmp_path_factory.mktemp("lean"))
    yield server
    server.stop()


@pytest.fixture
def redis(server: RedisServer) -> Iterator[Connection]:
    connection = Connection(Server(f"redis://127.0.0.1:{server.port}", timeout=20))
    yield connection
    connection.close()


def stream_of(layout: str, name: str) -> PartitionStream:
    configs = {**defaults(Settings()), "storage.layout": layout}
    return PartitionStream.of(Topic(name, uuid.uuid4(), 1, 1000, OffsetNumbering(10, False), configs), 0, KEYS)


def fill(server: RedisServer, stream: PartitionStream, size: int, count: int, trimmed: int) -> None:
    client = server.client()
    client.delete(stream.key)
    for n in range(count):
        data = batch(records([b"x" * size] * 3)) if stream.topic.configs["storage.layout"] == "batch" else b"x" * size
        client.xadd(stream.key, {"batch" if data[:1] != b"x" else "value": data}, id=f"{5000 + n}-2")
    client.xtrim(stream.key, maxlen=count - trimmed, approximate=False)


@pytest.mark.parametrize("trimmed", [0, 2, 4])
@pytest.mark.parametrize("size", [100, LARGE])
@pytest.mark.parametrize("layout", ["record", "batch"])
def test_the_same_is_told(server: RedisServer, redis: Connection, layout: str, size: int, trimmed: int) -> None:
    streams = [stream_of(layout, f"{layout}-{size}-{trimmed}"), stream_of(layout, "nothing")]
    fill(server, streams[0], size, 4, trimmed)
    for plain, lean in zip(redis.ask(ranges.infos(streams)), redis.ask(ranges.lean_infos(streams)), strict=True):
        assert lean is not None
        told = (plain.length, plain.last, plain.first, plain.added)
        assert (lean.length, lean.last, lean.first, lean.added) == told
        assert lean.first_batch[:61] == plain.first_batch[:61]
        assert lean.entry_bytes >= plain.entry_bytes
    plain, lean = redis.ask(extents.extents(streams, KEYS)), redis.ask(extents.lean(streams, KEYS))
    assert [(each.start, each.end) for each in lean] == [(each.start, each.end) for each in plain]


def test_what_keeps_redis_busy_is_left_out(server: RedisServer, redis: Connection) -> None:
    sizes = (100, LARGE, LARGE, 100, LARGE)
    streams = [stream_of("record", f"bounded-{n}") for n in range(len(sizes))]
    for stream, size in zip(streams, sizes, strict=True):
        fill(server, stream, size, 3, 0)
    client = server.client()
    client.config_resetstat()
    found = redis.ask(extents.bounded(streams, KEYS, round(2.5 * LARGE)))
    assert [each is not None for each in found] == [True, True, True, True, False]
    assert client.info("stats")["total_net_output_bytes"] < 20_000


def test_figures_leave_large_entries_where_they_are(server: RedisServer, redis: Connection) -> None:
    streams = [stream_of(layout, f"figures-{layout}") for layout in ("record", "batch")]
    for stream in streams:
        fill(server, stream, LARGE, 3, 1)
    client = server.client()
    client.config_resetstat()
    found = redis.ask(figures.figures(KEYS, streams)).partitions
    assert client.info("stats")["total_net_output_bytes"] < 20_000
    assert [each.entries for each in found] == [2, 2]
    assert all(each.bytes > 2 * LARGE for each in found)
