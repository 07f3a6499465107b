"""Transactions of two brokers, one Redis: what clients are answered while another broker writes the same id."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.groups import Groups
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.broker.coordination.transactions import Transactions
from ketch.coordinator.transactions.transaction import Add, Added, End, Identity, Init, State
from ketch.redis.question import Question
from tests.support.brokers import SilentBroker
from tests.support.ketch import KetchServer

T = TypeVar("T")
PARTITIONS = frozenset({("nothing-is-produced", 0)})


class Broker(SilentBroker):
    """A broker that coordinates transactional ids."""

    def __init__(self, url: str, keyspace: str, node: int) -> None:
        super().__init__(url, keyspace, node)
        tasks = set[asyncio.Task[Any]]()
        native = NativeGroups(self.log, self.cluster, Assignments(), tasks.add)
        groups = Groups(self.settings, self.log, self.cluster, native)
        self.transactions = Transactions(self.settings, self.log, self.cluster, groups, tasks.add)

    def stop(self) -> None:
        self.transactions.stop()

    async def add(self, id: str, identity: Identity) -> Added:
        """What a broker that leads a partition does before it appends."""
        added: Added = await self.transactions.visit(
            id, lambda token: Add(token, identity.producer, identity.epoch, PARTITIONS), self.cluster.lease
        )
        return added

    async def verify(self, id: str, identity: Identity) -> Added:
        """The same, of a producer that has added its partitions itself."""
        make = Add(None, identity.producer, identity.epoch, PARTITIONS, verify=True)
        added: Added = await self.transactions.visit(
            id, lambda token: replace(make, token=token), self.cluster.lease, verifies=True
        )
        return added

    async def end(self, id: str, identity: Identity, bumps: bool = True) -> Identity:
        ended: Identity = await self.transactions.ask(
            id, lambda token, fresh: End(token, identity.producer, identity.epoch, True, bumps=bumps, fresh=fresh)
        )
        return ended

    def hear_late(self, of: State) -> asyncio.Event:
        """Has this broker hear that a state is stored only when the event is set; Redis stores it at once."""
        ask, heard = self.log.driver.ask, asyncio.Event()

        async def late(question: Question[T]) -> T:
            saves = question.gi_frame.f_locals.get("fields", {}).get("state") == of  # type: ignore[attr-defined]
            answer = await ask(question)
            if saves:
                await heard.wait()
            return answer

        self.log.driver.ask = late  # type: ignore[method-assign]
        return heard


def test_a_refusal_waits_until_what_the_client_was_answered_before_is_stored(broker: KetchServer) -> None:
    async def work(coordinator: Broker, leader: Broker, id: str) -> None:
        first: Identity = await coordinator.transactions.ask(id, lambda token, fresh: Init(token, 60_000, fresh=fresh))
        assert not (await coordinator.add(id, first)).error
        heard = coordinator.hear_late(State.COMPLETE_COMMIT)
        second = await coordinator.end(id, first)  # answered before its end is stored
        assert (second.error, second.epoch) == (ErrorCode.none, first.epoch + 1)
        assert not (await leader.add(id, second)).error, "the leader sees in Redis that the first one has ended"
        ending = asyncio.ensure_future(coordinator.end(id, second))
        done, _ = await asyncio.wait([ending], timeout=0.2)
        assert not done, "what the coordinator knows has ended, but another broker has begun the next one"
        heard.set()
        assert (await ending).error is ErrorCode.none

    asyncio.run(_with_two(broker.redis_url, work))


def test_a_coordinator_that_another_one_has_overtaken_vouches_for_nothing(broker: KetchServer) -> None:
    """It has loaded an open transaction, the other one has ended that, and the next one has the same partitions."""

    async def work(one: Broker, other: Broker, id: str) -> None:
        first: Identity = await one.transactions.ask(id, lambda token, fresh: Init(token, 60_000, fresh=fresh))
        added = await one.add(id, first)
        await other.transactions.machines.take_over(id)
        assert not (await one.end(id, first, bumps=False)).error
        await one.transactions.machines.written(id)
        assert (await other.verify(id, first)).missing == PARTITIONS
        again = await other.transactions.ask(id, lambda token, _: Add(token, first.producer, first.epoch, PARTITIONS))
        assert not again.error
        stored = await one.transactions.machines.read(id)
        assert (stored.state, stored.partitions) == (State.ONGOING, PARTITIONS)
        assert stored.started == again.started > added.started

    asyncio.run(_with_two(broker.redis_url, work, both=True))


def test_an_end_is_answered_whose_machine_is_dropped_between_load_and_event(broker: KetchServer) -> None:
    """It was loaded for two who wait, and the first of them has it read again: another broker has changed it."""

    async def work(coordinator: Broker, leader: Broker, id: str) -> None:
        transactions = coordinator.transactions
        first: Identity = await transactions.ask(id, lambda token, fresh: Init(token, 60_000, fresh=fresh))
        assert not (await coordinator.add(id, first)).error

        async def load_and_drop() -> None:
            await transactions.machines.take_over(id)
            assert transactions.machines.forget(id)

        assert transactions.machines.forget(id)
        dropping = asyncio.create_task(load_and_drop())
        ending = asyncio.create_task(coordinator.end(id, first))
        async with asyncio.timeout(5):
            await dropping
            assert (await ending).error is ErrorCode.none

    asyncio.run(_with_two(broker.redis_url, work))


async def _with_two(url: str, work: Any, both: bool = False) -> None:
    """Runs work with a coordinator that knows only itself, a broker that knows both, and a transactional id.

    Args:
        both: that broker takes itself for the coordinator, too.
    """
    keyspace = f"transactions-{uuid.uuid4()}"
    coordinator, leader = Broker(url, keyspace, 1), Broker(url, keyspace, 2)
    async with coordinator.running(), leader.running():
        ids = (f"id-{n}" for n in range(1000))
        await work(coordinator, leader, next(id for id in ids if leader.cluster.coordinates("transaction", id) == both))
