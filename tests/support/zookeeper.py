"""A real ZooKeeper, Debian's package `zookeeper`: a process of its own, on its own port and directory."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from pathlib import Path

from tests.support import cache
from tests.support.ketch import eventually

JARS = Path("/usr/share/java/zookeeper.jar")
MISSING = cache.missing("java") or (
    None if JARS.exists() else "not installed: zookeeper (Debian: apt-get install zookeeper)"
)

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_CLASSPATH = "/usr/share/java/zookeeper.jar:/usr/share/java/*"


class ZooKeeperServer:
    """One server; a port that was chosen once is kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> ZooKeeperServer:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        config = self.directory / "zoo.cfg"
        config.write_text(
            f"tickTime=500\nminSessionTimeout=1000\ndataDir={self.directory / 'data'}\n"
            f"clientPortAddress=127.0.0.1\nclientPort={self.port}\nadmin.enableServer=false\n"
        )
        options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command = ["java", *options, "-cp", _CLASSPATH, _MAIN, str(config)]
        with (self.directory / "zookeeper.log").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        eventually(self._answers, 60.0, "ZooKeeper")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "zookeeper.log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"srvr")
                return bool(connection.recv(1))
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def free_port(count: int = 1) -> int:
    """The first of so many free ports in a row."""
    while True:
        with contextlib.ExitStack() as opened, contextlib.suppress(OSError, OverflowError):
            first: int = opened.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for port in range(first + 1, first + count):
                opened.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
