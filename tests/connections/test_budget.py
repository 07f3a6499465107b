"""The bounds on what requests hold: in any order of events they hold, and nobody waits for ever. No broker."""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.connections.budget import Budget, Gate

SMALL = 16 << 10  # bytes that a connection may always hold
READ = 64 << 10  # bytes that one read of a socket brings at most
LIMIT = 256 << 10


class Client:
    """A connection that sends requests of these sizes; it stops reading and goes on as the budget says."""

    def __init__(self, budget: Budget, requests: list[int]) -> None:
        self._budget = budget
        self._unread = deque(requests)
        self._part = 0  # bytes of the request at hand that have come in
        self._whole: deque[int] = deque()  # requests to be answered
        self.paused = False

    @property
    def held(self) -> int:
        return self._part + sum(self._whole)

    @property
    def can_read(self) -> bool:
        return bool(self._unread) and not self.paused

    @property
    def can_answer(self) -> bool:
        return bool(self._whole)

    @property
    def done(self) -> bool:
        return not self._unread and not self._whole

    def read(self, size: int) -> None:
        size = min(size, self._unread[0] - self._part)
        self._part += size
        held = self.held
        if self._part == self._unread[0]:
            self._whole.append(self._unread.popleft())
            self._part = 0
        if not self._budget.take(self, size, held):
            self.paused = True

    def answer(self) -> None:
        size = self._whole.popleft()
        self._budget.give(self, size, self.held)
        if self.paused and self._budget.open_for(self):
            self.resume()

    def close(self) -> None:
        held, self._part = self.held, 0
        self._unread.clear()
        self._whole.clear()
        self.paused = False
        self._budget.leave(self, held)

    def resume(self) -> None:
        self.paused = False


requests = st.lists(st.sampled_from([100, SMALL, SMALL + 1, READ, LIMIT // 2, 3 * LIMIT]), min_size=1, max_size=4)


@given(st.lists(requests, min_size=1, max_size=8), st.integers(0, 2**32))
def test_all_requests_are_answered_within_the_bound(sizes: list[list[int]], seed: int) -> None:
    budget, random = Budget(LIMIT), Random(seed)
    clients = [Client(budget, mine) for mine in sizes]
    largest = max(max(mine) for mine in sizes)
    # Above the limit each may bring one more read, or hold little; and one request comes in whole.
    bound = LIMIT + len(clients) * (READ + SMALL) + largest
    while unfinished := [client for client in clients if not client.done]:
        able = [client for client in unfinished if client.can_read or client.can_answer]
        assert able, "all that are left wait for each other"
        client = random.choice(able)
        if random.random() < 0.02:
            client.close()
        elif client.can_answer and (not client.can_read or random.random() < 0.3):
            client.answer()
        else:
            client.read(random.choice([1, 1_000, READ]))
        assert budget.used == sum(client.held for client in clients) <= bound
    assert budget.used == 0
    assert all(budget.open_for(client) for client in clients)
    assert not any(client.paused for client in clients)


def test_above_the_limit_one_goes_on_and_those_that_hold_little() -> None:
    budget = Budget(LIMIT)
    first, second, third, small = (Client(budget, [LIMIT, LIMIT]) for _ in range(4))
    assert budget.take(first, LIMIT, LIMIT)
    assert budget.take(second, READ, READ), "the first to pass the limit"
    assert not budget.take(third, READ, READ)
    assert not budget.take(first, 1, LIMIT + 1)
    assert budget.take(small, SMALL, SMALL)
    assert budget.take(second, READ, 2 * READ)
    third.paused = first.paused = True
    budget.leave(second, 2 * READ)
    assert (third.paused, first.paused) == (False, True), "the one that has waited longest"
    budget.give(first, LIMIT, 1)
    assert budget.open_for(first)


def test_a_connection_that_is_idle_keeps_none_from_going_on() -> None:
    """It holds nothing any more, so nothing of it will be given back, and another would wait for that for ever."""
    budget = Budget(LIMIT)
    half, favoured, idle = (Client(budget, [2 * LIMIT]) for _ in range(3))
    assert budget.take(half, LIMIT, LIMIT)
    assert budget.take(favoured, READ, READ)
    assert not budget.take(idle, READ, READ)
    budget.give(idle, READ, 0)
    assert budget.open_for(idle)
    assert not budget.take(half, 1, LIMIT + 1)
    half.paused = True
    budget.give(favoured, READ, 0)
    assert not half.paused
    assert budget.take(half, READ, LIMIT + 1 + READ)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5)), min_size=1, max_size=30))
def test_work_in_progress_passes_its_limit_by_one_piece(pieces: list[tuple[int, int]]) -> None:
    """Pieces of work of these sizes, each of which takes some turns of the event loop."""
    gate, used, seen = Gate(60), 0, list[int]()

    async def work(size: int, turns: int) -> None:
        nonlocal used
        await gate.passed()
        seen.append(used)
        gate.take(size)
        used += size
        for _ in range(turns):
            await asyncio.sleep(0)
        used -= size
        gate.give(size)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for size, turns in pieces:
                group.create_task(work(size, turns))

    asyncio.run(run())
    assert len(seen) == len(pieces)
    assert max(seen) <= 60
    assert gate.open


def test_a_gate_is_open_up_to_its_limit() -> None:
    gate = Gate(10)
    gate.take(10)
    assert gate.open
    gate.take(1)
    assert not gate.open
    gate.give(1)
    assert gate.open


def test_one_that_waits_at_a_gate_may_go() -> None:
    async def run() -> None:
        gate = Gate(0)
        gate.take(1)
        waiting = asyncio.create_task(gate.passed())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.give(1)
        await gate.passed()

    asyncio.run(run())
