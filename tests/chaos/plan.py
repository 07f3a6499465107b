"""Which faults happen when: a schedule drawn from a seed, the same for the same arguments."""

from __future__ import annotations

import random
from typing import NamedTuple

BROKER_SESSION_MS = 3000  # of the brokers in a chaos run; the default would make long pauses too long for many of them
REDIS_TIMEOUT_MS = 1500

KILL = "kill -9"
RESTART = "restart"
SHORT_PAUSE = "short pause"
LONG_PAUSE = "long pause"
SLOW_DISK = "slow fdatasync"
FAILOVER = "failover"  # of a replica, in order; the master waits for it
FORCED_FAILOVER = "forced failover"  # the master is not asked
MIGRATION = "slots move"
ROLLING_RESTART = "rolling restart"
ISOLATION = "cut off from its cluster"  # clients reach it
HIDING = "cut off from clients"  # the cluster reaches it

# Seconds for which a fault holds: a killed process stays away, a paused one stands still. A short pause ends before a
# broker's session and its patience with Redis end, a long one after both.
HOLDS = {
    KILL: (0.0, 2.0),
    RESTART: (0.0, 2.0),
    SHORT_PAUSE: (0.1, 1.2),
    LONG_PAUSE: (BROKER_SESSION_MS / 1000 + 0.5, BROKER_SESSION_MS / 1000 + 6.0),
    SLOW_DISK: (2.0, 8.0),
    FAILOVER: (0.0, 1.0),
    FORCED_FAILOVER: (0.0, 1.0),
    MIGRATION: (0.0, 3.0),
    ROLLING_RESTART: (0.0, 1.0),
    ISOLATION: (0.5, 6.0),
    HIDING: (0.5, 6.0),
}


class Fault(NamedTuple):
    """What is done to one process.

    Attributes:
        at: seconds from the beginning of the run.
        target: the process by its role and number, `broker 1`, `worker 0`, `valkey 0`.
        hold: seconds until it is undone.
    """

    at: float
    kind: str
    target: str
    hold: float

    @property
    def name(self) -> str:
        """Role and kind, as they are counted."""
        return f"{self.target.partition(' ')[0]}: {self.kind}"

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.target}: {self.kind} for {self.hold:.1f} s"


def plan(seed: int, seconds: float, faults: int, possible: dict[str, tuple[str, ...]]) -> list[Fault]:
    """A schedule.

    Every possible fault comes before any comes again, in random order; they overlap where one holds for longer than it
    takes until the next.

    Args:
        possible: the kinds for each target.
    """
    draw = random.Random(seed)
    pairs = [(target, kind) for target, kinds in sorted(possible.items()) for kind in kinds]
    chosen: list[tuple[str, str]] = []
    while len(chosen) < faults:
        chosen += draw.sample(pairs, len(pairs))
    slot = seconds / faults
    return [
        Fault(slot * number + draw.uniform(0, slot), kind, target, draw.uniform(*HOLDS[kind]))
        for number, (target, kind) in enumerate(chosen[:faults])
    ]
