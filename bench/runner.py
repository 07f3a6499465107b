"""The rounds: every contestant started afresh, every scenario put on it, the samples gathered."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bench import machine, tools
from bench.contestants import CONTESTANTS, Server, Valkey
from bench.model import METRICS, BenchError, Run, Sample, Scenario, Unavailable
from bench.processes import settle
from bench.results import Result
from bench.scenarios import SCENARIOS

QUICK = 0.1  # of the full load
_WARM_UP = 300_000  # records of 100 bytes in and out, for just-in-time compilers and allocators


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for. `only`: parts of scenarios' names, or of "scenario/load/client"; none for everything."""

    only: tuple[str, ...] = ()
    contestants: tuple[str, ...] = ()
    rounds: int = 5
    factor: float = 1.0
    quick: bool = False

    def wants(self, scenario: Scenario, label: str) -> bool:
        where = f"{scenario.name}/{label}"
        return not self.only or any(all(piece in where for piece in part.split("+")) for part in self.only)

    def work(self, contestant: str) -> list[Scenario]:
        """The scenarios that are to run on a contestant."""
        return [
            scenario
            for scenario in SCENARIOS
            if contestant in scenario.contestants
            and (not self.contestants or contestant in self.contestants)
            and (scenario.quick or self.only or not self.quick)
            and any(self.wants(scenario, label) for label in scenario.labels(contestant))
        ]

    def turn(self, turn: int) -> Iterable[type[Server]]:
        """Every other round the other way round, so that none is always the first."""
        return CONTESTANTS if turn % 2 == 0 else CONTESTANTS[::-1]


def carry_out(plan: Plan) -> Iterator[Result]:
    """Runs the plan with a progress bar; gives the same result, fuller each time, behind every round.

    Raises:
        BenchError: nothing is to be done.
    """
    result = Result(machine.facts(), quick=plan.quick, asked=plan.rounds)
    total = plan.rounds * sum(len(plan.work(made.name)) for made in CONTESTANTS)
    if not total:
        raise BenchError(f"nothing is named by --only {','.join(plan.only)}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(file=sys.stdout)
    with Progress(TextColumn("{task.description:40}"), *columns, console=console) as progress:
        rounds = _Rounds(plan, result, progress, progress.add_task("", total=total))
        for turn in range(plan.rounds):
            begin = time.monotonic()
            rounds.run(turn)
            result.seconds.append(time.monotonic() - begin)
            yield result


class _Rounds:
    """One run of a plan."""

    def __init__(self, plan: Plan, result: Result, progress: Progress, task: TaskID) -> None:
        self._plan = plan
        self._result = result
        self._progress = progress
        self._task = task

    def run(self, turn: int) -> None:
        for made in self._plan.turn(turn):
            work = self._plan.work(made.name)
            if work and made.name not in self._result.skipped:
                self._describe(turn, made.name, "starting")
                self._guard(made.name, partial(self._contest, made, turn, work))
            elif work:
                self._advance(len(work))

    def _contest(self, made: type[Server], turn: int, work: list[Scenario]) -> None:
        self._result.busy.append(machine.busy())
        done = 0
        try:
            with made() as server:
                _warm_up(server, self._plan.factor)
                for scenario in work:
                    self._describe(turn, made.name, scenario.name)
                    if f"{made.name}/{scenario.name}" not in self._result.skipped:
                        self._guard(f"{made.name}/{scenario.name}", partial(self._scenario, scenario, server, turn))
                    self._advance(1)
                    done += 1
        finally:
            self._advance(len(work) - done)

    def _scenario(self, scenario: Scenario, server: Server, turn: int) -> None:
        plan = self._plan
        run = Run(lambda label: plan.wants(scenario, label), plan.factor, plan.quick, turn, plan.rounds)
        settle(server.pid)
        for sample in scenario.measure(server, run):
            self._result.add(scenario.name, server.name, turn, sample)
            self._say(_shown(turn, scenario, server, sample))

    def _guard(self, what: str, work: Callable[[], None]) -> None:
        """One that fails costs its own numbers and no others."""
        try:
            work()
        except Unavailable as reason:
            self._result.skipped[what] = str(reason)
            self._say(f"{what} skipped: {reason}")
        except (BenchError, KafkaException, OSError, subprocess.SubprocessError) as error:
            self._result.failed[what] = str(error)
            self._say(f"{what} failed: {error}")

    def _describe(self, turn: int, contestant: str, what: str) -> None:
        self._progress.update(self._task, description=f"round {turn + 1}: {contestant}, {what}")

    def _advance(self, steps: int) -> None:
        self._progress.advance(self._task, steps)

    def _say(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _shown(turn: int, scenario: Scenario, server: Server, sample: Sample) -> str:
    metric = METRICS[sample.metric]
    where = f"{scenario.name}/{sample.load}/{sample.client}"
    return f"{turn + 1} {server.name:11} {where:44} {sample.value * metric.scale:10,.3f} {metric.unit}"


def _warm_up(server: Server, factor: float) -> None:
    if isinstance(server, Valkey):
        return
    count = max(100, int(_WARM_UP * factor))
    server.create("warm-up")
    tools.kcat_produce(server.kafka, "warm-up", 100, count)
    tools.kcat_consume(server.kafka, "warm-up", count)
    server.delete("warm-up")
