"""Which processes there are (Linux)."""

from __future__ import annotations

import contextlib
from pathlib import Path


def processes(session: int) -> dict[int, tuple[int, bytes]]:
    """Parent and command of each living process of a session."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found[int(entry.name)] = int(fields[1]), (entry / "cmdline").read_bytes()
    return found
