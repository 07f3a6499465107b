"""Runs kafka-python's own integration tests, from its source distribution, against a Ketch; prints the counts.

    python -m tests.compat.kafka_python_suite [--offset-ids dense|time] [--cluster] [--against HOST:PORT] [arguments]

Without --offset-ids both are run, each on a broker of its own; with --cluster its log is in a Redis Cluster of three
masters. Other arguments are pytest's. README.md says what fails, and why. The distribution
comes through pip once and stays in the cache (`KETCH_TEST_CACHE`, by default `~/.cache/ketch-tests`).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from tests.support import cache
from tests.support.ketch import KetchServer

KAFKA_VERSION = "4.1.0"  # which of its tests apply, and the API versions it takes for granted
PARTITIONS = 4  # of the topics that its tests expect to be created for them
SESSION_MS = 3000  # of its test_group; Kafka as well refuses less than 6000 by default
TEST_SECONDS = 60

# Its fixtures import this module, which the distribution lacks: it starts Kafka, which is running here.
SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self): pass
    def stop(self): pass
    def dump_logs(self): pass


class SpawnedService:
    def __init__(self, *_, **__):
        raise RuntimeError("nothing is started here: KAFKA_URI names the broker")
"""

# A limit per test without a further package; the process's own output stays readable.
CONFTEST = f"""\
import signal

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    def give_up(*_):
        raise TimeoutError("{TEST_SECONDS} s are over")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm({TEST_SECONDS})
    try:
        return (yield)
    finally:
        signal.alarm(0)
"""


def suite() -> Path:
    """The unpacked tests, made ready, in the cache. The version is that of the installed kafka-python.

    Raises:
        RuntimeError: pip could not fetch it.
    """
    version = importlib.metadata.version("kafka-python")
    return cache.kept(f"kafka-python-{version}", lambda home: _fetch(home, version), SERVICE.encode())


def _fetch(home: Path, version: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    cache.run(home, *command, f"kafka-python=={version}")
    (archive,) = home.glob("kafka_python-*.tar.gz")
    with tarfile.open(archive) as tar:
        members = [member for member in tar.getmembers() if "/test/" in member.name]
        for member in members:
            member.name = member.name.partition("/")[2]
        tar.extractall(home, members, filter="data")
    (home / "test" / "service.py").write_text(SERVICE)
    (home / "test" / "__init__.py").touch()
    (home / "conftest.py").write_text(CONFTEST)
    (home / "bin").mkdir(exist_ok=True)


def run(bootstrap: str, arguments: list[str]) -> tuple[Counter[str], list[str]]:
    """How many tests passed, failed and were skipped, and a line for each that did not pass."""
    home = suite()
    env = {**os.environ, "KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": KAFKA_VERSION, "KAFKA_ROOT": str(home)}
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--rootdir={home}",
            f"-c{os.devnull}",
        ]
        command += [f"--junit-xml={report}", "test/integration", *arguments]
        done = subprocess.run(command, cwd=home, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if not report.exists():
            raise RuntimeError(f"kafka-python's tests did not run:\n{done.stdout[-2000:]}")
        return _read(report)


def _read(report: Path) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    failures = []
    for case in ET.parse(report).iter("testcase"):
        problem = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        kind = {"failure": "failed", "error": "failed", "skipped": "skipped"}.get(getattr(problem, "tag", ""), "passed")
        counts[kind] += 1
        if problem is not None:
            said = re.sub(r"\s+", " ", problem.get("message") or "")[:160]
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            failures.append(f"{kind} {name}: {said}")
    return counts, failures


def against_ketch(offset_ids: str, arguments: list[str], clustered: bool = False) -> Counter[str]:
    """Starts a broker, runs the suite on it, prints what came out; the counts."""
    with tempfile.TemporaryDirectory(prefix="ketch-compat-") as directory:
        settings = ["--default-partitions", str(PARTITIONS), "--default-offset-ids", offset_ids]
        settings += ["--group-min-session-timeout-ms", str(SESSION_MS)]
        server = KetchServer(Path(directory), *settings, clustered=clustered)
        try:
            name = f"offset.ids={offset_ids}{', on a cluster' if clustered else ''}"
            counts = show(name, server.start().bootstrap, arguments)
        finally:
            if server.process is not None:
                server.stop()
            server.close()
    return counts


def show(name: str, bootstrap: str, arguments: list[str]) -> Counter[str]:
    counts, failures = run(bootstrap, arguments)
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{name}: {counts['passed']} of {counts.total()} passed{skipped}", flush=True)
    for line in failures:
        print(f"  {line}", flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description="Run kafka-python's integration tests against Ketch.")
    parser.add_argument("--offset-ids", choices=["dense", "time"])
    parser.add_argument("--cluster", action="store_true", help="on a Redis Cluster")
    parser.add_argument("--against", metavar="HOST:PORT", help="a broker that runs already, Apache Kafka say")
    options, arguments = parser.parse_known_args()
    if options.against:
        show(options.against, options.against, arguments)
        return
    for offset_ids in [options.offset_ids] if options.offset_ids else ["dense", "time"]:
        against_ketch(offset_ids, arguments, options.cluster)


if __name__ == "__main__":
    main()
