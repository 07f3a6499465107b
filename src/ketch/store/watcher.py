"""Knows the ends of every stream someone reads, and wakes who waits when anyone writes.

One connection with client tracking on (Redis 6): a stream whose XINFO was read over it is watched, and its first
change by anybody else is pushed. So what is cached is true until the push, waiting costs Redis nothing however many
wait, and a plain redis-cli XADD wakes a consumer as fast as our own producer does. XREAD BLOCK would need one command
that names all streams, sent anew at every change of the set, and its keys would span the slots of a cluster.

Batches are appended over the same connection. It is told nothing of these (NOLOOP), but it has their replies, in order
with the pushes; so behind our own append the ends are known without a question. As any write ends the tracking of its
key, each append ends with a read of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import Any

from ketch.errors import StorageUnavailable
from ketch.store.link import Link
from ketch.store.pipe import Pipe, pack, parse
from ketch.store.streams import Id, StreamInfo, parse_info
from ketch.store.url import RedisAddress

_PING = pack("PING")


class Waiter:
    """Somebody's interest in the next change of some streams.

    Whoever adds a stream before reading its `info` misses no change. One that has changed is to be added again: so
    whoever has gone without a word costs nothing more.
    """

    __slots__ = ("_fired", "_streams", "_waiters", "changed")

    def __init__(self, waiters: dict[bytes, set[Waiter]]) -> None:
        self._waiters = waiters
        self._streams: set[bytes] = set()
        self._fired = asyncio.Event()
        self.changed: set[bytes] = set()  # since they were last taken

    def add(self, stream: bytes) -> None:
        if stream not in self._streams:
            self._streams.add(stream)
            self._waiters.setdefault(stream, set()).add(self)

    def close(self) -> None:
        for stream in self._streams:
            waiting = self._waiters.get(stream, set())
            waiting.discard(self)
            if not waiting:
                self._waiters.pop(stream, None)
        self._streams.clear()

    def take(self) -> set[bytes]:
        """The streams that have changed since the last call."""
        changed, self.changed = self.changed, set()
        self._fired.clear()
        return changed

    async def wait(self) -> None:
        """Until there is something to take."""
        await self._fired.wait()

    def fire(self, stream: bytes) -> None:
        self._streams.discard(stream)
        self.changed.add(stream)
        self._fired.set()


class Watcher:
    """Stream ends, cached until they change.

    Attributes:
        link: the connection; appends go over it.

    Args:
        max_age: seconds after which Redis must show that its pushes still come through. A reply to PING does, for all
            streams at once: the pushes made before it have come in before it.
    """

    def __init__(self, address: RedisAddress, timeout: float, max_age: float) -> None:
        self.link = Link("write", address, timeout, self._track, self._drop_all, self._pushed)
        self._max_age = max_age
        self._known: dict[bytes, tuple[float, StreamInfo]] = {}
        self._asked: dict[bytes, asyncio.Future[StreamInfo]] = {}
        self._verified = 0.0  # when the last PING was sent that was answered
        self._verifying: asyncio.Future[bytes] | None = None
        self._waiters: dict[bytes, set[Waiter]] = {}
        self._minded: dict[bytes, bool] = {}  # whether somebody else has written
        self.closing = False  # nobody shall wait any more

    async def start(self) -> None:
        await self.link.start()

    async def stop(self) -> None:
        await self.link.stop()

    async def info(self, stream: bytes, command: bytes) -> StreamInfo:
        """The stream's ends as they are now.

        Args:
            command: what asks for them, see `Layout.info_command`.

        Raises:
            StorageUnavailable: Redis is gone.
            RedisError: the key holds something else than a stream.
        """
        if stream in self._known and self.known(stream) is None:
            await self._verify()
        if stream in self._known:
            return self._known[stream][1]
        return await asyncio.shield(self._ask(stream, command))

    def known(self, stream: bytes) -> StreamInfo | None:
        """As `info`, where it has nothing to ask."""
        known = self._known.get(stream)
        if known is None or time.monotonic() - max(known[0], self._verified) >= self._max_age:
            return None
        return known[1]

    def prefetch(self, stream: bytes, command: bytes) -> None:
        """Has `info` asked already what it will have to ask, so that many streams take one round trip."""
        if stream not in self._known:
            with contextlib.suppress(StorageUnavailable):  # `info` will say it
                self._ask(stream, command)

    def _ask(self, stream: bytes, command: bytes) -> asyncio.Future[StreamInfo]:
        asked = self._asked.get(stream)
        if asked is None:
            answer = self.link.pipe.send(command)
            asked = self._asked[stream] = asyncio.get_running_loop().create_future()
            answer.add_done_callback(partial(self._answered, stream, asked))
        return asked

    async def _verify(self) -> None:
        if self._verifying is None:
            sent = time.monotonic()

            def answered(answer: asyncio.Future[bytes]) -> None:
                self._verifying = None
                if not answer.cancelled() and answer.exception() is None:
                    self._verified = sent

            self._verifying = self.link.pipe.send(_PING)
            self._verifying.add_done_callback(answered)
        await asyncio.shield(self._verifying)

    async def fresh_info(self, command: bytes) -> StreamInfo:
        """As `info`, but asked of Redis now: a push comes over this connection, so a reply on another may outrun it."""
        return parse_info(parse(await self.link.pipe.send(command)))

    def _answered(self, stream: bytes, asked: asyncio.Future[StreamInfo], answer: asyncio.Future[bytes]) -> None:
        del self._asked[stream]
        try:
            info = parse_info(parse(answer.result()))
        except Exception as error:  # a reply that cannot be read, too: who asked must not wait for ever
            asked.set_exception(error)
            asked.exception()  # nobody may have waited for it
            return
        self._known[stream] = (time.monotonic(), info)
        asked.set_result(info)

    def waiter(self) -> Waiter:
        """One that waits for nothing yet."""
        return Waiter(self._waiters)

    def appended(self, stream: bytes, behind: Id, last: Id, entries: int) -> StreamInfo | None:
        """Our own append has landed: what is known of the stream now, if anything is.

        Args:
            behind: last-generated-id before it, as Redis has verified.
            last: the last entry's id.
        """
        known = self._known.get(stream)
        if known is None or known[1].last != behind or known[1].first is None:
            self.changed(stream)
            return None
        info = known[1].behind(last, entries)
        self._known[stream] = (known[0], info)
        self._fire(stream)
        return info

    def changed(self, stream: bytes) -> None:
        """Something was written: what is known of the stream is no longer true."""
        self._known.pop(stream, None)
        self._fire(stream)

    def mind(self, stream: bytes) -> None:
        """From now on `moved` answers for this stream; to be called before it is read over the connection."""
        self._minded[stream] = False

    def moved(self, stream: bytes) -> bool:
        """Whether somebody else has written to it, as far as was said, or the connection was lost."""
        return self._minded.get(stream, False)

    def unmind(self, stream: bytes) -> None:
        """Nobody will ask."""
        self._minded.pop(stream, None)

    def _fire(self, stream: bytes) -> None:
        for waiter in self._waiters.pop(stream, ()):
            waiter.fire(stream)

    def close(self) -> None:
        """Wakes everyone for the last time."""
        self.closing = True
        self._drop_all()

    async def _track(self, pipe: Pipe) -> None:
        await pipe.call("CLIENT", "TRACKING", "ON", "NOLOOP")

    def _pushed(self, message: Any) -> None:
        if message[0] == b"invalidate":
            # call_soon, as futures do: a push must not overtake the reply that came in before it.
            for stream in message[1] or {*self._known, *self._minded}:  # null: everything (FLUSHALL)
                if stream in self._minded:
                    self._minded[stream] = True
                asyncio.get_running_loop().call_soon(self.changed, stream)

    def _drop_all(self) -> None:
        self._minded = dict.fromkeys(self._minded, True)
        for stream in {*self._known, *self._waiters}:
            self.changed(stream)
