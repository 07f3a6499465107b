"""The embedded Valkey: a real one each time."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import redis
import uvloop

from ketch.embedded import EmbeddedValkey, locks, running_socket
from ketch.errors import KetchError
from tests.support.ketch import eventually
from tests.support.slow_disk import slow_disk, why_not

needs_slow_disk = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
LIMIT = 20.0  # seconds for what must happen; nothing waits for it to pass

PARENT = """
import asyncio, logging, sys
from pathlib import Path
from ketch.embedded import EmbeddedValkey
async def main():
    valkey = EmbeddedValkey(Path(sys.argv[1]), 0, "everysec")
    logging.basicConfig()
    await valkey.start()
    print(valkey.pid, valkey.port, valkey.url, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request) -> Callable:
    return request.param


@asynccontextmanager
async def embedded(data_dir: Path, port: int = 0, fsync: str = "everysec"):
    valkey = EmbeddedValkey(data_dir, port, fsync)
    await valkey.start()
    try:
        yield valkey
    finally:
        await valkey.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.005)


def alive(pid: int) -> bool:
    try:
        # A zombie waits for init to look at it; that is dead enough.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def call(url: str, *command: object):
    with redis.Redis.from_url(url) as client:
        return client.execute_command(*command)


def refused(data_dir: Path, port: int = 0, fsync: str = "everysec") -> str:
    async def start() -> None:
        async with embedded(data_dir, port, fsync):
            pass

    with pytest.raises(KetchError) as caught:
        asyncio.run(start())
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


@contextmanager
def another(data_dir: Path, env: dict[str, str], log: int | None = None):
    """Another process with an embedded Valkey: (process, Valkey's pid, port, url)."""
    command = [sys.executable, "-c", PARENT, data_dir]
    env = {**os.environ, **env}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, env=env)
    assert process.stdout is not None
    pid, port, url = process.stdout.readline().split()
    yield process, int(pid), int(port), url
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def parent(tmp_path: Path):
    """`another` in tmp_path/d."""
    with another(tmp_path / "d", {}) as found:
        yield found


def test_answers_on_both_addresses_and_is_gone_after_stop(run, tmp_path):
    async def check() -> None:
        async with embedded(tmp_path / "deep" / "d") as valkey:
            assert valkey.url == f"unix://{tmp_path}/deep/d/valkey.sock?db=0"
            assert valkey.address == f"unix:{tmp_path}/deep/d/valkey.sock and 127.0.0.1:{valkey.port}"
            assert call(valkey.url, "PING")
            assert call(f"redis://127.0.0.1:{valkey.port}", "PING")
            pid = valkey.pid
        assert not alive(pid)
        assert valkey.pid is None
        await valkey.stop()

    run(check())


@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_settings(tmp_path, fsync):
    async def check() -> None:
        async with embedded(tmp_path, fsync=fsync) as valkey:
            # With everysec it is Ketch that syncs.
            own = "no" if fsync == "everysec" else fsync
            expected = {"appendfsync": own, "appendonly": "yes", "save": "", "maxmemory-policy": "noeviction"}
            expected |= {"auto-aof-rewrite-percentage": "0", "auto-aof-rewrite-min-size": str(512 << 20)}
            expected["rdbcompression"] = "no"
            for name, value in expected.items():
                assert call(valkey.url, "CONFIG", "GET", name) == {name.encode(): value.encode()}
            assert call(valkey.url, "CONFIG", "GET", "bind") == {b"bind": b"127.0.0.1"}

    asyncio.run(check())


def test_data_is_there_after_a_restart(run, tmp_path):
    async def write() -> None:
        async with embedded(tmp_path) as valkey:
            call(valkey.url, "XADD", "s", "1-1", "value", b"\x00\xff")

    async def read() -> None:
        async with embedded(tmp_path) as valkey:
            assert call(valkey.url, "XRANGE", "s", "-", "+") == [(b"1-1", {b"value": b"\x00\xff"})]

    run(write())
    run(read())


def test_cut_tail_of_the_append_only_file_is_no_hindrance(tmp_path):
    async def write() -> None:
        async with embedded(tmp_path) as valkey:
            call(valkey.url, "SET", "k", "v")

    async def read() -> None:
        async with embedded(tmp_path) as valkey:
            assert call(valkey.url, "GET", "k") == b"v"
            assert call(valkey.url, "GET", "cut") is None

    asyncio.run(write())
    (incremental,) = (tmp_path / "appendonlydir").glob("*.incr.aof")
    with incremental.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$3\r\ncut\r\n$100\r\nhalf")
    asyncio.run(read())


