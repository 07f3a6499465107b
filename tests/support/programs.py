"""The group members that are not Python, built once and cached by their content, outside the repository."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.support import java
from tests.support.apache_kafka import cache_directory, locked

TESTS = Path(__file__).parent.parent


def missing(*tools: str) -> str | None:
    """Why a program can't be built here, for a test's skip reason; None where it can."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return f"{', '.join(absent)} missing" if absent else None


def java_member() -> list[str]:
    target = java.compiled() / "target"
    options = ["-Xmx96M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return ["java", *options, "-cp", f"{target / 'classes'}:{target / 'libs'}/*", "ketch.Member"]


def go_member() -> list[str]:
    home = _built(TESTS / "go", ["go", "build", "-o", "member", "."])
    return [str(home / "member")]


def node_member() -> list[str]:
    home = _built(TESTS / "node", ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"])
    return ["node", str(home / "member.js")]


def _built(source: Path, command: list[str]) -> Path:
    """A copy of `source` in the cache, in which `command` has been run.

    Raises:
        RuntimeError: with the end of what the command said.
    """
    files = sorted(path for path in source.iterdir() if path.is_file())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]
    home = cache_directory() / f"{source.name}-{digest}"
    with locked(home):
        if not (home / ".complete").exists():
            for file in files:
                shutil.copy(file, home)
            done = subprocess.run(command, cwd=home, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-4000:]}")
            (home / ".complete").touch()
    return home
