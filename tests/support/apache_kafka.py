"""Apache Kafka itself, one KRaft node, for comparison: in the tests and in the benchmark.

The jars come through Maven once and stay in a cache outside the repository (`KETCH_TEST_CACHE`, by default
`~/.cache/ketch-tests`). Run as a script it starts a broker and stops it at Ctrl-C:

    python tests/support/apache_kafka.py --port 9092 --set auto.create.topics.enable=false
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

VERSION = "4.1.0"
START_SECONDS = 60

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ketch.tests</groupId><artifactId>apache-kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version></dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version>
    </dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>2.24.3</version></dependency>
  </dependencies>
</project>
"""

LOG4J = """\
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:kafka.log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def missing_tools() -> str | None:
    """Why Apache Kafka can't be had here, for a test's skip reason; None where it can."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} missing: Apache Kafka {VERSION} comes through Maven" if missing else None


def cache_directory() -> Path:
    return Path(os.environ.get("KETCH_TEST_CACHE", "~/.cache/ketch-tests")).expanduser()


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One process at a time fills a cache directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def maven(directory: Path, *arguments: str) -> None:
    """Runs Maven in `directory`; its output is shown only where it fails.

    Raises:
        RuntimeError: with the end of what Maven said.
    """
    command = ["mvn", "--batch-mode", "--quiet", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-4000:]}")


def libraries() -> Path:
    """The directory of Apache Kafka's jars, fetched where they are not there yet."""
    home = cache_directory() / f"kafka-{VERSION}-{hashlib.sha256(POM.encode()).hexdigest()[:12]}"
    jars = home / "libs"
    with locked(home):
        if not (home / ".complete").exists():
            (home / "pom.xml").write_text(POM)
            maven(home, "dependency:copy-dependencies", f"-DoutputDirectory={jars}")
            (home / "log4j2.properties").write_text(LOG4J)
            (home / ".complete").touch()
    return jars


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports that nobody listened on a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class ApacheKafka:
    """One broker and controller in a directory of its own; a context manager.

    Args:
        settings: further lines of server.properties; they win over the ones here.
        heap: of the JVM.
        port: 0 is any free one.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, heap: str = "512M", port: int = 0) -> None:
        self.settings = dict(settings or {})
        self.heap = heap
        self.port = port
        self.directory = Path()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Formats, starts and waits until the port answers.

        Raises:
            RuntimeError: the broker ended or did not get ready; with the end of its log.
        """
        jars = libraries()
        self.directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        own_port, controller = free_ports(2)
        self.port = self.port or own_port
        properties = self.directory / "server.properties"
        lines = (f"{key}={value}\n" for key, value in {**self._defaults(controller), **self.settings}.items())
        properties.write_text("".join(lines))
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")  # "-…" were an option
        storage = [*self._java(jars, "256M"), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        subprocess.run(storage, check=True, stdout=subprocess.DEVNULL)
        output = (self.directory / "output").open("wb")
        with output:
            command = [*self._java(jars, self.heap), "kafka.Kafka", str(properties)]
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        self._wait_until_ready()

    def stop(self) -> None:
        """SIGTERM, SIGKILL as the last resort; the data goes too."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None
        if self.directory != Path():
            shutil.rmtree(self.directory, ignore_errors=True)

    def log(self) -> str:
        """What the broker has logged."""
        files = [self.directory / "kafka.log", self.directory / "output"]
        return "".join(file.read_text(errors="replace") for file in files if file.exists())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _java(self, jars: Path, heap: str) -> list[str]:
        log4j, log = jars.parent / "log4j2.properties", self.directory / "kafka.log"
        options = [f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        return ["java", *options, f"-Dlog4j2.configurationFile={log4j}", f"-Dkafka.log={log}", "-cp", f"{jars}/*"]

    def _defaults(self, controller: int) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def _wait_until_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)  # the poll's interval; a JVM offers nothing to wait on
        raise RuntimeError(f"Apache Kafka did not get ready:\n{self.log()[-4000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Start Apache Kafka for comparison.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--heap", default="512M")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a line of server.properties")
    options = parser.parse_args()
    if reason := missing_tools():
        sys.exit(reason)
    settings = dict(item.split("=", 1) for item in options.set)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with ApacheKafka(settings, options.heap, options.port) as kafka:
        print(f"{kafka.bootstrap} {kafka.directory}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
