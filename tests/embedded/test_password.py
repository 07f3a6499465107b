"""The password of the embedded Valkey: who needs it, where it is, and where it is not."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
import redis

from ketch.configs.settings import Settings
from ketch.embedded import password, running_url, with_password
from ketch.errors import KetchError
from tests.support.batches import batch, records
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.quick import commands


def test_who_needs_one() -> None:
    secured = {"listeners": "SSL://127.0.0.1:0"}
    assert not password.wanted(Settings())
    assert password.wanted(Settings(**secured))
    assert password.wanted(Settings(redis_auth="password"))
    assert password.wanted(Settings(authorizer_class_name="standard"))
    assert not password.wanted(Settings(**secured, redis_auth="none"))
    assert not password.wanted(Settings(authorizer_class_name="standard", redis_auth="none"))


def test_it_is_made_once_and_can_be_ones_own(tmp_path: Path) -> None:
    made = password.prepare(tmp_path / "a")
    assert len(made) >= 40
    assert password.prepare(tmp_path / "a") == made
    assert stat.S_IMODE((tmp_path / "a" / password.FILE).stat().st_mode) == 0o600
    (tmp_path / password.FILE).write_text("my own\n")
    assert password.prepare(tmp_path) == "my own"
    (tmp_path / password.FILE).write_text("\n")
    with pytest.raises(KetchError, match="is empty"):
        password.prepare(tmp_path)


@pytest.mark.parametrize("shards", ["1", "2"])
def test_valkey_asks_for_it_and_nobody_sees_it(tmp_path: Path, shards: str) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    own = 'p "s\\ ä/@'
    (data_dir / password.FILE).write_text(own)
    server = KetchServer(tmp_path, "--redis-auth", "password", "--shards", shards).start()
    with Kafka(server.port) as client:
        client.create("t", 4)
        for index in range(4):
            client.stored("t", batch(records([b"v"])), partition=index)
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=server.redis_port).ping()
    with redis.Redis(port=server.redis_port, password=own) as known:
        assert known.ping()
    url = running_url(data_dir)
    assert url is not None
    assert with_password(f"unix://{data_dir}/valkey.sock?db=0").startswith("unix://:p%20") == (shards == "1")
    shown = subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
    assert own not in shown
    assert own not in server.log
    status = [*commands.program(), "status", "-b", server.bootstrap]
    env = {**os.environ, "KETCH_REDIS": url}
    done = subprocess.run(status, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert own not in done.stdout + done.stderr
    if shards == "1":  # `ketch status` finds the password beside the socket
        assert subprocess.run(status, capture_output=True).returncode == 0
        pid = int(redis.Redis(port=server.redis_port, password=own).info("server")["process_id"])
        os.kill(pid, 9)
        with Kafka(server.port) as client:
            eventually(lambda: client.produce("t", batch(records([b"again"]))).error_code == 0)
    assert server.stop() == 0
    assert "Traceback" not in server.log


def test_without_one_it_is_as_open_as_before(tmp_path: Path) -> None:
    """Also where a run before had one."""
    password.prepare(tmp_path / "data")
    password.configure(tmp_path / "data", "x")
    server = KetchServer(tmp_path).start()
    assert redis.Redis(port=server.redis_port).ping()
    assert "@" not in (running_url(tmp_path / "data") or "")
    assert server.stop() == 0
