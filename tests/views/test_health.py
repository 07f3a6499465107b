"""The checks, on real servers: the embedded Valkey's binary and the system's redis-server."""

from __future__ import annotations

import asyncio
import gc
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis

from ketch.cli.examine import examine
from ketch.embedded.valkey import server_binary
from ketch.errors import KetchError
from ketch.redis.url import RedisAddress
from ketch.views.health import (
    CLUSTER_COMMANDS,
    COMMANDS,
    Check,
    Facts,
    Node,
    _clock,
    _cluster,
    _version,
    cluster_checks,
    require_fit,
)

LIMIT = 20.0
SOURCE = Path(__file__).parents[2] / "src" / "ketch"
GIVE = "give every slot a node that is up"
SERVERS = {"valkey": str(server_binary()), "redis": "redis-server"}


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


@contextmanager
def running(binary: str, directory: Path, *options: object) -> Iterator[RedisAddress]:
    """A server of one's own on a unix socket, until the block ends; `options` as on the command line."""
    directory.mkdir(exist_ok=True)
    path = directory / "s"
    command = [binary, "--port", 0, "--unixsocket", path, "--dir", directory, "--logfile", directory / "log", *options]
    process = subprocess.Popen([str(word) for word in command])
    try:
        wait_until_up(path, process)
        yield RedisAddress("", 0, str(path))
    finally:
        process.kill()
        process.wait()


def wait_until_up(path: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + LIMIT
    while True:
        try:
            with closing(socket.socket(socket.AF_UNIX)) as client:
                client.connect(str(path))
            return
        except OSError:
            assert process.poll() is None, (path.parent / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.005)


@pytest.fixture(params=sorted(SERVERS))
def server(request, tmp_path):
    def start(*options: object, name: str = "server"):
        return running(SERVERS[request.param], tmp_path / name, *options)

    start.kind = request.param  # type: ignore[attr-defined]
    return start


def look(address: RedisAddress, timeout: float = LIMIT) -> dict[str, Check]:
    return {check.name: check for check in asyncio.run(examine(address, timeout))}


def facts(cluster: dict[str, str] | None = None, ahead: float = 0.0, **info: str) -> Facts:
    return Facts(info, save="", appendfsync="everysec", clock_ahead=ahead, missing=(), cluster=cluster)


def test_fit(server):
    with server("--appendonly", "yes") as address:
        checks = look(address)
    assert {name: check.verdict for name, check in checks.items() if name != "kernel"} == dict.fromkeys(
        ("Redis", "version", "commands", "role", "persistence", "eviction", "clock", "cluster", "appends"), "ok"
    )
    assert checks["version"].seen.startswith({"valkey": "Valkey 9.", "redis": "Redis "}[server.kind])
    persistence = checks["persistence"]
    assert persistence.seen == "append-only file, appendfsync everysec"
    assert persistence.advice.startswith("a kill of Redis while its disk is slow loses up to 2 s")
    assert [check.name for check in require_fit(list(checks.values())) if check.name != "kernel"] == []


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        (("--save", ""), "none: no append-only file, no snapshots"),
        (("--save", "900 1"), "snapshots only (save 900 1)"),
    ],
)
def test_no_append_only_file_is_a_warning(server, options, seen):
    with server(*options) as address:
        check = look(address)["persistence"]
    assert (check.verdict, check.seen) == ("warn", seen)
    assert require_fit([check]) == [check]


@pytest.mark.parametrize(
    ("policy", "limit", "verdict"),
    [
        ("allkeys-lru", "100mb", "fail"),
        ("allkeys-random", "100mb", "fail"),
        ("allkeys-lru", "0", "ok"),
        ("volatile-ttl", "100mb", "warn"),
        ("volatile-lru", "0", "ok"),
        ("noeviction", "100mb", "ok"),
    ],
)
def test_eviction(server, policy, limit, verdict):
    with server("--maxmemory", limit, "--maxmemory-policy", policy) as address:
        check = look(address)["eviction"]
    assert check.verdict == verdict
    assert policy in check.seen


def test_replica_is_refused_and_its_primary_named(server):
    port = free_port()
    with server("--port", port, name="primary"), server("--replicaof", f"127.0.0.1 {port}", name="replica") as address:
        checks = look(address)
    check = checks["role"]
    assert check.verdict == "fail"
    assert f"127.0.0.1:{port}" in check.advice
    sentence = f"role: a replica, where records cannot be kept; use its primary, 127.0.0.1:{port}."
    with pytest.raises(KetchError) as caught:
        require_fit(list(checks.values()))
    assert str(caught.value) == sentence


def test_missing_commands_are_named(server):
    with server("--rename-command", "XSETID", "", "--rename-command", "EVAL", "") as address:
        check = look(address)["commands"]
    assert (check.verdict, check.seen) == ("fail", "XSETID, EVAL missing")


