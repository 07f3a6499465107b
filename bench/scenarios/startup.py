"""Time to start with many topics, with a large append-only file, and with a long log beside Valkey alone."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Generator
from contextlib import suppress
from typing import ClassVar

import redis

from bench import tools
from bench.contestants import Ketch, Server
from bench.model import BenchError, Run, Sample, Target
from bench.processes import await_quiet
from bench.scenarios.backlog import fill
from bench.scenarios.base import Scenario
from bench.scenarios.throughput import timed
from ketch.append_module.library import loadable
from ketch.embedded.valkey import server_binary

_TOPICS = 1000
_BIG, _ENTRY = 1_000_000, 1000  # entries of a kilobyte: 1.1 GB
_WITH_TOPICS, _WITH_BACKLOG = f"start with {_TOPICS:,} topics", "restart with a 1 GB append-only file"
_LOGS = (1_000_000, 10_000_000)
# What the append-only file is made of -> Valkey's auto-aof-rewrite-percentage (100 is its default) while it is written.
# One million records are below auto-aof-rewrite-min-size, so their file is the same either way.
_FILES = {"rewritten as it doubles": 100, "never rewritten": 0}
_REWRITE_SECONDS = 120.0
_LOAD_SECONDS = 600.0


def _with_log(records: int, files: str) -> str:
    return f"restart with {records // 1_000_000} million records, {files}"


class Startup(Scenario):
    """On brokers of their own, which are stopped by SIGTERM."""

    name: ClassVar[str] = "startup"
    title: ClassVar[str] = "Start"
    note: ClassVar[str] = (
        "From the start of the process until a client has the metadata of every topic. Restarts with a log of 100-byte "
        "records, which kcat sent, also start a valkey-server alone (client valkey-server), with the append module, on "
        'the same files, until it answers PING. "Rewritten as it doubles": by the rule of Valkey, '
        "which writes a base file from 512 MB on whenever the rest has grown as large. "
        '"Never rewritten": Valkey runs every append again.'
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch")
    targets: ClassVar[tuple[Target, ...]] = (
        Target("ketch", "seconds", most=2.0, loads=_WITH_TOPICS),
        *(
            Target(
                name,
                "seconds",
                loads="restart with * million records, *",
                clients="confluent",
                to_client="valkey-server",
            )
            for name in contestants
        ),
    )

    def labels(self, contestant: str) -> list[str]:
        restarts = [f"{_with_log(records, files)}/confluent" for records in _LOGS for files in _FILES]
        own = [f"{_WITH_TOPICS}/confluent", f"{_WITH_BACKLOG}/confluent"] if contestant == "ketch" else []
        return own + restarts

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        assert isinstance(server, Ketch)
        asked = [label for label in self.labels(server.name) if run.wants(label)]
        if f"{_WITH_TOPICS}/confluent" in asked:
            with type(server)() as own:
                own.create(*(f"topic-{i}" for i in range(_TOPICS)))
                yield Sample(_WITH_TOPICS, "confluent", "seconds", _again(own, _TOPICS))
        if f"{_WITH_BACKLOG}/confluent" in asked:
            with type(server)() as own:
                own.create("big")
                tools.raw(own, "produce", "korvet:stream:big:0", run.count(_BIG), _ENTRY)
                yield Sample(_WITH_BACKLOG, "confluent", "seconds", _again(own, 1))
        for records in _LOGS:
            for files, percentage in _FILES.items():
                load = _with_log(records, files)
                if f"{load}/confluent" in asked:
                    ketch, valkey = _restart_with_log(server, records, percentage, run)
                    yield Sample(load, "confluent", "seconds", ketch)
                    yield Sample(load, "valkey-server", "seconds", valkey)


def _restart_with_log(server: Ketch, records: int, percentage: int, run: Run) -> tuple[float, float]:
    """Seconds of a restart of Ketch, and of a Valkey alone on its files."""
    with type(server)() as own:
        own.create("log")
        own.store().config_set("auto-aof-rewrite-percentage", percentage)
        fill(own, "log", records, run)
        await_quiet(own.pid, _REWRITE_SECONDS)
        own.halt()
        # The Valkey alone goes first: the one under Ketch may rewrite the file later.
        valkey = timed(lambda: _load(own))
        return _again(own, 1), valkey


def _load(own: Ketch) -> None:
    """Runs a Valkey alone on a stopped Ketch's append-only file until it answers."""
    path = own.data / "plain.sock"
    options = {"dir": own.data, "port": 0, "unixsocket": path, "save": "", "appendonly": "yes"}
    options["auto-aof-rewrite-percentage"] = 0
    if (module := loadable()) is not None:
        options["loadmodule"] = module
    command = [server_binary(), *(str(word) for name, value in options.items() for word in (f"--{name}", value))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _LOAD_SECONDS
        while not _answers(path.as_posix()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError("valkey-server did not load the file of Ketch's Valkey")
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()


def _answers(path: str) -> bool:
    with suppress(redis.RedisError), redis.Redis(unix_socket_path=path) as client:
        return bool(client.ping())
    return False


def _again(server: Ketch, topics: int) -> float:
    server.halt()

    def start() -> None:
        server.start()
        found = len(server.admin().list_topics(timeout=60).topics)
        if found != topics:
            raise BenchError(f"{found} topics came back, not {topics}")

    return timed(start)
