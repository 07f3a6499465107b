"""The asyncio driver of questions: a connection to Redis that connects again by itself.

It owns the reconnects, with backoff, and says when the connection is up, lost and up again. Each connection is a
`redis.pipe.Pipe`. Nothing that was sent is sent again: its sender gets StorageUnavailable.

Behind sentinels each connection is one to the server that they name and that says that it is the master
(`redis.master`). They are asked again every second, and more often while they take the master for down: when they name
another one, the connection is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from ketch.errors import KetchError, StorageUnavailable
from ketch.metrics.pipes import pipe as pipe_tally
from ketch.redis.driver import Node, Reply
from ketch.redis.master import MasterSearch
from ketch.redis.pipe import Pipe, open_pipe
from ketch.redis.question import Command, Question
from ketch.redis.url import RedisAddress, spelled

T = TypeVar("T")

log = logging.getLogger(__name__)

_BACKOFF_FIRST = 0.02
_BACKOFF_MAX = 1.0
_ASK_SENTINELS_S = 1.0
_HURRY_S = 0.1  # the same, while a sentinel takes the master for down or none answers
_PATIENCE_S = 1.0  # for a sentinel, or the server that it names, to answer before all are asked again


class Link:
    """One named, self-healing connection: an `OwnedDriver`.

    Args:
        name, on_up, on_down, on_push: see `driver.Connect`.
        timeout: s that connecting and each reply may take.

    Attributes:
        pipe: the connection that is up; None while there is none.
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
        self._search = MasterSearch(address, timeout) if address.kind == "sentinel" else None
        self._epoch = 0  # of the failover that made that server the master
        self._on_up, self._on_down, self._on_push = on_up, on_down, on_push
        self.pipe: Pipe | None = None
        self._lost = asyncio.Event()
        self._found = asyncio.Event()  # there is a connection
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _live(self) -> Pipe:
        """The connection that is up.

        Raises:
            StorageUnavailable: there is none now; the link is already trying.
        """
        if self.pipe is None:
            raise StorageUnavailable(f"no connection to Redis at {self._address.describe()}")
        return self.pipe

    @property
    def up(self) -> bool:
        return self.pipe is not None

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the node it leads to; its path and 0 for a unix socket."""
        return self._at.host or self._at.path or "", self._at.port

    async def ask(self, question: Question[T]) -> T:
        """The answer to a question, see `redis.question`; raises whatever it raises, too."""
        return await self._live.ask(question)

    async def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        """The answers of every node, here of the one that there is, to a question about the node itself."""
        return [await self.ask(question())]

    async def ask_named(self, question: Callable[[], Question[T]]) -> dict[str, T | KetchError]:
        """See `Driver.ask_named`; a unix socket's address is its path."""
        host, port = self.place
        name = spelled(host, port) if port else host
        try:
            return {name: await self.ask(question())}
        except KetchError as error:
            return {name: error}

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

    def way(self, at: int) -> Link | None:
        """The link that commands of a slot go over; None where it is down or behind, or where such commands wait."""
        return self if self.pipe is not None and not self.pipe.behind else None

    @property
    def behind(self) -> bool:
        return self._live.behind

    async def drained(self) -> None:
        await self._live.drained()

    async def start(self) -> None:
        """Connects, or raises StorageUnavailable; from then on the link keeps itself up."""
        try:
            await self._connect(self._timeout, again=False)
        except BaseException:
            await self.stop()
            raise
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

    def leave(self) -> None:
        """Closes the connection for good: nothing of it is read any more, and what waits for a reply fails.

        `on_down` is not called. `stop` is to be called all the same.
        """
        self._on_down, pipe, self.pipe = None, self.pipe, None
        self._found.clear()
        for task in self._tasks:
            task.cancel()
        if pipe is not None:
            pipe.close()

    async def stop(self) -> None:
        self.leave()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._search is not None:
            await self._search.stop()

    def _keep_up(self) -> None:
        self._spawn(self._keep())
        if self._search is not None:
            self._spawn(self._follow(self._search))

    async def _follow(self, search: MasterSearch) -> None:
        """Gives up a connection to a server that is the master no more."""
        pause = _ASK_SENTINELS_S
        while True:
            await asyncio.sleep(pause)
            await self._found.wait()  # without a connection it is `_reconnect` that asks the sentinels
            named = await search.named(_ASK_SENTINELS_S)
            pause = _HURRY_S if named is None or named.down else _ASK_SENTINELS_S
            if self.pipe is None or named is None or named.epoch < self._epoch or named.place == self.place:
                continue
            with contextlib.suppress(StorageUnavailable):
                found = (await search.find(_PATIENCE_S, again=True)).address
                if self.pipe is not None and found.seeds[0] != self.place:
                    log.warning("The master is %s now (%s connection)", found.describe(), self._name)
                    self.pipe.close()

    async def _connect(self, patience: float, again: bool) -> None:
        """For the arguments see `MasterSearch.find`."""
        self._lost.clear()
        if self._search is not None:
            self._at, self._epoch = await self._search.find(patience, again)
        host, port = self.place
        tally = pipe_tally(f"{host}:{port}" if port else host, self._name)
        pipe = await open_pipe(self._at, self._timeout, self._went, self._on_push, tally)
        self._spawn(pipe.watch(self._timeout))
        try:
            if self._on_up is not None:
                await self._on_up(pipe)
        except BaseException:
            pipe.close()
            raise
        if pipe.connected:
            self.pipe = pipe
            self._found.set()

    async def _keep(self) -> None:
        while True:
            await self._lost.wait()
            await self._reconnect()
            log.info("Redis is back (%s connection, %s)", self._name, self._address.describe())

    async def _reconnect(self) -> None:
        delay = _BACKOFF_FIRST
        while self.pipe is None:
            await asyncio.sleep(delay)
            delay = min(2 * delay, _BACKOFF_MAX if self._search is None else _HURRY_S)
            try:
                await self._connect(min(self._timeout, _PATIENCE_S), again=True)
            except Exception as error:  # whatever it was, the next try may do
                log.debug("%s connection: %s", self._name, error)

    def _went(self) -> None:
        if self.pipe is not None:
            log.warning("Redis is gone (%s connection, %s); reconnecting", self._name, self._address.describe())
            self.pipe = None
            self._found.clear()
            if self._on_down is not None:
                self._on_down()
        self._lost.set()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
