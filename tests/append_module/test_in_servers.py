"""The append module in real servers: what it tells others, what replicas and the append-only file get of it."""

from __future__ import annotations

import fcntl
import itertools
import random
import shutil
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from ketch.append_module.library import module_path
from ketch.errors import StorageUnavailable
from ketch.records import read_header
from ketch.redis.blocking import Connection
from ketch.redis.server import Server
from ketch.store.append import appends, producers
from ketch.store.append.appends import Landed, Refusal
from ketch.store.append.module import VERSION
from ketch.store.layouts.layout import Payload
from ketch.store.layouts.table import LAYOUTS
from ketch.store.offsets import ZERO, OffsetNumbering
from ketch.store.scripts import AppendKeys
from tests.support.batches import batch, record
from tests.support.ketch import eventually
from tests.support.modules import NAMES, append_keys, binary, content, transactions_key, with_module
from tests.support.redis_servers import RedisServer

NUMBERING = OffsetNumbering()
BASE = 5 << 10
IN_TRANSACTION: dict[str, Any] = {"attributes": 0x10, "producer_id": 7, "producer_epoch": 0}


def random_payload(chance: random.Random, most: int = 20) -> Payload:
    """Of either layout."""

    def some(size: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(size))

    names = [chance.randbytes(3) for _ in range(3)]
    made = []
    for n in range(chance.randrange(1, most)):
        headers = [(name, some(9)) for name in names] if chance.random() < 0.3 else []
        made.append(record(some(200), key=some(20), headers=headers, offset_delta=n, timestamp_delta=n // 3))
    data = batch(made, **(IN_TRANSACTION if chance.random() < 0.3 else {}))
    return LAYOUTS[chance.choice(["record", "record", "batch"])].payload(data, read_header(data), None, None, 1 << 20)


class Writer:
    """Appends by the module over one connection, behind what is there."""

    def __init__(self, url: str, topic: str = "t") -> None:
        self.connection, self.keys = Connection(Server(url)), append_keys(topic)
        self.next, self.sequence = BASE, 0
        self.expected = ZERO

    def append(self, one: Payload, idempotent: bool = False) -> Any:
        """A payload that is a part of a transaction opens it, and is an idempotent producer's as well."""
        moved = None
        if idempotent or one.producer is not None:
            head = producers.head(0, self.sequence - 1) if self.sequence else ""
            last, transactions = self.sequence + one.count - 1, transactions_key(self.keys) if one.producer else None
            moved = producers.moved(7, head, 0, self.sequence, last, 12, transactions, 5)
            self.sequence += one.count
        way = appends.chosen_here(self.keys, NUMBERING, self.expected, self.next, one, moved, VERSION)
        outcome = self.connection.ask(appends.store(way))
        if isinstance(outcome, Landed):
            self.next = outcome.base + one.count
            self.expected = NUMBERING.to_id(self.next - 1)
        return outcome

    def append_some(self, chance: random.Random, batches: int) -> None:
        for n in range(batches):
            assert isinstance(self.append(random_payload(chance), n % 2 == 0), Landed)


def in_transaction() -> Payload:
    made = [record(b"%d" % n, offset_delta=n) for n in range(3)]
    data = batch(made, **IN_TRANSACTION)
    return LAYOUTS["record"].payload(data, read_header(data), None, None, 1 << 24)


def one_record(value: bytes = b"v") -> Payload:
    return of_records([record(value)])


def of_records(made: list[bytes]) -> Payload:
    data = batch(made)
    return LAYOUTS["record"].payload(data, read_header(data), None, None, 1 << 24)


def three() -> Payload:
    return of_records([record(b"%d" % n, offset_delta=n) for n in range(3)])


@pytest.fixture(scope="module", params=NAMES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    started = with_module(request.param, tmp_path_factory.mktemp("server"))
    started.name = request.param  # type: ignore[attr-defined]
    yield started
    started.stop()


@pytest.fixture
def server(shared: RedisServer) -> RedisServer:
    """Each kind of server by turns, empty."""
    with closing(shared.client()) as client:
        client.flushall()
    return shared


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[RedisServer]:
    """One for a test that breaks it, or that speaks of Valkey alone."""
    started = with_module("valkey", tmp_path / "valkey")
    yield started
    started.stop()


@pytest.fixture
def writer(request: pytest.FixtureRequest) -> Iterator[Writer]:
    found = next(name for name in ("server", "valkey") if name in request.fixturenames)
    made = Writer(request.getfixturevalue(found).url)
    yield made
    made.connection.close()


# -- replicas and the append-only file


def test_a_file_written_with_the_module_loads_without_it(server: RedisServer, writer: Writer, tmp_path: Path) -> None:
    """On the same kind of server, and on Valkey."""
    chance = random.Random(1)
    writer.append_some(chance, 40)
    wide = [record(b"w", headers=[(b"h%d" % n, b"") for n in range(4_000)]), record(b"n", offset_delta=1)]
    writer.append(of_records(wide), idempotent=True)
    many = [record(b"%d" % n, key=b"k" if n > 5_000 else None, offset_delta=n) for n in range(9_000)]
    writer.append(of_records(many), idempotent=True)
    client = server.client()
    client.xadd(writer.keys.stream, {"value": "foreign"})
    writer.append_some(chance, 5)
    before = content(client, writer.keys)
    client.close()
    server.kill()
    for name in {server.name, "valkey"}:  # type: ignore[attr-defined]
        directory = tmp_path / f"loaded-by-{name}"
        shutil.copytree(server.directory, directory)
        if server.name != name and not (directory / "appendonlydir").exists():  # type: ignore[attr-defined]
            continue  # the one file of Redis 6.2 is converted by its own successor, as any file of it
        without = RedisServer(binary(name), directory)
        with closing(without.client()) as loaded:
            assert all(module[b"name"] != b"ketch" for module in loaded.execute_command("MODULE", "LIST"))
            assert content(loaded, writer.keys) == before
        without.stop()
    server.start()


def test_it_is_loaded_by_the_module_where_there_is_one(server: RedisServer, writer: Writer) -> None:
    """As told by a file in which the other way is broken."""
    writer.append_some(random.Random(6), 40)
    many = [record(b"%d" % n, key=b"k" if n > 5_000 else None, offset_delta=n) for n in range(9_000)]
    writer.append(of_records(many), idempotent=True)
    with closing(server.client()) as client:
        before = content(client, writer.keys)
    server.kill()
    file = aof_of(server.directory)
    written = file.read_bytes()
    assert written.count(b"redis.call('XADD'") > 20
    file.write_bytes(written.replace(b"redis.call('XADD'", b"redis.call('NONE'"))
    server.start()
    with closing(server.client()) as client:
        assert content(client, writer.keys) == before


def test_the_command_that_loads_is_for_that_alone(server: RedisServer, writer: Writer) -> None:
    writer.append(three())
    with closing(server.client()) as client:
        with pytest.raises(redis.ResponseError, match="for a server that loads its append-only file"):
            client.execute_command("KETCH.LOAD", writer.keys.stream, "9999999999999-0", 1024, 1, 1, "value", "v")
        assert client.xlen(writer.keys.stream) == 3


def test_no_command_of_the_module_is_in_the_file(server: RedisServer, writer: Writer) -> None:
    writer.append_some(random.Random(2), 20)
    files = [path for path in server.directory.rglob("*") if "aof" in path.name and path.is_file()]
    written = b"".join(path.read_bytes() for path in files).lower()
    assert b"ketch.append" not in written
    assert b"ketch.txnappend" not in written
    assert written.count(b"\r\neval\r\n") > 5


def test_a_replica_without_the_module_has_every_record(server: RedisServer, writer: Writer, tmp_path: Path) -> None:
    replica = RedisServer(binary(server.name), tmp_path / "replica")  # type: ignore[attr-defined]
    with closing(replica.client()) as follower, closing(server.client()) as client:
        follower.replicaof("127.0.0.1", str(server.port))
        eventually(lambda: follower.info("replication")["master_link_status"] == "up")
        writer.append_some(random.Random(3), 40)
        client.xadd(writer.keys.stream, {"value": "foreign"})
        writer.append(three())
        assert client.wait(1, 20_000) == 1
        expected = content(client, writer.keys)
        assert content(follower, writer.keys) == expected
        # It is promoted: Ketch finds no module there, and appends by transactions behind what is there.
        follower.replicaof("NO", "ONE")
        with closing(Connection(Server(replica.url))) as connection:
            assert connection.ask(appends.module_version()) == 0
            way = appends.chosen_here(writer.keys, NUMBERING, writer.expected, writer.next, three(), None, False)
            assert isinstance(connection.ask(appends.store(way)), Landed)
    replica.kill()


@pytest.fixture
def replica(server: RedisServer, tmp_path: Path) -> Iterator[RedisServer]:
    """One of the same kind, with the module."""
    started = with_module(server.name, tmp_path / "replica")  # type: ignore[attr-defined]
    with closing(started.client()) as client:
        client.replicaof("127.0.0.1", str(server.port))
        eventually(lambda: client.info("replication")["master_link_status"] == "up")
    yield started
    started.kill()


def test_a_replica_with_the_module_has_every_record_and_keeps_them(
    server: RedisServer, replica: RedisServer, writer: Writer
) -> None:
    """In its memory, and in a file of its own."""
    many = [record(b"%d" % n, key=b"k" if n > 5_000 else None, offset_delta=n) for n in range(9_000)]
    wide = [record(b"w", headers=[(b"h%d" % n, b"") for n in range(4_000)]), record(b"n", offset_delta=1)]
    with closing(server.client()) as client:
        writer.append_some(random.Random(3), 40)
        writer.append(of_records(many), idempotent=True)
        writer.append(of_records(wide), idempotent=True)
        client.xadd(writer.keys.stream, {"value": "foreign"})
        writer.append_some(random.Random(4), 5)
        assert client.wait(1, 20_000) == 1
        expected = content(client, writer.keys)
    with closing(replica.client()) as follower:
        assert content(follower, writer.keys) == expected
        follower.replicaof("NO", "ONE")
    replica.kill()
    written = b"".join(path.read_bytes() for path in replica.directory.rglob("*.aof")).lower()
    assert b"\r\nketch." not in written, "any server can load it"
    replica.start()
    with closing(replica.client()) as follower:
        assert content(follower, writer.keys) == expected


def test_a_replica_adds_entries_by_the_module(server: RedisServer, replica: RedisServer, writer: Writer) -> None:
    """But that of Redis 6.2, whose file would have them twice."""
    with closing(replica.client()) as follower, closing(server.client()) as client:
        writer.append(three())
        assert client.wait(1, 20_000) == 1
        stats = follower.info("commandstats")
        assert stats["cmdstat_ketch.load"]["calls"] == 1
        assert ("cmdstat_xadd" in stats) == (server.name == "redis-6.2")  # type: ignore[attr-defined]


def test_a_reader_of_a_replica_wakes(server: RedisServer, replica: RedisServer, writer: Writer) -> None:
    writer.append(three())
    with closing(replica.client()) as follower, closing(server.client()) as client:
        assert client.wait(1, 20_000) == 1
        with ThreadPoolExecutor() as pool:
            reading = pool.submit(follower.xread, {writer.keys.stream: "$"}, count=10, block=20_000)
            eventually(lambda: replica.client().info("clients")["blocked_clients"] == 1)
            writer.append(three())
            ((_, entries),) = reading.result()
        assert len(entries) == 3


def aof_of(directory: Path) -> Path:
    found = [path for path in directory.rglob("*") if path.name.endswith(".incr.aof") or path.name == "appendonly.aof"]
    return max(found, key=lambda path: path.stat().st_size)


LAST = {
    "several entries": three,
    "one entry": one_record,
    "in a transaction": in_transaction,
    "too wide for Lua": lambda: of_records([record(b"w", headers=[(b"", None)] * 3_500), record(b"n", offset_delta=1)]),
}


@pytest.mark.parametrize("kind", ["several entries", "one entry", "in a transaction"])
def test_a_file_cut_at_any_byte_of_the_last_command_has_no_part_of_a_batch(
    valkey: RedisServer, writer: Writer, tmp_path: Path, kind: str
) -> None:
    """At each byte, checked by the tool that the server cuts its file by; at some the server itself loads it."""
    chance = random.Random(4)
    writer.append(three(), idempotent=True)
    file = aof_of(tmp_path / "valkey")
    with closing(valkey.client()) as client:
        before, size = content(client, writer.keys), file.stat().st_size
        writer.append(LAST[kind](), idempotent=True)
        after = content(client, writer.keys)
    whole = file.read_bytes()
    valkey.kill()
    cuts = sorted({size, len(whole) - 1, len(whole), *chance.sample(range(size, len(whole)), 12)})
    for cut in cuts:
        file.write_bytes(whole[:cut])
        loaded = RedisServer(binary("valkey"), tmp_path / "valkey")
        with closing(loaded.client()) as client:
            found = content(client, writer.keys)
        loaded.kill()
        assert found == (after if cut == len(whole) else before), cut
    valkey.start()


@pytest.mark.long(minutes=6)
@pytest.mark.parametrize("kind", LAST)
def test_a_file_cut_at_every_byte(valkey: RedisServer, writer: Writer, tmp_path: Path, kind: str) -> None:
    writer.append(three(), idempotent=True)
    file = aof_of(tmp_path / "valkey")
    with closing(valkey.client()) as client:
        before, size = content(client, writer.keys), file.stat().st_size
        writer.append(LAST[kind](), idempotent=True)
        after = content(client, writer.keys)
    whole = file.read_bytes()
    valkey.kill()
    step = 1 if len(whole) - size < 2_000 else 97
    for cut in [*range(size, len(whole), step), len(whole)]:
        file.write_bytes(whole[:cut])
        loaded = RedisServer(binary("valkey"), tmp_path / "valkey")
        with closing(loaded.client()) as client:
            found = content(client, writer.keys)
        loaded.kill()
        assert found == (after if cut == len(whole) else before), cut
    valkey.start()


def test_a_kill_while_every_append_is_synced_loses_nothing_and_leaves_no_part(tmp_path: Path) -> None:
    """What was acknowledged is there, whole; of the batch in flight all or nothing."""
    chance = random.Random(5)
    server = with_module("valkey", tmp_path / "server", "--appendfsync", "always")
    expected: list[int] = []  # records of each batch that was acknowledged
    for _ in range(6):
        writer = Writer(server.url)
        writer.expected, _, by_module = writer.connection.ask(appends.where(writer.keys, 7))
        writer.next = max(BASE, NUMBERING.to_offset(*writer.expected) + 1)
        assert by_module
        killer = threading.Timer(chance.uniform(0.02, 0.2), server.kill)
        killer.start()
        tried = 0
        try:
            while True:
                tried = chance.randrange(2, 30)
                number = len(expected)
                made = [record(b"%d" % number, offset_delta=n) for n in range(tried)]
                assert isinstance(writer.append(of_records(made)), Landed)
                expected.append(tried)
        except StorageUnavailable:  # the connection went
            pass
        killer.join()
        writer.connection.close()
        server.start()
        with closing(server.client()) as client:
            found: dict[bytes, int] = {}
            for _, fields in client.xrange(writer.keys.stream):
                found[fields[b"value"]] = found.get(fields[b"value"], 0) + 1
        counts = [found.pop(b"%d" % number) for number in range(len(expected))]
        assert counts == expected
        assert found in ({}, {b"%d" % len(expected): tried})
        expected += [*found.values()]
    server.stop()


# -- what others hear of it


def pushed(client: redis.Redis, command: Callable[[], Any]) -> list[Any]:
    listening = client.pubsub()
    listening.psubscribe("__key*__:*")
    eventually(lambda: listening.get_message(timeout=0.1))
    command()
    events: list[Any] = []

    def last() -> bool:
        message = listening.get_message(timeout=0.05)
        if message is not None:
            events.append((message["channel"], message["data"]))
        return bool(events) and message is None

    eventually(last)
    listening.close()
    return events


def test_keyspace_events_are_those_of_xadd(server: RedisServer, writer: Writer) -> None:
    with closing(server.client()) as client:
        client.config_set("notify-keyspace-events", "KEA")
        by_module = pushed(client, lambda: writer.append(three(), idempotent=True))
        client.flushall()
        writer.next, writer.expected, writer.sequence = BASE, ZERO, 0

        def by_transaction() -> None:
            moved = producers.moved(7, "", 0, 0, 2, 12)
            way = appends.chosen_here(writer.keys, NUMBERING, ZERO, BASE, three(), moved, False)
            assert isinstance(writer.connection.ask(appends.store(way)), Landed)

        by_other = pushed(client, by_transaction)
        client.config_set("notify-keyspace-events", "")
    # The transaction puts a string in the place of a missing stream only where it refuses; so all is XADD and HSET.
    assert sorted(by_module) == sorted(by_other)
    assert [event for event in by_module if event[1] == b"xadd"] == [
        (b"__keyspace@0__:" + writer.keys.stream, b"xadd")
    ] * 3


@pytest.mark.parametrize("how", ["XREAD", "XREADGROUP"])
def test_blocked_readers_get_the_whole_batch(server: RedisServer, writer: Writer, how: str) -> None:
    with closing(server.client()) as client, closing(server.client()) as reader:
        client.xgroup_create(writer.keys.stream, "g", id="$", mkstream=True)
        read: list[Any] = []

        def wait() -> None:
            if how == "XREAD":
                read.append(reader.xread({writer.keys.stream: "$"}, block=20_000))
            else:
                read.append(reader.xreadgroup("g", "c", {writer.keys.stream: ">"}, block=20_000))

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: client.info("clients")["blocked_clients"] == 1)
        writer.append(three())
        waiting.join(20)
    ((_, entries),) = read[0]
    assert [fields[b"value"] for _, fields in entries] == [b"0", b"1", b"2"]


def test_tracking_tells_others_and_not_the_writer(server: RedisServer, writer: Writer) -> None:
    """The writer itself goes on being told: its append ends with a read of the stream."""

    def connect() -> redis.Connection:
        connection = redis.Connection(port=server.port, protocol=3)
        connection.connect()
        for words in (("CLIENT", "TRACKING", "ON", "NOLOOP"), ("XLEN", writer.keys.stream)):
            connection.send_command(*words)
            connection.read_response()
        return connection

    other, own = connect(), connect()
    told: dict[str, list[Any]] = {"other": [], "own": []}
    other._parser.set_invalidation_push_handler(told["other"].append)  # type: ignore[union-attr]
    own._parser.set_invalidation_push_handler(told["own"].append)  # type: ignore[union-attr]
    way = appends.chosen_here(writer.keys, NUMBERING, ZERO, BASE, three(), None, True)
    own.send_packed_command(list(way.command.pieces))
    for _ in range(way.command.replies):
        own.read_response()

    def asked(connection: redis.Connection, *words: str) -> None:
        connection.send_command(*words)
        connection.read_response(push_request=False)

    asked(other, "PING")
    asked(own, "PING")
    assert [len(told["other"]), len(told["own"])] == [1, 0]
    with closing(server.client()) as client:
        client.xadd(writer.keys.stream, {"value": "foreign"})
    asked(own, "PING")
    assert len(told["own"]) == 1
    other.disconnect()
    own.disconnect()


def test_it_aborts_transactions_that_watch_the_stream(server: RedisServer, writer: Writer) -> None:
    with closing(server.client()) as client, client.pipeline() as transaction:
        for key in (writer.keys.stream, writer.keys.producers):
            transaction.watch(key)
            writer.append(three(), idempotent=True)
            transaction.multi()
            transaction.ping()
            with pytest.raises(redis.WatchError):
                transaction.execute()


def test_it_works_in_transactions_and_scripts(server: RedisServer, writer: Writer) -> None:
    words = [*writer.keys, "", "5-0", "9007199254740991-1022", 10, 1, 0, *[""] * 5, "entry", "value", "v"]
    with closing(server.client()) as client:
        with client.pipeline() as transaction:
            transaction.execute_command("KETCH.APPEND", *words)
            transaction.execute_command("KETCH.APPEND", *words)
            assert transaction.execute() == [b"5-0", b"5-1"]
        client.config_set("appendfsync", "always")  # else a busy disk may delay the write, and the kill loses it
        script = "return redis.call('KETCH.APPEND', KEYS[1], KEYS[2], KEYS[3], unpack(ARGV))"
        assert client.eval(script, 3, *words) == b"5-2"
        before = content(client, writer.keys)
        server.kill()
        server.start()
        assert content(client, writer.keys) == before


def test_full_memory_refuses_it_and_stores_nothing(server: RedisServer, writer: Writer) -> None:
    with closing(server.client()) as client:
        writer.append(three(), idempotent=True)
        before = content(client, writer.keys)
        client.config_set("maxmemory", "1")
        for way in (
            appends.chosen_here(writer.keys, NUMBERING, writer.expected, writer.next, three(), None, True),
            appends.chosen_by_redis(writer.keys, NUMBERING, BASE, three(), None, True),
        ):
            with pytest.raises(StorageUnavailable):
                writer.connection.ask(appends.store(way))
        assert content(client, writer.keys) == before
        client.config_set("maxmemory", "0")
        assert isinstance(writer.append(three(), idempotent=True), Landed)


def test_a_replica_refuses_it(valkey: RedisServer, writer: Writer) -> None:
    with closing(valkey.client()) as client:
        client.replicaof("127.0.0.1", "1")
        with pytest.raises(StorageUnavailable, match="EXECABORT"):
            writer.append(three())
        client.replicaof("NO", "ONE")


def test_what_info_tells_is_what_xadd_makes_it_tell(server: RedisServer, writer: Writer) -> None:
    """Nodes of the stream, memory, entries added; with a node size of the operator's own."""
    chance = random.Random(6)
    payloads = [random_payload(chance) for _ in range(60)]
    with closing(server.client()) as client:
        client.config_set("stream-node-max-entries", 7)
        client.config_set("stream-node-max-bytes", 900)
        told = []
        for by_module in (True, False):
            client.flushall()
            expected, base = ZERO, BASE
            for one in payloads:
                way = appends.chosen_here(writer.keys, NUMBERING, expected, base, one, None, by_module)
                assert writer.connection.ask(appends.store(way)) == Landed(base, True)
                base += one.count
                expected = NUMBERING.to_id(base - 1)
            told.append((client.xinfo_stream(writer.keys.stream), client.memory_usage(writer.keys.stream, samples=0)))
        client.config_set("stream-node-max-entries", 100)
        client.config_set("stream-node-max-bytes", 4096)
    assert told[0][0] == told[1][0]
    assert told[0][0]["radix-tree-keys"] > 20
    assert told[0][1] == pytest.approx(told[1][1], rel=0.01)  # malloc rounds up now and then


def test_groups_go_on_counting_their_lag(valkey: RedisServer, writer: Writer) -> None:
    with closing(valkey.client()) as client:
        client.xgroup_create(writer.keys.stream, "g", id="0", mkstream=True)
        writer.append(three())
        client.xreadgroup("g", "c", {writer.keys.stream: ">"}, count=2, noack=True)
        writer.append(three())
        (group,) = client.xinfo_groups(writer.keys.stream)
    assert (group["entries-read"], group["lag"]) == (2, 4)


def test_permissions(valkey: RedisServer, writer: Writer) -> None:
    """Its categories; a user who may not call it appends by transactions."""
    with closing(valkey.client()) as client:
        for category, named in (("write", True), ("stream", True), ("dangerous", False)):
            assert ("ketch.append" in client.acl_cat(category)) is named
        client.acl_setuser(
            "u", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-ketch.version"]
        )
        client.acl_setuser("w", enabled=True, nopass=True, keys=["other*"], categories=["+@all"])
    url = f"redis://{{}}:x@127.0.0.1:{valkey.port}"
    with closing(Connection(Server(url.format("u")))) as connection:
        assert connection.ask(appends.module_version()) == 0
    with closing(Connection(Server(url.format("w")))) as connection:
        way = appends.chosen_by_redis(writer.keys, NUMBERING, BASE, three(), None, True)
        with pytest.raises(Exception, match="NOPERM"):
            connection.ask(appends.store(way))


def test_in_a_cluster(tmp_path: Path) -> None:
    """Keys of one slot are taken, others refused, by what the command says of its keys."""
    server = with_module("valkey", tmp_path / "node", "--cluster-enabled", "yes")
    with closing(server.client()) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        writer = Writer(server.url)
        assert isinstance(writer.append(three(), idempotent=True), Landed)
        keys = AppendKeys(writer.keys.stream, b"elsewhere", writer.keys.fence)
        way = appends.chosen_by_redis(keys, NUMBERING, BASE, three(), None, True)
        with pytest.raises(Exception, match="CROSSSLOT"):
            writer.connection.ask(appends.store(way))
        writer.connection.close()
    server.stop()


def test_many_writers_and_a_foreign_one(server: RedisServer) -> None:
    """Each batch lies on consecutive ids, in its writer's order, and nothing is refused for another's sake."""
    stop, refused = threading.Event(), []
    with closing(server.client()) as client:

        def foreign() -> None:
            with closing(server.client()) as other:
                while not stop.is_set():
                    other.xadd(append_keys("t").stream, {"value": "foreign"})

        def write(name: int) -> None:
            writer = Writer(server.url)
            for number in range(150):
                made = [record(b"%d:%d:%d" % (name, number, n), offset_delta=n) for n in range(7)]
                if not isinstance(writer.append(of_records(made)), Landed):
                    refused.append((name, number))
            writer.connection.close()

        threads = [threading.Thread(target=write, args=(name,)) for name in range(3)]
        threads.append(threading.Thread(target=foreign))
        for thread in threads:
            thread.start()
        for thread in threads[:3]:
            thread.join()
        stop.set()
        for thread in threads[3:]:
            thread.join()
        entries = [(entry, fields[b"value"]) for entry, fields in client.xrange(append_keys("t").stream)]
    assert refused == []
    mine = [(NUMBERING.to_offset(*NUMBERING.parse_id(entry)), value) for entry, value in entries if b":" in value]
    assert len(mine) == 3 * 150 * 7
    for name in range(3):
        own = [(offset, *map(int, value.split(b":")[1:])) for offset, value in mine if value.startswith(b"%d:" % name)]
        assert [(number, n) for _, number, n in own] == [(number, n) for number in range(150) for n in range(7)]
        assert all(after[0] == before[0] + 1 for before, after in itertools.pairwise(own) if after[2])


def test_after_a_deletion_ids_are_not_given_again(valkey: RedisServer, writer: Writer) -> None:
    with closing(valkey.client()) as client:
        for kind in ("record", "batch"):
            client.flushall()
            writer.expected, writer.next = ZERO, BASE
            data = batch([record(b"x", offset_delta=n) for n in range(10)])
            one = LAYOUTS[kind].payload(data, read_header(data), None, None, 1 << 20)
            writer.append(one)
            last = writer.next - 1
            for n in range(3):
                ms, seq = NUMBERING.to_id(last + 1 + n)
                client.xadd(writer.keys.stream, {"value": "foreign"}, id=f"{ms}-{seq}")
            for entry, _ in client.xrevrange(writer.keys.stream, count=3):
                client.xdel(writer.keys.stream, entry)
            way = appends.chosen_by_redis(writer.keys, NUMBERING, 0, one, None, True)
            assert writer.connection.ask(appends.store(way)) == Landed(last + 4, False)


# -- unix sockets


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how large a send buffer is by default")
@pytest.mark.parametrize("name", NAMES)
def test_more_than_the_usual_send_buffer_waits_for_a_reader(name: str, tmp_path: Path) -> None:
    usual, most = (int(Path(f"/proc/sys/net/core/wmem_{which}").read_text()) for which in ("default", "max"))
    if 2 * most <= usual:
        pytest.skip("the system allows no larger buffers than the usual ones")
    with tempfile.TemporaryDirectory() as short:
        server = with_module(name, tmp_path, "--unixsocket", f"{short}/s")

        def connected() -> redis.Redis:
            return redis.Redis(unix_socket_path=f"{short}/s", single_connection_client=True)

        clients = [connected() for _ in range(4)]
        clients[0].set("large", bytes(1 << 20))
        clients.pop(1).close()
        clients.append(connected())  # whose descriptor lies among those of the others
        for client in clients:
            client.connection.send_command("GET", "large")
            # The default lets no more than one and a half times its size wait, the last message counted.
            eventually(lambda client=client: waiting(client) > min(1.6 * usual, 1 << 20))
            assert len(client.connection.read_response()) == 1 << 20
            client.close()
        server.stop()


def waiting(client: redis.Redis) -> int:
    """Bytes that have been sent to a client and not been read."""
    return int.from_bytes(fcntl.ioctl(client.connection._sock, termios.FIONREAD, bytes(4)), sys.byteorder)


# -- the embedded Valkey


def test_refused_batches_set_the_fence_until_the_writer_clears_it(valkey: RedisServer, writer: Writer) -> None:
    way = appends.chosen_by_redis(writer.keys, NUMBERING, BASE, three(), None, True, must_exist=True)
    assert writer.connection.ask(appends.store(way)) is Refusal.MOVED
    assert writer.append(three()) is Refusal.MOVED
    writer.connection.ask(appends.clear_fence(writer.keys))
    assert writer.append(three()) == Landed(BASE, True)


def test_the_file_is_where_the_command_says() -> None:
    path = module_path()
    assert path is not None
    assert path.is_absolute()
    assert path.suffix == ".so"
