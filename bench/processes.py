"""CPU time and memory of a server's processes, read from /proc (Linux), and what comes before a measurement."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_QUIET_SHARE = 0.03
_QUIET_SECONDS = 0.15
_GROWTH = 1 << 30  # bytes: what the largest load makes a server and its page cache take


@dataclass(slots=True)
class Usage:
    """What a server used during a `watch` block; complete when the block has ended."""

    cpu: float = 0.0  # seconds
    peak: int = 0  # bytes resident at most, summed over the processes
    seconds: float = 0.0


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of the processes since their start, with that of children that have ended."""
    return sum(_own_cpu(pid) + _waited_cpu(pid) for pid in pids)


def _own_cpu(pid: int) -> float:
    with suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)  # a process's CPU clock (clock_getcpuclockid(3)), in nanoseconds
    return 0.0


def _waited_cpu(pid: int) -> float:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[13]) + int(words[14])) / _TICK  # cutime, cstime
    return 0.0


def resident(pids: list[int], name: str = "VmRSS") -> int:
    """Bytes; VmHWM is the peak since the process began or `forget_peaks`."""
    return sum(_status(pid, name) for pid in pids)


def _status(pid: int, name: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def forget_peaks(pids: list[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


@contextmanager
def watch(pid: int) -> Iterator[Usage]:
    """Measures the tree below `pid` while the block runs."""
    pids, usage = tree(pid), Usage()
    forget_peaks(pids)
    begin, before = time.monotonic(), cpu_seconds(pids)
    yield usage
    usage.seconds = time.monotonic() - begin
    usage.cpu = cpu_seconds(pids) - before
    usage.peak = resident(pids, "VmHWM")


def await_quiet(pid: int, seconds: float = 3.0) -> None:
    """Waits, at most `seconds`, until the tree has nearly finished deletions, rewrites and compilation."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with watch(pid) as usage:
            time.sleep(_QUIET_SECONDS)
        if usage.cpu < _QUIET_SHARE * usage.seconds:
            return


def settle(pid: int) -> None:
    """Before a load that makes the server's memory or files grow: `await_quiet`; then a gigabyte is used and freed.

    A virtual machine may get a page from its host only when the page is first used. That took up to 8 us a page, more
    than storing what is in it. With pages that were used a moment ago whoever is measured pays less for that.
    """
    await_quiet(pid)
    with mmap.mmap(-1, _GROWTH) as memory:
        for page in range(0, _GROWTH, mmap.PAGESIZE):
            memory[page] = 1
