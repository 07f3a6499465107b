"""`ketch` without the time that its imports take, for commands that run beside a test.

A process that has imported the commands listens on a socket, and forks one for each process that asks. Who asks is
`quick_ketch.py`, which a test starts in the place of `python -m ketch`: it hands over its arguments, environment,
directory and standard streams, passes on what signals it gets, and ends as the command does. The commands of tests that
are about the process itself, brokers, and those of README.md start as a user's do.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

POSSIBLE = hasattr(os, "pidfd_open")
_PROGRAM = Path(__file__).with_name("quick_ketch.py")


class Commands:
    """The process that forks commands, started with the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = Path()
        self._starting = threading.Lock()

    def program(self) -> list[str]:
        """What is started in the place of `python -m ketch`."""
        if not POSSIBLE:
            return [sys.executable, "-m", "ketch"]
        return [sys.executable, "-I", "-S", str(_PROGRAM), self._socket()]

    def _socket(self) -> str:
        with self._starting:
            if self._process is None:
                self._start()
        return str(self._directory / "socket")

    def _start(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="ketch-quick-"))
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self._directory / "socket"))
            listening.listen(100)
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listening.fileno())],
                pass_fds=[listening.fileno()], stdin=subprocess.PIPE, cwd=Path(__file__).parents[2],
            )  # fmt: skip

    def stop(self) -> None:
        """Ends it, at the end of all tests."""
        if self._process is not None:
            self._process.communicate(timeout=10)
            self._process = None
            shutil.rmtree(self._directory)


commands = Commands()


# -- the process that is forked


def _asked(listening: socket.socket) -> list[bytes]:
    """Answers those who ask until it is the command that one asks for: then it returns that request's words.

    Each has a process that waits for its command, and tells how that has ended.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if sys.stdin in select.select([listening, sys.stdin], [], [])[0]:
            sys.exit()
        asking, _ = listening.accept()
        with asking:
            if os.fork():
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            words, streams = _request(asking)
            if command := os.fork():
                for stream in streams:
                    os.close(stream)
                _wait(command, asking)
                os._exit(0)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return words


def _wait(command: int, asking: socket.socket) -> None:
    """Tells who asks which process the command is and how it has ended. It does not outlive who asks."""
    asking.sendall(b"%d\n" % command)
    ended = os.pidfd_open(command)
    if ended not in select.select([ended, asking], [], [])[0]:
        os.kill(command, signal.SIGKILL)
    status = os.waitpid(command, 0)[1]
    with contextlib.suppress(BrokenPipeError):
        asking.sendall(b"%d\n" % status)


def _request(asking: socket.socket) -> tuple[list[bytes], list[int]]:
    data, streams, _, _ = socket.recv_fds(asking, 65536, 3)
    length, _, words = data.partition(b"\n")
    while len(words) < int(length):
        words += asking.recv(65536)
    return words.split(b"\0"), streams


def _main() -> None:
    import gc

    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # as `ketch` does where it imports kio
    import confluent_kafka.admin  # noqa: F401
    import rich.console
    import rich.table  # noqa: F401

    from ketch.cli.main import COMMANDS, load, main

    for name in COMMANDS:
        load(name)
    gc.collect()
    gc.freeze()
    count, directory, *words = _asked(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(directory)
    arguments, variables = words[: int(count)], words[int(count) :]
    os.environ.clear()
    os.environb.update(variable.split(b"=", 1) for variable in variables)  # type: ignore[arg-type]
    sys.argv = ["ketch", *map(os.fsdecode, arguments)]
    main()


if __name__ == "__main__":
    _main()
