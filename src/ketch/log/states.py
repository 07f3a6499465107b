"""What is known of every stream in use, until somebody changes it, and who waits for that. No I/O.

It owns one dict: each key that Redis may push, a stream's and those beside it, and the `AppendState` that the key is a
part of. A push of a key voids the state at once. Of other keys it knows who waits for them (`Waiter.add_key`). It may
not ask Redis: `log.watcher` does, and fills in the answers.

Why what is cached is true, as far as it depends on this file:

- Another client writes to a stream: the push drops the stream's ends, and who waits is woken. A push of a key beside it
  drops what is known of its transactions.
- This broker appends: the new end follows from the old one and the reply (`AppendState.landed`), without a question.
- Pushes were lost with the connection: everything that is cached is dropped, and everyone is woken.
- What is older than `max_age` is used only after Redis has shown that its pushes still come through (`verified`).
- A topic is deleted and another of its name is made: their partitions have states of their own and the same keys. The
  state that asked last has the keys. The other one loses all that it knows, and asks again before it uses anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, KeysView, Mapping
from functools import partial

from ketch.log.appending.state import AppendState
from ketch.store.stream.isolation import Transactions
from ketch.store.xinfo import StreamInfo


class Waiter:
    """Somebody's interest in the next change of some streams.

    A reader that adds a stream before it reads the stream's `info` misses no change. A stream that has changed is to be
    added again: so a reader that has gone without closing costs nothing more.

    Attributes:
        committed: it waits for committed records: an append while a transaction is open gives it none.
    """

    __slots__ = ("_others", "_states", "_streams", "_waking", "changed", "committed")

    def __init__(self, states: Mapping[bytes, AppendState], others: dict[bytes, set[Waiter]]) -> None:
        self._states, self._others = states, others
        self._streams: set[bytes] = set()
        self._waking: Callable[[], None] | None = None  # of the last who waits
        self.changed: dict[bytes, None] = {}  # since they were last taken, the one that changed first is first
        self.committed = False

    def add(self, stream: bytes) -> None:
        """Adds a stream; one of a topic that has been deleted has changed already."""
        if stream in self._streams:
            return
        state = self._states.get(stream)
        if state is None:
            self.fire(stream)
        else:
            self._streams.add(stream)
            if state.listeners is None:
                state.listeners = {self}
            else:
                state.listeners.add(self)

    def add_key(self, key: bytes) -> None:
        """Adds a key that is no stream's; to be called before it is read over the connection that is told."""
        self._streams.add(key)
        self._others.setdefault(key, set()).add(self)

    def close(self) -> None:
        for stream in self._streams:
            state = self._states.get(stream)
            if state is not None:
                if state.listeners is not None:
                    state.listeners.discard(self)
            elif stream in self._others:
                self._others[stream].discard(self)
                if not self._others[stream]:
                    del self._others[stream]
        self._streams.clear()

    def take(self) -> KeysView[bytes]:
        """The streams that have changed since the last call, the one that changed first is first."""
        changed, self.changed = self.changed, {}
        return changed.keys()

    async def wait(self, timeout: float) -> bool:
        """Until there is something to take; False where there is nothing after `timeout` seconds."""
        if not self.changed:
            loop = asyncio.get_running_loop()
            waking = loop.create_future()
            self._waking = partial(_wake, waking)
            timer = loop.call_later(timeout, _wake, waking)
            try:
                await waking
            finally:
                timer.cancel()
        return bool(self.changed)

    def call(self, waking: Callable[[], None]) -> None:
        """Has this called when there is something to take, perhaps more than once, in the place of who waits."""
        self._waking = waking

    def forget(self, waking: Callable[[], None]) -> None:
        """Calls this no more; who waits instead by now still does."""
        if self._waking == waking:
            self._waking = None

    def fire(self, stream: bytes) -> None:
        self._streams.discard(stream)
        self.changed.setdefault(stream)
        if self._waking is not None:
            self._waking()


def _wake(waking: asyncio.Future[None]) -> None:
    if not waking.done():
        waking.set_result(None)


class States:
    """The states of all streams in use, by key.

    Attributes:
        max_age: seconds for which an answer is used without another proof that pushes come through.
        verified: when the last such proof was asked for, seconds of the monotonic clock.
    """

    def __init__(self, max_age: float) -> None:
        self.max_age = max_age
        self.verified = 0.0
        self._by_key: dict[bytes, AppendState] = {}
        self._others: dict[bytes, set[Waiter]] = {}  # who waits for keys that are no stream's

    def claim(self, state: AppendState) -> None:
        """Pushes of its keys are this state's from now on."""
        holder = self._by_key.get(state.keys.stream)
        if holder is not state and not state.closed:
            if holder is not None:
                holder.void_all()
            for key in _keys(state):
                self._by_key[key] = state

    def forget(self, state: AppendState) -> None:
        """Its topic is gone."""
        if self._by_key.get(state.keys.stream) is state:
            for key in _keys(state):
                del self._by_key[key]
        state.void_all()

    # -- what is known

    def info(self, state: AppendState, now: float) -> StreamInfo | None:
        """The stream's ends, where they may be used now (monotonic seconds) without a question."""
        since = state.info_since
        fresh = now - (since if since > self.verified else self.verified) < self.max_age
        return state.info if fresh else None

    def transactions(self, state: AppendState, now: float) -> Transactions | None:
        """As `info`, of its transactions."""
        fresh = now - max(state.transactions_since, self.verified) < self.max_age
        return state.transactions if fresh else None

    def found_info(self, state: AppendState, info: StreamInfo, now: float) -> None:
        """Redis has answered, over the connection that its pushes come through."""
        self.claim(state)
        if not state.closed:
            state.info, state.info_since = info, now

    def found_transactions(self, state: AppendState, transactions: Transactions, now: float) -> None:
        """As `found_info`."""
        self.claim(state)
        if not state.closed:
            state.transactions, state.transactions_since = transactions, now

    # -- what changes it

    def pushed(self, keys: Iterable[bytes] | None) -> None:
        """Another client has written to these keys; None: all are gone (FLUSHALL)."""
        if keys is None:
            self.lost()
            return
        for key in keys:
            state = self._by_key.get(key)
            if state is None:
                self._fire_others(key)
            elif key == state.keys.stream:
                state.foreign_write()
            else:
                state.transactions_written()

    def _fire_others(self, key: bytes) -> None:
        for waiter in self._others.pop(key, ()):
            waiter.fire(key)

    def changed(self, key: bytes) -> None:
        """What is known of a stream, or of its transactions, is no longer true; no other client need have written."""
        state = self._by_key.get(key)
        if state is not None:
            if key == state.keys.stream:
                state.void()
            else:
                state.transactions_written()

    def written(self, key: bytes) -> None:
        """Who waits for a key that is no stream's looks again."""
        self._fire_others(key)

    def lost(self) -> None:
        """Pushes may have been lost."""
        for state in set(self._by_key.values()):
            state.void_all()
        for key in list(self._others):
            self._fire_others(key)

    def waiter(self) -> Waiter:
        """One that waits for nothing yet."""
        return Waiter(self._by_key, self._others)


def _keys(state: AppendState) -> tuple[bytes, bytes, bytes]:
    beside = state.transaction_keys
    return state.keys.stream, beside.transactions, beside.aborted
