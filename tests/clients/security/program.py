"""A client program of this room, running: it takes an order as a JSON line and answers with one.

README.md has the orders. The folder's `client.toml` says how it is built and started, as in the matrix beside it; this
module owns the process and knows no broker. An order that is not answered in time is an AssertionError, for no client
may hang.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients.matrix.client import Client, load

HERE = Path(__file__).parent
ANSWER_S = 60.0  # of an order: every client of this room gives up earlier by itself


class Refused(Exception):
    """What the client said of an order that it could not carry out.

    Attributes:
        kind: the class of its error, or what it has in the place of one.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Program:
    """A running client.

    Attributes:
        version: of the library.
    """

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.version = str(self._next()["version"])

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line)
        self._said.put(None)

    def _next(self) -> dict[str, Any]:
        try:
            line = self._said.get(timeout=ANSWER_S)
        except queue.Empty:
            self._process.kill()  # its next answer would be to this order
            raise AssertionError(f"{self.name} did not answer within {ANSWER_S:g} s") from None
        assert line is not None, f"{self.name} ended with {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, order: str, session: str, **given: Any) -> dict[str, Any]:
        """The answer.

        Raises:
            Refused: the client could not do it.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": order, "session": session, **given}) + "\n")
        self._process.stdin.flush()
        answer = self._next()
        if "error" in answer:
            raise Refused(str(answer["error"]), str(answer["message"]))
        return answer

    def write(self, session: str, login: dict[str, str], topic: str, value: str) -> None:
        """A record, with the session's producer, which is made with `login` where there is none yet."""
        self.ask("write", session, login=login, topic=topic, value=value)

    def read(self, session: str, login: dict[str, str], topic: str, group: str, count: int) -> list[str]:
        """So many values, with the session's member of a group, which then commits; fewer after some seconds."""
        answer = self.ask("read", session, login=login, topic=topic, group=group, count=count)
        return list(answer["values"])

    def close(self, *sessions: str) -> None:
        for session in sessions:
            self.ask("close", session)


def client(name: str) -> Client:
    """The folder of that name."""
    return load(HERE / name)


@contextmanager
def running(name: str, directory: Path) -> Iterator[Program]:
    """The program of a folder, built where it is not yet; what it says on standard error is in the directory."""
    found = client(name)
    home = found.built()
    with (directory / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            found.command_in(home), cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield Program(name, process)
    finally:
        process.kill()
        process.communicate()
