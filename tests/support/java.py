"""The Java clients in one JVM that a test session keeps: compiled once from tests/clients/java, cached by content."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from tests.support.cache import kept, loaded_classes, maven, missing, run
from tests.support.ketch import KetchServer

SOURCE = Path(__file__).parents[1] / "clients" / "java"


class JavaError(Exception):
    """What the Java client threw; `kind` is its class's simple name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def missing_tools() -> str | None:
    """Why the Java clients can't be had here, for a test's skip reason; None where they can."""
    return missing("java", "javac", "mvn", why="the Java clients come through Maven")


def compiled() -> Path:
    """The project's directory in the cache, with `target/clients.jar` and `target/libs`."""
    files = sorted(path for path in SOURCE.rglob("*") if path.is_file() and "target" not in path.parts)

    def build(home: Path) -> None:
        shutil.copytree(SOURCE, home, dirs_exist_ok=True)
        maven(home, "compile", "dependency:copy-dependencies", f"-DoutputDirectory={home / 'target' / 'libs'}")
        run(home / "target", "jar", "--create", "--file", "clients.jar", "-C", "classes", ".")

    return kept("java", build, b"clients.jar", *(path.read_bytes() for path in files))


def command(main: str, heap: str = "96M") -> list[str]:
    """What runs a class of the project."""
    home = compiled()
    options = [f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    classes = ["-cp", f"{home / 'target' / 'clients.jar'}:{home / 'target' / 'libs'}/*"]

    def train(archive: str) -> None:
        _read_once(["java", *options, archive, *classes, "ketch.Member"])

    return ["java", *options, loaded_classes("java", train, home.name.encode()), *classes, main]


def _read_once(member: list[str]) -> None:
    """Runs a member of a group until it has read a record and committed."""
    with TemporaryDirectory() as directory:
        server = KetchServer(Path(directory)).start()
        try:
            producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
            producer.produce("topic", b"0:0")
            assert producer.flush(20) == 0
            arguments = [server.bootstrap, "group", "topic", "range"]
            with subprocess.Popen(
                [*member, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as running:
                assert running.stdout is not None
                assert any(line == "committed\n" for line in running.stdout)
                running.communicate(timeout=60)
        finally:
            server.stop()


class JavaDriver:
    """A running tests/clients/java; a context manager. Takes one command at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            command("ketch.Driver", "256M"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
