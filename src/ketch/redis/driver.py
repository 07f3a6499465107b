"""What a program may do with a way to Redis: the protocols that drivers fulfil.

Whoever asks names one of these. Only the place that makes a driver names its class: `redis.links.links` for an event
loop, `redis.blocking.connect` for a thread. How many connections a driver has, and to which nodes, is its own business.
It gets no more than the commands and their keys, see `redis.question`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Protocol, TypeVar

from ketch.errors import KetchError, StorageUnavailable
from ketch.redis.question import Command, Question

T = TypeVar("T")
Answer_co = TypeVar("Answer_co", covariant=True)

Reply = bytes | StorageUnavailable  # of a command; or why there is none


def received(reply: Reply) -> bytes:
    """A reply's bytes; raises StorageUnavailable where there is none."""
    if isinstance(reply, StorageUnavailable):
        raise reply
    return reply


class Driver(Protocol):
    """A way to Redis on an event loop. It comes back by itself after it was lost."""

    @property
    def up(self) -> bool:
        """Whether Redis can be asked now."""

    async def ask(self, question: Question[T]) -> T:
        """The answer to a question; raises whatever the question raises.

        StorageUnavailable is raised inside the question where there is no connection, or it is lost.
        """

    async def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        """The answers of every node to a question about the node itself, whose commands have no key."""

    async def ask_named(self, question: Callable[[], Question[T]]) -> dict[str, T | KetchError]:
        """As `ask_each`, by each node's address; of a node that does not answer, why."""

    def node(self, key: bytes) -> Hashable:
        """The node that commands with this key go to now, as a thing to compare: nodes of two drivers, too.

        Raises:
            StorageUnavailable: no node has the key's slot.
        """

    def send(self, command: Command) -> asyncio.Future[bytes]:
        """Sends a command; the future gets its last reply's bytes.

        Commands with keys in one slot are executed in the order in which they were sent.

        Raises:
            StorageUnavailable: there is no connection now. (The future fails with it when the connection goes.)
        """

    def post(self, command: Command, take: Callable[[Reply], None]) -> None:
        """As `send`; `take` is called with the bytes of the last reply, or when the connection goes.

        It is called as soon as the reply has come in, before any reply or push after it is looked at.

        Raises:
            StorageUnavailable: there is no connection now; `take` is not called.
        """

    @property
    def behind(self) -> bool:
        """Whether `drained` would wait.

        Raises:
            StorageUnavailable: there is no connection now.
        """

    async def drained(self) -> None:
        """Waits while more than a few MB of commands have not been taken by Redis. Raises as `behind`."""


class OwnedDriver(Driver, Protocol):
    """A `Driver` as its owner sees it."""

    async def start(self) -> None:
        """Connects, or raises StorageUnavailable; from then on the driver keeps itself up."""

    async def stop(self) -> None:
        """Closes the connections, without a call of `on_down`."""


class Node(Protocol):
    """One node of Redis over a connection that is just up, for what concerns the connection itself."""

    @property
    def connected(self) -> bool:
        """Whether the connection is still there."""

    async def ask(self, question: Question[T]) -> T:
        """As `Driver.ask`, of this node."""

    def close(self) -> None:
        """Gives the connection up; the driver will try again."""


class Connect(Protocol):
    """Makes an `OwnedDriver` that has not connected yet."""

    def __call__(
        self,
        name: str,
        on_up: Callable[[Node], Awaitable[None]] | None = None,
        on_down: Callable[[], None] | None = None,
        on_push: Callable[[Any], None] | None = None,
    ) -> OwnedDriver:
        """The driver.

        Args:
            name: what it is for, in log lines.
            on_up: awaited after every connect to a node, before anyone else may use the connection.
            on_down: called when a connection is lost.
            on_push: takes RESP3 pushes; the connections speak RESP3 when given.
        """


class Begun(Protocol[Answer_co]):
    """A question that is on its way."""

    def answer(self) -> Answer_co:
        """The question's answer, once it is there; raises whatever the question raises."""


class BlockingDriver(Protocol):
    """A way to Redis for one thread. Once it was lost, another one must be made.

    Commands with keys in one slot are executed in the order in which they were sent.
    """

    def ask(self, question: Question[T]) -> T:
        """As `Driver.ask`."""

    def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        """As `Driver.ask_each`, of every node that takes writes."""

    def begin(self, question: Question[T]) -> Begun[T]:
        """Sends a question's first commands without waiting. Its further rounds are sent by `Begun.answer`."""

    def close(self) -> None:
        """Closes the connections. What is on its way is in doubt."""
