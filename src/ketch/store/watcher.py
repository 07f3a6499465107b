"""Knows the ends of every stream someone reads, and wakes who waits when anyone writes.

One connection with client tracking on (Redis 6): a stream whose XINFO was read over it is watched, and its first
change, by whomever, is pushed. So what is cached is true until the push, waiting costs Redis nothing however many wait,
and a plain redis-cli XADD wakes a consumer as fast as our own producer does. XREAD BLOCK would need one command that
names all streams, sent anew at every change of the set, and its keys would span the slots of a cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Any

from ketch.errors import KetchError
from ketch.store.link import Link
from ketch.store.pipe import Pipe, parse
from ketch.store.streams import StreamInfo, parse_info
from ketch.store.url import RedisAddress


class Waiter:
    """One fetch's interest in some streams; `fired` is set by the first change of any of them."""

    __slots__ = ("fired", "keys")

    def __init__(self, keys: Iterable[bytes]) -> None:
        self.keys = frozenset(keys)
        self.fired = asyncio.Event()


class Watcher:
    """Stream ends, cached until they change.

    Args:
        max_age: seconds after which even an unchanged answer is asked for again.
    """

    def __init__(self, address: RedisAddress, timeout: float, max_age: float) -> None:
        self._link = Link("watch", address, timeout, self._track, self._drop_all, self._pushed)
        self._max_age = max_age
        self._known: dict[bytes, tuple[float, StreamInfo]] = {}
        self._asked: dict[bytes, asyncio.Future[bytes]] = {}
        self._waiters: dict[bytes, set[Waiter]] = {}
        self.closing = False  # nobody shall wait any more

    async def start(self) -> None:
        await self._link.start()

    async def stop(self) -> None:
        await self._link.stop()

    async def info(self, stream: bytes, command: bytes) -> StreamInfo:
        """The stream's ends as they are now.

        Args:
            command: what asks for them, see `Layout.info_command`.

        Raises:
            StorageUnavailable: Redis is gone.
            RedisError: the key holds something else than a stream.
        """
        known = self._known.get(stream)
        if known is not None and time.monotonic() - known[0] < self._max_age:
            return known[1]
        asked = self._asked.get(stream)
        if asked is None:
            asked = self._asked[stream] = self._link.pipe.send(command)
            asked.add_done_callback(lambda answer: self._answered(stream, answer))
        return parse_info(parse(await asyncio.shield(asked)))

    async def fresh_info(self, command: bytes) -> StreamInfo:
        """As `info`, but asked of Redis now: a push comes over this connection, so a reply on another may outrun it."""
        return parse_info(parse(await self._link.pipe.send(command)))

    def _answered(self, stream: bytes, answer: asyncio.Future[bytes]) -> None:
        self._asked.pop(stream, None)
        if answer.cancelled() or answer.exception() is not None:
            return
        with contextlib.suppress(KetchError):  # who asked sees it
            self._known[stream] = (time.monotonic(), parse_info(parse(answer.result())))

    def wait(self, streams: Iterable[bytes]) -> Waiter:
        """Registers a waiter; every stream's `info` must have been read since it last changed, or it may sleep on."""
        waiter = Waiter(streams)
        for stream in waiter.keys:
            self._waiters.setdefault(stream, set()).add(waiter)
            if self.closing or stream not in self._known:  # changed since it was read
                waiter.fired.set()
        return waiter

    def release(self, waiter: Waiter) -> None:
        for stream in waiter.keys:
            waiting = self._waiters.get(stream)
            if waiting is not None:
                waiting.discard(waiter)
                if not waiting:
                    del self._waiters[stream]

    def changed(self, stream: bytes) -> None:
        """Something was written: what is known of the stream is no longer true."""
        self._known.pop(stream, None)
        for waiter in self._waiters.get(stream, ()):
            waiter.fired.set()

    def close(self) -> None:
        """Wakes everyone for the last time."""
        self.closing = True
        self._drop_all()

    async def _track(self, pipe: Pipe) -> None:
        await pipe.call("CLIENT", "TRACKING", "ON")

    def _pushed(self, message: Any) -> None:
        if message[0] == b"invalidate":
            # call_soon, as futures do: a push must not overtake the reply that came in before it.
            for stream in message[1] or tuple(self._known):  # null: everything (FLUSHALL)
                asyncio.get_running_loop().call_soon(self.changed, stream)

    def _drop_all(self) -> None:
        for stream in {*self._known, *self._waiters}:
            self.changed(stream)
