"""The legacy port over the wire: every request, every error code, and what must not harm the broker."""

from __future__ import annotations

import gzip
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.legacy07.conftest import legacy_port
from tests.legacy07.test_messages import xerial
from tests.support import http
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.legacy07 import Legacy, fetch, frame, message, multifetch, multiproduce, offsets, produce, target

A, B = message(b"a", magic=0), message(b"bb", magic=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    directory = tmp_path_factory.mktemp("legacy")
    server = KetchServer(directory, "--legacy-port", "0", "--default-partitions", "2", "--http-port", "0").start()
    yield server
    assert server.stop() == 0, server.log


@pytest.fixture
def client(server: KetchServer) -> Iterator[Legacy]:
    with Legacy(legacy_port(server)) as client:
        yield client


def everything(client: Legacy, topic: str, number: int = 0) -> bytes:
    """The whole log of a partition."""
    (start,) = client.positions(topic, number, -2, 1)
    data = b""
    while True:
        code, chunk = client.call(fetch(topic, number, start + len(data), 1 << 20))
        assert code == 0
        if not chunk:
            return data
        data += chunk


class TestRequests:
    def test_what_is_produced_can_be_fetched(self, client: Legacy, topic: str) -> None:
        client.send(produce(topic, 0, A + B))
        assert everything(client, topic) == A + B

    def test_a_topic_is_not_made_beside_one_whose_name_collides(self, server: KetchServer, client: Legacy) -> None:
        client.send(produce("some.name", 0, A))
        assert everything(client, "some.name") == A
        with Legacy(legacy_port(server)) as other:
            other.send(produce("some_name", 0, A))
            assert other.closed()
        with Kafka(server.port) as kafka:
            assert kafka.metadata("some_name", create=False).topics[0].error_code == 3

    @pytest.mark.parametrize("layout", ["record", "batch"])
    def test_a_plain_message_comes_with_the_magic_that_it_was_sent_with(
        self, client: Legacy, server: KetchServer, topic: str, layout: str
    ) -> None:
        """Byte for byte, as a 0.7 broker keeps them; nobody else sees the difference."""
        with Kafka(server.port) as kafka:
            kafka.create(topic, storage_layout=layout)
        older, newer = message(b"a", magic=0), message(b"b", magic=1)
        sets = [older * 3, newer * 3, older + newer + newer + older, message(b"", magic=0) + message(b"", magic=1)]
        client.send(*[produce(topic, 0, each) for each in sets])
        assert everything(client, topic) == b"".join(sets)

    def test_to_clients_of_0_6_records_of_today_come_with_their_magic(self, tmp_path: Path, topic: str) -> None:
        options = ("--legacy-port", "0", "--legacy-magic", "0", "--http-port", "0")
        server = KetchServer(tmp_path, *options).start()
        stream = f"korvet:stream:{topic}:0"
        with Legacy(legacy_port(server)) as client:
            client.send(produce(topic, 0, A + message(b"of 0.7", magic=1)))
            assert everything(client, topic) == A + message(b"of 0.7", magic=1)
            server.redis().xadd(stream, {"value": b"by hand"})
            eventually(lambda: everything(client, topic) == A + message(b"of 0.7", magic=1) + message(b"by hand", 0))
        fields = [set(fields) - {b"timestamp", b"value"} for _, fields in server.redis().xrange(stream)]
        assert fields == [set(), {b"legacy07"}, set()]
        assert server.stop() == 0, server.log

    def test_records_of_today_come_as_0_7_would_have_sent_them(
        self, client: Legacy, server: KetchServer, topic: str
    ) -> None:
        with Kafka(server.port) as kafka:
            kafka.create(topic)
        server.redis().xadd(f"korvet:stream:{topic}:0", {"value": b"by hand", "key": b"k"})
        assert everything(client, topic) == message(b"by hand", magic=1)
        reply = server.redis().xrange(f"korvet:stream:{topic}:0")
        client.send(produce(topic, 0, message(b"of 0.7", magic=1)))
        assert everything(client, topic) == message(b"by hand", magic=1) + message(b"of 0.7", magic=1)
        ((_, fields),) = server.redis().xrange(f"korvet:stream:{topic}:0")[len(reply) :]
        assert set(fields) == {b"value", b"timestamp"}  # no field beside those of any record

    @pytest.mark.parametrize(
        ("codec", "pack"),
        [(1, gzip.compress), (2, cramjam.snappy.compress_raw), (2, xerial)],
        ids=["gzip", "raw", "framed"],
    )
    def test_a_compressed_message_comes_as_it_was_sent(
        self, client: Legacy, server: KetchServer, topic: str, codec: int, pack: Callable[[bytes], bytes]
    ) -> None:
        nested = message(bytes(pack(A + message(b"inner"))), compression=codec)
        outer = message(bytes(pack(B + nested)), compression=codec)
        client.send(produce(topic, 0, A + outer + B))
        assert everything(client, topic) == A + outer + B
        stored = [fields[b"value"] for _, fields in server.redis().xrange(f"korvet:stream:{topic}:0")]
        assert stored == [b"a", b"bb", b"a", b"inner", b"bb"]  # what today's consumers and redis-cli read

    def test_a_response_waits_for_what_was_produced_before(self, client: Legacy, topic: str) -> None:
        client.send(produce(topic, 0, A))  # so that the topic is there
        for count in range(2, 20):
            client.send(produce(topic, 0, A), fetch(topic, 0, client.positions(topic, 0, -2)[0], 1 << 20))
            assert client.response() == (0, A * count)

    def test_multiproduce(self, client: Legacy, topic: str) -> None:
        client.send(multiproduce((topic, 0, A), (topic, 1, B), (f"{topic}-2", 0, A + A)))
        assert everything(client, topic, 0) == A
        assert everything(client, topic, 1) == B
        assert everything(client, f"{topic}-2") == A + A

    def test_any_partition_will_do(self, client: Legacy, topic: str) -> None:
        client.send(*[produce(topic, -1, A)] * 40)
        found = [len(everything(client, topic, number)) // len(A) for number in (0, 1)]
        assert sum(found) == 40
        assert all(found)

    def test_multifetch_has_an_answer_for_each_part(self, client: Legacy, topic: str) -> None:
        client.send(multiproduce((topic, 0, A), (topic, 1, B)))
        first, second = (client.positions(topic, number, -2)[0] for number in (0, 1))
        code, rest = client.call(
            multifetch((topic, 1, second, 100), (topic, 7, 0, 100), (topic, 0, first, 100), (topic, 0, first, 3))
        )
        assert code == 0
        parts = [(0, B), (3, b""), (0, A), (4, b"")]
        assert rest == b"".join(struct.pack(">ih", 2 + len(chunk), error) + chunk for error, chunk in parts)

    def test_multifetch_of_nothing(self, client: Legacy) -> None:
        assert client.call(multifetch()) == (0, b"")

    def test_a_chunk_ends_where_its_size_says(self, client: Legacy, topic: str) -> None:
        client.send(produce(topic, 0, A + A + B))
        (start,) = client.positions(topic, 0, -2)
        for size in range(len(A), len(A + A + B) + 1):
            assert client.call(fetch(topic, 0, start, size)) == (0, (A + A + B)[:size])
        assert client.call(fetch(topic, 0, start + len(A), 100)) == (0, A + B)

    def test_nothing_at_the_end(self, client: Legacy, topic: str) -> None:
        client.send(produce(topic, 0, A))
        (end, *_) = client.positions(topic, 0, -1)
        assert client.call(fetch(topic, 0, end, 100)) == (0, b"")

    def test_a_topic_nobody_knows_is_empty(self, client: Legacy, topic: str) -> None:
        assert client.call(fetch(topic, 0, 0, 100)) == (0, b"")
        assert client.positions(topic, 0, -1) == [0]
        assert client.positions(topic, 0, -2) == [0]
        assert client.positions(topic, 0, 1_000) == []

    def test_a_fetch_makes_no_topic(self, client: Legacy, server: KetchServer, topic: str) -> None:
        client.call(fetch(topic, 0, 0, 100))
        client.send(produce(topic, 0, b""))
        client.positions(topic, 0, -1)
        assert not server.redis().sismember("korvet:topics", topic)

    def test_the_first_message_makes_the_topic_with_the_default_partitions(
        self, client: Legacy, server: KetchServer, topic: str
    ) -> None:
        client.send(produce(topic, 0, A))
        assert everything(client, topic) == A
        assert server.redis().hget(f"korvet:topic:{topic}", "partitions") == b"2"
        assert f"created topic {topic} with 2 partitions" in server.log


class TestErrors:
    @pytest.mark.parametrize("behind", [-1, 1, 1 << 40])
    def test_out_of_range(self, client: Legacy, topic: str, behind: int) -> None:
        client.send(produce(topic, 0, A))
        (end, *_) = client.positions(topic, 0, -1)
        (start,) = client.positions(topic, 0, -2)
        assert client.call(fetch(topic, 0, end + behind if behind > 0 else start + behind, 100)) == (1, b"")

    @pytest.mark.parametrize("number", [-1, 2, 99])
    def test_wrong_partition(self, client: Legacy, topic: str, number: int) -> None:
        for _ in range(2):  # before there is a topic, and after
            assert client.call(fetch(topic, number, 0, 100)) == (3, b"")
            assert client.call(offsets(topic, number, -1, 1)) == (3, bytes(4))
            client.send(produce(topic, 0, A))

    def test_a_compacted_topic(self, client: Legacy, server: KetchServer, topic: str) -> None:
        """Its positions would change, messages have no keys: it is neither read nor written, and the log says so."""
        with Kafka(server.port) as kafka:
            kafka.create(topic, cleanup_policy="compact")
        assert client.call(fetch(topic, 0, 0, 100)) == (3, b"")
        assert client.call(offsets(topic, 0, -1, 1)) == (3, bytes(4))
        client.send(produce(topic, 0, A))
        assert client.closed()
        assert f"topic {topic} is compacted" in server.log
        assert server.redis().xlen(f"korvet:stream:{topic}:0") == 0

    @pytest.mark.parametrize("size", [-1, 0, 1, len(A) - 1])
    def test_invalid_fetch_size(self, client: Legacy, topic: str, size: int) -> None:
        client.send(produce(topic, 0, A))
        (start,) = client.positions(topic, 0, -2)
        assert client.call(fetch(topic, 0, start, size)) == (4, b"")

    @pytest.mark.parametrize(
        ("bad", "flaw"),
        [
            (A[:-1] + b"x", "checksum"),
            (b"\0\0\0\x06\x02" + A[5:], "magic"),
            (b"\0\0\0\x04" + A[4:], "length"),
            (message(b"no gzip", compression=1), "content"),
        ],
    )
    def test_an_invalid_message_closes_the_connection_and_is_told_of(
        self, client: Legacy, server: KetchServer, topic: str, bad: bytes, flaw: str
    ) -> None:
        client.send(produce(topic, 0, A))
        assert everything(client, topic) == A
        client.send(produce(topic, 0, A + bad))
        assert client.closed()
        host, port = client.socket.getsockname()
        (line,) = (line for line in server.log.splitlines() if f"{host}:{port}" in line and "closed" in line)
        assert f"invalid message in a produce to {topic}-0" in line
        assert http.metrics(server)["ketch_legacy_invalid_messages_total", flaw] > 0
        with Legacy(legacy_port(server)) as again:
            assert everything(again, topic) == A  # nothing of the set is stored

    def test_a_set_that_is_cut_short_is_stored_up_to_there(
        self, client: Legacy, server: KetchServer, topic: str
    ) -> None:
        client.send(produce(topic, 0, A + B[:-1]))
        assert everything(client, topic) == A
        assert f"produce to {topic}-0: {len(B) - 1} bytes of a message that is cut short" in server.log

    def test_a_produce_to_a_partition_that_is_not_there(self, client: Legacy, server: KetchServer, topic: str) -> None:
        client.send(produce(topic, 0, A), produce(topic, 2, A))
        assert client.closed()
        assert f"produce to {topic}-2: partition 2 of topic {topic}, which has 2 here" in server.log

    @pytest.mark.parametrize(
        "bad",
        [A[:-1] + b"x", message(b"no gzip", compression=1), message(bytes(2_000_000))],
        ids=["checksum", "content", "size"],
    )
    def test_what_came_before_on_the_connection_is_stored(self, server: KetchServer, topic: str, bad: bytes) -> None:
        good = [produce(topic, 0, A + B)] * 5
        with Legacy(legacy_port(server)) as client:
            client.send(*good, produce(topic, 0, A + bad), *good)  # in one go: they are stored together
            assert client.closed()
        with Legacy(legacy_port(server)) as client:
            assert everything(client, topic) == (A + B) * 5

    def test_a_bad_request_behind_good_ones(self, server: KetchServer, topic: str) -> None:
        with Legacy(legacy_port(server)) as client:
            client.send(*[produce(topic, 0, A)] * 5, frame(0, target(topic, 0), struct.pack(">i", 99)))
            assert client.closed()
        with Legacy(legacy_port(server)) as client:
            assert everything(client, topic) == A * 5

    def test_what_came_before_in_a_multiproduce_is_stored(
        self, client: Legacy, server: KetchServer, topic: str
    ) -> None:
        client.send(multiproduce((topic, 0, A), (topic, 9, A), (topic, 1, A)))
        assert client.closed()
        with Legacy(legacy_port(server)) as again:
            assert everything(again, topic, 0) == A
            assert everything(again, topic, 1) == b""

    @pytest.mark.parametrize("name", ["", "a/b", "..", "ä", "a b", "a:b", "a+b", "a,b", "a@b", "a%b", "~t", "n" * 250])
    def test_a_name_that_no_topic_may_have(self, client: Legacy, server: KetchServer, name: str) -> None:
        """Kafka 0.7 took many of these. A consumer gets an error rather than nothing for ever; the log says why."""
        encoded = name.encode()
        where = struct.pack(f">h{len(encoded)}si", len(encoded), encoded, 0)
        part = where + struct.pack(">qi", 0, 100)
        assert client.call(frame(1, part)) == (3, b"")
        assert client.call(frame(4, where, struct.pack(">qi", -1, 1))) == (3, bytes(4))
        assert client.call(frame(2, struct.pack(">h", 1), part)) == (0, struct.pack(">ih", 2, 3))
        client.send(frame(0, where, struct.pack(">i", len(A)), A))
        assert client.closed()
        host, port = client.socket.getsockname()
        read, written = (line for line in server.log.splitlines() if f"{host}:{port}" in line)
        assert "fetch of" in read  # a client's further errors are told of later, with their number
        assert "produce to" in written
        assert all("a topic cannot have this name: " in line for line in (read, written))

    @pytest.mark.parametrize(
        ("number", "data", "why"),
        [
            (2, A, "partition 2 of topic"),
            (-2, A, "partition -2 of topic"),
            (2, message(bytes(gzip.compress(A)), compression=1), "partition 2 of topic"),
            (0, message(b"no gzip", compression=1), "a compressed message"),
            (0, message(gzip.compress(A[:-1] + b"x"), compression=1), "fails its checksum"),
            (-1, message(b"no snappy", compression=2), "a compressed message"),
            (0, message(bytes(2_000_000)), "max.message.bytes"),
            (0, A + message(bytes(2_000_000)), "max.message.bytes"),
            (0, A[:-1] + b"x", "fails its checksum"),
        ],
        ids=["partition", "negative", "gzip", "no-gzip", "within", "no-snappy", "size", "second", "checksum"],
    )
    def test_a_refused_produce_makes_no_topic(
        self, client: Legacy, server: KetchServer, topic: str, number: int, data: bytes, why: str
    ) -> None:
        client.send(produce(topic, number, data))
        assert client.closed()
        host, port = client.socket.getsockname()
        (line,) = (line for line in server.log.splitlines() if f"{host}:{port}" in line)
        assert why in line
        assert not server.redis().sismember("korvet:topics", topic)
        assert not server.redis().exists(f"korvet:topic:{topic}")

    def test_a_good_set_before_a_bad_one_makes_the_topic(self, server: KetchServer, topic: str) -> None:
        with Legacy(legacy_port(server)) as client:
            client.send(produce(topic, 0, A + A), produce(topic, 0, message(b"no gzip", compression=1)))
            assert client.closed()
        with Legacy(legacy_port(server)) as client:
            assert everything(client, topic) == A + A


class TestAbuse:
    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (frame(5), "request type 5"),
            (frame(1), "2 bytes are announced"),
            (struct.pack(">i", -1), "a frame length of -1"),
            (struct.pack(">i", 1 << 30), "a frame length of 1073741824"),
            (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        ],
    )
    def test_what_is_no_request_closes_the_connection(
        self, client: Legacy, server: KetchServer, data: bytes, why: str
    ) -> None:
        client.send(data)
        assert client.closed()
        host, port = client.socket.getsockname()
        (line,) = (line for line in server.log.splitlines() if f"{host}:{port}" in line)
        assert "connection closed" in line
        assert why in line

    def test_a_request_in_single_bytes(self, client: Legacy, topic: str) -> None:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in produce(topic, 0, A):
            client.send(bytes([byte]))
        assert everything(client, topic) == A

    def test_a_producer_that_closes_at_once_is_heard(self, server: KetchServer, topic: str) -> None:
        with Legacy(legacy_port(server)) as hasty:
            hasty.send(*[produce(topic, 0, A)] * 100)
        with Legacy(legacy_port(server)) as client:
            eventually(lambda: everything(client, topic) == A * 100)

    def test_a_fetch_of_more_than_memory_holds(self, client: Legacy, topic: str) -> None:
        client.send(produce(topic, 0, A))
        (start,) = client.positions(topic, 0, -2)
        assert client.call(fetch(topic, 0, start, (1 << 31) - 1)) == (0, A)

    def test_a_reader_that_does_not_read_is_served_no_further(self, server: KetchServer, topic: str) -> None:
        large = message(bytes(500_000), magic=0)
        with Legacy(legacy_port(server)) as client:
            client.send(*[produce(topic, 0, large)] * 40)
            (start,) = client.positions(topic, 0, -2)
            before = resident(server)
            slow = [Legacy(legacy_port(server)) for _ in range(8)]
            for each in slow:
                each.send(*[fetch(topic, 0, start, 16 << 20)] * 20)  # 2.5 GB in all
            assert client.call(fetch(topic, 0, start, len(large))) == (0, large)  # others are served
            assert resident(server) - before < 600 << 20
            for _ in range(20):
                answer = slow[0].response()
                assert answer is not None
                assert answer[0] == 0
            for each in slow:
                each.close()

    @given(st.lists(st.binary(max_size=60), max_size=5))
    def test_nothing_makes_it_fall_over(self, server: KetchServer, bodies: list[bytes]) -> None:
        with Legacy(legacy_port(server)) as client:
            client.send(*[struct.pack(">i", len(body)) + body for body in bodies])
            client.socket.shutdown(socket.SHUT_WR)
            while client.response() is not None:
                pass
        assert "Traceback" not in server.log

    @given(st.data())
    def test_nor_does_a_request_with_a_byte_changed(self, server: KetchServer, data: st.DataObject) -> None:
        requests = [
            produce("fuzz", 0, A + B + message(A, compression=2)),
            fetch("fuzz", 0, 0, 1000),
            multifetch(("fuzz", 0, 0, 100), ("fuzz", 1, 0, 100)),
            multiproduce(("fuzz", 0, A), ("fuzz", 1, B)),
            offsets("fuzz", 0, -1, 5),
        ]
        request = bytearray(data.draw(st.sampled_from(requests)))
        request[data.draw(st.integers(4, len(request) - 1))] = data.draw(st.integers(0, 255))
        with Legacy(legacy_port(server)) as client:
            client.send(bytes(request))
            client.socket.shutdown(socket.SHUT_WR)
            while client.response() is not None:
                pass
        assert "Traceback" not in server.log


def test_without_the_option_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, ketch.cli.commands.serve, ketch.broker.server; print({'kazoo', 'ketch.legacy07'} & {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "set()"


def resident(server: KetchServer) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) << 10
