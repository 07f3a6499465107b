"""Bad input against a live broker: an error code or a closed connection, a line in the log that names the client,
bounded memory, and another client that notices nothing."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import cramjam
import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema

from ketch.broker.telemetry import Wanted
from tests.support.batches import batch, record, records
from tests.support.certificates import client_hello
from tests.support.kafka import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_REASSIGNMENTS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    ELECT_LEADERS,
    END_TXN,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    PUSH_TELEMETRY,
    SERVED,
    TXN_OFFSET_COMMIT,
    UPDATE_FEATURES,
    WRITE_TXN_MARKERS,
    Kafka,
    fetch,
    part,
    produce,
    split,
)
from tests.support.ketch import KetchServer
from tests.support.otlp import metric, metrics_data, point

MB = 1 << 20
THREE = records([b"a", b"b", b"c"])
_quick = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Target:
    """The broker under fire, and a bystander on a connection of its own."""

    def __init__(self, server: KetchServer) -> None:
        self.server = server
        self.bystander = Kafka(server.port, client_id="bystander")
        self.bystander.create("bystander")
        self.bystander.create("target", 2, max_message_bytes=4 * MB)
        self.logged = 0

    def connect(self, timeout: float = 10.0) -> Kafka:
        return Kafka(self.server.port, timeout, client_id="fuzz")

    def check(self) -> None:
        """Nobody else was touched."""
        base = self.bystander.stored("bystander", batch(THREE))
        assert split(self.bystander.fetch("bystander", base).records)[0].records[0].value == b"a"
        assert "Traceback" not in self.server.log

    def lines(self, client: Kafka, name: tuple[str, int]) -> list[str]:
        """What the log says of a client."""
        return [line for line in self.server.log.splitlines() if "{}:{}:".format(*name) in line]

    @property
    def status(self) -> Path:
        assert self.server.process is not None
        return Path(f"/proc/{self.server.process.pid}")

    def forget_peak(self) -> None:
        (self.status / "clear_refs").write_text("5")

    @property
    def peak(self) -> int:
        """The most that was resident since `forget_peak`, in MB."""
        (line,) = (line for line in (self.status / "status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) >> 10


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    server = KetchServer(tmp_path_factory.mktemp("fuzz")).start()
    yield Target(server)
    assert server.stop() == 0


@pytest.fixture
def target(running: Target) -> Iterator[Target]:
    running.forget_peak()
    yield running
    running.check()


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4) + payload


CLOSED = {
    "HTTP": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP request"),
    "HTTP post": (b"POST / HTTP/1.1\r\n\r\n", "HTTP request"),
    "TLS": (client_hello(), "a TLS handshake on a plaintext port"),
    "SSH": (b"SSH-2.0-OpenSSH_9.2p1\r\n", "frame length"),
    "Redis": (b"*1\r\n$4\r\nPING\r\n", "frame length"),
    "2 GB": ((2**31 - 1).to_bytes(4), "frame length of 2147483647"),
    "-1": (b"\xff\xff\xff\xff", "frame length of -1"),
    "empty": (frame(b""), "request of 0 bytes"),
    "three bytes": (frame(b"\0\x03\0"), "request of 3 bytes"),
    "zeros": (bytes(64), "request of 0 bytes"),
    "unknown API": (frame(struct.pack(">hhih", 999, 0, 1, -1)), "API key 999 is not served"),
    "version too new": (
        frame(struct.pack(">hhih", 3, 99, 1, -1)),
        "version 99 of API key 3 (Metadata), served are 0 to 12",
    ),
    "version advertised alone": (frame(struct.pack(">hhih", 0, 0, 1, -1)), "key 0 (Produce), served are 3 to 13"),
    "SASL": (frame(struct.pack(">hhih", 17, 2, 1, -1)), "version 2 of API key 17 (SaslHandshake), served are 0 to 1"),
    "client id beyond the end": (frame(struct.pack(">hhih", 3, 1, 1, 32767)), ""),
    "client id of a negative length": (frame(struct.pack(">hhih", 3, 1, 1, -7)), ""),
    "null for an array": (frame(struct.pack(">hhihii", 2, 1, 1, -1, -1, -1)), "null"),
    "null for a compact array": (frame(struct.pack(">hhihbibb", 2, 6, 1, -1, 0, -1, 0, 0)), "null"),
    "null for a string": (frame(struct.pack(">hhihih", 20, 1, 1, -1, 1, -1) + bytes(4)), ""),
    "no body": (frame(struct.pack(">hhih", 3, 1, 1, -1)), ""),
    "array of 2^31 - 1": (frame(struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1)), ""),
    "compact array of 2^32": (frame(struct.pack(">hhihb", 3, 12, 1, -1, 0) + b"\xff\xff\xff\xff\x0f"), ""),
    "the same one deeper": (
        frame(struct.pack(">hhihb", 19, 5, 1, -1, 0) + b"\x02\x02a" + bytes(6) + b"\xff\xff\xff\xff\x0f"),
        "elements",
    ),
    "array of 2^31 - 1 in a produce": (frame(struct.pack(">hhihhhii", 0, 3, 1, -1, -1, 1, 0, 2**31 - 1)), "elements"),
    "100,001 elements": (frame(struct.pack(">hhihi", 3, 1, 1, -1, 100_001) + bytes(300_000)), "more than 100000"),
    "tagged fields inside without end": (
        frame(struct.pack(">hhihb", 3, 12, 1, -1, 0) + b"\x01\0\0" + b"\xff\xff\xff\xff\x0f"),
        "elements",
    ),
    "endless varint": (frame(struct.pack(">hhihb", 3, 12, 1, -1, 0) + b"\xff" * 100), ""),
    "name that is no UTF-8": (frame(struct.pack(">hhihih", 3, 1, 1, -1, 1, 2) + b"\xff\xfe"), ""),
    "tagged fields without end": (frame(struct.pack(">hhih", 3, 12, 1, -1) + b"\xff\xff\xff\xff\x07"), ""),
}


@pytest.mark.parametrize("case", list(CLOSED))
def test_closed_with_a_line_that_names_the_client(target: Target, case: str) -> None:
    data, words = CLOSED[case]
    with target.connect() as client:
        name = client.socket.getsockname()
        client.socket.sendall(data)
        assert client.closed()
    (line,) = target.lines(client, name)
    assert "WARNING" in line
    assert f"connection closed: {words}" in line or words in line


def test_a_client_cannot_forge_lines(target: Target) -> None:
    with Kafka(target.server.port, client_id="x\n2026-01-01 INFO forged\x1b[31m") as client:
        client.produce("nowhere\nINFO forged", batch(THREE))
        client.metadata("a\nINFO forged", version=1)
        client.fetch("b\nINFO forged", 0)
        client.send(DELETE_TOPICS, 1, topic_names=["c\nINFO forged"], timeout=1000)
    target.check()
    assert not any(line.startswith(("INFO", "2026-01-01 INFO forged")) for line in target.server.log.splitlines())
    assert "\x1b" not in target.server.log


@given(data=st.binary(max_size=300))
@_quick
def test_random_bytes(target: Target, data: bytes) -> None:
    with target.connect() as client:
        client.socket.sendall(data)
        client.socket.shutdown(socket.SHUT_WR)
        while client.receive() is not None:
            pass


@given(data=st.binary(max_size=300), key=st.sampled_from(list(SERVED)), version=st.integers(0, 16))
@_quick
def test_random_bodies(target: Target, data: bytes, key: int, version: int) -> None:
    with target.connect() as client:
        client.socket.sendall(frame(struct.pack(">hhih", key, version, 1, -1) + data) + frame(b""))
        with suppress(TimeoutError):
            client.socket.settimeout(0.5)  # some make a fetch that waits
            while client.receive() is not None:
                pass
    assert "Traceback" not in target.server.log


VALID: dict[int, dict[str, Any]] = {
    PRODUCE: produce("target", batch(THREE)),
    FETCH: fetch([part("target", 0, 0)], max_wait=0),
    LIST_OFFSETS: {"topics": [{"name": "target", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    METADATA: {"topics": [{"name": "target"}], "allow_auto_topic_creation": False},
    18: {"client_software_name": "fuzz", "client_software_version": "1"},
    CREATE_TOPICS: {
        "topics": [
            {
                "name": "c",
                "num_partitions": -1,
                "replication_factor": -1,
                "configs": [{"name": "retention.ms", "value": "5"}],
                "assignments": [{"partition_index": 0, "broker_ids": [1]}],
            }
        ],
        "timeout": 1000,
        "validate_only": True,
    },
    DELETE_TOPICS: {"topics": [{"name": "d"}], "topic_names": ["d"], "timeout": 1000},
    INIT_PRODUCER_ID: {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
    ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": "fuzz",
        "v3_and_below_producer_id": 1,
        "v3_and_below_topics": [{"name": "target", "partitions": [0]}],
        "transactions": [
            {"transactional_id": "fuzz", "producer_id": 1, "topics": [{"name": "target", "partitions": [0]}]},
        ],
    },
    ADD_OFFSETS_TO_TXN: {"transactional_id": "fuzz", "producer_id": 1, "group_id": "fuzz"},
    END_TXN: {"transactional_id": "fuzz", "producer_id": 1, "committed": True},
    WRITE_TXN_MARKERS: {
        "markers": [{"producer_id": 1, "topics": [{"name": "target", "partition_indexes": [0]}]}],
    },
    TXN_OFFSET_COMMIT: {
        "transactional_id": "fuzz",
        "group_id": "fuzz",
        "producer_id": 1,
        "generation_id": -1,
        "topics": [{"name": "target", "partitions": [{"partition_index": 0, "committed_offset": 5}]}],
    },
    DESCRIBE_PRODUCERS: {"topics": [{"name": "target", "partition_indexes": [0]}]},
    DESCRIBE_TRANSACTIONS: {"transactional_ids": ["fuzz"]},
    LIST_TRANSACTIONS: {"state_filters": ["Ongoing"], "producer_id_filters": [1], "duration_filter": 5},
    DESCRIBE_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": "target", "configuration_keys": ["x"]}]},
    INCREMENTAL_ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": config, "config_operation": operation, "value": value}],
            }
            for kind, name, config, operation, value in (
                (4, "", "log.cleanup.policy", 2, "delete"),
                (2, "target", "segment.bytes", 0, "2000000"),
                (16, "m", "match", 0, "client_id=a"),
            )
        ],
        "validate_only": True,
    },
    OFFSET_FOR_LEADER_EPOCH: {
        "replica_id": -1,
        "topics": [{"topic": "target", "partitions": [{"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}]}],
    },
    DESCRIBE_LOG_DIRS: {"topics": [{"topic": "target", "partitions": [0, 1]}]},
    ELECT_LEADERS: {"election_type": 0, "topic_partitions": [{"topic": "target", "partitions": [0]}], "timeout": 1000},
    ALTER_REASSIGNMENTS: {
        "timeout": 1000,
        "topics": [{"name": "target", "partitions": [{"partition_index": 0, "replicas": [1]}]}],
    },
    DESCRIBE_CLIENT_QUOTAS: {"components": [{"entity_type": "user", "match_type": 0, "match": "x"}], "strict": True},
    UPDATE_FEATURES: {
        "feature_updates": [{"feature": "x", "max_version_level": 1, "upgrade_type": 1}],
        "timeout": 1000,
    },
    DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    PUSH_TELEMETRY: {
        "client_instance_id": UUID(int=1),
        "subscription_id": Wanted((), 300_000).id,
        "terminating": False,
        "compression_type": 4,
        "metrics": bytes(cramjam.zstd.compress(metrics_data(metric("m", point(1, a="b"), point(2.5))))),
    },
}


@st.composite
def mutated(draw: st.DrawFn) -> tuple[int, int, list[tuple[str, float, bytes]]]:
    key = draw(st.sampled_from(list(VALID)))
    version = draw(st.sampled_from(list(SERVED[key])))
    change = st.tuples(st.sampled_from("rid"), st.floats(0, 1), st.binary(min_size=1, max_size=4))
    return key, version, draw(st.lists(change, min_size=1, max_size=3))


def mutate(data: bytes, changes: list[tuple[str, float, bytes]], start: int = 8) -> bytes:
    """Replaces, inserts or deletes some bytes from `start` on."""
    for kind, where, put in changes:
        at = start + int(where * (len(data) - start))
        data = data[:at] + (put if kind != "d" else b"") + data[at + (0 if kind == "i" else len(put)) :]
    return data


@given(mutated())
@settings(_quick, max_examples=400)
def test_mutated_requests(target: Target, what: tuple[int, int, list[tuple[str, float, bytes]]]) -> None:
    key, version, changes = what
    given = VALID[key]
    if key == FETCH and version >= 13:
        given = fetch([part(target.bystander.topic_id("target"), 0, 0)], max_wait=0)
    if key == PRODUCE and version >= 13:
        given = produce(target.bystander.topic_id("target"), batch(THREE))
    with target.connect() as client:
        payload = mutate(client.request(key, version, **given), changes)
        client.socket.sendall(frame(payload) + frame(b""))
        with suppress(TimeoutError):
            client.socket.settimeout(0.5)
            answer = client.receive()
            if answer is not None:
                client.decode(answer, load_response_schema(key, version))
                assert client.receive() is None
    assert "Traceback" not in target.server.log


@given(
    st.integers(0, 4),
    st.lists(st.tuples(st.sampled_from("rid"), st.floats(0, 1), st.binary(min_size=1, max_size=4)), max_size=3),
    st.booleans(),
)
@settings(_quick, max_examples=400)
def test_mutated_batches(target: Target, codec: int, changes: list[tuple[str, float, bytes]], whole: bool) -> None:
    """With a CRC that is right: before the compression, or the compressed batch."""
    plain = records([b"value" * 20, None, b"", b"x" * 300])
    plain.append(record(b"v", b"k", [(b"h", b"1"), (b"", None)], offset_delta=4))
    if whole:
        data = mutate(batch(plain, codec=codec), changes, 21)
        data = (
            data[:8]
            + struct.pack(">i", len(data) - 12)
            + data[12:17]
            + crc32c.crc32c(data[21:]).to_bytes(4)
            + data[21:]
        )
    else:
        data = batch([mutate(b"".join(plain), changes, 0)], codec=codec, count=5, last_offset_delta=4)
    with target.connect() as client:
        answer = client.produce("target", data)
        if not changes:
            assert answer.error_code == 0
        if answer.error_code == 0:
            (read,) = split(client.fetch("target", answer.base_offset).records)
            assert read.records
        else:
            assert answer.error_code in (2, 10, 32, 45, 47, 53, 76, 87)


# -- memory


def members(module: Any, size: int, count: int) -> bytes:
    return bytes(module.compress(bytes(size))) * count


BOMBS = {
    "gzip": (1, lambda: members(cramjam.gzip, 64 * MB, 16)),
    "zstd": (4, lambda: members(cramjam.zstd, 64 * MB, 160)),
    "lz4": (3, lambda: members(cramjam.lz4, 16 * MB, 16)),
    "snappy that claims 4 GB": (2, lambda: b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "snappy in blocks": (
        2,
        lambda: (
            b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
            + frame(bytes(cramjam.snappy.compress_raw(bytes(MB)))) * 60
            + frame(b"\xff\xff\xff\xff\x0f" + bytes(100))
        ),
    ),
}


@pytest.mark.parametrize("bomb", list(BOMBS))
def test_decompression_bombs(target: Target, bomb: str) -> None:
    codec, make = BOMBS[bomb]
    data = batch(THREE, codec=codec, payload=make())
    assert len(data) < 4 * MB
    with ExitStack() as stack:
        clients = [stack.enter_context(target.connect(30)) for _ in range(5)]
        for client in clients:
            client.send(PRODUCE, 9, **produce("target", data))
        for client in clients:
            part = client.answer(PRODUCE, 9)[1].responses[0].partition_responses[0]
            assert part.error_code in (2, 10)
    assert target.peak < 300


def test_a_batch_of_very_many_very_small_records(target: Target) -> None:
    """They would be some gigabytes of commands."""
    count = 12_000_000
    payload = bytes(cramjam.gzip.compress(record(None) * count))
    answer = target.connect().produce(
        "target", batch([], codec=1, payload=payload, count=count, last_offset_delta=count - 1)
    )
    assert answer.error_code == 10
    assert target.peak < 400


def test_huge_arrays(target: Target) -> None:
    with ExitStack() as stack:
        for size in (200_000, 200_002, 2 * MB, 40 * MB):
            client = stack.enter_context(target.connect(30))
            client.socket.sendall(frame(struct.pack(">hhihi", 3, 0, 1, -1, size // 2) + bytes(size)))
            if size == 200_000:
                assert [topic.error_code for topic in client.answer(METADATA, 0)[1].topics] == [17]
            else:
                assert client.closed()
    assert target.peak < 300


@pytest.mark.long(minutes=0.5)
def test_very_many_resources(target: Target) -> None:
    resource = {"resource_type": 2, "resource_name": "target", "configuration_keys": None}
    with target.connect(30) as client:
        answer = client.ask(DESCRIBE_CONFIGS, 4, resources=[resource] * 5_500)
    assert {result.error_code for result in answer.results} == {0, 42}
    assert target.peak < 400


def test_half_sent_requests(target: Target) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(target.connect()) for _ in range(203)]
        for n, client in enumerate(clients):
            client.socket.settimeout(0.2)
            client.socket.sendall((90 * MB if n < 3 else MB).to_bytes(4) + bytes(MB // 4))
            with suppress(TimeoutError):  # the broker stops reading when too much is half there
                client.socket.sendall(bytes(88 * MB if n < 3 else 0))
        target.check()
        with target.connect() as other:
            for _ in range(20):
                assert other.metadata("bystander").topics[0].error_code == 0
    assert target.peak < 700
    assert target.bystander.stored("target", batch([record(bytes(MB // 2))])) > 0


def test_readers_that_never_read(target: Target) -> None:
    with target.connect(30) as writer:
        writer.create("large", max_message_bytes=2 * MB)
        start = writer.list_offsets("large", -2).offset
        for _ in range(60):
            writer.stored("large", batch([record(bytes(MB))]))
    target.forget_peak()
    with ExitStack() as stack:
        for _ in range(30):
            client = stack.enter_context(target.connect())
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asked = fetch([part("large", 0, start, partition_max_bytes=50 * MB)], max_bytes=50 * MB)
            for _ in range(3):
                client.send(FETCH, 12, **asked)
        for _ in range(20):
            target.check()
        with target.connect(30) as reader:
            assert split(reader.fetch("large", start, partition_max_bytes=50 * MB, max_bytes=50 * MB).records)
    assert target.peak < 700
