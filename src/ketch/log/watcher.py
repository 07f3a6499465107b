"""Caches where streams end and which transactions are open on them, and wakes who waits for a change of a stream.

It owns the connection for appends, which has client tracking on (`CLIENT TRACKING ON NOLOOP`, Redis 6): Redis pushes
the first change of a key that was read over it, unless the change came over it too. Why a cached end is true:

- Another client writes to a stream whose XINFO was read here. The push drops the cached end, and who waits is woken.
- This broker appends, over this connection. NOLOOP means no push, but the reply comes in order with pushes. So the new
  end follows from the old one and the reply (`Watcher.appended`), without a question.
- A write ends the tracking of its key, one of this broker too. So an append with ids chosen here ends with a read of
  the stream (release.lua, single.lua). After one with ids chosen by Redis the cached end is dropped.
- A reply comes in, and a push before or after it. What is cached changes as soon as either is read off the connection
  (`Pipe.post`), so in the order in which Redis wrote them. Who awaits an answer goes on in a later turn of the event
  loop, and puts nothing here.
- The transactions of a stream lie in keys beside it. A push of such a key drops what is known of them. The first batch
  of a transaction and its marker are our own writes to them. Who appends those says so (`in_transaction`,
  `transaction_ended`) before it says what they appended. Their scripts read the keys again, as those of appends do, so
  what is known follows from what was known before. Whoever asks for a stream's `info` first and its `transactions`
  after that never sees a record without its transaction: both are written in one step, and the push of the one comes
  before the answer that has the other.
- The connection is lost, and pushes with it. Everything that is cached is dropped, and everyone is woken.
- The connection hangs. What is older than `max_age` is used only after a PING was answered: pushes made before its
  reply have come in before it.

XREAD BLOCK instead would need one command that names all streams, sent again at every change of the set, and its keys
would span the slots of a cluster. With tracking, waiting costs Redis nothing however many wait, and an XADD by
redis-cli wakes a consumer as fast as our own producer does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from ketch.errors import StorageUnavailable
from ketch.redis.driver import Connect, Driver, Node, Reply, received
from ketch.redis.question import Command, call, command
from ketch.redis.resp import parse
from ketch.store.append import appends
from ketch.store.offsets import EntryId, OffsetNumbering
from ketch.store.stream.isolation import IsolationKeys, Transactions, look_command, parse_look
from ketch.store.xinfo import StreamInfo, parse_info

T = TypeVar("T")

NO_MODULE = "append is set to module, and this Redis has not loaded a version of it that is known here"
_PING = command(None, "PING")


class Waiter:
    """Somebody's interest in the next change of some streams.

    A reader that adds a stream before it reads the stream's `info` misses no change. A stream that has changed is to be
    added again: so a reader that has gone without closing costs nothing more.

    Attributes:
        committed: it waits for committed records: an append while a transaction is open gives it none.
    """

    __slots__ = ("_streams", "_waiters", "_waking", "changed", "committed")

    def __init__(self, waiters: dict[bytes, set[Waiter]]) -> None:
        self._waiters = waiters
        self._streams: set[bytes] = set()
        self._waking: asyncio.Future[None] | None = None  # of the last who waits
        self.changed: set[bytes] = set()  # since they were last taken
        self.committed = False

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
        return changed

    async def wait(self, timeout: float) -> bool:
        """Until there is something to take; False where there is nothing after `timeout` seconds."""
        if not self.changed:
            loop = asyncio.get_running_loop()
            waking = self._waking = loop.create_future()
            timer = loop.call_later(timeout, _wake, waking)
            try:
                await waking
            finally:
                timer.cancel()
        return bool(self.changed)

    def fire(self, stream: bytes) -> None:
        self._streams.discard(stream)
        self.changed.add(stream)
        if self._waking is not None:
            _wake(self._waking)


def _wake(waking: asyncio.Future[None]) -> None:
    if not waking.done():
        waking.set_result(None)


class _Answers(Generic[T]):
    """What Redis has answered about streams over the connection that it pushes changes through.

    Attributes:
        known: by stream the answer, and when it came.
    """

    def __init__(self, link: Driver) -> None:
        self.known: dict[bytes, tuple[float, T]] = {}
        self._link = link
        self._asked: dict[bytes, asyncio.Future[T]] = {}

    def ask(self, stream: bytes, command: Command, read: Callable[[Any], T]) -> asyncio.Future[T]:
        """The answer to come; one question for all who ask at the same time."""
        asked = self._asked.get(stream)
        if asked is None:
            asked = asyncio.get_running_loop().create_future()
            self._link.post(command, partial(self._answered, stream, asked, read))
            self._asked[stream] = asked
        return asked

    def _answered(self, stream: bytes, asked: asyncio.Future[T], read: Callable[[Any], T], reply: Reply) -> None:
        del self._asked[stream]
        try:
            found = read(parse(received(reply)))
        except Exception as error:  # a reply that cannot be read, too: who asked must not wait for ever
            asked.set_exception(error)
            asked.exception()  # nobody may have waited for it
            return
        self.known[stream] = (time.monotonic(), found)
        asked.set_result(found)


class Watcher:
    """Stream ends and open transactions, cached until they change.

    Attributes:
        link: the driver that it asks with; appends go the same way.
        module: the version of the append module that the server behind it has; 0 for none.

    Args:
        connect: makes the driver.
        append: the setting of that name.
        max_age: seconds after which Redis must show that its pushes still come through. A reply to PING does, for all
            streams at once: the pushes made before it have come in before it.
    """

    def __init__(self, connect: Connect, max_age: float, append: str) -> None:
        self._append = append
        self.module = 0
        self.link = connect("write", self._track, self._drop_all, self._pushed)
        self._max_age = max_age
        self._infos = _Answers[StreamInfo](self.link)
        self._transactions = _Answers[Transactions](self.link)
        self._beside: dict[bytes, bytes] = {}  # the streams of the keys with transactions
        self._verified = 0.0  # when the last PING was sent that was answered
        self._verifying: asyncio.Future[bytes] | None = None
        self._waiters: dict[bytes, set[Waiter]] = {}
        self._written: dict[bytes, bool] = {}  # whether another client has written
        self.closing = False  # nobody shall wait any more

    async def start(self) -> None:
        await self.link.start()

    async def stop(self) -> None:
        await self.link.stop()

    async def info(self, command: Command) -> StreamInfo:
        """The stream's ends as they are now.

        Args:
            command: what asks for them, see `PartitionStream.info_command`.

        Raises:
            StorageUnavailable: Redis is gone.
            RedisError: the key holds something else than a stream.
        """
        stream = _key(command)
        if stream in self._infos.known and self.known(stream) is None:
            await self._verify()
        if stream in self._infos.known:
            return self._infos.known[stream][1]
        return await asyncio.shield(self._infos.ask(stream, command, parse_info))

    def known(self, stream: bytes) -> StreamInfo | None:
        """As `info`, where it has nothing to ask."""
        known = self._infos.known.get(stream)
        return known[1] if known is not None and self._fresh(known[0]) else None

    async def transactions(self, stream: bytes, keys: IsolationKeys, numbering: OffsetNumbering) -> Transactions:
        """The stream's transactions, as they are after the last `info`. Raises as `info`."""
        known = self._transactions.known.get(stream)
        if known is not None and not self._fresh(known[0]):
            await self._verify()
        if stream in self._transactions.known:
            return self._transactions.known[stream][1]
        return await asyncio.shield(self._ask_transactions(stream, keys, numbering))

    def prefetch_transactions(self, stream: bytes, keys: IsolationKeys, numbering: OffsetNumbering) -> None:
        """As `prefetch`, for `transactions`."""
        if stream not in self._transactions.known:
            with contextlib.suppress(StorageUnavailable):
                self._ask_transactions(stream, keys, numbering)

    def _ask_transactions(
        self, stream: bytes, keys: IsolationKeys, numbering: OffsetNumbering
    ) -> asyncio.Future[Transactions]:
        for key in keys:
            self._beside[key] = stream
        return self._transactions.ask(stream, look_command(keys), partial(parse_look, numbering=numbering))

    def in_transaction(self, stream: bytes, producer: int, offset: int | None) -> None:
        """This broker has appended a batch of a transaction.

        Args:
            offset: its first one; None where the script that appended it did not read the keys again.
        """
        known = self._transactions.known.get(stream)
        if known is not None and producer not in known[1].open:
            if offset is None:
                del self._transactions.known[stream]
            else:
                self._transactions.known[stream] = known[0], known[1].begun(producer, offset)

    def transaction_ended(self, stream: bytes, producer: int, commit: bool) -> None:
        """This broker has appended a marker."""
        known = self._transactions.known.get(stream)
        if known is not None and commit:
            self._transactions.known[stream] = known[0], known[1].ended(producer)
        else:
            self._transactions.known.pop(stream, None)

    def _fresh(self, since: float) -> bool:
        return time.monotonic() - max(since, self._verified) < self._max_age

    def prefetch(self, command: Command) -> None:
        """Has `info` asked already what it will have to ask, so that many streams take one round trip."""
        stream = _key(command)
        if stream not in self._infos.known:
            with contextlib.suppress(StorageUnavailable):  # `info` will say it
                self._infos.ask(stream, command, parse_info)

    async def _verify(self) -> None:
        if self._verifying is None:
            sent = time.monotonic()

            def answered(answer: asyncio.Future[bytes]) -> None:
                self._verifying = None
                if not answer.cancelled() and answer.exception() is None:
                    self._verified = sent

            self._verifying = self.link.send(_PING)
            self._verifying.add_done_callback(answered)
        await asyncio.shield(self._verifying)

    async def fresh_info(self, command: Command) -> StreamInfo:
        """As `info`, but asked of Redis now: a push comes over this connection, so a reply on another may outrun it."""
        return parse_info(parse(await self.link.send(command)))

    def waiter(self) -> Waiter:
        """One that waits for nothing yet."""
        return Waiter(self._waiters)

    def appended(
        self, stream: bytes, follows: EntryId, last: EntryId, entries: int, marker: bool = False
    ) -> StreamInfo | None:
        """Our own append has landed: what is known of the stream now, if anything is.

        Args:
            follows: last-generated-id before it, as Redis has verified.
            last: the last entry's id.
            marker: it was one; the last stable offset may have moved while other transactions are open.
        """
        known = self._infos.known.get(stream)
        if known is None or known[1].last != follows or known[1].first is None:
            self.changed(stream)
            return None
        info = known[1].appended(last, entries)
        self._infos.known[stream] = (known[0], info)
        transactions = self._transactions.known.get(stream)
        self._fire(stream, committed=marker or transactions is None or not transactions[1].open)
        return info

    def changed(self, stream: bytes) -> None:
        """Something was written: what is known of the stream is no longer true."""
        self._infos.known.pop(stream, None)
        self._fire(stream)

    def watch_writes(self, stream: bytes) -> None:
        """From now on `others_wrote` answers for this stream; to be called before it is read over the connection."""
        self._written[stream] = False

    def others_wrote(self, stream: bytes) -> bool:
        """Whether Redis has pushed a write of another client, or the connection was lost."""
        return self._written.get(stream, False)

    def unwatch_writes(self, stream: bytes) -> None:
        """Nobody will ask."""
        self._written.pop(stream, None)

    def _fire(self, stream: bytes, committed: bool = True) -> None:
        """Args: committed: whether there may be something for readers of committed records, too."""
        waiting = self._waiters.pop(stream, set())
        if waiting and not committed:
            kept = {waiter for waiter in waiting if waiter.committed}
            if kept:
                self._waiters[stream], waiting = kept, waiting - kept
        for waiter in waiting:
            waiter.fire(stream)

    def close(self) -> None:
        """Wakes everyone for the last time."""
        self.closing = True
        self._drop_all()

    async def _track(self, node: Node) -> None:
        await node.ask(call(None, "CLIENT", "TRACKING", "ON", "NOLOOP"))
        self.module = 0 if self._append == "multi" else await node.ask(appends.module_version())
        if self._append == "module" and not self.module:
            node.close()
            raise StorageUnavailable(NO_MODULE)

    def _pushed(self, message: Any) -> None:
        if message[0] == b"invalidate":
            for key in message[1] or {*self._infos.known, *self._written, *self._beside}:  # null: all (FLUSHALL)
                if key in self._written:
                    self._written[key] = True
                if key in self._beside:
                    self._transactions.known.pop(self._beside[key], None)
                    self._fire(self._beside[key])
                else:
                    self.changed(key)

    def _drop_all(self) -> None:
        self._written = dict.fromkeys(self._written, True)
        self._transactions.known.clear()
        self._beside.clear()
        for stream in {*self._infos.known, *self._waiters}:
            self.changed(stream)


def _key(command: Command) -> bytes:
    assert command.key is not None
    return command.key