def test_commands_are_those_that_the_source_sends(tmp_path):
    with (
        running(SERVERS["valkey"], tmp_path / "server") as address,
        redis.Redis(unix_socket_path=address.path) as client,
    ):
        known = {name.upper() for name in client.command()}
    # The embedded Valkey has every command.
    elsewhere = [path for path in SOURCE.rglob("*.*") if path.name != "health.py" and path.parent.name != "embedded"]
    sources = [path for path in elsewhere if path.suffix in (".py", ".lua")]
    words = {word for path in sources for word in re.findall(r"""["']([A-Z]{3,})\b""", path.read_text())}
    # What a URL with a password, a database or sentinels asks for; the beginning of an error; and what copies_on_disk
    # alone needs, whose lack `log.copies` reports.
    assert {*COMMANDS, *CLUSTER_COMMANDS} == (words & known) - {"AUTH", "SELECT", "READONLY", "ROLE", "WAITAOF"}


def test_forbidden_config_is_no_failure(server):
    with server("--rename-command", "CONFIG", "", "--appendonly", "yes") as address:
        checks = look(address)
    assert not [check for check in checks.values() if check.verdict == "fail"]
    assert checks["persistence"].seen == "append-only file"


def test_forbidden_config_without_append_only_file(server):
    with server("--rename-command", "CONFIG", "") as address:
        check = look(address)["persistence"]
    assert (check.verdict, check.seen) == ("warn", "no append-only file, snapshots unknown (CONFIG is forbidden)")


def test_cluster_of_several_nodes_or_without_slots(server):
    with server("--cluster-enabled", "yes", "--port", free_port()) as address:
        check = look(address)["cluster"]
        assert (check.verdict, check.seen) == ("fail", "on, state fail")
        with redis.Redis(unix_socket_path=address.path) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        until = time.monotonic() + LIMIT
        while look(address)["cluster"].verdict == "fail":
            assert time.monotonic() < until
            time.sleep(0.02)
        check = look(address)["cluster"]
        assert (check.verdict, check.seen) == ("ok", "on, one node with all slots")
    check = _cluster(facts({"cluster_state": "ok", "cluster_size": "3"}))
    assert (check.verdict, check.seen) == ("fail", "on, 3 nodes, of which this is one")
    assert "redis+cluster://" in check.sentence()


def test_nodes_of_a_cluster_are_named_where_they_differ() -> None:
    old, new = {"redis_version": "6.0.1"}, {"redis_version": "7.2.0"}
    ok = {"cluster_state": "ok"}
    nodes = [
        Node("a:1", None, facts(ok, 0.1, **new)),
        Node("b:2", None, facts(ok, -60.0, **old)),
        Node("c:3", "a:1", facts(ok, 0.2, **new)),
    ]
    found = {check.name: check for check in cluster_checks(nodes, 16384, "redis+cluster://a:1")}
    assert [*found] == [
        "Redis", "version", "commands", "persistence", "eviction", "clock", "cluster", "appends", "kernel",
    ]  # fmt: skip
    assert found["Redis"] == Check("Redis", "ok", "redis+cluster://a:1 answers")
    version = found["version"]
    assert (version.verdict, version.seen) == ("fail", "b:2: Redis 6.0.1; a:1, c:3: Redis 7.2.0")
    assert version.advice == "Redis 6.2 or newer is needed"
    assert found["eviction"].seen == "noeviction, maxmemory unlimited"
    assert found["clock"].seen == "b:2: Redis is 60.000 s behind"
    assert (found["cluster"].verdict, found["cluster"].seen) == (
        "warn", "on, 2 masters, 1 replica; b:2 without a replica",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("masters", "served", "sentence"),
    [
        ({"a:1": "ok", "b:2": "ok"}, 16384, "cluster: on, 2 masters, 0 replicas."),
        ({"a:1": "ok", "b:2": "ok"}, 16380,
         f"cluster: on, 2 masters, 0 replicas; 4 of 16384 slots have no node; {GIVE} (CLUSTER INFO)."),
        ({"a:1": "ok", "b:2": "fail"}, 16384,
         f"cluster: on, 2 masters, 0 replicas; not ok for b:2; {GIVE} (CLUSTER INFO)."),
    ],
)  # fmt: skip
def test_cluster_that_is_not_whole(masters: dict[str, str], served: int, sentence: str) -> None:
    nodes = [Node(name, None, facts({"cluster_state": state})) for name, state in masters.items()]
    found = {check.name: check for check in cluster_checks(nodes, served, "redis+cluster://a:1")}
    assert found["cluster"].sentence() == sentence
    assert found["cluster"].verdict == ("ok" if GIVE not in sentence else "fail")


