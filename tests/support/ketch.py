"""Ketch as a user runs it: a process of its own with its embedded Valkey, on free ports and in its own directory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import redis

from ketch.redis.slots import slot
from tests.support import forks, quick, redis_users

if TYPE_CHECKING:
    from tests.support.redis_servers import RedisServer  # which uses `eventually`

_READY = re.compile(
    r"ketch ready: kafka (?:(?P<listeners>\w+://\S+)|(?P<host>[\d.]+):(?P<port>\d+)),"
    r" redis (?P<redis>.*?)(?:, data .*)?, kernel \w+"
)
KETCH = ("ketch",)
_TCP = re.compile(r"127\.0\.0\.1:(\d+)")
T = TypeVar("T")


def eventually(probe: Callable[[], T], timeout: float = 20.0, what: str = "") -> T:
    """The first true answer of `probe`; AssertionError if none comes in time.

    The longer it has waited, the longer it waits until it looks again: a tenth of that.
    """
    begun = time.monotonic()
    while True:
        answer = probe()
        if answer:
            return answer
        waited = time.monotonic() - begun
        assert waited < timeout, f"gave up after {timeout} s waiting for {what or probe}"
        time.sleep(min(max(waited / 10, 0.01), 0.1))


# Servers of brokers that were not closed, as a broker with an embedded server need not be.
_servers: list[RedisServer] = []


def stop_servers() -> None:
    """At the end of all tests."""
    while _servers:
        _servers.pop().stop()
    forks.parent.stop()
    quick.commands.stop()


def _as_broker(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the broker's Redis user in the URL where the tests run with such users."""
    chosen = redis_users.chosen
    return [redis_users.as_user(word, "broker") if chosen and "://" in word else word for word in arguments]


class KetchServer:
    """One broker. Attributes are known once `start` has returned.

    Args:
        directory: where its data and its log are.
        arguments: of `ketch serve`, beside those this class gives.
        program: the Python module that is `ketch`, and its first arguments.
        clustered: its log is in a Redis Cluster of three masters of its own, not in an embedded server.

    With the option --redis-user it has a server of its own in the place of an embedded one, see `redis_users`.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        env: dict[str, str] | None = None,
        program: Sequence[str] = KETCH,
        clustered: bool = False,
    ) -> None:
        self.directory = directory
        from tests.support.clusters import RedisCluster  # which use `eventually`
        from tests.support.modules import with_module

        self.cluster = RedisCluster(directory / "cluster", masters=3, module=True) if clustered else None
        apart = redis_users.chosen and not clustered and not {"--redis", "--data-dir"} & set(arguments)
        self.server = with_module(redis_users.binary, directory / "redis") if apart else None
        if self.server is not None:
            _servers.append(self.server)
        self.arguments = _as_broker(arguments)
        self._program = program
        self._forked = forks.POSSIBLE and env is None and tuple(program) == KETCH
        self.env = {**os.environ, **(env or {})}
        self.process: subprocess.Popen[bytes] | forks.Forked | None = None
        self.port = 0
        self.ports: dict[str, int] = {}  # by listener, where it was given listeners
        self.redis_port = 0
        self.log_path = directory / "ketch.log"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Everything it printed, over all its runs."""
        return self.log_path.read_text(errors="replace")

    def start(self) -> KetchServer:
        """Starts it and waits for the ready line. A port that was chosen once is kept.

        While it was down, a client that connects again and again may have been given that very port for its own end of
        a connection: then it is started until the port is free.
        """
        match = eventually(self._started, 30.0, f"port {self.port} to be free")
        if match["listeners"]:
            found = re.findall(r"(\w+)://[^,]*:(\d+)", match["listeners"])
            self.ports = {name: int(port) for name, port in found}
        self.port = next(iter(self.ports.values())) if self.ports else int(match["port"])
        tcp = _TCP.search(match["redis"])
        if tcp:
            self.redis_port = int(tcp[1])
        return self

    def _started(self) -> re.Match[str] | None:
        """The ready line of a new process; None where a port that was chosen before is taken for now."""
        self.directory.mkdir(parents=True, exist_ok=True)
        simple = () if "--listeners" in self.arguments else ("--port", str(self.port))
        command = ["serve", *simple, *self.arguments]
        if own := self.cluster or self.server:
            command += _as_broker(["--redis", own.url])
        elif "--redis" not in self.arguments:
            command += ["--data-dir", str(self.directory / "data"), "--redis-port", str(self.redis_port)]
        with self.log_path.open("ab") as output:
            begin = output.tell()
            if self._forked:
                self.process = forks.parent.fork(command, self.env, self.log_path)
            else:
                command = [sys.executable, "-m", *self._program, *command]
                self.process = subprocess.Popen(command, stdout=output, stderr=output, env=self.env)
        try:
            return eventually(lambda: self._ready(begin), 30.0, f"the ready line in {self.log_path}")
        except AssertionError as error:
            if self.port and f"Cannot listen on 127.0.0.1:{self.port}: Address already in use" in str(error):
                return None
            raise

    def _ready(self, begin: int) -> re.Match[str] | None:
        assert self.process is not None
        text = self.log_path.read_bytes()[begin:].decode(errors="replace")
        if self.process.poll() is not None:
            raise AssertionError(f"ketch exited with {self.process.returncode}: {text}")
        return _READY.search(text)

    @property
    def redis_password(self) -> str | None:
        """That of the embedded server, where it has one."""
        path = self.directory / "data" / "redis-password"
        return path.read_text().strip() if path.exists() else None

    @property
    def redis_url(self) -> str:
        """Of the server or the cluster it keeps its log in, for the user of the option --redis-user."""
        who = f":{self.redis_password}@" if self.redis_password else ""
        url = f"redis://{who}127.0.0.1:{self.redis_port}" if self.cluster is None else self.cluster.url
        return redis_users.as_user(url, redis_users.chosen) if redis_users.chosen else url

    def redis(self) -> redis.Redis:
        """A client of that server, or of the cluster, which has the same methods."""
        if self.cluster is not None:
            return cast(redis.Redis, redis.RedisCluster("127.0.0.1", self.cluster.nodes[0].port))
        return redis.Redis(port=self.redis_port, password=self.redis_password)

    def redis_nodes(self) -> list[redis.Redis]:
        """A client of that server, or of each master of the cluster."""
        if self.cluster is None:
            return [self.redis()]
        return [node.client() for node in self.cluster.nodes if node.is_master]

    def redis_of(self, key: str) -> redis.Redis:
        """A client of that server, or of the cluster's node that has the key."""
        return self.redis() if self.cluster is None else self.cluster.owner(slot(key.encode())).client()

    def close(self) -> None:
        """Ends what it kept its log in, where that was a cluster or a server of its own."""
        if self.cluster is not None:
            self.cluster.stop()
        if self.server in _servers:
            _servers.remove(self.server)
            self.server.stop()

    def kill(self) -> None:
        """kill -9 of the broker."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_valkey(self) -> None:
        """kill -9 of the embedded server, which starts again, or of all nodes of the cluster."""
        if self.cluster is not None:
            for node in self.cluster.nodes:
                self.cluster.kill(node)
                self.cluster.restart(node)
            return
        if self.server is not None:
            self.server.kill()
            self.server.start()
            return
        os.kill(int(self.redis().info("server")["process_id"]), signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 15.0) -> int:
        """Sends a signal and waits; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)
