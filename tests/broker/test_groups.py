"""The groups of one broker, in this process: what a listing shows while groups come."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any, TypeVar

from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.groups import Groups
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.coordinator.classic.events import Join
from ketch.redis.question import Question
from ketch.store.coordination import groups as stored
from tests.support.brokers import SilentBroker
from tests.support.ketch import KetchServer

T = TypeVar("T")


class Broker(SilentBroker):
    """A broker that coordinates groups."""

    def __init__(self, url: str) -> None:
        super().__init__(url, f"groups-{uuid.uuid4()}", 1)
        tasks = set[asyncio.Task[Any]]()
        self.groups = Groups(
            self.settings, self.log, self.cluster, NativeGroups(self.log, self.cluster, Assignments(), tasks.add)
        )

    def stop(self) -> None:
        self.groups.stop()

    def join(self, group: str) -> asyncio.Task[Any]:
        return asyncio.create_task(
            self.groups.submit(
                group,
                lambda token: Join(
                    token, "", None, "c", "/h", 10.0, 60.0, "consumer", (("range", b""),), id_required=False
                ),
            )
        )


def test_a_group_that_comes_while_groups_are_listed(broker: KetchServer) -> None:
    async def work() -> None:
        one = Broker(broker.redis_url)
        ask, joining = one.log.driver.ask, list[asyncio.Task[Any]]()

        async def late(question: Question[T]) -> T:
            """A group comes after Redis was asked which there are, and before it answers."""
            answer = await ask(question)
            if question.gi_code is stored.names.__code__:  # type: ignore[attr-defined]
                joining.append(one.join("late"))
                while not (await one.groups.get("late")).members:
                    await asyncio.sleep(0)
            return answer

        one.log.driver.ask = late  # type: ignore[method-assign]
        async with one.running():
            assert await one.groups.names() == ["late"]
        for each in joining:
            with contextlib.suppress(Exception):  # it may have been answered that the broker stops
                await each

    asyncio.run(work())