def test_nodes_that_are_gone() -> None:
    fine, gone = facts({"cluster_state": "ok"}), "Connection refused"
    found = cluster_checks([Node("a:1", None, fine), Node("b:2", "a:1", gone)], 16384, "redis+cluster://a:1")[0]
    assert (found.verdict, found.seen) == ("warn", "b:2 cannot be used (Connection refused)")
    found = cluster_checks([Node("a:1", None, fine), Node("b:2", None, gone)], 16384, "redis+cluster://a:1")[0]
    assert (found.verdict, found.seen) == ("fail", "b:2 cannot be used (Connection refused)")
    names = [check.name for check in cluster_checks([Node("a:1", None, gone)], 16384, "redis+cluster://a:1")]
    assert names == ["Redis", "cluster", "kernel"]


def test_password(server):
    with server("--requirepass", "secret") as address:
        right = RedisAddress("", 0, address.path, password="secret")
        wrong = RedisAddress("", 0, address.path, password="wrong1")
        assert look(right)["Redis"].verdict == "ok"
        for refused in (wrong, address):
            check = look(refused)["Redis"]
            assert check.verdict == "fail"
            assert "start Redis" not in check.sentence()
            assert "secret" not in check.sentence()
            assert "wrong1" not in check.sentence()
    gc.collect()  # a connection that was left open warns now rather than in some later test


def test_user_that_may_not_look(server):
    with server("--user", "blind", "on", ">p", "~*", "+@all", "-info") as address:
        check = look(RedisAddress("", 0, address.path, username="blind", password="p"))["Redis"]
    assert check.verdict == "fail"
    assert "NOPERM" in check.seen


def test_nobody_there(tmp_path):
    checks = look(RedisAddress("127.0.0.1", free_port()))
    assert [*checks] == ["Redis", "kernel"]
    assert checks["Redis"].verdict == "fail"
    assert "start Redis" in checks["Redis"].advice
    assert look(RedisAddress("", 0, str(tmp_path / "none")))["Redis"].verdict == "fail"


def test_a_silent_server_is_given_up(tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        check = look(RedisAddress("127.0.0.1", silent.getsockname()[1]), timeout=0.05)["Redis"]
    assert check.verdict == "fail"


@pytest.mark.parametrize(
    ("info", "verdict", "seen"),
    [
        ({"redis_version": "6.0.16"}, "fail", "Redis 6.0.16"),
        ({"redis_version": "6.2.0"}, "ok", "Redis 6.2.0"),
        ({"redis_version": "8.0.3"}, "ok", "Redis 8.0.3"),
        ({"redis_version": "10.0.0"}, "ok", "Redis 10.0.0"),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "7.2.11"}, "ok", "Valkey 7.2.11"),
        ({"redis_version": "7.2.4", "server_name": "valkey"}, "ok", "Valkey 7.2.4"),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.0-rc1"}, "ok", "Valkey 9.1.0-rc1"),
        ({}, "fail", "Redis of unknown version"),
    ],
)
def test_versions(info, verdict, seen):
    check = _version(facts(**info))
    assert (check.verdict, check.seen) == (verdict, seen)


@pytest.mark.parametrize(("ahead", "verdict"), [(0.9, "ok"), (-0.9, "ok"), (1.1, "warn"), (-60.0, "warn")])
def test_clock(ahead, verdict):
    check = _clock(facts(ahead=ahead))
    assert check.verdict == verdict
    assert ("ahead" if ahead > 0 else "behind") in check.seen


def test_commands_are_real_ones(server):
    assert len(set(COMMANDS)) == len(COMMANDS)
    with server() as address:
        assert look(address)["commands"].verdict == "ok"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls_with_client_certificate(tmp_path):
    authority = certificate(tmp_path, "ca", "-addext", "basicConstraints=critical,CA:TRUE")
    signed = ("-CA", tmp_path / "ca.pem", "-CAkey", tmp_path / "ca.key")
    server_side = certificate(tmp_path, "server", "-addext", "subjectAltName=IP:127.0.0.1", *signed)
    client_side = certificate(tmp_path, "client", *signed)
    stranger = certificate(tmp_path, "stranger", "-addext", "basicConstraints=critical,CA:TRUE")
    port = free_port()
    ca, (cert, key) = authority[0], client_side
    options = ("--tls-cert-file", server_side[0], "--tls-key-file", server_side[1], "--tls-ca-cert-file", ca)
    with running("redis-server", tmp_path / "server", "--tls-port", port, *options):
        url = f"rediss://127.0.0.1:{port}"
        assert look(RedisAddress.parse(url, ca, cert, key))["Redis"].verdict == "ok"
        assert look(RedisAddress.parse(url, stranger[0], cert, key))["Redis"].verdict == "fail"
        assert look(RedisAddress.parse(url, ca))["Redis"].verdict == "fail"
        assert look(RedisAddress.parse(f"redis://127.0.0.1:{port}"), timeout=2.0)["Redis"].verdict == "fail"


def certificate(directory: Path, name: str, *options: object) -> tuple[Path, Path]:
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {key} -out {cert}".split()
    subprocess.run([*command, *map(str, options)], check=True, capture_output=True)
    return cert, key
