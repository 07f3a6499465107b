"""The client programs: where each comes from, how it is run, and how its output is read."""

from __future__ import annotations

import functools
import json
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.contestants import Ketch
from bench.model import BenchError, Unavailable, home
from tests.support import java
from tests.support.cache import jars, missing

CLIENTS = Path(__file__).parent / "clients"
TIMEOUT = 120.0
# Kafka's own performance tools; 4.2 is the first whose ProducerPerformance knows --warmup-records (KIP-1052).
KAFKA_TOOLS = "4.2.0"


def run(
    command: list[str],
    output: int = subprocess.PIPE,
    timeout: float = TIMEOUT,
    environment: dict[str, str] | None = None,
) -> str:
    """Runs a program and returns its standard output.

    Raises:
        BenchError: the program failed or took longer than `timeout` seconds.
    """
    try:
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.PIPE, timeout=timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{Path(command[0]).name} did not end within {timeout:.0f} s: {_short(command)}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise BenchError(f"{_short(command)} exited with {done.returncode}: {said}")
    return (done.stdout or b"").decode()


def _short(command: list[str]) -> str:
    return " ".join(Path(word).name for word in command)[-200:]


def python(program: str, **options: Any) -> Any:
    """Runs a program of bench/clients with its options as JSON; returns what it printed, which is JSON too."""
    return json.loads(run(python_command(program, **options)))


def python_command(program: str, **options: Any) -> list[str]:
    return [sys.executable, str(CLIENTS / f"{program}.py"), json.dumps(options)]


# ---------------------------------------------------------------------------------------------------------------- raw


def raw(server: Ketch, verb: str, stream: str, count: int, size: int = 0) -> float:
    """Seconds for `count` entries of `size` bytes: XADD with many in flight, or XRANGE page by page."""
    sizes = [str(size)] if verb == "produce" else []
    return float(run([_raw_driver(), verb, str(server.redis), stream, str(count), *sizes]))


@functools.cache
def _raw_driver() -> str:
    if not shutil.which("cc"):
        raise Unavailable("cc is missing: raw Redis commands are put by a C program")
    program = str(home() / "raw")
    run(["cc", "-O2", "-o", program, str(CLIENTS / "raw.c")])
    return program


# --------------------------------------------------------------------------------------------------------------- kcat


