"""The seam: what a contestant, a scenario and a client are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class BenchError(Exception):
    """A run that gave no number; one sentence."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`count` records of `size` bytes, into one partition or out of it."""

    verb: str  # produce, consume
    size: int
    count: int

    @property
    def name(self) -> str:
        return f"{self.verb}-{self.size}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a started contestant listens."""

    kafka: str  # host:port
    redis: Path  # unix socket


class Contestant(Protocol):
    """A server; `with` starts and stops it, in a directory of its own."""

    name: str

    def __enter__(self) -> Endpoint: ...

    def __exit__(self, *error: object) -> None: ...


class Client(Protocol):
    """A program that talks to one contestant."""

    name: str
    contestant: str

    def run(self, at: Endpoint, scenario: Scenario, target: str) -> float:
        """Puts the load on a topic or stream of its own and checks that every record arrived.

        Returns:
            Seconds. A consuming run finds what the producing run of the same size and client left.

        Raises:
            BenchError: the program failed or records are missing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: its place in the table and its result."""

    scenario: Scenario
    client: str
    round: int
    seconds: float
    busy: float  # share of the machine that others had right before it, 0 to 1

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.scenario.count / self.seconds