def test_damaged_append_only_file_is_refused_with_valkeys_reason(tmp_path):
    async def write() -> None:
        async with embedded(tmp_path) as valkey:
            call(valkey.url, "SET", "k", "v")

    asyncio.run(write())
    (incremental,) = (tmp_path / "appendonlydir").glob("*.incr.aof")
    incremental.write_bytes(b"rubbish\r\n" + incremental.read_bytes())
    message = refused(tmp_path)
    assert message.startswith("Valkey did not start: ")
    assert "append only file" in message.lower()
    assert str(tmp_path / "valkey.log") in message


def test_valkey_that_is_told_to_stop_while_it_starts(tmp_path, monkeypatch):
    """It ends in order, and what it warned of before is not why."""
    script = tmp_path / "valkey-server"
    script.write_text("#!/bin/sh\necho '7:M 1 Jan 2026 00:00:00.000 # Missing implement of connection type tls'\n")
    script.chmod(0o755)
    monkeypatch.setattr("ketch.embedded.valkey.server_binary", lambda: script)
    log = tmp_path / "data" / "valkey.log"
    assert refused(tmp_path / "data") == f"Valkey was told to stop while it started (see {log})."


def test_killed_valkey_comes_back_on_the_same_addresses_with_its_data(run, tmp_path, caplog):
    async def check() -> None:
        async with embedded(tmp_path, fsync="always") as valkey:
            addresses = valkey.url, valkey.address
            for n in range(1, 4):
                call(valkey.url, "RPUSH", "l", n)
                pid = valkey.pid
                os.kill(pid, signal.SIGKILL)
                await until(lambda: valkey.pid not in (None, pid) and answers(valkey.url))  # noqa: B023
                assert (valkey.url, valkey.address) == addresses
                assert call(f"redis://127.0.0.1:{valkey.port}", "LLEN", "l") == n

    def answers(url: str) -> bool:
        try:
            return bool(call(url, "PING"))
        except redis.RedisError:
            return False

    run(check())
    # The last ones may hit Valkey before its supervisor has seen it answer; that is told in other words.
    lines = [record.getMessage() for record in caplog.records if "was ended by SIGKILL" in record.getMessage()]
    assert len(lines) == 3
    assert re.fullmatch(r"Valkey \(pid \d+\) was ended by SIGKILL; restarting it", lines[0])


def test_failing_restarts_are_told_and_tried_again(tmp_path, caplog):
    async def check() -> None:
        async with embedded(tmp_path) as valkey:
            aof = tmp_path / "appendonlydir"
            (incremental,) = aof.glob("*.incr.aof")
            whole = incremental.read_bytes()
            incremental.write_bytes(b"rubbish\r\n")
            os.kill(valkey.pid, signal.SIGKILL)
            await until(lambda: "cannot be restarted" in caplog.text)
            incremental.write_bytes(whole)
            await until(lambda: valkey.pid is not None and running(valkey.url))

    def running(url: str) -> bool:
        try:
            return bool(call(url, "PING"))
        except redis.RedisError:
            return False

    asyncio.run(check())


@needs_slow_disk
def test_everysec_syncs_each_file_that_valkey_writes(tmp_path):
    synced = tmp_path / "synced"
    with another(tmp_path / "d", slow_disk(0, log=synced)) as (process, _, _, url):

        def number(sequence: int) -> bool:
            name = f"{process.pid} {tmp_path}/d/appendonlydir/appendonly.aof.{sequence}.incr.aof"
            return name in synced.read_text().splitlines()

        call(url, "SET", "k", "v")
        eventually(lambda: number(1))
        call(url, "BGREWRITEAOF")
        call(url, "SET", "k", "w")
        eventually(lambda: number(2))


@needs_slow_disk
def test_no_writes_are_taken_while_the_disk_does_not_sync(tmp_path):
    broken = tmp_path / "broken"
    log = tmp_path / "log"

    def taken() -> bool:
        try:
            return bool(call(url, "RPUSH", "l", "v"))
        except redis.ResponseError:
            return False

    with log.open("wb") as file, another(tmp_path / "d", slow_disk(0, broken), file.fileno()) as (_, _, _, url):
        assert taken()
        broken.touch()
        eventually(lambda: not taken())
        assert call(url, "LRANGE", "l", "0", "0") == [b"v"]
        broken.unlink()
        eventually(taken)
        # What the failed syncs left out is written again: the new base file has it.
        eventually((tmp_path / "d" / "appendonlydir" / "appendonly.aof.2.base.rdb").exists)
    path = f"{tmp_path}/d/appendonlydir"
    assert log.read_text().splitlines() == [
        f"ERROR:ketch.embedded.valkey:{path} cannot be synced, writes are refused until it can: Input/output error.",
        f"WARNING:ketch.embedded.valkey:{path} can be synced again.",
    ]


