"""`ketch consume` from any place of a log and as a member of a group, and its JSON back through `ketch produce`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Ketch, records, send, values
from tests.support.ketch import KetchServer, eventually
from tests.support.transactions import Written


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


# -- where to begin


@pytest.mark.only_storage("record", "batch")
def test_an_offset_outside_the_log(ketch: Ketch, topic: str) -> None:
    ketch("produce", topic, stdin=b"a\nb\n")
    (partition,) = json.loads(ketch("topics", "describe", topic, "--json").stdout)[0]["partitions"]
    first, end = partition["earliest"], partition["latest"]
    log = f"its log begins at {first} and ends before {end}"
    before = ketch("consume", topic, "--from", "5")
    assert values(before) == [b"a", b"b"]
    said = f"ketch: Topic {topic} partition 0 has no offset 5: {log}; reading begins at {first}.\n"
    assert before.stderr.decode() == said
    after = ketch("consume", topic, "--from", str(end + 1))
    assert values(after) == []
    assert f"has no offset {end + 1}: {log}; reading begins at {end}.\n" in after.stderr.decode()
    for inside in (str(first), str(end), "beginning", "-1h"):
        assert ketch("consume", topic, "--from", inside).stderr == b""
    late = ketch("consume", topic, "--from", "2100-01-01")
    assert b"has no record from 2100-01-01T00:00:00.000+00:00 on" in late.stderr


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_the_last_records(broker: KetchServer, ketch: Ketch, topic: str, layout: str) -> None:
    ketch("topics", "create", topic, "--partitions", "2", "--config", f"storage.layout={layout}")
    assert values(ketch("consume", topic, "--tail", "3")) == []
    ketch("produce", topic, "--partition", "0", stdin=b"".join(b"%d\n" % n for n in range(30_000)))
    for n in range(4):
        send(broker, topic, {"value": b"later %d" % n, "partition": 0})  # at a distance in time
    send(broker, topic, {"value": b"other", "partition": 1})
    later = [b"later %d" % n for n in range(4)]
    assert sorted(values(ketch("consume", topic, "--tail", "2"))) == [*later[2:], b"other"]
    zero = ["--partition", "0"]
    expected = [b"29998", b"29999", *later]
    assert values(ketch("consume", topic, "--tail", "6", *zero)) == expected
    assert len(values(ketch("consume", topic, "--tail", "100000", *zero))) == 30_004


@pytest.mark.parametrize("kind", ["record", "batch"])
def test_committed_records(broker: KetchServer, ketch: Ketch, topic: str, kind: str) -> None:
    ketch("topics", "create", topic, "--config", f"storage.layout={kind}")
    with broker.redis() as connection:
        written = Written(connection, topic, kind)
        written.append([b"a"], 1)
        written.append([b"b"], 2)
        written.finish(1, commit=True)
        assert values(ketch("consume", topic)) == [b"a", b"b"]
        committed = ("consume", topic, "--isolation", "read_committed")
        assert values(ketch(*committed)) == [b"a"]
        written.finish(2, commit=False)
        assert values(ketch(*committed)) == [b"a"]
        assert values(ketch("consume", topic)) == [b"a", b"b"]


def test_one_key(ketch: Ketch, topic: str) -> None:
    lines = b"a=1\nb=2\na=3\nnone\n=empty\n\\x07=bell\n"
    ketch("produce", topic, "--key-separator", "=", stdin=lines.replace(b"\\x07", b"\x07"))
    assert values(ketch("consume", topic, "--key", "a")) == [b"1", b"3"]
    assert values(ketch("consume", topic, "--key", "a", "--max", "1")) == [b"1"]
    assert values(ketch("consume", topic, "--key", "")) == [b"empty"]
    assert values(ketch("consume", topic, "--key", "\\x07")) == [b"bell"]
    assert values(ketch("consume", topic, "--key", "62", "--key-format", "hex")) == [b"2"]


# -- groups


def test_a_group_goes_on_where_it_was(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic, "--partitions", "2")
    ketch("produce", topic, "--partition", "0", stdin=b"a\nb\nc\n")
    ketch("produce", topic, "--partition", "1", stdin=b"d\n")
    group = f"g-{topic}"
    first = values(ketch("consume", topic, "--group", group, "--max", "2"))
    rest = values(ketch("consume", topic, "--group", group))
    assert sorted([*first, *rest]) == [b"a", b"b", b"c", b"d"]
    assert len(first) == 2
    assert values(ketch("consume", topic, "--group", group)) == []
    (described,) = json.loads(ketch("groups", "describe", group, "--json").stdout)
    assert [place["lag"] for place in described["partitions"]] == [0, 0]
    assert described["members"] == [], "it left the group"
    assert values(ketch("consume", topic, "--group", f"{group}-new", "--from", "end")) == []


def test_a_group_is_followed_until_ctrl_c(ketch: Ketch, topic: str) -> None:
    group = f"g-{topic}"
    ketch("produce", topic, stdin=b"before\n")
    with ketch.start("consume", topic, "--group", group, "--follow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"before\n"
        members = eventually(lambda: json.loads(ketch("groups", "describe", group, "--json").stdout)[0]["members"])
        assert members[0]["client"] == "ketch-consume"
        ketch("produce", topic, stdin=b"after\n")
        assert process.stdout.readline() == b"after\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == b""
    assert values(ketch("consume", topic, "--group", group)) == []


def test_ctrl_c_without_a_broker(start_ketch: Callable[..., KetchServer]) -> None:
    broker = start_ketch()
    ketch = Ketch(broker)
    ketch("topics", "create", "t")
    ketch("produce", "t", stdin=b"one\n")
    with ketch.start("consume", "t", "--group", "g", "--follow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"one\n"
        broker.kill()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        again = b"ketch: group g may print the last records again: no answer from a Kafka broker in 5 s.\n"
        assert process.stderr.read() == again


@pytest.mark.parametrize(
    "arguments", [["--partition", "0"], ["--tail", "1"], ["--from", "5"], ["--from", "-1h"], ["--from", "@5"]]
)
def test_what_a_group_does_not_take(ketch: Ketch, topic: str, arguments: list[str]) -> None:
    assert b"--group takes" in ketch("consume", topic, "--group", "g", *arguments, code=2).stderr


def test_contradictions(ketch: Ketch, topic: str) -> None:
    assert b"--from and --tail" in ketch("consume", topic, "--tail", "1", "--from", "end", code=2).stderr
    assert b"--json" in ketch("consume", topic, "--json", "--format", "raw", code=2).stderr
    assert b"hexadecimal" in ketch("consume", topic, "--key", "x", "--key-format", "hex", code=2).stderr
    json_lines = ["produce", topic, "--format", "json"]
    assert b"--null-value" in ketch(*json_lines, "--null-value", "x", code=2).stderr
    assert b"--same-partitions" in ketch("produce", topic, "--same-partitions", code=2).stderr


# -- JSON lines


def test_json_lines_make_the_same_records(broker: KetchServer, ketch: Ketch, topic: str, tmp_path: Path) -> None:
    copy = f"{topic}-copy"
    for name in (topic, copy):
        ketch("topics", "create", name, "--partitions", "3", "--config", "retention.ms=-1")
    headers = [("h", b"\xfd"), ("h", None), ("", b""), ("é", "ü".encode())]
    send(
        broker,
        topic,
        {"key": b"\xff", "value": b"a\xfe", "headers": headers, "timestamp": 1_700_000_000_123, "partition": 2},
        {"key": None, "value": b"", "timestamp": 1_700_000_000_124, "partition": 2},
        {"key": b"", "value": None, "timestamp": 1_700_000_000_125, "partition": 1},
        {"key": b"k", "value": "line\nbreak \u2028 ü".encode(), "timestamp": 1, "partition": 0},
    )
    dump = tmp_path / "records.json"
    dump.write_bytes(ketch("consume", topic, "--json").stdout + b"\n")
    ketch("produce", copy, str(dump), "--format", "json", "--same-partitions")

    def without_place(name: str, *arguments: str) -> list[dict[str, object]]:
        found = records(ketch("consume", name, *arguments))
        order = [{k: v for k, v in record.items() if k not in ("topic", "offset")} for record in found]
        return sorted(order, key=lambda record: str(record["timestamp"]))

    assert without_place(copy, "--json") == without_place(topic, "--format", "json")
    assert len(without_place(copy, "--json", "--value-format", "hex")) == 4


def test_a_line_that_is_no_record_ends_the_input(ketch: Ketch, topic: str) -> None:
    lines = b'{"value": "first"}\n\n{"value": 7}\n{"value": "never"}\n'
    done = ketch("produce", topic, "--format", "json", stdin=lines, code=1)
    said = b"ketch: Line 3 of standard input is no record: value is neither text nor null."
    assert done.stderr.splitlines()[-1] == said
    assert values(ketch("consume", topic)) == [b"first"]
