"""The servers that are measured: how each is started and stopped, and what its topics are created with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.model import BenchError, Unavailable
from tests.support import apache_kafka

_READY = re.compile(
    r"ketch ready: kafka (?P<kafka>[\d.]+:\d+|\w+://\S+), "
    r"redis (?:unix:(?P<redis>.+?) and |(?P<cluster>redis\+cluster://\S+), ).*?"
    r"(?:, legacy (?P<legacy>[\d.]+:\d+))?, kernel "
)
_LISTENER = re.compile(r"(\w+)://([^,]+)")
_START_SECONDS = 600.0  # a log of 10 million records, one XADD at a time
_ADMIN_SECONDS = 60.0
_ADMIN_TOPICS = 250  # in one request


class Server:
    """A server in a directory of its own; `with` starts and stops it."""

    name: ClassVar[str]
    shown: ClassVar[str]  # in tables
    topic_configs: ClassVar[dict[str, str]] = {}
    kafka = ""  # host:port
    listeners: dict[str, str]  # host:port by name, where it was started with several; `kafka` is the first

    def __init__(self) -> None:
        self._admin: AdminClient | None = None
        self.listeners = {}

    @property
    def pid(self) -> int:
        """The process whose descendants, with it, are the server."""
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.kafka, "log_level": 3})
        return self._admin

    def create(self, *topics: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        """Creates topics.

        Raises:
            KafkaException: the server refused one.
        """
        given = {**self.topic_configs, **(configs or {})}
        new = [NewTopic(topic, partitions, 1, config=given) for topic in topics]
        for start in range(0, len(new), _ADMIN_TOPICS):
            futures = self.admin().create_topics(new[start : start + _ADMIN_TOPICS], request_timeout=_ADMIN_SECONDS)
            for future in futures.values():
                future.result(_ADMIN_SECONDS)

    def delete(self, *topics: str) -> None:
        for future in self.admin().delete_topics(list(topics), request_timeout=_ADMIN_SECONDS).values():
            future.result(_ADMIN_SECONDS)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._admin = None
        self.stop()


class Ketch(Server):
    """`ketch serve` with its embedded Valkey and default settings (appendfsync everysec)."""

    name = "ketch"
    shown = "Ketch, record layout"
    tree: ClassVar[Path | None] = None  # the checkout that it runs from; None: this one
    program: ClassVar[tuple[str, ...]] = ("-m", "ketch")  # what Python runs

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self._arguments = arguments
        self._directory = tempfile.TemporaryDirectory(prefix="ketch-bench-")
        self._process: subprocess.Popen[bytes] | None = None
        self.redis = Path()  # Valkey's unix socket, where there is one shard
        self.url = ""  # the same, or the cluster of the shards
        self.legacy = ""  # host:port for clients of Kafka 0.7, where it was started with one

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def data(self) -> Path:
        return Path(self._directory.name) / "data"

    def interpreter(self) -> tuple[str, dict[str, str]]:
        """The Python that runs the checkout's programs, and their environment."""
        if self.tree is None:
            python, paths = sys.executable, [path for path in sys.path if path]
        else:
            python, paths = str(self.tree / ".venv" / "bin" / "python"), [str(self.tree / "src")]
        return python, {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def store(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.redis))

    def start(self) -> None:
        """Starts the broker and waits until it is ready. After `halt` it starts with the same data."""
        output = Path(self._directory.name) / "ketch.log"
        python, environment = self.interpreter()
        port = () if "--listeners" in self._arguments else ("--port", "0")
        command = [python, *self.program, "serve", *port, "--redis-port", "0", "--data-dir", str(self.data)]
        with output.open("wb") as log:
            self._process = subprocess.Popen([*command, *self._arguments], stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            ready = _READY.search(output.read_text(errors="replace"))
            if ready:
                self.listeners = dict(_LISTENER.findall(ready["kafka"]))
                self.kafka = next(iter(self.listeners.values()), ready["kafka"])
                self.redis = Path(ready["redis"] or "")
                self.url = ready["cluster"] or f"unix://{self.redis}"
                self.legacy = ready["legacy"] or ""
                return
            time.sleep(0.005)
        raise BenchError(f"Ketch did not start: {output.read_text(errors='replace')[-500:]}")

    def halt(self) -> None:
        """Stops the broker and keeps its data."""
        self._admin = None
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        self.halt()
        self._directory.cleanup()


class Valkey(Ketch):
    """The Valkey that an idle Ketch has started, so that its settings are the same."""

    name = "valkey"
    shown = "raw Valkey"


class KetchMulti(Ketch):
    """The same broker on a Valkey without the append module, as on any Redis."""

    name = "ketch-multi"
    shown = "Ketch, record layout, no module"

    def __init__(self, *arguments: str) -> None:
        super().__init__("--append", "multi", *arguments)


class KetchBatch(Ketch):
    """The same broker, with topics in the batch layout."""

    name = "ketch-batch"
    shown = "Ketch, batch layout"
    topic_configs: ClassVar[dict[str, str]] = {"storage.layout": "batch"}

    def start(self) -> None:
        super().start()
        try:
            self.create("bench-probe")
        except KafkaException as error:
            raise Unavailable(f"the broker refuses storage.layout=batch: {error.args[0].str()}") from None
        self.delete("bench-probe")


class Kafka(Server):
    """Apache Kafka, one KRaft node with its own default settings and heap, and share groups on (KIP-932)."""

    name = "kafka"
    shown = f"Apache Kafka {apache_kafka.VERSION}"

    def __init__(self, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        super().__init__()
        features, options = ("share.version=1",), apache_kafka.LONG_RUN
        self._kafka = apache_kafka.ApacheKafka(settings, heap="1G", options=options, port=port, features=features)

    @property
    def pid(self) -> int:
        return self._kafka.pid

    def start(self) -> None:
        if reason := apache_kafka.missing_tools():
            raise Unavailable(reason)
        try:
            self._kafka.start()
        except RuntimeError as error:
            raise Unavailable(str(error)) from None
        self.kafka = self._kafka.bootstrap

    def stop(self) -> None:
        self._kafka.stop()


def from_tree(made: type[Server], tree: Path) -> type[Server]:
    """The same contestant, run from another checkout with its own environment in .venv.

    Raises:
        BenchError: there is no such environment.
    """
    if not os.access(tree / ".venv" / "bin" / "python", os.X_OK):
        raise BenchError(f"{tree} is no checkout with an environment in .venv: run `make install` there")
    return type(made.__name__, (made,), {"tree": tree.resolve()})


CONTESTANTS: tuple[type[Server], ...] = (Valkey, Ketch, KetchMulti, KetchBatch, Kafka)
SHOWN = {contestant.name: contestant.shown for contestant in CONTESTANTS}