def test_stop_while_valkey_is_down(tmp_path):
    async def check() -> None:
        async with embedded(tmp_path) as valkey:
            os.kill(valkey.pid, signal.SIGKILL)

    asyncio.run(check())
    asyncio.run(check())


def test_data_directory_in_use_is_refused_with_the_pid(tmp_path, parent):
    process, *_ = parent
    message = f"Data directory {tmp_path}/d is in use by another ketch (pid {process.pid})."
    assert refused(tmp_path / "d") == message


def test_data_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file" / "d") == f"Data directory {tmp_path}/file/d cannot be made: Not a directory."


def test_port_in_use_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert (
            refused(tmp_path, port)
            == f"Valkey cannot listen on 127.0.0.1:{port}: Address already in use; --redis-port chooses another."
        )
    assert running_socket(tmp_path) is None


def test_after_a_refusal_the_directory_is_free(tmp_path):
    assert "Valkey did not start: argument(s) must be one of" in refused(tmp_path, fsync="maybe")

    async def check() -> None:
        async with embedded(tmp_path):
            pass

    asyncio.run(check())


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_valkey_dies_with_a_killed_parent_and_keeps_what_it_had(run, tmp_path, parent):
    process, pid, _, url = parent
    call(url, "SET", "k", "v")
    process.kill()
    process.wait()

    async def check() -> None:
        await until(lambda: not alive(pid))
        async with embedded(tmp_path / "d") as valkey:
            assert call(valkey.url, "GET", "k") == b"v"

    run(check())
    # It was asked to stop and did so in order, rather than cut off.
    assert "bye bye" in (tmp_path / "d" / "valkey.log").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
@pytest.mark.parametrize("same_port", [False, True])
def test_a_new_broker_waits_for_the_orphan_of_a_killed_one(tmp_path, parent, same_port):
    process, pid, port, url = parent
    call(url, "SET", "k", "v")
    os.kill(pid, signal.SIGSTOP)  # an orphan that takes its time
    process.kill()
    process.wait()

    async def check() -> None:
        valkey = EmbeddedValkey(tmp_path / "d", port if same_port else 0, "everysec")
        starting = asyncio.create_task(valkey.start())
        await asyncio.wait((starting,), timeout=0.1)
        assert not starting.done()
        os.kill(pid, signal.SIGCONT)
        await asyncio.wait_for(starting, LIMIT)
        try:
            assert call(valkey.url, "GET", "k") == b"v"
        finally:
            await valkey.stop()

    asyncio.run(check())


def test_an_orphan_that_stays_is_named(tmp_path, parent, monkeypatch):
    process, pid, *_ = parent
    monkeypatch.setattr(locks, "ORPHAN_SECONDS", 0.0)
    os.kill(pid, signal.SIGSTOP)
    try:
        process.kill()
        process.wait()
        message = f"The Valkey of an earlier ketch (pid {pid}) still uses data directory {tmp_path}/d."
        assert refused(tmp_path / "d") == message
    finally:
        os.kill(pid, signal.SIGKILL)


def test_ctrl_c_at_the_terminal_does_not_reach_valkey(tmp_path, parent):
    process, pid, _, url = parent
    assert os.getpgid(pid) != os.getpgid(process.pid)
    assert os.getsid(pid) != os.getsid(process.pid)
    assert call(url, "PING")


def test_running_socket_is_known_while_it_runs(tmp_path):
    async def check() -> None:
        assert running_socket(tmp_path) is None
        async with embedded(tmp_path):
            assert running_socket(tmp_path) == tmp_path / "valkey.sock"
        assert running_socket(tmp_path) is None

    asyncio.run(check())


@pytest.mark.parametrize("name", ["x" * 120, "with space and 'quotes\"", "ünïcödé", "per%20cent?#"])
def test_directory_of_any_name(run, tmp_path, name):
    async def check() -> None:
        async with embedded(tmp_path / name) as valkey:
            call(valkey.url, "SET", "k", "v")
            path = running_socket(tmp_path / name)
            assert len(os.fsencode(path)) < 108
        assert not path.exists()
        async with embedded(tmp_path / name) as valkey:
            assert call(valkey.url, "GET", "k") == b"v"

    run(check())


def test_data_directory_is_private(tmp_path):
    async def check() -> None:
        async with embedded(tmp_path / "d"):
            pass

    asyncio.run(check())
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
