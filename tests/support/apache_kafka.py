"""Apache Kafka itself, one KRaft node, for comparison: in the tests and in the benchmark.

The jars come through Maven once and stay in the cache. Run as a program it starts a broker and stops it at Ctrl-C:

    python -m tests.support.apache_kafka --port 9092 --set auto.create.topics.enable=false
"""

from __future__ import annotations

import argparse
import base64
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.cache import jars, kept, loaded_classes, missing, run

VERSION = "4.1.0"
START_SECONDS = 60

LONG_RUN = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
SHORT_RUN = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # compiles fast rather than well

_DEPENDENCIES = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    "org.apache.logging.log4j:log4j-core:2.24.3",
)

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
    return missing("java", "mvn", why=f"Apache Kafka {VERSION} comes through Maven")


def libraries() -> Path:
    """The directory of Apache Kafka's jars, fetched where they are not there yet."""
    return jars(f"kafka-{VERSION}", _DEPENDENCIES)


def short_run() -> list[str]:
    """The options of a JVM that lives for seconds, and has nothing before the jars in its class path."""

    def train(archive: str) -> None:
        with ApacheKafka(options=(*SHORT_RUN, archive)):
            """Its start and its stop are all that is wanted."""

    return [*SHORT_RUN, *loaded_classes("kafka", train, *map(str.encode, _DEPENDENCIES))]


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
        options: of the JVM; default: those of a short run. A measurement needs `LONG_RUN`.
        features: finalized ones, as options of the format: share.version=1.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        heap: str = "512M",
        port: int = 0,
        options: Sequence[str] | None = None,
        features: Sequence[str] = (),
    ) -> None:
        self.settings = dict(settings or {})
        self.heap = heap
        self.port = port
        self.options = short_run() if options is None else options
        self.features = features
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
        libs = libraries()
        self.directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        (self.directory / "log4j2.properties").write_text(LOG4J)
        own_port, controller = free_ports(2)
        self.port = self.port or own_port
        properties = self.directory / "server.properties"
        lines = (f"{key}={value}\n" for key, value in {**self._defaults(controller), **self.settings}.items())
        properties.write_text("".join(lines))
        shutil.copytree(_formatted(libs, self.features), self.directory / "data")
        output = (self.directory / "output").open("wb")
        with output:
            command = [*_java(libs, self.directory, self.heap, self.options), "kafka.Kafka", str(properties)]
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

    def _defaults(self, controller: int) -> dict[str, str]:
        return {
            **_node(self.port, controller, self.directory / "data"),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
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


def _node(port: int, controller: int, data: Path) -> dict[str, str]:
    """The settings that the format needs, too."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
    }


def _formatted(libs: Path, features: Sequence[str]) -> Path:
    """A data directory as the tool `format` leaves it, for copies: it takes a JVM, and is the same each time."""

    def form(home: Path) -> None:
        properties = home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in _node(9092, 9093, home / "data").items()))
        (home / "log4j2.properties").write_text(LOG4J)
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")  # "-…" were an option
        command = [*_java(libs, home, "256M", SHORT_RUN), "kafka.tools.StorageTool", "format", "-t", cluster]
        run(home, *command, "-c", str(properties), *(word for each in features for word in ("--feature", each)))

    return kept(f"kafka-{VERSION}-formatted", form, *map(str.encode, (*_DEPENDENCIES, *features))) / "data"


def _java(libs: Path, directory: Path, heap: str, options: Sequence[str]) -> list[str]:
    """What runs a class of Kafka's, which logs into the directory."""
    log = [f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}", f"-Dkafka.log={directory / 'kafka.log'}"]
    return ["java", f"-Xmx{heap}", f"-Xms{heap}", *options, *log, "-cp", f"{libs}/*"]


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
    with ApacheKafka(settings, options.heap, options.port, LONG_RUN) as kafka:
        print(f"{kafka.bootstrap} {kafka.directory}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
