"""`ketch redis user`: what it prints, what it refuses, and that Redis takes it."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
import redis
from redis.exceptions import AuthenticationError, ResponseError

from ketch.store.rights import ROLES
from tests.support.modules import binary, with_module
from tests.support.quick import commands
from tests.support.redis_servers import RedisServer


def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [*commands.program(), "redis", "user", *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=30)


def rule(*words: str, given: str = "") -> list[str]:
    done = run(*words, given=given)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    return done.stdout.split()


def test_a_password_is_printed_as_its_hash() -> None:
    words = rule("broker", "--password-stdin", given="my password\n")
    assert words[:3] == ["ACL", "SETUSER", "ketch"]
    assert "#" + hashlib.sha256(b"my password").hexdigest() in words
    assert run("broker", "--password-stdin", given="\n").stderr == "ketch: There is no password on stdin.\n"


def test_options() -> None:
    words = rule("reader", "--topic", "or.ders", "--keyspace", "shop", "--name", "anna")
    assert words[2] == "anna"
    assert {"~shop:stream:or.ders:*", "%R~shop:topic:or.ders", "%R~shop:topics"} <= set(words)
    assert not [word for word in rule("reader", "--redis6") if word.startswith("%")]
    assert set(rule("spark", "--module")) - set(rule("spark")) == {
        "+ketch.version",
        "+ketch.append",
        "+ketch.txnappend",
    }
    assert rule("writer", "--acl-file")[:2] == ["user", "ketch-writer"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["king"], "There is no role king; roles are broker, spark, reader, writer, sentinel."),
        (["broker", "--topic", "orders"], "--topic is for spark, reader and writer, and names one topic."),
        (["reader", "--topic", "or*"], "--topic is for spark, reader and writer, and names one topic."),
        (["reader", "--name", "a b"], "A name and a keyspace are words without braces, quotes and white space."),
        (["reader", "--keyspace", "a{b"], "A name and a keyspace are words without braces, quotes and white space."),
    ],
)
def test_refused(words: list[str], why: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ketch: {why}\n")


def test_redis_refuses_the_placeholder_of_a_password(tmp_path: Path) -> None:
    server = RedisServer(binary("valkey"), tmp_path)
    try:
        with server.client() as client:
            with pytest.raises(ResponseError):
                client.execute_command(*rule("broker"))
            assert client.acl_users() == ["default"]
    finally:
        server.stop()


def test_lines_of_a_file_of_users(tmp_path: Path) -> None:
    lines = [
        " ".join(rule(role, "--acl-file", "--module", "--name", role, "--password-stdin", given="x"))
        for role in ROLES
        if role != "sentinel"
    ]
    users = tmp_path / "users.acl"
    users.write_text("\n".join([*lines, "user default on nopass ~* &* +@all", ""]))
    server = with_module("valkey", tmp_path / "server", "--aclfile", str(users))
    try:
        for role in ROLES:
            with redis.Redis(port=server.port, username=role, password="x") as client:
                if role == "sentinel":
                    with pytest.raises(AuthenticationError):
                        client.ping()
                else:
                    assert client.ping()
    finally:
        server.stop()
