"""What a worker of `ketch serve --workers` reports to its parent process: that it is ready, or why it cannot start.

One line of JSON over a pipe, whose number the worker finds in its environment: {"ready": {"kafka": "127.0.0.1:9092",
"http": null}} or {"failed": "a sentence"}. Both ends are here. A worker that ends without a report closes the pipe,
too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import asdict, dataclass

from ketch.errors import KetchError

VARIABLE = "KETCH_REPORT_FD"  # no setting: Settings heeds the names of its fields alone


@dataclass(frozen=True, slots=True)
class Ready:
    """Where a worker listens, HOST:PORT; `http` and `legacy` None where it has no such port."""

    kafka: str
    http: str | None
    legacy: str | None = None


class Reporter:
    """The worker's end of the pipe: says one thing, then closes it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def of_environment(cls) -> Reporter | None:
        """None in a process that is no worker. The worker's own children do not get the pipe."""
        number = os.environ.pop(VARIABLE, None)
        if number is None:
            return None
        os.set_inheritable(int(number), False)
        return cls(int(number))

    def ready(self, ready: Ready) -> None:
        self._tell({"ready": asdict(ready)})

    def failed(self, why: str) -> None:
        self._tell({"failed": why})

    def _tell(self, message: object) -> None:
        # The parent has stopped to listen where it was told to end while this worker started; the worker ends in order.
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._fd, "w") as pipe:
            print(json.dumps(message), file=pipe)


async def listen(fd: int) -> Ready | None:
    """The starter's end, which it closes: what the worker says; None where it ended without a word.

    Raises:
        KetchError: it cannot start, in its own words.
    """
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb"))
    try:
        line = await reader.readline()
    finally:
        transport.close()
    message = json.loads(line) if line else {}
    if "failed" in message:
        raise KetchError(message["failed"])
    return Ready(**message["ready"]) if message else None
