"""`ketch serve --workers N`: N brokers as child processes on one Redis, which this process starts and watches."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import closing

from ketch.cli.main import STARTED
from ketch.cli.serving.report import VARIABLE, Ready, Reports
from ketch.configs.listeners import counted_up
from ketch.configs.settings import Settings
from ketch.embedded import Storage, dying_with_us, storage
from ketch.errors import KetchError
from ketch.logs import announce
from ketch.redis.blocking import connect
from ketch.redis.question import call
from ketch.redis.server import Server
from ketch.redis.url import RedisAddress
from ketch.store.keys import Keyspace

log = logging.getLogger("ketch")

_BACKOFF_FIRST, _BACKOFF_MAX = 0.1, 5.0
_ACQUAINTED_S = 5.0
_SERVED_S = 10.0  # a worker that ran for so long starts again at once


class _Worker:
    """One broker process, started again whenever it ends by itself."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._process: Process | None = None
        self._name = f"worker {environment['KETCH_NODE_ID']}"
        self._reports: Reports | None = None
        self.ready: Ready | None = None

    @property
    def brokers(self) -> int:
        """How many brokers it names to clients."""
        return 0 if self._reports is None else self._reports.brokers

    async def start(self) -> None:
        """Returns when it is ready; raises KetchError where it cannot start."""
        command = dying_with_us(sys.executable, "-m", "ketch", "serve")
        ours, theirs = os.pipe()
        try:
            # Ctrl-C at the terminal goes to the whole process group; workers must get one signal only, from here.
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env={**self._environment, VARIABLE: str(theirs)},
                pass_fds=(theirs,),
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        try:
            self._reports = Reports(ours)
            ready = await self._reports.first()
        except KetchError as error:
            raise KetchError(f"{self._name.capitalize()}: {error}") from None
        if ready is None:
            raise KetchError(f"{self._name.capitalize()} ended with {await self._process.wait()} before it was ready.")
        self.ready = ready
        if "KETCH_LISTENERS" in self._environment:
            self._environment["KETCH_LISTENERS"] = self.ready.kafka
        else:
            self._environment["KETCH_PORT"] = self.ready.kafka.rpartition(":")[2]

    async def watch(self) -> None:
        """Starts it again until cancelled."""
        backoff = _BACKOFF_FIRST
        while True:
            assert self._process is not None
            since = time.monotonic()
            code = await self._process.wait()
            backoff = _BACKOFF_FIRST if time.monotonic() - since > _SERVED_S else min(2 * backoff, _BACKOFF_MAX)
            where = self.ready.kafka if self.ready else "?"
            log.error("%s at %s ended with %d, it starts again", self._name, where, code)
            await asyncio.sleep(backoff)
            try:
                await self.start()
            except KetchError as error:
                log.error("%s", error)

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def ended(self) -> int:
        return 0 if self._process is None else await self._process.wait()


class Workers:
    """All worker processes, and the embedded storage where no Redis is named."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._embedded: Storage | None = None
        self._workers: list[_Worker] = []
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """The exit code; KetchError when they cannot start."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        watching: list[asyncio.Task[None]] = []
        try:
            url = await self._redis()
            self._workers = [_Worker(_environment(self._settings, url, n)) for n in range(self._settings.workers)]
            await asyncio.gather(*(worker.start() for worker in self._workers))
            watching = [asyncio.create_task(worker.watch()) for worker in self._workers]
            await self._acquainted()
            announce(self._settings.log_format, self._ready_line())
            await self._stop.wait()
        finally:
            for task in watching:
                task.cancel()
            codes = await self._end()
            if self._embedded is not None:
                await self._embedded.stop()
        log.info("stopped")
        return 0 if not any(codes) else 1

    async def _redis(self) -> str:
        if self._settings.redis is not None:
            return self._settings.redis
        self._embedded = storage(self._settings)
        await self._embedded.start()
        await asyncio.to_thread(_forget_brokers, self._embedded.url, Keyspace(self._settings.keyspace))
        return self._embedded.url

    async def _acquainted(self) -> None:
        """Waits until each worker names all workers to clients, because a client asks again only minutes later."""
        deadline = time.monotonic() + _ACQUAINTED_S
        while time.monotonic() < deadline and any(each.brokers < len(self._workers) for each in self._workers):
            await asyncio.sleep(0.01)

    async def _end(self) -> list[int]:
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        return await asyncio.gather(*(worker.ended() for worker in self._workers))

    def _signalled(self, number: signal.Signals) -> None:
        if not self._stop.is_set():
            log.info("%s: finishing requests in flight; once more stops at once", number.name)
        else:
            for worker in self._workers:
                worker.signal(number)  # their second one: they stop at once
        self._stop.set()

    def _ready_line(self) -> str:
        found = [worker.ready for worker in self._workers if worker.ready is not None]
        if self._embedded is not None:
            parts = [f"redis {self._embedded.address}", f"data {self._settings.data_dir}"]
        else:
            parts = [f"redis {RedisAddress.of(self._settings).describe()}"]
        parts += [f"legacy {ready.legacy}" for ready in found if ready.legacy]
        parts += [f"http {ready.http}" for ready in found if ready.http]
        workers = " ".join(ready.kafka for ready in found)
        parts += [f"workers {workers}", f"kernel {_kernel()}", f"{time.perf_counter() - STARTED:.1f} s"]
        return f"ketch ready: kafka {found[0].kafka}, {', '.join(parts)}"


def _kernel() -> str:
    from ketch.kernels import KERNEL

    return KERNEL


def _environment(settings: Settings, redis_url: str, n: int) -> dict[str, str]:
    """The environment of the n-th worker, with all its settings: arguments would show passwords to every user."""
    given = {name: value for name, value in settings.model_dump().items() if name in settings.model_fields_set}
    own: Mapping[str, object] = {
        "workers": 1,
        "redis": redis_url,
        "node_id": settings.node_id + n,
        **_own_addresses(settings, n),
        "http_port": settings.http_port and settings.http_port + n,
        "legacy_port": settings.legacy_port and settings.legacy_port + n,
    }
    merged = {**given, **own}
    ours = {f"KETCH_{name.upper()}": _written(value) for name, value in merged.items() if value is not None}
    return {name: value for name, value in os.environ.items() if not name.startswith("KETCH_")} | ours


def _own_addresses(settings: Settings, n: int) -> Mapping[str, object]:
    """Where the n-th worker listens."""
    if settings.listeners is None:
        return {
            "port": settings.port and settings.port + n,
            "advertised_port": settings.advertised_port and settings.advertised_port + n,
        }
    told = settings.advertised_listeners
    return {
        "listeners": counted_up(settings.listeners, n),
        "advertised_listeners": told and counted_up(told, n),
    }


def _written(value: object) -> str:
    """A setting's value as an environment variable has it: a table as JSON."""
    return json.dumps(value, default=str) if isinstance(value, dict) else str(value)


def _forget_brokers(url: str, keys: Keyspace) -> None:
    """Removes the brokers that an earlier run announced: this storage has just been started, so none of them runs."""
    with closing(connect(Server(url), "ketch")) as redis:
        redis.ask(call(keys.brokers, "DEL", keys.brokers))
