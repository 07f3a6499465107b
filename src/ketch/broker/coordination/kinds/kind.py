"""What a kind of machine is, and the table of the kinds that share one namespace of ids.

Kafka has one namespace of group ids and several group protocols. So a group id names a machine of one kind, and
`Kinds` says of which: of what is stored, of a machine, and of an event. A new kind is a machine without I/O in
`coordinator`, a `Kind` in a file beside this one, and a row where its namespace's table is made
(`broker.coordination.groups`).

Pure: it owns the table and no machine, and does no I/O. `broker.coordination.machines` loads, stores and wakes machines
and asks the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Generic, Protocol, TypeVar

from kio.schema.errors import ErrorCode

from ketch.coordinator.machine import Machine
from ketch.errors import KetchError

M = TypeVar("M", bound=Machine)

_NEVER_STORED = "0"  # the term of a machine of which nothing is stored, not even a commit
_FIELD = "type"  # of the hash: Kafka's group type, in the words of ListGroups (KIP-848)


class UnknownKind(KetchError):
    """What is stored is of a kind that this version does not know: a newer version wrote it. Nothing overwrites it."""


class Kind(Protocol[M]):
    """One kind of machine: its fields, its events, and its effects outside the machine. It does no I/O itself.

    The methods that have a body here are right for most kinds.

    Attributes:
        name: as the stored hash has it, see `Kinds`.
        machine: the class of its machines.
        events: the union of the events that these handle; Tick may be among them.
        gives_way: without members it may get another kind, and one of another kind may become it.
        outlives: a machine that could not be stored stays in memory as it is. Else it is dropped and what is stored
            counts, as it does where other brokers write machines, too.
    """

    name: str
    machine: type[M]
    events: UnionType
    gives_way: bool
    outlives: bool

    # -- machines

    def new(self, id: str) -> M:
        """A machine of which nothing is stored."""

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> M | None:
        """The machine as it was stored; None where it never was.

        Raises:
            ValueError, KeyError, TypeError: the fields are not what `to_fields` makes.
        """

    def to_fields(self, machine: M) -> dict[str, str]:
        """What is stored of the machine."""

    # -- events and effects

    def takes_over(self, event: Any) -> bool:
        """Whether the event comes from a client that relies on the machine, which then is coordinated here."""
        return True

    def handle(self, machine: M, event: Any, now: float) -> list[Any]:
        """Has the machine handle the event; metrics and log lines are made here."""

    def carry_out(self, machine: M, effect: Any) -> None:
        """Carries out an effect other than Reply and Persist."""

    def changed(self, machine: M) -> None:
        """The machine was loaded, or is about to be stored."""

    def unstored(self, result: Any) -> Any:
        """What a client is told in place of `result` where the machine could not be stored: it comes again.

        A result that is an error code stays as it is.
        """
        return result if isinstance(result, ErrorCode) else type(result)(ErrorCode.coordinator_not_available)

    def convert(self, machine: Any, event: Any, now: float) -> list[Any]:
        """Has an event of this kind convert a machine of another kind, which clients rely on.

        The effects hold Heir where it does; there are none where this kind converts no such machine.
        """
        return []

    def refusal(self, event: Any) -> Any:
        """What a client is told whose event meets a machine of another kind, which is not converted."""


class Kinds(Generic[M]):
    """The kinds of one namespace.

    Args:
        first: the kind of what is stored without the field `type`: what was stored before there was a second kind.
            That field is not written for it.
    """

    def __init__(self, first: Kind[Any], *others: Kind[Any]) -> None:
        self._first, self._all = first, (first, *others)
        self._by_name = {kind.name: kind for kind in self._all}
        self._by_machine = {kind.machine: kind for kind in self._all}

    def of(self, machine: M) -> Kind[Any]:
        """The kind of a machine."""
        return self._by_machine[type(machine)]

    def asking(self, event: Any) -> Kind[Any]:
        """The first kind that has such events."""
        return next(kind for kind in self._all if isinstance(event, kind.events))

    def meet(self, machine: M, event: Any) -> M | None:
        """The machine that is to handle an event which came for the id of `machine`.

        None where other clients rely on a machine of another kind: see `Kind.convert` and `Kind.refusal`.

        An event of another kind gets a new machine in the place of one that no client relies on. This is how an id that
        is not stored gets its kind. Between kinds that give way it is also what Kafka's GroupMetadataManager does with
        an empty group that a client of another protocol joins (`maybeDeleteEmptyConsumerGroup`,
        `maybeDeleteEmptyClassicGroup`). A kind that serves clients of another one has their events among its own, as
        Kafka's consumer groups have JoinGroup (KIP-848).
        """
        if isinstance(event, self.of(machine).events):
            return machine
        asking = self.asking(event)
        free = machine.term == _NEVER_STORED or (self.of(machine).gives_way and asking.gives_way)
        if not machine.is_idle or not free:
            return None
        heir: M = asking.new(machine.id)
        heir.term, heir.held_at = machine.term, machine.held_at
        return heir

    # -- what is stored

    def new(self, id: str) -> M:
        """A machine of which nothing is stored; the first event gives it another kind, see `meet`."""
        machine: M = self._first.new(id)
        return machine

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> M | None:
        """As `Kind.from_fields`; raises UnknownKind, too."""
        name = fields.get(_FIELD, self._first.name)
        if name not in self._by_name:
            raise UnknownKind(f"{id} is stored as {name}, which this version does not know")
        machine: M | None = self._by_name[name].from_fields(id, fields, now)
        return machine

    def to_fields(self, machine: M) -> dict[str, str]:
        """What is stored of the machine."""
        kind = self.of(machine)
        fields = kind.to_fields(machine)
        return fields if kind is self._first else {_FIELD: kind.name, **fields}
