"""Tables of topics and groups: figures, units, narrow terminals, --watch, and names that do not exist."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Ketch, from_terminal, send, terminal, values
from tests.support.groups import Member, assignment, subscription
from tests.support.ketch import KetchServer
from tests.support.redis_servers import RedisServer, binaries

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


def test_configs_with_units(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic, "--config", "retention.ms=3d", "retention.bytes=10mb")
    ketch("topics", "alter", topic, "--config", "local.retention.ms=1h30m", "max.message.bytes=2mb")
    (described,) = json.loads(ketch("topics", "describe", topic, "--json").stdout)
    exact = {
        "local.retention.ms": "5400000",
        "max.message.bytes": "2097152",
        "retention.bytes": "10485760",
        "retention.ms": "259200000",
    }
    assert described["configs"] == exact
    shown = ketch.on_terminal("topics", "describe", topic)
    assert "retention.bytes=10mb (10485760), retention.ms=3d (259200000)" in shown
    assert b"create" in ketch("topics", "create", "retention.ms=7d", code=2).stderr


def test_topics_with_figures(broker: KetchServer, ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic, "--partitions", "2")
    send(broker, topic, *({"value": b"x" * 100, "partition": n % 2} for n in range(5)))

    def listed() -> dict[str, object]:
        found = json.loads(ketch("topics", "list", "--json", "--stats").stdout)
        return next(item for item in found if item["name"] == topic)

    before = listed()
    assert (before["partitions"], before["records"], before["archived"]) == (2, 5, "no")
    assert int(str(before["bytes"])) > 500
    ends = [p["latest"] for p in json.loads(ketch("topics", "describe", topic, "--json").stdout)[0]["partitions"]]
    archive = f"korvet:archive:{topic}"
    broker.redis().hset(archive, mapping={"metadata": "file:///m", "start:0": 0, "through:0": ends[0]})
    assert listed()["archived"] == "behind"
    broker.redis().hset(archive, mapping={"start:1": 0, "through:1": ends[1]})
    assert listed()["archived"] == "all"
    lines = values(ketch("topics", "list"))
    assert f"{topic}\t2".encode() in lines, "a pipe gets the figures only when it asks"


def test_without_redis_the_figures_are_left_out(tmp_path: Path, start_ketch: Callable[..., KetchServer]) -> None:
    server = RedisServer(next(iter(binaries().values())), tmp_path, "--requirepass", "secret")
    try:
        ketch = Ketch(start_ketch("--redis", server.url.replace("//", "//:secret@")))
        ketch("topics", "create", "t")
        listed = ketch("topics", "list", "--stats")
        assert listed.stdout == b"t\t1\t\t\t\n"
        assert listed.stderr.startswith(b"ketch: records, bytes and archives are left out. Redis at ")
        assert b"password" in listed.stderr
        known = ketch("topics", "list", "--stats", "--redis", server.url.replace("//", "//:secret@"))
        assert known.stdout == b"t\t1\t0\t0\tno\n"
    finally:
        server.stop()


@pytest.mark.only_storage("record", "batch")
def test_no_number_is_broken_on_a_narrow_terminal(broker: KetchServer, ketch: Ketch, topic: str) -> None:
    topic = topic[:4] + topic[-4:]
    with Member(broker.port, f"g-{topic}") as member:
        member.create(topic, 2)
        send(broker, topic, {"value": b"x", "partition": 0})
        member.enter(protocols={"range": subscription(topic)}, session_timeout=300_000)  # it sends no heartbeats
        member.sync({member.id: assignment({topic: [0, 1]})})
        (described,) = json.loads(ketch("topics", "describe", topic, "--json").stdout)
        end = described["partitions"][0]["latest"]
        assert member.commit(topic, end) == 0
        for columns in (60, 80, 120, 160):
            shown = _STYLE.sub("", ketch.on_terminal("groups", "describe", f"g-{topic}", columns=columns))
            assert shown.startswith(f"Group g-{topic}: Stable, 1 member\r\n")
            assert shown.count(f"g-{topic}") == 1
            assert re.search(rf"│ +{end} │", shown)
            assert all(len(line) <= columns for line in shown.splitlines())
            assert (member.id in shown) == (columns == 160)
            assert ("Not shown, for want of width: " in shown) == (columns < 160)
        narrow = ketch.on_terminal("topics", "describe", topic, columns=30)
        assert f"earliest   {described['partitions'][0]['earliest']}\r\n" in narrow, "a block of lines for each row"


def test_what_exists_is_described(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic)
    done = ketch("topics", "describe", topic[1:], topic, "no-such-one-at-all", "--json", code=1)
    assert [found["name"] for found in json.loads(done.stdout)] == [topic]
    assert done.stderr.decode().splitlines() == [
        f"ketch: Topic {topic[1:]} cannot be described: there is no such topic (did you mean {topic}?).",
        "ketch: Topic no-such-one-at-all cannot be described: there is no such topic.",
    ]
    for command in (["configs"], ["alter", "--partitions", "3"], ["delete", "--yes"]):
        assert f"(did you mean {topic}?)".encode() in ketch("topics", *command, topic[1:], code=1).stderr


def test_watch_until_ctrl_c(ketch: Ketch, topic: str) -> None:
    with ketch.start("topics", "list", "--watch", "0.2") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        ketch("topics", "create", topic)
        assert any(line == f"{topic}\t1\n".encode() for line in process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_watch_redraws_a_terminal(ketch: Ketch, topic: str) -> None:
    ketch("topics", "create", topic)
    master, slave = terminal(120)
    with ketch.start("topics", "list", "--watch", "0.2", stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = b""
        while shown.count(topic.encode()) < 2:
            more = from_terminal(master)
            assert more, shown
            shown += more
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    os.close(master)
    assert shown.count(b"\x1b[H\x1b[2J") >= 2
    assert b"every 0.2 s; Ctrl-C ends it." in shown
