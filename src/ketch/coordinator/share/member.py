"""What a share group is made of: its states and its members."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ketch.coordinator.consumer.topics import NO_PARTITIONS, Partitions


class State(StrEnum):
    """A group's states; names as Kafka shows them."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class Member:
    """One member.

    Attributes:
        names: of the topics that it subscribes to.
        epoch: of the target that it was told last.
        assigned: what it was told to read.
        target: what it is to be told in its next heartbeat.
        deadline: of its session.
    """

    id: str
    rack_id: str | None = None
    client_id: str = ""
    host: str = ""
    names: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = NO_PARTITIONS
    target: Partitions = NO_PARTITIONS
    deadline: float = 0.0
