"""The bounds on what requests hold over all connections: who may go on reading, or inflating. No I/O."""

from __future__ import annotations

import asyncio
from typing import Protocol

_SMALL = 16 << 10  # bytes; a connection that holds no more never has to wait


class Receiver(Protocol):
    """A connection as the budget sees it."""

    def resume(self) -> None:
        """May read again."""


class Budget:
    """Counts request bytes received and not yet answered; above `limit` connections have to stop reading.

    Connections that hold little go on, and so may always one of the others: requests that are half received could block
    each other for ever otherwise. That one is favoured until some of its bytes are given back. It must hold more than
    little when it is chosen, for an idle connection would never give anything back.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._paused: dict[Receiver, None] = {}  # in the order they stopped; all of them hold more than little
        self._favoured: Receiver | None = None

    @property
    def used(self) -> int:
        return self._used

    def take(self, receiver: Receiver, size: int, held: int) -> bool:
        """Counts bytes that have come in; False where the receiver has to stop until it is resumed.

        Args:
            held: what the receiver holds now, these bytes included.
        """
        self._used += size
        if self._used <= self._limit or held <= _SMALL or receiver is self._favoured:
            return True
        if self._favoured is None:
            self._favoured = receiver
            return True
        self._paused[receiver] = None
        return False

    def give(self, receiver: Receiver, size: int, held: int) -> None:
        """Bytes were answered or dropped.

        Args:
            held: what the receiver holds without them.
        """
        self._used -= size
        if held <= _SMALL:
            self._paused.pop(receiver, None)  # the caller sees by `open_for` that it may go on
        if self._used <= self._limit:
            self._favoured = None
            paused, self._paused = self._paused, {}
            for other in paused:
                other.resume()
        elif receiver is self._favoured:
            self._pass_on()

    def open_for(self, receiver: Receiver) -> bool:
        """Whether the receiver is not among those that have to wait."""
        return receiver not in self._paused

    def leave(self, receiver: Receiver, size: int) -> None:
        """The connection is gone, with what it held."""
        self.give(receiver, size, held=0)

    def _pass_on(self) -> None:
        self._favoured = next(iter(self._paused), None)
        if self._favoured is not None:
            del self._paused[self._favoured]
            self._favoured.resume()


class Gate:
    """Counts what work in progress holds; work that would add to it waits while it is above `limit`.

    Attributes:
        used: what is held. Who takes often may add to it and compare the two numbers itself.
        awaited: what those who wait are woken by; None while nobody does, and `used` may be lowered without `give`.
    """

    __slots__ = ("awaited", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.awaited: asyncio.Event | None = None

    @property
    def open(self) -> bool:
        return self.used <= self.limit

    async def passed(self) -> None:
        """Waits until there is room. The caller takes it before it awaits anything else."""
        while self.used > self.limit:
            if self.awaited is None:
                self.awaited = asyncio.Event()
            await self.awaited.wait()

    def take(self, size: int) -> None:
        self.used += size

    def give(self, size: int, _: object = None) -> None:
        """Args: _: lets it be called with a future that is done."""
        self.used -= size
        if self.awaited is not None and self.used <= self.limit:
            self.awaited.set()
            self.awaited = None
