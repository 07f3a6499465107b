"""Transactional ids as a kind: their fields and log lines. The machine is `coordinator.transactions.transaction`.

It does no I/O: who finishes a transaction is given to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any

from ketch.broker.coordination.kinds.kind import Kind
from ketch.clock import now_ms
from ketch.coordinator.transactions.fields import from_fields, to_fields
from ketch.coordinator.transactions.transaction import Event, Finish, Transaction

log = logging.getLogger(__name__)


class TransactionKind(Kind[Transaction]):
    """What is particular to transactional ids, see `broker.coordination.kinds.kind.Kind`.

    Args:
        finish: begins to carry out what was decided for a transactional id.
    """

    name = "transaction"
    machine: type[Transaction] = Transaction
    events: UnionType = Event
    gives_way = True
    outlives = False

    def __init__(self, finish: Callable[[str, Finish], None]) -> None:
        self._finish = finish

    # -- machines

    def new(self, id: str) -> Transaction:
        return Transaction(id, _clock(time.monotonic()))

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> Transaction | None:
        return from_fields(id, fields, _clock(now), now) if "state" in fields else None

    def to_fields(self, machine: Transaction) -> dict[str, str]:
        return to_fields(machine)

    # -- events and effects

    def handle(self, machine: Transaction, event: Event, now: float) -> list[Any]:
        state = machine.state
        effects = machine.handle(event, now)
        if machine.state is not state:
            log.debug("transactional id %s: %s", machine.id, machine.state)
        return effects

    def carry_out(self, machine: Transaction, effect: Finish) -> None:
        self._finish(machine.id, effect)

    def changed(self, machine: Transaction) -> None:
        """Nobody follows it."""

    def refusal(self, event: Event) -> Any:
        raise AssertionError("there is no other kind in its namespace")


def _clock(now: float) -> float:
    return now_ms() - now * 1000
