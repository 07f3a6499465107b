"""Runs a plan: in each round starts every contestant afresh, runs the scenarios on it and collects the samples."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
from bench.contestants import CONTESTANTS, Ketch, Server, Valkey, from_tree
from bench.model import METRICS, BenchError, Run, Sample, Unavailable
from bench.processes import await_quiet
from bench.results import Result
from bench.scenarios import SCENARIOS
from bench.scenarios.base import Scenario

QUICK = 0.1  # of the full load
_WARM_UP = 300_000  # records of 100 bytes in and out, for just-in-time compilers and allocators


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run. `only` holds parts of "scenario/load/client", pieces of a part joined by +; empty means all."""

    only: tuple[str, ...] = ()
    contestants: tuple[str, ...] = ()
    rounds: int = 5
    factor: float = 1.0
    quick: bool = False
    tree: Path | None = None  # the checkout that Ketch runs from; None: this one

    def wants(self, scenario: Scenario, label: str) -> bool:
        where = f"{scenario.name}/{label}"
        return not self.only or any(all(piece in where for piece in part.split("+")) for part in self.only)

    def work(self, contestant: str) -> list[Scenario]:
        """The scenarios that run on a contestant."""
        return [
            scenario
            for scenario in SCENARIOS
            if contestant in scenario.contestants
            and (scenario.trees or self.tree is None)
            and (not self.contestants or contestant in self.contestants)
            and (scenario.quick or self.only or not self.quick)
            and any(self.wants(scenario, label) for label in scenario.labels(contestant))
        ]

    def turn(self, turn: int) -> Iterable[type[Server]]:
        """The contestants of a round; every other round in reverse, so that none always runs first."""
        order = CONTESTANTS if turn % 2 == 0 else CONTESTANTS[::-1]
        return order if self.tree is None else [from_tree(made, self.tree) for made in order if issubclass(made, Ketch)]


def carry_out(plan: Plan) -> Iterator[Result]:
    """Runs the plan with a progress bar; gives the same result after each round, with that round's numbers added.

    Raises:
        BenchError: the plan names nothing.
    """
    for (result,) in take_turns([plan]):
        yield result


def take_turns(plans: Sequence[Plan]) -> Iterator[list[Result]]:
    """Runs plans of as many rounds, a round of each in turn, as `carry_out` does; every other time in reverse."""
    results = [Result(machine.facts(plan.tree), quick=plan.quick, asked=plan.rounds) for plan in plans]
    total = sum(plan.rounds * len(plan.work(made.name)) for plan in plans for made in CONTESTANTS)
    if not total:
        raise BenchError(f"nothing is named by --only {','.join(plans[0].only)}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(file=sys.stdout)
    with Progress(TextColumn("{task.description:40}"), *columns, console=console) as progress:
        task = progress.add_task("", total=total)
        each = [_Rounds(plan, result, progress, task) for plan, result in zip(plans, results, strict=True)]
        for turn in range(plans[0].rounds):
            for rounds in each if turn % 2 == 0 else each[::-1]:
                rounds.run(turn)
            yield results


class _Rounds:
    """The rounds of one plan; adds their samples to its result."""

    def __init__(self, plan: Plan, result: Result, progress: Progress, task: TaskID) -> None:
        self._plan = plan
        self._result = result
        self._progress = progress
        self._task = task

    def run(self, turn: int) -> None:
        begin = time.monotonic()
        self._contestants(turn)
        self._result.seconds.append(time.monotonic() - begin)

    def _contestants(self, turn: int) -> None:
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
        await_quiet(server.pid)
        for sample in scenario.measure(server, run):
            self._result.add(scenario.name, server.name, turn, sample)
            self._say(_shown(turn, scenario, server, sample, plan.tree))

    def _guard(self, what: str, work: Callable[[], None]) -> None:
        """Runs a part. If the part fails, its reason is noted in the result and the run goes on."""
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


def _shown(turn: int, scenario: Scenario, server: Server, sample: Sample, tree: Path | None) -> str:
    metric = METRICS[sample.metric]
    where = f"{scenario.name}/{sample.load}/{sample.client}"
    line = f"{turn + 1} {server.name:11} {where:44} {sample.value * metric.scale:10,.3f} {metric.heading}"
    return f"{line} of {tree}" if tree else line


def _warm_up(server: Server, factor: float) -> None:
    if isinstance(server, Valkey):
        return
    count = max(100, int(_WARM_UP * factor))
    server.create("warm-up")
    tools.kcat_produce(server.kafka, "warm-up", 100, count)
    tools.kcat_consume(server.kafka, "warm-up", count)
    server.delete("warm-up")
