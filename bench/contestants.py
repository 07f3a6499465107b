"""The servers that are measured."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.model import BenchError, Endpoint

_READY = re.compile(r"ketch ready: kafka (?P<kafka>[\d.]+:\d+), redis unix:(?P<redis>.+) and ")
_START_SECONDS = 30.0


class Ketch:
    """`ketch serve` with its embedded Valkey and default settings (appendfsync everysec)."""

    name = "ketch"

    def __init__(self, arguments: tuple[str, ...] = ()) -> None:
        self._arguments = arguments
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Endpoint:
        self._directory = tempfile.TemporaryDirectory(prefix="ketch-bench-")
        home = Path(self._directory.name)
        output = home / "ketch.log"
        command = [sys.executable, "-m", "ketch", "serve", "--port", "0", "--redis-port", "0"]
        with output.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--data-dir", str(home / "data"), *self._arguments], stdout=log, stderr=log
            )
        try:
            return self._wait_ready(output)
        except BaseException:
            self.__exit__()
            raise

    def _wait_ready(self, output: Path) -> Endpoint:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            ready = _READY.search(output.read_text(errors="replace"))
            if ready:
                return Endpoint(ready["kafka"], Path(ready["redis"]))
            time.sleep(0.02)
        raise BenchError(f"Ketch did not start: {output.read_text(errors='replace')[-500:]}")

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        if self._directory is not None:
            self._directory.cleanup()


class Valkey(Ketch):
    """The same Valkey with the same settings, since it is the one that an idle Ketch has started."""

    name = "valkey"


CONTESTANTS = (Valkey, Ketch)
