"""Runs the blocks of a page as a reader would: one shell, one Python, in a directory that looks like a checkout.

- The directory has links to all that a checkout holds. Its `.venv/bin` has the programs of the tests' environment, so
  that `make run` and `.venv/bin/pyspark` work. What the page creates (`ketch-data`, files) stays in the directory.
- Every port that the page names becomes a free one, in commands and back again in their output.
- A command that serves (`ketch serve`, `make run`, `redis-server`) goes into the background once it is ready. It ends
  the one that had its port, as a reader would, and all end with the session.
- A page that does not begin with a server finds `ketch serve --redis-port 6380` running.

This module owns the processes that a page starts. It touches nothing outside the directory.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from tests.docs.output import Learned, difference, real
from tests.docs.pages import Block, Step
from tests.support.quick import commands

ROOT = Path(__file__).parent.parent.parent
HOME = "/home/me/ketch"  # the directory, as pages show it
BROKER = "ketch serve --redis-port 6380"

# What a serving command prints when it is ready.
_SERVERS = {
    r"(?:[A-Z_]+=\S+ )*(?:ketch serve|make run)\b": r"ketch ready",
    r"redis-server\b": r"Ready to accept connections",
    r"ketch archive run\b(?!.*--once)": r"0 waiting",
}
_PORT = re.compile(
    r"(?:(?<=127\.0\.0\.1:)|(?<=localhost:)|(?<=port )|(?<=port=)|(?<=port = )|(?<=redis-cli -p ))\d{4,5}\b"
)

# Programs of `.venv/bin`, and what they run. redis-cli shows types, as it does on a terminal; make installs nothing.
_PROGRAMS = {
    "redis-cli": f"{shutil.which('redis-cli')} --no-raw",
    "make": f"{shutil.which('make')} --no-print-directory -o .venv/.installed -o .venv/.installed-spark",
    **{name: f"{ROOT}/.venv/bin/{name}" for name in ("ketch", "python", "python3", "pyspark", "spark-submit")},
}


class PageError(AssertionError):
    """A page says what is not so."""


class Session:
    """The shell and the Python of one page.

    Args:
        directory: an empty one, which becomes the working directory.
        broker: whether a broker runs before the first block.
        quick: whether commands that do not serve are forked, see `tests/support/quick.py`.
        timeout: seconds that a command may take.
    """

    def __init__(self, directory: Path, *, broker: bool, quick: bool = False, timeout: float = 90) -> None:
        self.directory = directory / "ketch"
        self.timeout = timeout
        self.learned: Learned = {}
        self._ports: dict[str, str] = {}
        self._servers: dict[str, int] = {}  # port -> process id
        _like_a_checkout(self.directory)
        if quick:
            _fork_commands(self.directory)
        self._shell, self._ended = self._start_shell()
        self._python: subprocess.Popen[str] | None = None
        if broker:
            self._serve(Step(BROKER))

    def run(self, block: Block) -> None:
        """Runs a block.

        Raises:
            PageError: where a command's exit status or output is not what the page shows.
        """
        if block.kind == "console":
            for step in block.steps():
                self._step(step, block.where)
        else:
            self._run_python(block)

    def close(self) -> None:
        """Ends what the page has started, and waits for it."""
        if self._python is not None:
            self._python.communicate(timeout=30)
        for process in self._servers.values():
            self._stop(process)
        try:
            self._shell.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # a command that did not end
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.communicate(timeout=10)
        os.close(self._ended)

    def _step(self, step: Step, where: str) -> None:
        """The exit status must be 0, but where the shown output ends with an error or a warning, `ketch: ...`."""
        try:
            if serves(step):
                self._serve(step)
            else:
                self._command(step)
        except PageError as error:
            raise PageError(f"{where}: $ {step.command}\n{error}") from None

    def _command(self, step: Step) -> None:
        command = real(step.command, self.learned)
        status, output = self._shell_run(f"{self._real_ports(command)}\n")
        if status != 0 and not step.ends_with_message:
            raise PageError(f"exit status {status}\n{output}")
        computed = command.startswith("ketch offset") and command == step.command
        wrong = difference(step.shown, self._shown_text(output), self.learned, exact=computed)
        if wrong and not step.shown:
            return  # pages leave out what does not matter
        if wrong:
            raise PageError(wrong)

    def _serve(self, step: Step) -> None:
        port = _port(step.command)
        if port in self._servers:
            self._stop(self._servers.pop(port))
        output = self.directory / f"server-{port}.log"
        output.write_text("")
        # The variable is the other form of what --listeners says.
        alone = "env -u KETCH_PORT " if "--listeners" in step.command else ""
        status, process = self._shell_run(f"{alone}{self._real_ports(step.command)} >{output} 2>&1 &\necho $!\n")
        assert status == 0, process
        self._servers[port] = int(process)
        self._wait_ready(int(process), output, ready_line(step.command))
        wrong = difference(step.shown, self._shown_text(output.read_text()), self.learned, within=True)
        if step.shown and wrong:
            raise PageError(wrong)

    def _wait_ready(self, process: int, output: Path, ready: str) -> None:
        deadline = time.monotonic() + self.timeout
        while not re.search(ready, output.read_text()):
            if time.monotonic() > deadline or not Path(f"/proc/{process}").exists():
                raise PageError(f"it is not ready:\n{output.read_text()}")
            time.sleep(0.05)

    def _stop(self, process: int) -> None:
        self._shell_run(f"kill -TERM {process}; wait {process}\n")

    def _start_shell(self) -> tuple[subprocess.Popen[str], int]:
        programs = self.directory / ".venv" / "bin"
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KETCH_PORT": self._free("9092"),
            "CONSOLE_PORT": self._free("8080"),
            "KETCH_BOOTSTRAP_SERVER": f"127.0.0.1:{self._free('9092')}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "COLUMNS": "200",
        }
        self._environment = environment
        ended, theirs = os.pipe()
        shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE, text=True, cwd=self.directory, env=environment,
            pass_fds=[theirs], start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._status_to = theirs
        return shell, ended

    def _shell_run(self, command: str) -> tuple[int, str]:
        """Runs a command in the shell: its exit status, and what it wrote."""
        script, output = self.directory.parent / "command", self.directory.parent / "output"
        script.write_text(command)
        assert self._shell.stdin is not None
        self._shell.stdin.write(f". {script} >{output} 2>&1 </dev/null; echo $? >&{self._status_to}\n")
        self._shell.stdin.flush()
        if not select.select([self._ended], [], [], self.timeout)[0]:
            raise PageError(f"no end within {self.timeout} s:\n{output.read_text()}")
        return int(os.read(self._ended, 16)), output.read_text(errors="replace")

    def _run_python(self, block: Block) -> None:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-m", "tests.docs.python"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.directory,
                env={**self._environment, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        for source, shown in _examples(block):
            request = {"source": self._real_ports(real(source, self.learned)), "doctest": block.kind == "doctest"}
            print(json.dumps(request), file=self._python.stdin, flush=True)
            answer = json.loads(_line(self._python.stdout, self.timeout))
            wrong = answer["error"] or (shown and difference(shown, self._shown_text(answer["output"]), self.learned))
            if wrong:
                raise PageError(f"{block.where}: {source}\n{wrong}")

    def _free(self, port: str) -> str:
        if port not in self._ports:
            self._ports[port] = str(_free_ports())
        return self._ports[port]

    def _real_ports(self, text: str) -> str:
        return _PORT.sub(lambda found: self._free(found[0]), text)

    def _shown_text(self, text: str) -> str:
        for shown, ours in self._ports.items():
            text = re.sub(rf"(?<!\d){ours}(?!\d)", shown, text)
        return text.replace(str(self.directory), HOME)


def _like_a_checkout(directory: Path) -> None:
    directory.mkdir(parents=True)
    for entry in ROOT.iterdir():
        if entry.name not in {".git", ".venv", "ketch-data", ".pytest_cache"}:
            (directory / entry.name).symlink_to(entry)
    programs = directory / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, command in _PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)


def _fork_commands(directory: Path) -> None:
    """Commands that go on keep a process of their own."""
    forked = shlex.join(commands.program())
    cases = f'case "$1" in serve|archive) ;; *) exec {forked} "$@" ;; esac'
    (directory / ".venv" / "bin" / "ketch").write_text(f'#!/bin/sh\n{cases}\nexec {_PROGRAMS["ketch"]} "$@"\n')


def ready_line(command: str) -> str:
    """What a serving command prints when it is ready; "" of one that does not serve."""
    return next((ready for begin, ready in _SERVERS.items() if re.match(begin, command)), "")


def serves(step: Step) -> bool:
    """Whether a command goes on until it is told to end."""
    return bool(ready_line(step.command)) and not step.ends_with_message


def _port(command: str) -> str:
    """What a serving command occupies: its port, or the name of the archive job."""
    if "archive" in command:
        return "archive"
    found = re.search(r"(?<![\w-])--port (\d+)", command)
    return found[1] if found else "9092"


def _free_ports(count: int = 4) -> int:
    """The first of some free ports in a row, below those that the system gives to outgoing connections."""
    while True:
        first = random.randrange(20000, 32000)
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first


def _examples(block: Block) -> list[tuple[str, list[str]]]:
    """Python sources of a block with the output shown for each."""
    if block.kind == "python":
        return [(block.text, [])]
    import doctest

    examples = doctest.DocTestParser().get_examples(block.text)
    return [(example.source, example.want.splitlines()) for example in examples]


def _line(stream: IO[str], timeout: float) -> str:
    if not select.select([stream], [], [], timeout)[0]:
        raise PageError(f"Python gives no answer within {timeout} s")
    return stream.readline()