@functools.cache
def lines(size: int, count: int) -> Path:
    """A file of `count` lines, generated orders of `size` bytes; lines repeat after a megabyte, a batch's size."""
    path = home() / f"{size}-{count}"
    source = random.Random(size)
    block = [_line(source, size) for _ in range(max(1, 1_000_000 // size))]
    with path.open("wb") as file:
        for start in range(0, count, len(block)):
            file.write(b"".join(block[: count - start]))
    return path


def _line(source: random.Random, size: int) -> bytes:
    line = b""
    while len(line) < size:
        line += b'{"order":%d,"customer":"c%05d","item":"%s","price":%.2f}' % (
            source.randrange(10**9),
            source.randrange(20_000),
            source.choice([b"anchor", b"bell", b"cleat", b"davit", b"ensign", b"fender", b"gaff", b"halyard"]),
            source.random() * 100,
        )
    return line[:size] + b"\n"


def kcat_produce(
    bootstrap: str,
    topic: str,
    size: int,
    count: int,
    compression: str = "",
    partition: int = 0,
    options: Sequence[str] = (),
) -> None:
    """`options` are further words of kcat's command line."""
    codec = ["-z", compression] if compression else []
    run([*_kcat(bootstrap, topic, partition), *codec, *options, "-P", "-l", str(lines(size, count))])


def kcat_consume(bootstrap: str, topic: str, count: int, options: Sequence[str] = ()) -> None:
    run([*kcat_consumer(bootstrap, topic, count), *options], subprocess.DEVNULL)


def kcat_consumer(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[str]:
    return [*_kcat(bootstrap, topic, partition), "-C", "-o", "beginning", "-c", str(count)]


def _kcat(bootstrap: str, topic: str, partition: int) -> list[str]:
    if not shutil.which("kcat"):
        raise Unavailable("kcat is missing")
    return ["kcat", "-b", bootstrap, "-t", topic, "-p", str(partition), "-q"]


def kcat_consumers(bootstrap: str, topic: str, count: int, consumers: int) -> float:
    """Seconds until every one of `consumers` has read `count` records of a partition of its own."""
    commands = [kcat_consumer(bootstrap, topic, count, partition) for partition in range(consumers)]
    begin = time.monotonic()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    try:
        codes = [process.wait(TIMEOUT) for process in running]
    except subprocess.TimeoutExpired:
        raise BenchError(f"{consumers} consumers of {topic} did not end within {TIMEOUT:.0f} s") from None
    finally:
        for process in running:
            process.kill()
    if any(codes):
        raise BenchError(f"consumers of {topic} exited with {codes}")
    return time.monotonic() - begin


# --------------------------------------------------------------------------------------------------------------- Java


@functools.cache
def java_tools() -> Path:
    """The directory of the jars of Kafka's own tools, fetched through Maven once."""
    if reason := missing("java", "mvn", why="Kafka's performance tools come through Maven"):
        raise Unavailable(reason)
    try:
        return jars(f"kafka-tools-{KAFKA_TOOLS}", (f"org.apache.kafka:kafka-tools:{KAFKA_TOOLS}",))
    except RuntimeError as error:
        raise Unavailable(str(error)) from None


def java_command(tool: str, *arguments: object) -> list[str]:
    java = ["java", "-Xms256M", "-Xmx512M", "-cp", f"{java_tools()}/*", f"org.apache.kafka.tools.{tool}"]
    return [*java, *(str(argument) for argument in arguments)]


_SENT = re.compile(
    r"(?P<count>\d+) records sent, (?P<rate>[\d.]+) records/sec .*?"
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th"
)


def producer_performance(
    bootstrap: str, topic: str, size: int, count: int, throughput: int = -1, warmup: int = 0, transaction_ms: int = 0
) -> dict[str, float]:
    """rate (records/s), p50, p99, p99.9 (ms) of the `count` records that follow `warmup` uncounted ones.

    Args:
        transaction_ms: how long its transactions last; 0 for none.
    """
    arguments = ["--topic", topic, "--num-records", count + warmup, "--record-size", size, "--throughput", throughput]
    arguments += ["--warmup-records", warmup] if warmup else []
    arguments += ["--transaction-duration-ms", transaction_ms] if transaction_ms else []
    said = run(java_command("ProducerPerformance", "--bootstrap-server", bootstrap, *arguments))
    found = list(_SENT.finditer(said))
    if not found:
        raise BenchError(f"ProducerPerformance gave no result: {said[-300:]}")
    last = found[-1]
    names = {"rate": "rate", "p50": "p50", "p99": "p99", "p99.9": "p999"}
    return {name: float(last[group]) for name, group in names.items()}


def consumer_performance(bootstrap: str, topic: str, count: int) -> float:
    """Records per second from the assignment on."""
    arguments = ["--topic", topic, "--messages", count, "--timeout", 30_000, "--hide-header"]
    said = run(java_command("ConsumerPerformance", "--bootstrap-server", bootstrap, *arguments))
    rows = [line.split(", ") for line in said.splitlines() if line.count(", ") == 9]
    if not rows or int(rows[-1][4]) < count:
        raise BenchError(f"ConsumerPerformance did not read {count} records: {said[-300:]}")
    return int(rows[-1][4]) / (int(rows[-1][7]) / 1000)


@contextmanager
def share_workers(bootstrap: str, group: str, topic: str, members: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """Members of a share group that are to acknowledge `count` records between them; see ShareWorkers.java."""
    if reason := java.missing_tools():
        raise Unavailable(reason)
    home = java.compiled() / "target"
    command = ["java", "-Xmx512M", "-cp", f"{home / 'clients.jar'}:{home / 'libs'}/*", "ketch.ShareWorkers"]
    command += [bootstrap, group, topic, str(members), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        alarm = threading.Timer(TIMEOUT, process.kill)
        alarm.start()
        try:
            yield process
        finally:
            alarm.cancel()
            process.kill()


_AVERAGE = re.compile(r"Percentiles: 50th = (\S+), 99th = (\S+), 99\.9th = (\S+)")


def end_to_end(bootstrap: str, topic: str, count: int, size: int, config: Path | None = None) -> dict[str, float]:
    """p50, p99, p99.9 (ms) of `count` records with acks=all, each sent when the one before has been read.

    Args:
        config: a file with further properties of its clients.
    """
    words = [bootstrap, topic, count, "all", size, *([config] if config else [])]
    said = run(java_command("EndToEndLatency", *words))
    found = _AVERAGE.search(said)
    if not found:
        raise BenchError(f"EndToEndLatency gave no result: {said[-300:]}")
    return dict(zip(("p50", "p99", "p99.9"), (float(word) for word in found.groups()), strict=True))


# --------------------------------------------------------------------------------------------------------- background


@contextmanager
def background(program: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Runs a program of bench/clients while the block runs: from its line "ready" until its stdin is closed.

    Raises:
        BenchError: the program ended before that line, or failed.
    """
    command = python_command(program, **options)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(TIMEOUT, process.kill)  # a program that hangs must not stop the run
        alarm.start()
        try:
            if process.stdout.readline().strip() != "ready":
                raise BenchError(f"{program} did not get ready")
            yield process
            process.stdin.close()
            if process.wait(TIMEOUT):
                raise BenchError(f"{program} exited with {process.returncode}")
        finally:
            alarm.cancel()
            process.kill()


@contextmanager
def meanwhile(work: Callable[[], object], seconds: float) -> Iterator[None]:
    """Calls `work` every `seconds` in another thread while the block runs."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
