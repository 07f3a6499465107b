"""Runs a plan: in each round starts every contestant afresh, has them take turns in each scenario, collects samples."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

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

from bench import machine, warm_up
from bench.contestants import CONTESTANTS, Ketch, Server, from_tree
from bench.model import METRICS, BenchError, Run, Sample, Unavailable
from bench.processes import await_quiet
from bench.results import Result
from bench.scenarios import SCENARIOS
from bench.scenarios.base import Scenario

T = TypeVar("T")

QUICK = 0.1  # of the full load
_AT_ONCE = 0.05  # seconds; a sample that comes sooner is one more number of the load before


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
    """Runs plans of as many rounds, as `carry_out` does, all at the same time: their contestants take turns."""
    results = [Result(machine.facts(plan.tree), quick=plan.quick, asked=plan.rounds) for plan in plans]
    total = sum(plan.rounds * len(plan.work(made.name)) for plan in plans for made in CONTESTANTS)
    if not total:
        raise BenchError(f"nothing is named by --only {','.join(plans[0].only)}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(file=sys.stdout)
    with Progress(TextColumn("{task.description:40}"), *columns, console=console) as progress:
        task = progress.add_task("", total=total)
        each = list(zip(plans, results, strict=True))
        for turn in range(plans[0].rounds):
            begin = time.monotonic()
            _Round(turn, each if turn % 2 == 0 else each[::-1], progress, task).run()
            for result in results:
                result.seconds.append(time.monotonic() - begin)
            yield results


@dataclass(slots=True, eq=False)
class _Player:
    """A contestant of one plan in one round."""

    plan: Plan
    result: Result
    server: Server

    @property
    def name(self) -> str:
        return self.server.name


class _Round:
    """One round: all servers run at once, and one at a time has a load; adds the samples to the plans' results."""

    def __init__(self, turn: int, plans: Sequence[tuple[Plan, Result]], progress: Progress, task: TaskID) -> None:
        self._turn, self._plans = turn, plans
        self._progress, self._task = progress, task

    def run(self) -> None:
        busy = machine.busy()
        for _, result in self._plans:
            result.busy.append(busy)
        with ExitStack() as servers:
            players = [player for plan, result in self._plans for player in self._start(plan, result, servers)]
            for scenario in SCENARIOS:
                self._scenario(scenario, [player for player in players if scenario in player.plan.work(player.name)])

    def _start(self, plan: Plan, result: Result, servers: ExitStack) -> Iterator[_Player]:
        for made in plan.turn(self._turn):
            if not (work := plan.work(made.name)):
                continue
            self._describe(f"{made.name} starts")
            server = None
            if made.name not in result.skipped:
                server = self._guard(result, made.name, partial(self._started, plan, result, made, servers))
            if server is not None:
                yield _Player(plan, result, server)
            else:
                self._progress.advance(self._task, len(work))

    def _started(self, plan: Plan, result: Result, made: type[Server], servers: ExitStack) -> Server:
        server = servers.enter_context(made())
        self._describe(f"{made.name} warms up")
        costs = warm_up.warm_up(server, plan.factor)
        result.warm_up.setdefault(made.name, []).append(costs)
        self._say(f"{self._turn + 1} {warm_up.told(made.name, costs)}")
        return server

    def _scenario(self, scenario: Scenario, players: list[_Player]) -> None:
        """Each player in turn is measured until it gives a number: what slows the machine for a minute slows all."""
        self._describe(scenario.name)
        measured = {}
        with ExitStack() as unfinished:  # an interrupt ends the servers that scenarios have of their own, too
            for player in players:
                if f"{player.name}/{scenario.name}" not in player.result.skipped:
                    samples = scenario.measure(player.server, self._run_of(player.plan, scenario))
                    measured[player] = unfinished.enter_context(closing(samples))
                    await_quiet(player.server.pid)
            while measured:
                for player, samples in list(measured.items()):
                    if not self._next(scenario, player, samples):
                        del measured[player]
        self._progress.advance(self._task, len(players))

    def _next(self, scenario: Scenario, player: _Player, samples: Iterator[Sample]) -> bool:
        """Takes one sample; False where there is no more."""
        begin = time.monotonic()
        sample = self._guard(player.result, f"{player.name}/{scenario.name}", partial(next, samples, None))
        if sample is not None:
            player.result.add(scenario.name, player.name, self._turn, sample)
            self._say(_shown(self._turn, scenario, player.server, sample, player.plan.tree))
        if time.monotonic() - begin > _AT_ONCE:
            await_quiet(player.server.pid)
        return sample is not None

    def _run_of(self, plan: Plan, scenario: Scenario) -> Run:
        return Run(lambda label: plan.wants(scenario, label), plan.factor, plan.quick, self._turn, plan.rounds)

    def _guard(self, result: Result, what: str, work: Callable[[], T]) -> T | None:
        """What a part returns. If the part fails, its reason is noted in the result and the run goes on."""
        try:
            return work()
        except Unavailable as reason:
            result.skipped[what] = str(reason)
            self._say(f"{what} skipped: {reason}")
        except (BenchError, KafkaException, OSError, subprocess.SubprocessError) as error:
            result.failed[what] = str(error)
            self._say(f"{what} failed: {error}")
        return None

    def _describe(self, what: str) -> None:
        self._progress.update(self._task, description=f"round {self._turn + 1}: {what}")

    def _say(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _shown(turn: int, scenario: Scenario, server: Server, sample: Sample, tree: Path | None) -> str:
    metric = METRICS[sample.metric]
    where = f"{scenario.name}/{sample.load}/{sample.client}"
    line = f"{turn + 1} {server.name:11} {where:44} {sample.value * metric.scale:10,.3f} {metric.heading}"
    return f"{line} of {tree}" if tree else line
