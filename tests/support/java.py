"""The Java clients in one JVM that a test session keeps: tests/java, compiled once and cached by its content."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.apache_kafka import cache_directory, locked, maven

SOURCE = Path(__file__).parent.parent / "java"


class JavaError(Exception):
    """What the Java client threw; `kind` is its class's simple name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def missing_tools() -> str | None:
    """Why the Java clients can't be had here, for a test's skip reason; None where they can."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"{', '.join(missing)} missing: the Java clients come through Maven" if missing else None


def compiled() -> Path:
    """The project's directory in the cache, with `target/classes` and `target/libs`."""
    files = sorted(path for path in SOURCE.rglob("*") if path.is_file() and "target" not in path.parts)
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]
    home = cache_directory() / f"java-{digest}"
    with locked(home):
        if not (home / ".complete").exists():
            shutil.copytree(SOURCE, home, dirs_exist_ok=True)
            libraries = f"-DoutputDirectory={home / 'target' / 'libs'}"
            maven(home, "compile", "dependency:copy-dependencies", libraries)
            (home / ".complete").touch()
    return home


class JavaDriver:
    """A running tests/java; a context manager. Takes one command at a time."""

    def __init__(self) -> None:
        target = compiled() / "target"
        self._process = subprocess.Popen(
            [
                "java",
                "-Xmx256M",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                f"{target / 'classes'}:{target / 'libs'}/*",
                "ketch.Driver",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, bootstrap: str, **arguments: object) -> list[dict[str, Any]]:
        """The JSON lines of the answer. A `__` in an argument's name stands for a dot: prop__acks=1.

        Raises:
            JavaError: the client threw an exception.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        given = {"bootstrap": bootstrap, **arguments}
        words = (f"{name.replace('__', '.')}={value}" for name, value in given.items())
        stdin.write("\t".join([command, *words]) + "\n")
        stdin.flush()
        answer = []
        for line in stdout:
            item = json.loads(line)
            if item == {"done": True}:
                return answer
            if "error" in item:
                raise JavaError(item["error"], item["message"])
            answer.append(item)
        raise EOFError(f"the Java driver ended with {self._process.wait()}")

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
