"""Which processes there are that have not ended (Linux)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    command: bytes


def _processes() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    command = (entry / "cmdline").read_bytes()
                    yield Process(int(entry.name), int(fields[1]), int(fields[3]), command)


def children_of(parent: int) -> list[Process]:
    """By process id."""
    return sorted(process for process in _processes() if process.parent == parent)


def session_of(leader: int) -> list[Process]:
    """By process id."""
    return sorted(process for process in _processes() if process.session == leader)
