"""The transactional ids that this broker coordinates, and how their transactions are finished (KIP-98).

`Transactions` has the machines (`coordinator.transactions.transaction`) run by `broker.coordination.machines`, with
Redis's side of them from `store.coordination.transactional_ids`. It carries out what is decided: the markers on every
partition, and what becomes of the offsets that the transaction commits for groups. It owns the tasks that do that. It
decides nothing about a transaction itself.

What differs from groups: the broker that leads a partition adds it to a transaction itself, also where another broker
coordinates the id (`visit`), so that brokers need to reach nothing but Redis. Each write takes a new term, so whoever
loaded the machine before is refused, the coordinator as well as a visitor. It loads the machine and decides again.
What can happen when a broker dies:

- before the decision is stored: the next coordinator finds the transaction open and aborts it at its timeout.
- after that: the next coordinator finds it decided, and writes the markers. Those that are written do nothing.
- a broker that was paused writes markers of a decision that was stored: they are right, or come too late to do anything
  (end_transaction.lua). What it would decide is refused by the term.

When a node of Redis is lost: where `min.insync.replicas` wants copies, each save, each marker and each group's offsets
have them before a client or the next step relies on them. Where a save lacks them, the client is told to come again,
and the machine that is loaded then has to have them first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.coordination.cluster import Cluster
from ketch.broker.coordination.groups import Groups
from ketch.broker.coordination.kinds.kind import Kinds
from ketch.broker.coordination.kinds.transaction import TransactionKind
from ketch.broker.coordination.machines import Machines, Token
from ketch.clock import now_ms
from ketch.configs.settings import Settings
from ketch.coordinator.transactions.transaction import (
    Delayed,
    Event,
    Finish,
    Finished,
    NeedsProducerId,
    Partition,
    State,
    Transaction,
)
from ketch.errors import InvalidProducerEpoch, KetchError, NotCoordinator, UnknownTopicOrPartition
from ketch.log.log import Log
from ketch.records.control import Marker
from ketch.redis.question import Question
from ketch.store.coordination import pending_offsets, transactional_ids
from ketch.store.coordination.terms import Overtaken
from ketch.store.keys import Keyspace
from ketch.store.scripts import Holder

log = logging.getLogger(__name__)

_TRIES = 5  # of an event, where other brokers write the machine at the same time
_LOOK_S = 10.0  # how often a coordinator looks for transactions that it does not know of
_ENDED_SOON_S = 0.002  # how soon a visitor looks again at a transaction that is being finished; doubled each time
_PAUSE_S, _PAUSE_MAX_S = 0.05, 5.0  # between two attempts to write markers
_OPEN = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
_RETRIABLE = (ErrorCode.none, ErrorCode.concurrent_transactions, ErrorCode.coordinator_not_available)

Make = Callable[[Token, int | None], Event]
"""An event from its token and, where the machine has asked for one, a fresh producer id."""


class Transactions:
    """The transactional ids that this broker coordinates.

    Args:
        groups: apply offsets of committed transactions.
        keep: keeps a task alive until it is done or the broker stops.

    Attributes:
        machines: of the transactional ids.
    """

    def __init__(
        self,
        settings: Settings,
        log_: Log,
        cluster: Cluster,
        groups: Groups,
        keep: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        kinds = Kinds[Transaction](TransactionKind(self._start_finishing))
        self.machines = Machines(TransactionNamespace(log_.keys), kinds, settings.node_id, log_, cluster)
        self._log, self._cluster, self._groups, self._keep = log_, cluster, groups, keep
        self._link, self._keys = log_.driver, log_.keys
        self._expiration_ms = settings.transactional_id_expiration_ms
        self._followed: bytes | None = None  # up to where this broker knows other brokers' changes
        self._moved = asyncio.Event()
        self._visiting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        cluster.listen(self.relinquish, self._follow)

    def stop(self) -> None:
        """Answers clients that wait; timers end."""
        self.machines.stop()

    # -- asking

    async def ask(self, id: str, make: Make) -> Any:
        """A machine's answer to an event; raises as `Machines.submit`."""
        tries, fresh, sure = _TRIES, None, False
        while True:
            cached = id in self.machines.in_memory
            try:
                result = await self.machines.submit(id, lambda token: make(token, fresh))  # noqa: B023
            except NotCoordinator:  # another broker has written it, or it is another's now
                tries -= 1
                if not tries or not self.machines.coordinates(id):
                    raise
                continue
            if isinstance(result, NeedsProducerId):
                fresh = await self._log.new_producer_id()
            elif not sure and cached and result.error not in _RETRIABLE and await self._forget_stored(id):
                sure = True  # a visitor may have changed it, and a refusal writes nothing that would show it
            else:
                return result

    async def visit(self, id: str, make: Callable[[Token], Event], lease: bool, verifies: bool = False) -> Any:
        """As `ask`, at the broker that leads a partition of the transaction.

        Args:
            lease: `Cluster.leased_at` of the time when the request was received.
            verifies: the event writes nothing, so nothing would show that another broker has written the machine since
                it was loaded. What is stored answers it.
        """
        result, verifies = None, verifies and not self._cluster.alone
        for tried in range(_TRIES):
            if self.machines.coordinates(id) and not verifies:
                return await self.ask(id, lambda token, _: make(token))
            async with self._visiting.setdefault(id, asyncio.Lock()):  # this broker's visitors do not refuse each other
                with contextlib.suppress(Overtaken):
                    result = await self.machines.visit(id, make, lease)
            if result is not None:
                if result.error is not ErrorCode.concurrent_transactions:
                    return result
                # The client was answered when the markers were written, and its coordinator is storing that.
                if tried < _TRIES - 1:
                    await asyncio.sleep(_ENDED_SOON_S * 2**tried)
        if result is not None:
            return result
        raise NotCoordinator(f"transactional id {id}: others write it all the time")

    async def _forget_stored(self, id: str) -> bool:
        """As `_forget`, after a save that is on its way: an EndTxn is answered before its end is stored."""
        await self.machines.written(id)
        return self._forget(id)

    def _forget(self, id: str) -> bool:
        """Whether the machine is not in memory any more; it stays there while something waits for it."""
        machine = self.machines.in_memory.get(id)
        return machine is None or (not (machine.waiting or machine.finishing) and self.machines.forget(id))

    # -- finishing

    def _start_finishing(self, id: str, finish: Finish) -> None:
        self._keep(asyncio.get_running_loop().create_task(self._finish(id, finish)))

    async def _finish(self, id: str, finish: Finish) -> None:
        pause = _PAUSE_S
        while True:
            try:
                await self._write(finish)
                break
            except KetchError as error:
                if pause == _PAUSE_S:
                    log.warning("transactional id %s: it is decided, markers have to wait: %s", id, error)
                self.machines.tell(id, Delayed(finish.started))
            except Exception:
                log.exception("transactional id %s: markers", id)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)
        metrics.transaction_ended(finish.commit)
        # Where the machine is no longer here, the next coordinator finishes the transaction once more.
        self.machines.tell(id, Finished(finish.started))

    async def _write(self, finish: Finish) -> None:
        """Writes what follows from the decision; every part can be repeated."""
        marker = Marker(finish.producer, finish.epoch, finish.commit, finish.started)
        parts = [
            *(self._mark(partition, marker) for partition in finish.partitions),
            *(self._decide_offsets(group, finish) for group in finish.groups),
        ]
        await (parts[0] if len(parts) == 1 else asyncio.gather(*parts))

    async def _mark(self, partition: Partition, marker: Marker) -> None:
        name, index = partition
        try:
            await self._log.end_transaction(self._log.partition(await self._log.topic(name), index), marker)
        except (UnknownTopicOrPartition, InvalidProducerEpoch) as error:
            log.debug("%s-%d: no marker: %s", name, index, error)  # it was deleted, or the marker was written already

    async def _decide_offsets(self, group: str, finish: Finish) -> None:
        def decide() -> Awaitable[None]:
            made = pending_offsets.decide(self._keys, group, finish.producer, finish.started, finish.commit)
            return self._link.ask(made)

        await self._log.copied(self._link, [self._keys.pending_offsets(group)], decide)
        if not finish.commit:
            return
        if self._cluster.coordinates("group", group):
            await self._groups.apply_pending(group, sure=True)
        else:
            await self._link.ask(transactional_ids.journal_group(self._keys, group))

    # -- other brokers

    def relinquish(self) -> None:
        """Brokers have come or gone: open transactions of ids that have fallen to this one are looked for at once."""
        self.machines.relinquish()
        self._moved.set()

    async def _follow(self) -> None:
        """Loads again what visitors have changed, and has groups apply what other coordinators have decided."""
        since = self._followed
        if since is None:
            self._followed = await self._link.ask(transactional_ids.journal_end(self._keys))
            return
        ids, groups, self._followed = await self._link.ask(transactional_ids.changed_since(self._keys, since))
        for id in ids:
            if self.machines.coordinates(id) and self._forget(id):
                await self.machines.take_over(id)
        for group in groups:
            if self._cluster.coordinates("group", group):
                await self._groups.apply_pending(group, sure=True)

    async def run(self) -> None:
        """Takes care of the open transactions of this broker's ids, also of those that it was never asked for."""
        while True:
            self._moved.clear()
            try:
                await self._look()
            except KetchError as error:
                log.warning("transactions: %s", error)
            except Exception:
                log.exception("transactions")
            # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._moved.wait()

    async def _look(self) -> None:
        for id, (state, _) in (await self._states()).items():
            if state in _OPEN and id not in self.machines.in_memory and self.machines.coordinates(id):
                await self.machines.take_over(id)

    async def _states(self) -> dict[str, tuple[str, int]]:
        ids = await self._link.ask(transactional_ids.names(self._keys))
        own = [id for id in ids if self.machines.coordinates(id)]
        return await self._link.ask(transactional_ids.states(self._keys, own))

    # -- which there are

    async def names(self) -> list[str]:
        """Every transactional id of this broker."""
        return list(await self._states())

    async def find(self, id: str) -> Transaction | None:
        """What is stored of an id; None where there is nothing. Raises NotCoordinator where it is another broker's."""
        self.machines.require(id)
        machine = await self.machines.read(id)
        return None if machine.epoch < 0 else machine

    async def expire(self) -> None:
        """Forgets the ids that have had no transaction for `transactional_id_expiration_ms`."""
        oldest = now_ms() - self._expiration_ms
        for id, (state, updated) in (await self._states()).items():
            if state in _OPEN or updated >= oldest:
                continue
            try:
                if await self.machines.retire(id, partial(self._delete, id)):
                    log.info("transactional id %s has expired", id)
            except KetchError as error:
                log.warning("transactional id %s: %s", id, error)

    async def _delete(self, id: str, term: str) -> None:
        await self._link.ask(transactional_ids.delete(self._keys, id, term))


class TransactionNamespace:
    """How Redis keeps transactional ids, see `broker.coordination.machines.Namespace`."""

    name = "transaction"
    shared = True

    def __init__(self, keys: Keyspace) -> None:
        self._keys = keys

    def copied(self, id: str, new: bool) -> list[bytes]:
        return [self._keys.transaction(id), *([self._keys.transactional_ids] if new else [])]

    def load(self, id: str) -> Question[dict[str, str]]:
        return transactional_ids.load(self._keys, id)

    def hold(self, id: str, holder: Holder, above: int) -> Question[str]:
        return transactional_ids.hold(self._keys, id, holder, above)

    def save(self, id: str, holder: Holder, fields: Mapping[str, str]) -> Question[str]:
        return transactional_ids.save(self._keys, id, holder, fields)

    def journal(self, id: str) -> Question[None]:
        return transactional_ids.journal(self._keys, id)
