"""The client commands as a user runs them, in a pipe or on a terminal, against a running broker."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from confluent_kafka import Producer

from ketch.cli.main import main
from tests.support.ketch import KetchServer
from tests.support.quick import commands

Done = subprocess.CompletedProcess[bytes]


def environment(broker: KetchServer) -> dict[str, str]:
    known = {"KETCH_BOOTSTRAP_SERVER": broker.bootstrap, "KETCH_DATA_DIR": str(broker.directory / "data")}
    return {**os.environ, **known}


class Ketch:
    """Runs commands against a broker: `ketch("topics", "list", stdin=b"", code=0)`."""

    def __init__(self, broker: KetchServer) -> None:
        self.environment = environment(broker)

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0, **env: str) -> Done:
        done = in_process(list(arguments), stdin, {**self.environment, **env})
        assert done.returncode == code, done
        assert b"Traceback" not in done.stderr
        if code == 1:
            assert done.stderr.splitlines()[-1].startswith(b"ketch: ")
        return done

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        """One that goes on beside the test; with pipes unless `streams` says otherwise."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [*commands.program(), *arguments]
        return subprocess.Popen(command, env=self.environment, **{**pipes, **streams})

    def on_terminal(self, *arguments: str, typed: bytes = b"", columns: int = 200) -> str:
        """What appears on a terminal of so many columns on which the command is started and `typed` is typed."""
        master, slave = terminal(columns)
        env = {**self.environment, "TERM": "xterm"}
        env.pop("COLUMNS", None)
        command = [*commands.program(), *arguments]
        with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env):
            os.close(slave)
            os.write(master, typed)
            shown = b"".join(iter(lambda: from_terminal(master), b""))
        os.close(master)
        return shown.decode()


def in_process(arguments: list[str], stdin: bytes, env: dict[str, str]) -> Done:
    """What a process would do and print, without the second that it takes to start one."""
    streams = [io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") for data in (stdin, b"", b"")]
    with ExitStack() as stack:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            stack.enter_context(patch.object(sys, name, stream))
        stack.enter_context(patch.object(sys, "argv", ["ketch", *arguments]))
        stack.enter_context(patch.dict(os.environ, env))
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue() for stream in streams[1:])  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(arguments, code, out, err)


def terminal(columns: int) -> tuple[int, int]:
    """The two sides of a new one: what the test reads, and what a command writes to."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    return master, slave


def from_terminal(master: int) -> bytes:
    """What came next; nothing when the command has closed its side."""
    try:
        return os.read(master, 65536)
    except OSError:  # how Linux says so
        return b""


def records(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def values(done: Done) -> list[bytes]:
    return done.stdout.splitlines()


def send(broker: KetchServer, topic: str, *messages: dict[str, Any]) -> None:
    """With a client of its own, for what lines of text cannot say."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for message in messages:
        producer.produce(topic, **message)
    assert producer.flush(20) == 0
