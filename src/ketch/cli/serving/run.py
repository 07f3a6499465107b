"""One run of `ketch serve` in one process, from start to stop: the embedded Valkey unless a Redis is named, the broker,
and the ports beside it.

It owns the signals, and what the process needs of the system: open files and memory. The thresholds of the garbage
collector are set by `cli.main`, for all commands.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import resource
import signal
import time
from typing import TYPE_CHECKING, Any

from ketch import __version__
from ketch.cli.examine import examine
from ketch.cli.main import STARTED
from ketch.cli.serving.report import Ready, Reporter
from ketch.configs.listeners import bracketed, everywhere
from ketch.configs.settings import Settings
from ketch.embedded import Storage, storage
from ketch.errors import KetchError
from ketch.kernels import KERNEL, kernels
from ketch.logs import announce
from ketch.redis.url import RedisAddress
from ketch.views.health import require_fit

if TYPE_CHECKING:
    from ketch.broker.server import Broker
    from ketch.legacy07.listener import LegacyListener
    from ketch.monitoring.http import HttpPort

log = logging.getLogger("ketch")

# Descriptors beside those of client connections: Redis, Valkey's own, files, libraries.
_OTHER_FILES = 256
# glibc's mallopt: parameters as malloc.h numbers them, and bytes
_MALLOPT = {-3: 32 << 20, -1: 128 << 20}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
_IMPATIENT_SECONDS = 1.0  # for Valkey, after a second signal


class Serve:
    """One run, from start to stop.

    Args:
        reporter: of a worker; it reports that the broker is ready, where `ketch serve` prints the ready line.
    """

    def __init__(self, settings: Settings, reporter: Reporter | None) -> None:
        self._settings = settings
        self._reporter = reporter
        # The process that started this worker speaks of its start and stop for all of them.
        self._told_at = logging.DEBUG if reporter else logging.INFO
        self._embedded: Storage | None = None
        self._broker: Broker | None = None
        self._http: HttpPort | None = None
        self._legacy: LegacyListener | None = None
        self._stop = asyncio.Event()
        self._abort = asyncio.Event()

    async def run(self) -> int:
        """The exit code; KetchError when the broker cannot start."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        try:
            if await self._unless(self._stop, self._start()):
                await self._stop.wait()
            return await self._drain()
        finally:
            await self._stop_http()
            if self._embedded is not None and not await self._unless(self._abort, self._embedded.stop()):
                await self._embedded.stop(_IMPATIENT_SECONDS)

    async def _start(self) -> None:
        _raise_file_limit(self._settings.max_connections)
        _keep_memory()
        address = await self._redis()
        timeout = self._settings.redis_timeout_ms / 1000
        append, keyspace = self._settings.append, self._settings.keyspace
        for warning in require_fit(await examine(address, timeout, append=append, keyspace=keyspace)):
            log.warning(warning.sentence())
        from ketch.broker.server import Broker

        broker = Broker(self._settings, address)
        try:
            await broker.start()
        except KetchError:
            await broker.drain()
            raise
        self._broker = broker
        await self._start_http(broker)
        await self._start_legacy(broker)
        # What start-up made lives as long as the broker: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        if self._reporter is not None:
            self._report(self._reporter, broker)
        else:
            announce(self._settings.log_format, self._ready_line(address, broker))

    def _report(self, reporter: Reporter, broker: Broker) -> None:
        """Tells the starter that this worker is ready, and from then on how many brokers it knows."""
        reporter.ready(Ready(self._settings.where(broker.ports.numbers), self._http_address(), self._legacy_address()))
        reporter.brokers(len(broker.cluster.nodes))

        async def beat() -> None:
            """There is nothing to do."""

        broker.cluster.listen(lambda: reporter.brokers(len(broker.cluster.nodes)), beat)

    async def _redis(self) -> RedisAddress:
        if self._settings.redis is not None:
            return RedisAddress.of(self._settings)
        embedded = storage(self._settings)
        starting = asyncio.create_task(embedded.start())
        self._embedded = embedded
        try:
            # Valkey is being started after one turn of the loop; meanwhile this process imports the rest of itself.
            await asyncio.sleep(0)
            import ketch.broker.server  # noqa: F401

            await starting
        finally:
            starting.cancel()
        return RedisAddress.parse(embedded.url)

    async def _start_http(self, broker: Broker) -> None:
        if self._settings.http_port is None:
            return
        from ketch import metrics
        from ketch.cli.serving.shared import shared_metrics
        from ketch.monitoring.http import HttpPort

        console = None
        if self._settings.console:
            from ketch.cli.serving.console import attached

            console = attached(broker, self._embedded is not None)
        try:
            http_port = HttpPort(self._settings, lambda: broker.log.up, console, shared_metrics(broker))
            await http_port.start()
        except KetchError:
            await broker.drain()
            raise
        self._http = http_port
        broker.http = self._http_url(broker)
        metrics.queued_bytes.set_function(lambda: broker.budget.used)
        metrics.running(__version__, lambda: {**kernels(), **broker.ways})
        broker.background(asyncio.get_running_loop().create_task(metrics.watch_loop()))

    async def _start_legacy(self, broker: Broker) -> None:
        if self._settings.legacy_port is None:
            return
        from ketch.legacy07.listener import LegacyListener

        listener = LegacyListener(broker, self._settings.legacy_port)
        try:
            await listener.start()
        except KetchError:
            await broker.drain()
            raise
        self._legacy = listener

    async def _stop_http(self) -> None:
        if self._http is not None:
            await self._http.stop()

    def _http_url(self, broker: Broker) -> str | None:
        """By which a client reaches the HTTP port; where that is open on every interface, as it reaches the broker."""
        if self._http is None:
            return None
        settings = self._settings
        host = settings.http_host
        if everywhere(host):
            host = settings.announced(broker.ports.numbers)[0].host
        scheme = "http" if settings.http_ssl_keystore_location is None else "https"
        return f"{scheme}://{bracketed(host)}:{self._http.port}"

    def _http_address(self) -> str | None:
        return None if self._http is None else f"{bracketed(self._settings.http_host)}:{self._http.port}"

    def _legacy_address(self) -> str | None:
        return None if self._legacy is None else f"{bracketed(self._settings.legacy_address)}:{self._legacy.port}"

    def _ready_line(self, address: RedisAddress, broker: Broker) -> str:
        parts = [f"kafka {self._settings.where(broker.ports.numbers)}"]
        if self._embedded is not None:
            parts += [f"redis {self._embedded.address}", f"data {self._settings.data_dir}"]
        else:
            parts += [f"redis {address.describe()}"]
        if self._legacy is not None:
            parts += [f"legacy {self._legacy_address()}"]
        if self._http is not None:
            parts += [f"http {self._http_address()}"]
        parts += [f"kernel {KERNEL}", f"append {broker.ways['append']}", f"{time.perf_counter() - STARTED:.1f} s"]
        return f"ketch ready: {', '.join(parts)}"

    def _signalled(self, number: signal.Signals) -> None:
        if not self._stop.is_set():
            log.log(self._told_at, "%s: finishing requests in flight; once more stops at once", number.name)
            self._stop.set()
        else:
            self._abort.set()

    async def _drain(self) -> int:
        """Within drain_timeout_ms, which the broker keeps to, or at once on a second signal."""
        drained = self._legacy is None or await self._unless(self._abort, self._legacy.drain())
        if self._legacy is not None and not drained:
            self._legacy.abort()
        drained = drained and (self._broker is None or await self._unless(self._abort, self._broker.drain()))
        if self._broker is not None and not drained:
            self._broker.abort()
        log.log(self._told_at, "stopped")
        return 0 if drained else 1

    @staticmethod
    async def _unless(event: asyncio.Event, work: Any) -> bool:
        """Does the work unless the event comes first, which cancels it; whether it was done."""
        doing, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((doing, waiting), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
                return True
            return False
        finally:
            doing.cancel()
            waiting.cancel()
            await asyncio.gather(doing, waiting, return_exceptions=True)


def _raise_file_limit(connections: int) -> None:
    """As far as the hard limit lets: many systems start a process with 1,024 files."""
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    new = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (new, hard))
    except (ValueError, OSError):
        new = soft
    if new < wanted:
        log.warning("open files are limited to %d: raise `ulimit -n` to %d for all max_connections", new, wanted)


def _keep_memory() -> None:
    """Keeps glibc from returning buffers of a megabyte to the system: each fetch would get them page by page again."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, size in _MALLOPT.items():
            mallopt(parameter, size)
