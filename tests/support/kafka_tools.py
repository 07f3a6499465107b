"""Kafka's command-line tools in one JVM that a test module keeps: Tools.java."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka import LOG4J, libraries, short_run
from tests.support.cache import kept, run

_SOURCE = Path(__file__).with_name("Tools.java")


class KafkaTools:
    """A running JVM; a context manager. It runs one tool at a time.

    Args:
        directory: for the configuration of its log.
        options: of the JVM.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        command = [*_java(directory), *options, "Tools"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, tool: str, *arguments: str, given: str = "") -> tuple[int, str]:
        """Exit code and output of a tool, by its class, of Scala's or behind org.apache.kafka.tools.

        Args:
            given: on its standard input.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\t".join([_main_class(tool), base64.b64encode(given.encode()).decode(), *arguments]) + "\n")
        stdin.flush()
        code, _, printed = stdout.readline().rstrip("\n").partition(" ")
        if not code:  # it has called System.exit itself, as argparse4j does for options that cannot be
            raise EOFError(f"{tool} ended the JVM: {arguments}")
        return int(code), base64.b64decode(printed).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()


def run_alone(directory: Path, tool: str, *arguments: str) -> str:
    """What a tool prints that ends in good order, in a JVM of its own: some print their result when their JVM ends."""
    command = [*_java(directory), _main_class(tool), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout


def _java(directory: Path) -> list[str]:
    log4j = directory / "log4j2.properties"
    log4j.write_text(LOG4J)
    log = [f"-Dlog4j2.configurationFile={log4j}", "-Dkafka.log=/dev/null"]
    return ["java", "-Xmx256M", *short_run(), *log, "-cp", f"{libraries()}/*:{_compiled()}"]


def _compiled() -> Path:
    """A jar with the class of Tools.java."""

    def build(home: Path) -> None:
        run(home, "javac", "-cp", f"{libraries()}/*", "-d", "classes", str(_SOURCE))
        run(home, "jar", "--create", "--file", "tools.jar", "-C", "classes", ".")

    return kept("kafka-tools", build, _SOURCE.read_bytes()) / "tools.jar"


def _main_class(tool: str) -> str:
    return tool if tool.startswith("kafka.") else f"org.apache.kafka.tools.{tool}"
