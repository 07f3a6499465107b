"""`ketch users`, through a broker and in Redis itself."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.cli import Ketch, from_terminal, terminal
from tests.support.ketch import KetchServer


@pytest.fixture(params=["broker", "redis"])
def where(request: pytest.FixtureRequest, broker: KetchServer) -> tuple[str, ...]:
    return () if request.param == "broker" else ("--redis", broker.redis_url)


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


def listed(ketch: Ketch, name: str, *where: str) -> dict[str, int]:
    rows = json.loads(ketch("users", "list", "--json", *where).stdout)
    return {row["mechanism"]: row["iterations"] for row in rows if row["user"] == name}


def test_a_user_comes_and_goes(ketch: Ketch, where: tuple[str, ...], topic: str) -> None:
    added = ketch("users", "add", topic, *where, stdin=b"in-secret\n")
    assert added.stdout.decode() == f"User {topic} was added.\n"
    assert listed(ketch, topic) == listed(ketch, topic, *where) == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    again = ketch("users", "add", topic, *where, stdin=b"other\n", code=1)
    assert again.stderr.decode() == f"ketch: User {topic} exists: `ketch users set` changes the password.\n"
    ketch("users", "set", topic, "--mechanism", "scram-sha-512", "--iterations", "8192", *where, stdin=b"x")
    assert listed(ketch, topic) == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}
    ketch("users", "delete", topic, "--mechanism", "SCRAM-SHA-256", "--yes", *where)
    assert listed(ketch, topic) == {"SCRAM-SHA-512": 8192}
    deleted = ketch("users", "delete", topic, "--yes", *where)
    assert deleted.stdout.decode() == f"User {topic} was deleted (SCRAM-SHA-512).\n"
    assert not listed(ketch, topic)
    assert f"There is no user {topic}" in ketch("users", "delete", topic, "-y", *where, code=1).stderr.decode()
    assert f"There is no user {topic}" in ketch("users", "set", topic, *where, stdin=b"x", code=1).stderr.decode()


def test_a_password_of_a_file(ketch: Ketch, tmp_path: Path, topic: str) -> None:
    file = tmp_path / "password"
    file.write_text("in-secret\nwhat is below does not count")
    ketch("users", "add", topic, "--password-file", str(file))
    assert len(listed(ketch, topic)) == 2
    missing = ketch("users", "set", topic, "--password-file", str(tmp_path / "none"), code=2).stderr.decode()
    assert missing == f"ketch: The password cannot be read from {tmp_path / 'none'}: No such file or directory.\n"
    file.write_bytes(b"\xff")
    binary = ketch("users", "set", topic, "--password-file", str(file), code=2).stderr.decode()
    assert binary == f"ketch: The password cannot be read from {file}: it is not text.\n"


def test_a_password_is_asked_for_on_a_terminal(ketch: Ketch, topic: str) -> None:
    master, slave = terminal(100)
    with ketch.start("users", "add", topic, stdin=slave, stdout=slave, stderr=slave):
        os.close(slave)
        shown = b""
        for _ in range(2):  # what is typed before it is asked for is thrown away
            asked = shown.count(b": ")
            while shown.count(b": ") == asked:
                shown += from_terminal(master)
            os.write(master, b"in-secret\n")
        shown += b"".join(iter(lambda: from_terminal(master), b""))
    os.close(master)
    assert f"Password of {topic}:" in shown.decode()
    assert f"User {topic} was added." in shown.decode()
    assert b"in-secret" not in shown
    assert len(listed(ketch, topic)) == 2


@pytest.mark.parametrize("stdin", [b"", b"\n"])
def test_no_password(ketch: Ketch, topic: str, stdin: bytes) -> None:
    refused = ketch("users", "add", topic, stdin=stdin, code=2).stderr.decode()
    assert refused == "ketch: The password is empty: it is the first line of stdin.\n"
    assert not listed(ketch, topic)


@pytest.mark.parametrize(("option", "value"), [("--mechanism", "PLAIN"), ("--iterations", "4095")])
def test_what_cannot_be(ketch: Ketch, topic: str, option: str, value: str) -> None:
    ketch("users", "add", topic, option, value, stdin=b"x\n", code=2)


def test_deleting_asks(ketch: Ketch, topic: str) -> None:
    ketch("users", "add", topic, stdin=b"in-secret\n")
    assert b"--yes" in ketch("users", "delete", topic, code=2).stderr
    assert len(listed(ketch, topic)) == 2


def test_the_first_user_through_the_socket_of_the_embedded_server(
    ketch: Ketch, broker: KetchServer, topic: str
) -> None:
    socket = broker.directory / "data" / "valkey.sock"
    if broker.cluster is not None or not socket.exists():
        pytest.skip("no embedded server, or its socket is elsewhere, as the path is too long")
    ketch("users", "add", topic, "--redis", f"unix://{socket}", stdin=b"in-secret\n")
    assert len(listed(ketch, topic)) == 2
