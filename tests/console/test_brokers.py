"""The console where there are several brokers, or several nodes of Redis."""

from __future__ import annotations

import html
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.console.test_pages import create, produce
from tests.support.brokers import acquainted
from tests.support.console import Visitor
from tests.support.ketch import KetchServer

StartKetch = Callable[..., KetchServer]
CONSOLE = ("--http-port", "0", "--console", "--console-write")


def test_another_brokers_console_shows_a_group_and_says_who_resets_it(start_ketch: StartKetch) -> None:
    first = start_ketch(*CONSOLE, name="first")
    redis = f"redis://127.0.0.1:{first.redis_port}"
    second = start_ketch(*CONSOLE, "--redis", redis, "--node-id", "2", name="second")
    acquainted(2, first, second)
    create(first, "shared")
    produce(first, "shared", [(b"k", b"%d" % n) for n in range(9)])
    visitors = [Visitor.of(server) for server in (first, second)]
    assert all(re.findall(r'<td class="num">(\d)</td><td><code>127', v.get("/").text) == ["1", "2"] for v in visitors)
    for n in range(8):  # each broker coordinates some of them
        group = f"group-{n}"
        consumer = Consumer({"bootstrap.servers": first.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("shared", 0, 0)], asynchronous=False)
        consumer.close()
        for visitor in visitors:
            assert visitor.get("/group", name=group).table()[0][4] == "9"
        answers = [visitor.change("reset", group, to="latest") for visitor in visitors]
        assert sorted(answer.status for answer in answers) == [303, 409]
        (refused,) = (answer for answer in answers if answer.status == 409)
        assert "another broker looks after this group" in html.unescape(refused.text)
        assert visitors[0].get("/group", name=group).table()[0][4] == "0"


def test_a_redis_cluster(tmp_path: Path) -> None:
    server = KetchServer(tmp_path / "ketch", *CONSOLE, clustered=True).start()
    try:
        visitor = Visitor.of(server)
        assert len(re.findall(r"<h3>\w+ [\d.]+, port \d+", visitor.get("/").text)) == 3
        create(server, "spread", 7)
        produce(server, "spread", [(b"k", b"value")])
        assert [row[1] for row in visitor.get("/topic", name="spread").table()] == ["1", *["0"] * 6]
        for path in ("/topics", "/groups", "/archive", "/spark", "/clients", "/settings"):
            assert visitor.get(path).status == 200
        ((offset, *_),) = visitor.get("/topic/records", name="spread").table()
        page = visitor.get("/topic/record", name="spread", offset=offset)
        assert visitor.get("/topic/records", name="spread", key="k").table()[0][4] == "value"
        command = shlex.split(page.codes()[0])
        assert "-c" in command
        assert b"value" in subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
        assert visitor.change("delete", "spread").status == 303
        assert "Traceback" not in server.log
    finally:
        server.stop()
        if server.cluster is not None:
            server.cluster.stop()
