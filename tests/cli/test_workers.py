"""`ketch serve --workers`: what the starting process learns of its workers, and what their log says."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from ketch.cli.serving.report import VARIABLE, Ready, Reporter, Reports
from ketch.errors import KetchError
from tests.support.ketch import KetchServer, eventually


def worker(monkeypatch: pytest.MonkeyPatch) -> tuple[int, Reporter]:
    """A reporter as a worker finds it, and the number of the pipe's other end."""
    ours, theirs = os.pipe()
    monkeypatch.setenv(VARIABLE, str(theirs))
    reporter = Reporter.of_environment()
    assert reporter is not None
    assert VARIABLE not in os.environ
    assert not os.get_inheritable(theirs)
    return ours, reporter


async def told(fd: int) -> tuple[Ready | None, int]:
    """What a worker says first, and how many brokers it knows then."""
    reports = Reports(fd)
    ready = await reports.first()
    while not reports.brokers:
        await asyncio.sleep(0)
    return ready, reports.brokers


def test_what_a_worker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, reporter = worker(monkeypatch)
    ready = Ready("[::1]:9092", "[::1]:8080")
    reporter.ready(ready)
    reporter.brokers(2)
    assert asyncio.run(told(ours)) == (ready, 2)
    ours, reporter = worker(monkeypatch)
    reporter.failed("Cannot listen.")
    with pytest.raises(KetchError, match=r"^Cannot listen\.$"):
        asyncio.run(told(ours))


def test_a_worker_that_ends_without_a_word() -> None:
    ours, theirs = os.pipe()
    os.close(theirs)
    assert asyncio.run(Reports(ours).first()) is None


def test_a_worker_whose_parent_was_told_to_end_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, reporter = worker(monkeypatch)
    os.close(ours)
    reporter.ready(Ready("[::1]:9092", None))


def test_no_worker() -> None:
    assert Reporter.of_environment() is None


def test_log_lines_name_the_worker_and_the_signal(start_ketch: Callable[..., KetchServer]) -> None:
    server = start_ketch("--workers", "2")
    line = r"INFO (worker \d) ketch\.broker\.coordination\.cluster: brokers: 1 at"
    eventually(lambda: len(set(re.findall(line, server.log))) == 2)
    assert server.stop(signal.SIGINT, timeout=30.0) == 0
    assert re.findall(r"INFO (\S+: SIG\w+): finishing", server.log) == ["ketch: SIGINT"]
    assert server.log.count("stopped\n") == 1
    assert "Traceback" not in server.log


def test_why_a_worker_cannot_start(tmp_path: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "ketch", "serve", "--workers", "2", "--port", str(port - 1)]
        done = subprocess.run(command, cwd=str(tmp_path), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if not line.startswith("20")]
    (line,) = lines
    assert re.fullmatch(
        rf"ketch: Worker \d: Cannot listen on 127\.0\.0\.1:({port}|{port - 1}): .* choose another\.", line
    )
