"""A transactional id as the fields of a hash, readable with HGETALL, and back. Waiting requests are not part of it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ketch.coordinator.transactions.transaction import State, Transaction

_NUMBERS = {
    "producerId": "producer",
    "producerEpoch": "epoch",
    "lastEpoch": "last_epoch",
    "previousProducerId": "previous",
    "nextProducerId": "next",
    "timeoutMs": "timeout_ms",
    "started": "started",
    "updated": "updated",
}


def to_fields(machine: Transaction) -> dict[str, str]:
    """state, the numbers above, partitions (JSON, a list of [topic, partition]) and groups (JSON, a list)."""
    fields = {name: str(getattr(machine, attribute)) for name, attribute in _NUMBERS.items()}
    return {
        "state": str(machine.state),
        **fields,
        "partitions": json.dumps(sorted(machine.partitions)) if machine.partitions else "[]",
        "groups": json.dumps(sorted(machine.groups)) if machine.groups else "[]",
    }


def from_fields(id: str, fields: Mapping[str, str], clock: float, now: float) -> Transaction:
    """The machine as it was stored.

    Args:
        clock: see `Transaction`.

    Raises:
        ValueError, KeyError, TypeError: the fields are not what `to_fields` makes.
    """
    machine = Transaction(id, clock, fields.get("term", "0"), state=State(fields["state"]))
    for name, attribute in _NUMBERS.items():
        setattr(machine, attribute, int(fields[name]))
    machine.partitions = {(str(topic), int(index)) for topic, index in json.loads(fields["partitions"])}
    machine.groups = set(map(str, json.loads(fields["groups"])))
    machine.idle = False
    machine.wake(now)
    return machine
