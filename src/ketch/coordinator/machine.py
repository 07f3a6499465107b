"""What a coordinator is without I/O: a machine that takes events and says what follows from them.

A machine is the state of one thing that one broker coordinates: `coordinator.classic.group.Group` is one. It knows no
clock, no connection and no other machine. `broker.coordination.machines` is the shell that loads, stores and wakes
machines of any kind.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Tick:
    """The event that time has passed: what is due happens."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The effect that the event with this token is answered, at once or much later."""

    token: Hashable
    result: Any


@dataclass(frozen=True, slots=True)
class Persist:
    """The effect that the machine has to be stored before the effects after this one are carried out."""


@dataclass(frozen=True, slots=True)
class Heir:
    """The effect that another machine takes this one's place, under the same id.

    The effects after it are the other machine's.
    """

    machine: Machine


class Machine(Protocol):
    """One machine. Times are seconds on the caller's clock.

    Attributes:
        term: in which it was loaded or stored last, see `store.coordination.terms`. The shell keeps it here; nothing
            in the machine depends on it.
        held_at: when it was loaded, if this process held that term then; else -inf. Kept here like the term.
    """

    id: str
    term: str
    held_at: float

    def handle(self, event: Any, now: float) -> list[Any]:
        """The effects of an event, in the order in which they have to be carried out: Reply, Persist, others."""

    @property
    def deadline(self) -> float | None:
        """When the next Tick is due; None while there is nothing to wait for."""

    @property
    def is_idle(self) -> bool:
        """Whether no client relies on it, so that it may be dropped from memory once it is stored."""

    def retire(self) -> bool:
        """Ends the machine, which is about to be deleted; False where clients rely on it.

        Afterwards it answers each event that the client has to come again.
        """
