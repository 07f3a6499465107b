"""The asyncio driver of questions: a connection to Redis that connects again by itself.

It owns the reconnects, with backoff, and says when the connection is up, lost and up again. Each connection is a
`redis.pipe.Pipe`. Nothing that was sent is sent again: its sender gets StorageUnavailable.

Behind sentinels each connection is one to the server that they name and that says that it is the master. They are asked
again every second: when they name another one, the connection is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis import sentinel
from ketch.redis.driver import Node, Reply
from ketch.redis.pipe import Pipe, open_pipe
from ketch.redis.question import Command, Question
from ketch.redis.url import RedisAddress

T = TypeVar("T")

log = logging.getLogger(__name__)

_BACKOFF_FIRST = 0.02
_BACKOFF_MAX = 1.0
_ASK_SENTINELS_S = 1.0


class Link:
    """One named, self-healing connection: an `OwnedDriver`.

    Args:
        name, on_up, on_down, on_push: see `driver.Connect`.
        timeout: s that connecting and each reply may take.
    """

    def __init__(
        self,
        name: str,
        address: RedisAddress,
        timeout: float,
        on_up: Callable[[Node], Awaitable[None]] | None = None,
        on_down: Callable[[], None] | None = None,
        on_push: Callable[[Any], None] | None = None,
    ) -> None:
        self._name, self._address, self._timeout = name, address, timeout
        self._at = address  # where the last connection led to
        self._on_up, self._on_down, self._on_push = on_up, on_down, on_push
        self._pipe: Pipe | None = None
        self._lost = asyncio.Event()
        self._found = asyncio.Event()  # there is a connection
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _live(self) -> Pipe:
        """The connection that is up.

        Raises:
            StorageUnavailable: there is none now; the link is already trying.
        """
        if self._pipe is None:
            raise StorageUnavailable(f"no connection to Redis at {self._address.describe()}")
        return self._pipe

    @property
    def up(self) -> bool:
        return self._pipe is not None

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the node it leads to; its path and 0 for a unix socket."""
        return self._at.path or self._at.host, self._at.port

    async def ask(self, question: Question[T]) -> T:
        """The answer to a question, see `redis.question`; raises whatever it raises, too."""
        return await self._live.ask(question)

    async def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        """The answers of every node, here of the one that there is, to a question about the node itself."""
        return [await self.ask(question())]

    def node(self, key: bytes) -> Hashable:
        """See `Driver.node`: there is one."""
        return self.place

    def send(self, command: Command) -> asyncio.Future[bytes]:
        """Sends a command; the future gets its last reply's bytes.

        Raises:
            StorageUnavailable: there is no connection now. (The future fails with it when the connection goes.)
        """
        return self._live.send(command)

    def post(self, command: Command, take: Callable[[Reply], None]) -> None:
        """See `Driver.post`.

        Raises:
            StorageUnavailable: there is no connection now; `take` is not called.
        """
        self._live.post(command, take)

    @property
    def behind(self) -> bool:
        return self._live.behind

    async def drained(self) -> None:
        await self._live.drained()

    async def start(self) -> None:
        """Connects, or raises StorageUnavailable; from then on the link keeps itself up."""
        await self._connect()
        self._keep_up()

    def begin(self) -> None:
        """Keeps itself up from now on, as after `start`; it is not up yet."""
        self._lost.set()
        self._keep_up()

    async def came_up(self, timeout: float) -> None:
        """Waits for a connection.

        Raises:
            StorageUnavailable: there is none within `timeout` seconds.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._found.wait()
        _ = self._live

    async def stop(self) -> None:
        self._on_down, pipe, self._pipe = None, self._pipe, None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if pipe is not None:
            pipe.close()

    def _keep_up(self) -> None:
        self._spawn(self._keep())
        if self._address.kind == "sentinel":
            self._spawn(self._follow())

    async def _follow(self) -> None:
        """Gives up a connection to a server that is the master no more."""
        while True:
            await asyncio.sleep(_ASK_SENTINELS_S)
            with contextlib.suppress(StorageUnavailable):
                found = await find_master(self._address, self._timeout)
                pipe = self._pipe
                if pipe is not None and (found.host, found.port) != self.place:
                    log.warning("The master is %s now (%s connection)", found.describe(), self._name)
                    pipe.close()

    async def _connect(self) -> None:
        self._lost.clear()
        if self._address.kind == "sentinel":
            self._at = await find_master(self._address, self._timeout)
        pipe = await open_pipe(self._at, self._timeout, self._went, self._on_push)
        if self._on_up is not None:
            await self._on_up(pipe)
        if pipe.connected:
            self._pipe = pipe
            self._found.set()
            self._spawn(pipe.watch(self._timeout))

    async def _keep(self) -> None:
        while True:
            await self._lost.wait()
            await self._reconnect()
            log.info("Redis is back (%s connection, %s)", self._name, self._address.describe())

    async def _reconnect(self) -> None:
        delay = _BACKOFF_FIRST
        while self._pipe is None:
            await asyncio.sleep(delay)
            delay = min(2 * delay, _BACKOFF_MAX)
            try:
                await self._connect()
            except Exception as error:  # whatever it was, the next try may do
                log.debug("%s connection: %s", self._name, error)

    def _went(self) -> None:
        if self._pipe is not None:
            log.warning("Redis is gone (%s connection, %s); reconnecting", self._name, self._address.describe())
            self._pipe = None
            self._found.clear()
            if self._on_down is not None:
                self._on_down()
        self._lost.set()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def find_master(address: RedisAddress, timeout: float) -> RedisAddress:
    """The master behind sentinels, see `redis.sentinel`.

    Raises:
        StorageUnavailable: none is found; one sentence says why.
    """
    search = sentinel.search(address)
    step = next(search)
    try:
        while True:
            try:
                answer = await ask_once(step.address, timeout, step.question)
            except (StorageUnavailable, RedisError, TimeoutError) as error:
                silent = f"Redis at {step.address.describe()}: silent for {timeout:g} s"
                step = search.throw(StorageUnavailable(str(error) or silent))
            else:
                step = search.send(answer)
    except StopIteration as found:
        master: RedisAddress = found.value
        return master


async def ask_once(address: RedisAddress, timeout: float, question: Question[T]) -> T:
    """The answer to a question over a connection that is opened for it.

    Raises:
        StorageUnavailable: there is no connection within `timeout` seconds, or Redis refuses it.
        TimeoutError: no answer within `timeout` seconds after that.
    """
    pipe = await open_pipe(address, timeout, on_lost=lambda: None)
    try:
        async with asyncio.timeout(timeout):
            return await pipe.ask(question)
    finally:
        pipe.close()
