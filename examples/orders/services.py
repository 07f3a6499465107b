"""What the example starts beside the job: a broker, its topics, and with --cluster a small Spark cluster."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = ("orders", "customers", "orders.clean", "orders.dead-letter", "revenue")
_READY = re.compile(r"ketch ready: kafka (?P<kafka>[\d.]+:\d+), redis .*?(?P<redis>127\.0\.0\.1:\d+)")
_REGISTERED = re.compile("Successfully registered with master")
_START_S = 60.0


class Failure(Exception):
    """What went wrong, in a sentence."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a running broker and its Redis are."""

    bootstrap: str
    redis: str


def require_java() -> None:
    """Raises Failure where Spark would find no Java."""
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and os.access(Path(home) / "bin" / "java", os.X_OK))):
        raise Failure("Spark needs Java 17 or later: install a JRE (openjdk-17-jre-headless), or set JAVA_HOME.")


def require_packages() -> None:
    """Raises Failure where a package of the job or its chart is missing, before the run rather than at its end."""
    if missing := [name for name in ("pyspark", "pyiceberg", "matplotlib") if importlib.util.find_spec(name) is None]:
        raise Failure(f"{' and '.join(missing)} missing: run make pipeline, or pip install 'ketch[charts,spark]'.")


@contextmanager
def broker(home: Path) -> Iterator[Broker]:
    """`ketch serve` on free ports, with its data in `home/data`."""
    command = [sys.executable, "-m", "ketch", "serve", "--port", "0", "--data-dir", str(home / "data")]
    with _process(command, home / "ketch.log", _READY) as match:
        yield Broker(match["kafka"], f"redis://{match['redis']}")


def create_topics(bootstrap: str, names: Sequence[str], partitions: int) -> None:
    """Topics with offsets that count records, as Kafka's do."""
    topics = [NewTopic(name, partitions, config={"offset.ids": "dense"}) for name in names]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(topics).values():
        future.result(30)


@contextmanager
def cluster(home: Path, workers: int = 2) -> Iterator[str]:
    """A standalone master and workers of one core each, from the Spark that pip installed; the master's URL."""
    spark = "org.apache.spark.deploy"
    port = str(_free_port())
    url, spark_class = f"spark://127.0.0.1:{port}", str(Path(sys.executable).parent / "spark-class")
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    with _process(
        [spark_class, f"{spark}.master.Master", "--port", port, *local],
        home / "master.log",
        re.compile(rf"Starting Spark master at {url}"),
    ):
        yield from _with_workers(home, url, [spark_class, f"{spark}.worker.Worker", *local], workers)


def _with_workers(home: Path, url: str, command: list[str], count: int) -> Iterator[str]:
    if count == 0:
        yield url
        return
    where = ["--cores", "1", "--memory", "1g", "--work-dir", str(home / f"worker-{count}")]
    with _process([*command, *where, url], home / f"worker-{count}.log", _REGISTERED):
        yield from _with_workers(home, url, command, count - 1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _process(command: list[str], log: Path, ready: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Runs a server while the block runs; it is ready when its log says so.

    It gets no Ctrl-C of its own (a new session): it is to be there until the job has stopped.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield _await(process, log, ready)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], log: Path, ready: re.Pattern[str]) -> re.Match[str]:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        match = ready.search(log.read_text(errors="replace"))
        if match:
            return match
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise Failure(f"{Path(process.args[0]).name} did not start: see {log}.")  # type: ignore[index]
