"""The programs that put the load on; each timed from start to exit, or from its first record where it is Python's."""

from __future__ import annotations

import functools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import redis

from bench.model import BenchError, Client, Endpoint, Scenario

_HERE = Path(__file__).parent
_TIMEOUT = 300.0
_PAGE = 5000  # PAGE in raw.c
_ALPHABET = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"


def _run(command: list[str], output: int = subprocess.PIPE) -> str:
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, timeout=_TIMEOUT, check=False)
    if done.returncode:
        raise BenchError(f"{command[0]} exited with {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
    return (done.stdout or b"").decode()


def _expect(at: Endpoint, stream: str, count: int) -> None:
    with redis.Redis(unix_socket_path=str(at.redis)) as connection:
        there = connection.xlen(stream)
    if there != count:
        raise BenchError(f"{stream} holds {there} records instead of {count}")


class Raw:
    """XADD pipelined and XRANGE paged by a small C program, or by redis-benchmark where there is no C compiler."""

    name = "raw"
    contestant = "valkey"

    def run(self, at: Endpoint, scenario: Scenario, target: str) -> float:
        load = self._driver if shutil.which("cc") else self._redis_benchmark
        seconds = load(at, scenario, target)
        if scenario.verb == "produce":
            _expect(at, target, scenario.count)
        return seconds

    def _driver(self, at: Endpoint, scenario: Scenario, target: str) -> float:
        size = [str(scenario.size)] if scenario.verb == "produce" else []
        return float(_run([_raw_driver(), scenario.verb, str(at.redis), target, str(scenario.count), *size]))

    def _redis_benchmark(self, at: Endpoint, scenario: Scenario, target: str) -> float:
        """Slower, and reads the first page again and again."""
        if scenario.verb == "produce":
            words = ["XADD", target, "*", "value", "x" * scenario.size, "timestamp", str(time.time_ns() // 1_000_000)]
            requests, pipeline = scenario.count, min(1000, scenario.count)
        else:
            words, pipeline = ["XRANGE", target, "-", "+", "COUNT", str(_PAGE)], 1
            requests = -(-scenario.count // _PAGE)
        command = ["redis-benchmark", "-s", str(at.redis), "-c", "1", "-q", "-n", str(requests), "-P", str(pipeline)]
        begin = time.monotonic()
        _run([*command, *words])
        return time.monotonic() - begin


@functools.cache
def _home() -> tempfile.TemporaryDirectory[str]:
    """For what is made once and used in every round; goes with this process."""
    return tempfile.TemporaryDirectory(prefix="ketch-bench-")


@functools.cache
def _raw_driver() -> str:
    program = f"{_home().name}/raw"
    _run(["cc", "-O2", "-o", program, str(_HERE / "raw.c")])
    return program


@functools.cache
def _lines(size: int, count: int) -> Path:
    """A file of `count` lines of `size` bytes, a thousand different ones in turn."""
    path = Path(_home().name) / f"{size}-{count}"
    source = random.Random(size)
    block = [bytes(source.choices(_ALPHABET, k=size)) + b"\n" for _ in range(1000)]
    with path.open("wb") as file:
        for start in range(0, count, len(block)):
            file.write(b"".join(block[: count - start]))
    return path


class Kcat:
    """kcat with librdkafka's defaults. Its time is the whole process's, connecting included."""

    name = "kcat"
    contestant = "ketch"

    def run(self, at: Endpoint, scenario: Scenario, target: str) -> float:
        where = ["kcat", "-b", at.kafka, "-t", target, "-p", "0", "-q"]
        if scenario.verb == "produce":
            command = [*where, "-P", "-l", str(_lines(scenario.size, scenario.count))]
        else:
            command = [*where, "-C", "-o", "beginning", "-c", str(scenario.count)]
        begin = time.monotonic()
        _run(command, subprocess.DEVNULL)
        seconds = time.monotonic() - begin
        if scenario.verb == "produce":
            _expect(at, _stream(target), scenario.count)
        return seconds


def _stream(topic: str) -> str:
    return f"korvet:stream:{topic}:0"


class Confluent:
    """confluent-kafka (librdkafka under Python), a process that times itself."""

    name = "confluent"
    contestant = "ketch"

    def run(self, at: Endpoint, scenario: Scenario, target: str) -> float:
        words = [scenario.verb, at.kafka, target, str(scenario.count), str(scenario.size)]
        seconds: float = json.loads(_run([sys.executable, str(_HERE / "confluent_client.py"), *words]))["seconds"]
        if scenario.verb == "produce":
            _expect(at, _stream(target), scenario.count)
        return seconds


CLIENTS: tuple[Callable[[], Client], ...] = (Raw, Kcat, Confluent)
