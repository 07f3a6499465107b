"""`ketch topics`, `produce` and `consume` as a user runs them: processes, against a running broker."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.support.cli import Ketch, records, send, values
from tests.support.ketch import KetchServer


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


# -- topics


def test_topics_from_creation_to_deletion(ketch: Ketch, topic: str) -> None:
    created = ketch("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=12345", "--json")
    assert json.loads(created.stdout) == [{"name": topic, "created": True}]
    assert {"name": topic, "partitions": 3} in json.loads(ketch("topics", "list", "--json").stdout)
    assert f"{topic}\t3".encode() in values(ketch("topics", "list"))

    configs = {c["name"]: c for c in json.loads(ketch("topics", "configs", topic, "--json").stdout)}
    assert configs["retention.ms"] == {
        "name": "retention.ms",
        "value": "12345",
        "source": "dynamic-topic",
        "default": False,
    }
    assert configs["compression.type"]["default"] is True

    altered = ketch("topics", "alter", topic, "--partitions", "5", "--config", "compression.type=lz4")
    assert altered.stdout == f"Topic {topic} was altered.\n".encode()
    altered = ketch("topics", "alter", topic, "--delete-config", "retention.ms", "--json")
    assert json.loads(altered.stdout) == [{"name": topic, "altered": True}]
    configs = {c["name"]: c for c in json.loads(ketch("topics", "configs", topic, "--json").stdout)}
    assert (configs["compression.type"]["value"], configs["retention.ms"]["default"]) == ("lz4", True)
    assert f"{topic}\t5".encode() in values(ketch("topics", "list"))

    assert ketch("topics", "delete", topic, "--yes").stdout == f"Topic {topic} was deleted.\n".encode()
    assert topic not in [t["name"] for t in json.loads(ketch("topics", "list", "--json").stdout)]


def test_topics_describe(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=12345")
    (empty,) = json.loads(ketch("topics", "describe", topic, "--json").stdout)
    assert all(p["earliest"] == p["latest"] for p in empty["partitions"])

    ketch("produce", topic, "--partition", "1", stdin=b"a\nb\n")
    (described,) = json.loads(ketch("topics", "describe", topic, "--json").stdout)
    assert described["name"] == topic
    assert described["configs"] == {"retention.ms": "12345"}
    assert described["partitions"][0] == empty["partitions"][0]
    last = records(ketch("consume", topic, "--format", "json"))[-1]["offset"]
    assert described["partitions"][1]["latest"] == last + 1

    lines = [line.split("\t") for line in ketch("topics", "describe", topic).stdout.decode().splitlines()]
    assert [line[:3] for line in lines] == [[topic, described["id"], "0"], [topic, described["id"], "1"]]


def test_an_existing_topic(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic)
    refused = ketch("topics", "create", topic, "--json", code=1)
    assert b"exists" in refused.stderr
    assert refused.stdout == b"", "no empty list, which a script could take for an answer"
    done = ketch("topics", "create", topic, f"{topic}-new", "--if-not-exists", "--json")
    assert json.loads(done.stdout) == [{"name": topic, "created": False}, {"name": f"{topic}-new", "created": True}]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["create", "NAME", "--config", "no.such=1"], 1, b"no.such"),
        (["create", "NAME", "--config", "retention.ms=abc"], 1, b"abc"),
        (["create", "NAME", "--config", "retention.ms"], 2, b"KEY=VALUE"),
        (["create", "NAME", "--partitions", "0"], 2, b"partitions"),
        (["create", "a b"], 1, b"a b"),
        (["describe", "NAME"], 1, b"no such topic"),
        (["configs", "NAME"], 1, b"no such topic"),
        (["alter", "NAME"], 2, b"--delete-config"),
        (["alter", "NAME", "--config", "retention.ms=1", "--delete-config", "retention.ms"], 2, b"retention.ms"),
        (["alter", "NAME", "--config", "retention.ms=1"], 1, b"no such topic"),
        (["alter", "NAME", "--partitions", "3"], 1, b"no such topic"),
        (["delete", "NAME", "--yes"], 1, b"no such topic"),
        (["delete", "NAME"], 2, b"--yes"),
    ],
)
def test_topics_refusals(ketch: Ketch, topic: str, arguments: list[str], code: int, said: bytes) -> None:
    done = ketch("topics", *[topic if a == "NAME" else a for a in arguments], code=code)
    assert said in done.stderr
    assert done.stdout == b""


def test_tables_and_questions_are_for_terminals(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic)
    listed = ketch.on_terminal("topics", "list")
    assert "partitions" in listed
    assert "│" in listed
    assert f"Delete {topic} with all records?" in ketch.on_terminal("topics", "delete", topic, typed=b"n\n")
    assert topic.encode() in ketch("topics", "list").stdout
    ketch.on_terminal("topics", "delete", topic, typed=b"y\n")
    assert topic.encode() not in ketch("topics", "list").stdout


# -- the way to the broker


def test_nobody_listens(ketch: Ketch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for arguments in (["topics", "list"], ["produce", "t"], ["consume", "t"]):
        done = ketch(*arguments, "--bootstrap-server", f"127.0.0.1:{port}", stdin=b"x\n", code=1)
        assert done.stderr == f"ketch: No Kafka broker at 127.0.0.1:{port}: connection refused.\n".encode()


def test_a_listener_that_never_answers(ketch: Ketch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = ketch("topics", "list", "--bootstrap-server", f"127.0.0.1:{server.getsockname()[1]}", code=1)
    assert b"no answer from a Kafka broker in 5 s" in done.stderr


@pytest.mark.parametrize("address", ["host:port", "127.0.0.1:0", "127.0.0.1:99999", ":9092", ""])
def test_bad_bootstrap_server(ketch: Ketch, address: str) -> None:
    assert b"HOST:PORT" in ketch("topics", "list", "--bootstrap-server", address, code=2).stderr


# -- produce


def test_lines_become_records(ketch: Ketch, topic: str) -> None:
    done = ketch("produce", topic, "--json", stdin="one\n\nzwölf\r\nlast".encode())
    figures = json.loads(done.stdout)
    assert (figures["topic"], figures["records"], figures["failed"]) == (topic, 4, 0)
    found = records(ketch("consume", topic, "--format", "json"))
    assert [r["value"] for r in found] == ["one", "", "zwölf\r", "last"]
    assert all(r["key"] is None and r["headers"] == [] for r in found)
    offsets = [r["offset"] for r in found]
    assert offsets == list(range(offsets[0], offsets[0] + 4))


def test_keys_nulls_and_headers(ketch: Ketch, topic: str) -> None:
    arguments = [
        "--key-separator",
        "\\t",
        "--null-value",
        "NULL",
        "--headers",
        "a=1",
        "--headers",
        "a=",
        "--headers",
        "é=x=y",
    ]
    ketch("produce", topic, *arguments, stdin=b"k\tv\tw\nnone\n\tempty key\ngone\tNULL\nNULL\n")
    found = records(ketch("consume", topic, "--format", "json"))
    assert [(r["key"], r["value"]) for r in found] == [
        ("k", "v\tw"),
        (None, "none"),
        ("", "empty key"),
        ("gone", None),
        (None, None),
    ]
    headers = [{"key": "a", "value": "1"}, {"key": "a", "value": ""}, {"key": "é", "value": "x=y"}]
    assert all(r["headers"] == headers for r in found)


@pytest.mark.parametrize(
    ("codec", "idempotent"), [("none", True), ("gzip", False), ("snappy", True), ("lz4", False), ("zstd", True)]
)
def test_files_codecs_and_idempotence(ketch: Ketch, topic: str, tmp_path: Path, codec: str, idempotent: bool) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    lines = [b"line %d" % n for n in range(6000)]
    first.write_bytes(b"\n".join(lines[:5000]) + b"\n")
    second.write_bytes(b"\n".join(lines[5000:]))
    flags = ["--compression", codec, *(["--idempotent"] if idempotent else [])]
    done = ketch("produce", topic, str(first), str(second), *flags)
    assert done.stderr.startswith(f"6,000 records to {topic} in ".encode())
    assert values(ketch("consume", topic)) == lines


def test_partition_of_a_record(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic, "--partitions", "4")
    ketch("produce", topic, "--partition", "2", stdin=b"chosen\n")
    # Where the Java client's partitioner puts these keys: toPositive(murmur2(key)) % 4.
    ketch("produce", topic, "--key-separator", ":", stdin=b"21:x\nfoobar:x\n")
    found = {
        r["value"] if r["key"] is None else r["key"]: r["partition"]
        for r in records(ketch("consume", topic, "--format", "json"))
    }
    assert found == {"chosen": 2, "21": (-973932308 & 0x7FFFFFFF) % 4, "foobar": (-790332482 & 0x7FFFFFFF) % 4}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--partition", "9"], 1, b"1 of 1 records were not delivered: there is no such partition"),
        (["--idempotent", "--acks", "1"], 2, b"--acks all"),
        (["--headers", "novalue"], 2, b"KEY=VALUE"),
        (["--key-separator", ""], 2, b"--key-separator"),
        (["--key-separator", "\\x"], 2, b"--key-separator"),
        (["/no/such/file"], 2, b"/no/such/file"),
    ],
)
def test_produce_refusals(ketch: Ketch, topic: str, arguments: list[str], code: int, said: bytes) -> None:
    ketch("topics", "create", topic)
    assert said in ketch("produce", topic, *arguments, stdin=b"x\n", code=code).stderr


def test_what_the_broker_refuses_is_not_delivered(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic, "--config", "max.message.bytes=1000")
    done = ketch("produce", topic, "--json", stdin=b"x" * 2000 + b"\n", code=1)
    assert json.loads(done.stdout)["failed"] == 1
    assert b"too large" in done.stderr
    assert values(ketch("consume", topic)) == []


def test_ctrl_c_is_the_end_of_input(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic)
    with ketch.start("produce", topic) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        wait_for_records(ketch, topic, 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read().startswith(b"1 records to ")


def wait_for_records(ketch: Ketch, topic: str, count: int) -> None:
    deadline = time.monotonic() + 20
    while len(values(ketch("consume", topic))) < count:
        assert time.monotonic() < deadline


# -- consume


def test_where_to_begin(broker: KetchServer, ketch: Ketch, topic: str) -> None:
    start = 1_767_225_600_000  # 2026-01-01T00:00:00Z
    ketch("topics", "create", topic, "--config", "retention.ms=-1")
    send(broker, topic, *({"value": b"%d" % n, "timestamp": start + n * 1000} for n in range(10)))
    offsets = [r["offset"] for r in records(ketch("consume", topic, "--format", "json"))]

    def from_(where: str, *more: str) -> list[bytes]:
        return values(ketch("consume", topic, "--from", where, *more))

    everything = [b"%d" % n for n in range(10)]
    assert from_("beginning") == everything
    assert from_("0") == everything
    assert from_("end") == []
    assert from_(str(offsets[7])) == everything[7:]
    assert from_(str(offsets[7]), "--max", "2") == everything[7:9]
    assert from_(f"@{start + 3001}") == everything[4:]
    assert from_("2026-01-01T00:00:06") == everything[6:]
    assert from_("2026-01-01T01:00:06+01:00") == everything[6:]
    assert from_("2026-01-02") == []


def test_partitions(broker: KetchServer, ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic, "--partitions", "3")
    send(broker, topic, *({"value": b"p%d" % p, "partition": p} for p in range(3)))
    assert sorted(values(ketch("consume", topic))) == [b"p0", b"p1", b"p2"]
    assert sorted(values(ketch("consume", topic, "--partition", "0", "--partition", "2"))) == [b"p0", b"p2"]
    assert b"has no partition 3" in ketch("consume", topic, "--partition", "3", code=1).stderr


def test_formats_of_odd_records(broker: KetchServer, ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic, "--config", "retention.ms=-1")
    odd = {"key": b"\xff", "value": b"a\xfe", "headers": [("h", b"\xfd"), ("h", None), ("", b"")]}
    send(
        broker,
        topic,
        {**odd, "timestamp": 1_700_000_000_123},
        {"key": b"", "value": None, "timestamp": 1_700_000_000_124},
    )
    first, second = records(ketch("consume", topic, "--format", "json"))
    del first["offset"], second["offset"]
    where = {"topic": topic, "partition": 0}
    headers = [{"key": "h", "value_base64": "/Q=="}, {"key": "h", "value": None}, {"key": "", "value": ""}]
    rest = {"key_base64": "/w==", "value_base64": "Yf4=", "headers": headers}
    assert first == {**where, "timestamp": 1_700_000_000_123, **rest}
    assert second == {**where, "timestamp": 1_700_000_000_124, "key": "", "value": None, "headers": []}

    template = "{partition}|{key}|{value}|{timestamp}|{time}|{headers}\\x21"
    assert values(ketch("consume", topic, "--template", template)) == [
        b"0|\xff|a\xfe|1700000000123|2023-11-14T22:13:20.123+00:00|h=\xfd,h=null,=!",
        b"0||null|1700000000124|2023-11-14T22:13:20.124+00:00|!",
    ]
    assert ketch("consume", topic).stdout == b"a\xfe\n\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--from", "yesterday"], 2, b"--from"),
        (["--template", "{nothing}"], 2, b"nothing"),
        (["--template", "{value"], 2, b"--template"),
        (["--format", "template"], 2, b"--template"),
        (["--format", "json", "--template", "{value}"], 2, b"--template"),
        (["--max", "0"], 2, b"--max"),
        ([], 1, b"no such topic"),
    ],
)
def test_consume_refusals(ketch: Ketch, topic: str, arguments: list[str], code: int, said: bytes) -> None:
    assert said in ketch("consume", topic, *arguments, code=code).stderr


def test_follow_until_ctrl_c(ketch: Ketch, topic: str) -> None:
    ketch("produce", topic, stdin=b"before\n")
    with ketch.start("consume", topic, "--follow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"before\n"
        ketch("produce", topic, stdin=b"after\n")
        assert process.stdout.readline() == b"after\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_a_reader_that_has_seen_enough(ketch: Ketch, topic: str) -> None:
    ketch("produce", topic, stdin=b"a line of some length\n" * 50_000)
    with ketch.start("consume", topic) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_consuming_leaves_no_trace(broker: KetchServer, ketch: Ketch, topic: str) -> None:
    ketch("produce", topic, stdin=b"x\n")
    ketch("consume", topic)
    assert broker.redis().xinfo_groups(f"korvet:stream:{topic}:0") == []
