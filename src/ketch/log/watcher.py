"""Asks where streams end and which transactions are open on them, over the connection that is told when that changes.

What Redis has answered is kept in `log.states`, which also says why it is true there. This file owns the connection for
appends, which has client tracking on (`CLIENT TRACKING ON NOLOOP`, Redis 6): Redis pushes the first change of a key
that was read over it, unless the change came over it too. It decides nothing about appends.

Why the answers and the pushes together are true:

- Another client writes to a stream whose XINFO was read here: Redis pushes its key.
- This broker appends, over this connection. NOLOOP means no push, but the reply comes in order with pushes, so the new
  end follows from the old one and the reply.
- A write ends the tracking of its key, one of this broker too. So an append with ids chosen here ends with a read of
  the stream (release.lua, single.lua). After one with ids chosen by Redis the cached end is dropped.
- A reply comes in, and a push before or after it. What is cached changes as soon as either is read off the connection
  (`Driver.post`), so in the order in which Redis wrote them. Who awaits an answer goes on in a later turn of the event
  loop, and puts nothing there.
- The transactions of a stream lie in keys beside it. The first batch of a transaction and its marker are our own writes
  to them. Their scripts read the keys again, as those of appends do, so what is known follows from what was known
  before. Whoever asks for a stream's `info` first and its `transactions` after that never sees a record without its
  transaction: both are written in one step, and the push of the one comes before the answer that has the other.
- The connection is lost, and pushes with it: everything is dropped.
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
from functools import partial
from typing import Any, TypeVar

from ketch.errors import StorageUnavailable
from ketch.log.appending.state import AppendState
from ketch.log.states import States, Waiter
from ketch.redis.driver import Connect, Node, Reply, received
from ketch.redis.question import Question, call
from ketch.redis.resp import parse
from ketch.store.append import appends
from ketch.store.stream.isolation import IsolationKeys, Transactions, look_command, parse_look
from ketch.store.xinfo import StreamInfo, parse_info

T = TypeVar("T")

NO_MODULE = "append is set to module, and this Redis has not loaded a version of it that is known here"


class Watcher:
    """The connection for appends, which is told of other clients' writes.

    Attributes:
        states: what is known of the streams.
        module: the version of the append module that all servers behind the connection have; 0 where one has none.
        post, ask, ask_each: see `Driver`.
        driver: the connection itself.
        closing: nobody shall wait any more.

    Args:
        connect: makes the driver.
        append: the setting of that name.
        max_age: seconds after which Redis must show that its pushes still come through. A reply to PING does, for all
            streams of a node at once: the pushes made before it have come in before it.
    """

    def __init__(self, connect: Connect, max_age: float, append: str) -> None:
        self._append = append
        self.module = 0
        self._modules: dict[Node, int] = {}  # of each node that is connected to
        self.states = States(max_age)
        self.driver = connect("write", self._track, self.states.lost, self._pushed)
        self.post, self.ask, self.ask_each = self.driver.post, self.driver.ask, self.driver.ask_each
        self._verifying: asyncio.Future[list[Any]] | None = None
        self.closing = False

    async def start(self) -> None:
        await self.driver.start()

    async def stop(self) -> None:
        await self.driver.stop()

    @property
    def up(self) -> bool:
        """Whether there is a connection now."""
        return self.driver.up

    @property
    def behind(self) -> bool:
        """Whether `drained` would wait; raises StorageUnavailable where there is no connection."""
        return self.driver.behind

    async def drained(self) -> None:
        """See `Driver.drained`; raises as `behind`."""
        await self.driver.drained()

    # -- what Redis says of a stream

    async def info(self, state: AppendState) -> StreamInfo:
        """The stream's ends as they are now.

        Raises:
            StorageUnavailable: Redis is gone.
            RedisError: the key holds something else than a stream.
        """
        info = self.states.info(state, time.monotonic())
        if info is None and state.info is not None:
            await self._verify()
            info = state.info
        return await asyncio.shield(self._ask_info(state)) if info is None else info

    async def transactions(self, state: AppendState) -> Transactions:
        """The stream's transactions, as they are after the last `info`. Raises as `info`."""
        known = self.states.transactions(state, time.monotonic())
        if known is None and state.transactions is not None:
            await self._verify()
            known = state.transactions
        return await asyncio.shield(self._ask_transactions(state)) if known is None else known

    def prefetch(self, state: AppendState) -> None:
        """Has `info` and `transactions` asked already what they will have to ask, so that many streams take one round
        trip."""
        with contextlib.suppress(StorageUnavailable):  # they will say it
            if state.info is None:
                self._ask_info(state)
            if state.transactions is None:
                self._ask_transactions(state)

    async def fresh_info(self, state: AppendState) -> StreamInfo:
        """As `info`, but asked of Redis now: a push comes over this connection, so a reply on another may outrun it."""
        return parse_info(parse(await self.driver.send(state.info_command)))

    def _ask_info(self, state: AppendState) -> asyncio.Future[StreamInfo]:
        """The answer to come; one question for all who ask at the same time."""
        if state.info_asked is None:
            asked = asyncio.get_running_loop().create_future()
            self.post(state.info_command, partial(self._info_answered, state, asked))
            state.info_asked = asked
        return state.info_asked

    def _info_answered(self, state: AppendState, asked: asyncio.Future[StreamInfo], reply: Reply) -> None:
        state.info_asked = None
        try:
            info = parse_info(parse(received(reply)))
        except Exception as error:  # a reply that cannot be read, too: who asked must not wait for ever
            _fail(asked, error)
            return
        self.states.found_info(state, info, time.monotonic())
        asked.set_result(info)

    def _ask_transactions(self, state: AppendState) -> asyncio.Future[Transactions]:
        if state.transactions_asked is None:
            asked = asyncio.get_running_loop().create_future()
            keys = IsolationKeys(state.transaction_keys.transactions, state.transaction_keys.aborted)
            self.post(look_command(keys), partial(self._transactions_answered, state, asked))
            state.transactions_asked = asked
        return state.transactions_asked

    def _transactions_answered(self, state: AppendState, asked: asyncio.Future[Transactions], reply: Reply) -> None:
        state.transactions_asked = None
        try:
            found = parse_look(parse(received(reply)), state.numbering)
        except Exception as error:
            _fail(asked, error)
            return
        self.states.found_transactions(state, found, time.monotonic())
        asked.set_result(found)

    async def _verify(self) -> None:
        if self._verifying is None:
            sent = time.monotonic()

            def answered(answer: asyncio.Future[list[Any]]) -> None:
                self._verifying = None
                if not answer.cancelled() and answer.exception() is None:
                    self.states.verified = sent

            self._verifying = asyncio.ensure_future(self.ask_each(_ping))
            self._verifying.add_done_callback(answered)
        await asyncio.shield(self._verifying)

    # -- what changes

    def waiter(self) -> Waiter:
        """One that waits for nothing yet."""
        return self.states.waiter()

    def changed(self, key: bytes) -> None:
        """See `States.changed`."""
        self.states.changed(key)

    def watch(self, state: AppendState) -> None:
        """From now on the state says whether others wrote; to be called before its stream is read over `ask`."""
        self.states.claim(state)
        state.watched()

    def close(self) -> None:
        """Wakes everyone for the last time."""
        self.closing = True
        self.states.lost()

    async def _track(self, node: Node) -> None:
        await node.ask(call(None, "CLIENT", "TRACKING", "ON", "NOLOOP"))
        version = 0 if self._append == "multi" else await node.ask(appends.module_version())
        if self._append == "module" and not version:
            node.close()
            raise StorageUnavailable(NO_MODULE)
        self._modules = {each: known for each, known in self._modules.items() if each.connected} | {node: version}
        self.module = min(self._modules.values())

    def _pushed(self, message: Any) -> None:
        if message[0] == b"invalidate":
            self.states.pushed(message[1])  # null: all (FLUSHALL)


def _ping() -> Question[Any]:
    return call(None, "PING")


def _fail(asked: asyncio.Future[T], error: Exception) -> None:
    asked.set_exception(error)
    asked.exception()  # nobody may have waited for it
