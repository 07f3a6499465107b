"""What a worker of `ketch serve --workers` reports to its parent process: that it is ready, or why it cannot start.

Lines of JSON over a pipe, whose number the worker finds in its environment: {"ready": {"kafka": "127.0.0.1:9092",
"http": null}} or {"failed": "a sentence"}; after the first {"brokers": 2} whenever it knows more or fewer brokers. Both
ends are here. A worker that ends without a report closes the pipe, too.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
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

    def brokers(self, count: int) -> None:
        """How many brokers this one names to clients, itself included."""
        self._tell({"brokers": count})

    def _tell(self, message: object) -> None:
        # The parent has stopped to listen where it was told to end while this worker started; the worker ends in order.
        with suppress(BrokenPipeError):
            os.write(self._fd, json.dumps(message).encode() + b"\n")


class Reports:
    """The starter's end of one worker's pipe, which it closes once the pipe has ended.

    Attributes:
        brokers: how many brokers the worker knows.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._following: asyncio.Task[None] | None = None
        self.brokers = 0

    async def first(self) -> Ready | None:
        """What the worker says first; None where it ended without a word.

        Raises:
            KetchError: it cannot start, in its own words.
        """
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        pipe = os.fdopen(self._fd, "rb")
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        line = await reader.readline()
        message = json.loads(line) if line else {}
        if "ready" not in message:
            transport.close()
        if "failed" in message:
            raise KetchError(message["failed"])
        if not message:
            return None
        self._following = loop.create_task(self._follow(reader, transport))
        return Ready(**message["ready"])

    async def _follow(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        try:
            while line := await reader.readline():
                self.brokers = json.loads(line)["brokers"]
        finally:
            transport.close()
