"""Brokers that are forked: a process that has imported the broker makes the tests' brokers, each by a fork of itself.

A broker of the tests lives for a second or two, and most of its CPU time would go into imports, which are the same each
time. So each process of pytest has one such parent, as programs with `fork` and without threads have had servers ever
since. What a fork runs is what `python -m ketch` runs: `ketch.cli.main.main`, with arguments, environment, directory
and output of its own. tests/cli, tests/docs and all tests that set the environment of a broker start it as a user does.

The parent answers one line of JSON with another. It owns no thread and no event loop, and ends with the process of
pytest. Who starts a broker sees an object like `subprocess.Popen`. Linux alone has what waiting needs (pidfd_open).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

POSSIBLE = hasattr(os, "pidfd_open")


class Parent:
    """The process that forks brokers, started with the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._asking = threading.Lock()  # tests start brokers from several threads

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> Forked:
        """A process that runs `ketch` with the arguments, and appends what it prints to a file."""
        what = {"arguments": [*arguments], "environment": {**environment}, "output": str(output)}
        return Forked(self, self.ask(**what, directory=os.getcwd()))

    def ask(self, **request: Any) -> Any:
        """Its answer to one line."""
        with self._asking:
            if self._process is None:
                self._start()
            print(json.dumps(request), file=self._stream, flush=True)
            answer = self._stream.readline()
        assert answer, "the parent of forked brokers has ended"
        return json.loads(answer)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[2]
            )
            self._stream = ours.makefile("rw")

    def stop(self) -> None:
        """Ends it, at the end of all tests."""
        if self._process is not None:
            self._stream.close()
            self._process.wait(10)
            self._process = None


parent = Parent()


class Forked:
    """What tests use of `subprocess.Popen`, of a process that is another one's child."""

    def __init__(self, parent: Parent, pid: int) -> None:
        self._parent, self.pid = parent, pid
        self._ended = os.pidfd_open(pid)
        self._reaping = threading.Lock()
        self.returncode: int | None = None

    def __del__(self) -> None:
        os.close(self._ended)

    def poll(self) -> int | None:
        with self._reaping:
            if self.returncode is None and self._has_ended(0):
                self.returncode = self._parent.ask(reap=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(f"ketch, process {self.pid}", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def _has_ended(self, timeout: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._ended, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1000))

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# -- the process that is forked


def _born(control: socket.socket) -> dict[str, Any]:
    """Answers requests until it is the child that one asks for: then it returns that request."""
    with control, control.makefile("rw") as stream:
        for line in stream:
            request: dict[str, Any] = json.loads(line)
            if "reap" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
            elif not (answer := os.fork()):
                return request
            print(json.dumps(answer), file=stream, flush=True)
    sys.exit()


def _become(request: dict[str, Any]) -> None:
    """Takes arguments, directory, environment and output of the process that is asked for."""
    from ketch.cli.serving import run

    run.STARTED = time.perf_counter()
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    with contextlib.suppress(FileNotFoundError):
        os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["ketch", *request["arguments"]]


def _main() -> None:
    import gc

    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # as `ketch serve` does, before it imports the rest
    import uvloop  # noqa: F401

    import ketch.broker.server
    import ketch.cli.commands.serve  # noqa: F401
    from ketch.cli.main import main

    gc.collect()
    gc.freeze()
    _become(_born(socket.socket(fileno=int(sys.argv[1]))))
    main()


if __name__ == "__main__":
    _main()
