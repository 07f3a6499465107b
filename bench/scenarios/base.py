"""What a scenario is: a load that is put on a running server, and the targets for what it measures."""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar

from bench.contestants import Server
from bench.model import Run, Sample, Target


class Scenario:
    """A load. A subclass says what it is and yields what it measures; it leaves the server as it found it."""

    name: ClassVar[str]
    title: ClassVar[str]
    note: ClassVar[str] = ""  # for the report: how it is measured
    contestants: ClassVar[tuple[str, ...]]
    targets: ClassVar[tuple[Target, ...]] = ()
    quick: ClassVar[bool] = True  # whether a quick run has it without being asked by name

    def labels(self, contestant: str) -> list[str]:
        """The rows as "load/client", known before it runs."""
        raise NotImplementedError

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        """Puts the load on a running server. Between two samples there is none: other contestants are measured then.

        Raises:
            Unavailable: a program that it needs is missing.
            BenchError: it gave no number.
        """
        raise NotImplementedError
