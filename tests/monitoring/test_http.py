"""`--http-port`: what /metrics counts, and what /healthz says of a Redis that hangs or is gone."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest
import redis
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

import ketch
from tests.support.certificates import Certificates
from tests.support.http import get, metrics, url
from tests.support.ketch import KetchServer, eventually
from tests.support.quick import commands

LIMIT = 20
StartKetch = Callable[..., KetchServer]


def produce(server: KetchServer, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for n in range(count):
        producer.produce(topic, str(n))
    assert producer.flush(LIMIT) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    server = KetchServer(tmp_path_factory.mktemp("console"), "--http-port", "0").start()
    yield server
    assert server.stop() == 0, server.log


def test_healthy(server: KetchServer) -> None:
    assert get(f"{url(server)}/healthz") == (200, "ok\n")


def test_the_index_lists_what_is_there(server: KetchServer) -> None:
    status, text = get(f"{url(server)}/")
    assert (status, text.splitlines()[0]) == (200, f"ketch {ketch.__version__}")
    paths = re.findall(r"^(/\w+)", text, re.MULTILINE)
    assert paths == ["/metrics", "/healthz"]
    assert [get(f"{url(server)}{path}")[0] for path in paths] == [200, 200]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/metrics/"])
def test_pages_answer_without_a_redirect(server: KetchServer, path: str, method: str) -> None:
    status, body = request(server, method, path)
    assert status == 200
    assert bool(body) == (method == "GET")
    if "metrics" in path:
        assert (b"ketch_connections" in body) == (method == "GET")


def test_pages_take_no_other_method(server: KetchServer) -> None:
    assert [request(server, "POST", path)[0] for path in ("/", "/healthz", "/metrics")] == [405, 405, 405]


def request(server: KetchServer, method: str, path: str) -> tuple[int, bytes]:
    """One request by a client that follows no redirect: its status and body."""
    with closing(HTTPConnection(url(server).removeprefix("http://"), timeout=LIMIT)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_no_other_page(server: KetchServer) -> None:
    assert get(f"{url(server)}/elsewhere")[0] == 404


def test_records_are_counted(server: KetchServer, topic: str) -> None:
    produce(server, topic, 7)
    found = metrics(server)
    assert found["ketch_messages_in_total", topic] == 7
    assert found["ketch_bytes_in_total", topic] > 7
    assert found["ketch_requests_total", "produce"] >= 1


def test_the_documentation_lists_what_is_there(server: KetchServer) -> None:
    page = (Path(ketch.__file__).parents[2] / "docs" / "metrics.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \| [^|]+ \|([^|]*)\|", page, re.MULTILINE)
    assert len({name for name, _, _ in listed}) == len(listed)
    served = re.findall(r"^# TYPE (\w+) (\w+)$", get(f"{url(server)}/metrics")[1], re.MULTILINE)
    assert sorted((name, kind) for name, kind, _ in listed) == sorted(served)
    labels = {name: re.findall(r"`(\w+)`", text) for name, _, text in listed}
    for family in text_string_to_metric_families(get(f"{url(server)}/metrics")[1]):
        for sample in family.samples:
            name = next(name for name in labels if name.removesuffix("_total") == family.name or name == family.name)
            assert set(sample.labels) - {"le"} == set(labels[name]), sample
    for name in re.findall(r"`(ketch_\w+)", page.partition("## Kafka's names")[2]):
        assert name.removesuffix("_bucket") in labels, "Kafka's names lead to metrics that are there"


def test_connections_and_what_they_hold_are_counted(server: KetchServer) -> None:
    before = metrics(server)["ketch_connections", ""]
    with socket.create_connection(("127.0.0.1", server.port)) as half:
        half.sendall(b"\0\0\1\0" + bytes(100))
        eventually(lambda: metrics(server)["ketch_queued_request_bytes", ""] == 104)
        assert metrics(server)["ketch_connections", ""] == before + 1
    eventually(lambda: metrics(server)["ketch_queued_request_bytes", ""] == 0)


def test_a_connection_with_nonsense_is_counted(server: KetchServer) -> None:
    before = metrics(server)["ketch_bad_requests_total", ""]
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(1) == b""
    assert metrics(server)["ketch_bad_requests_total", ""] == before + 1


def test_a_connection_that_redis_is_to_blame_for_is_not(start_ketch: StartKetch) -> None:
    server = start_ketch("--http-port", "0", "--redis-timeout-ms", "300")
    pid = int(server.redis().info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        with socket.create_connection(("127.0.0.1", server.port), LIMIT) as client:
            client.sendall(struct.pack(">ihhihi", 14, 3, 1, 1, -1, -1))  # Metadata of all topics
            assert client.recv(1) == b""
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "connection closed" in server.log
    assert metrics(server)["ketch_bad_requests_total", ""] == 0


def test_unhealthy_while_redis_hangs(start_ketch: StartKetch, topic: str) -> None:
    """Health is what the broker knows: a Redis that stands still is noticed by a command that it does not answer."""
    server = start_ketch("--http-port", "0", "--redis-timeout-ms", "300")
    health = f"{url(server)}/healthz"
    pid = int(server.redis().info("server")["process_id"])
    producer = Producer({"bootstrap.servers": server.bootstrap, "retry.backoff.ms": 20})
    produce(server, topic, 1)
    os.kill(pid, signal.SIGSTOP)
    try:
        producer.produce(topic, "x")
        producer.poll(0)
        assert eventually(lambda: (found := get(health))[0] == 503 and found) == (503, "Redis is gone\n")
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: get(health)[0] == 200)
    assert producer.flush(LIMIT) == 0


@pytest.mark.skipif(not shutil.which("redis-server"), reason="needs redis-server")
def test_unhealthy_while_an_external_redis_is_gone(start_ketch: StartKetch, tmp_path: Path) -> None:
    path = tmp_path / "s"
    command = ["redis-server", "--port", "0", "--unixsocket", path, "--dir", tmp_path, "--appendonly", "yes"]

    def start_redis() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
        eventually(lambda: answers(path), what="redis-server")
        return process

    process = start_redis()
    try:
        server = start_ketch("--http-port", "0", "--redis", f"unix://{path}")
        health = f"{url(server)}/healthz"
        assert get(health)[0] == 200
        process.kill()
        process.wait()
        eventually(lambda: get(health)[0] == 503)
        process = start_redis()
        eventually(lambda: get(health)[0] == 200)
    finally:
        process.kill()
        process.wait()


def answers(path: Path) -> bool:
    try:
        with redis.Redis(unix_socket_path=str(path)) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def test_a_reader_that_hangs_does_not_hold_up_a_stop(start_ketch: StartKetch) -> None:
    server = start_ketch("--http-port", "0")
    host, port = url(server).removeprefix("http://").split(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect((host, int(port)))
        client.setblocking(False)
        # Answers that nobody reads, until the broker has no room for more and takes no further request.
        while select.select([], [client], [], 1.0)[1]:
            client.send(b"GET /metrics/ HTTP/1.1\r\nHost: k\r\n\r\n" * 100)
        assert server.stop() == 0


def test_a_token_and_tls(start_ketch: StartKetch, tmp_path: Path) -> None:
    files = Certificates(tmp_path / "certificates")
    token = tmp_path / "token"
    token.write_text("s3cret-token\n")
    options = ("--http-token-file", str(token), "--http-ssl-keystore-location", str(files.broker()))
    server = start_ketch("--http-port", "0", *options)
    place = url(server).removeprefix("http://")
    context = ssl.create_default_context(cafile=files.ca)

    def ask(path: str, **headers: str) -> int:
        with closing(HTTPSConnection(place, timeout=LIMIT, context=context)) as connection:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status

    assert ask("/healthz") == 200
    assert ask("/metrics") == ask("/metrics", Authorization="Bearer wrong") == 401
    assert ask("/metrics/", Authorization="Basic s3cret-token") == 401
    assert ask("/metrics", Authorization="Bearer s3cret-token") == 200
    assert "s3cret-token" not in server.log


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("--http-token-file", None, "cannot be read: No such file or directory."),
        ("--http-token-file", "two words", "should have one line, the token."),
        ("--http-ssl-keystore-location", "nothing", "has no private key in PEM format."),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, option: str, content: str | None, said: str) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_text(content)
    command = [*commands.program(), "serve", "--port", "0", "--http-port", "0", option, str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"ketch: {option[2:].replace('-', '_')} {file} {said}"
