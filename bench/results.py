"""The samples of a run: saved as JSON, loaded, combined, and compared with the targets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

from bench.model import METRICS, BenchError, Sample, Target, resolution

_REST = ("at", "machine", "quick", "asked", "seconds", "busy", "skipped", "failed", "warm_up")


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured; each round has one number for it."""

    scenario: str
    contestant: str
    load: str
    client: str
    metric: str


@dataclass(slots=True)
class Result:
    """One run of the harness.

    `values` holds a number a round for each row, `skipped` and `failed` one sentence for what gave none, and `busy` the
    share of the machine, 0 to 1, that others had before each contestant's turn. `seconds` is what each whole round
    took; a run that was stopped has fewer of them than were `asked` for. `warm_up` holds for each contestant a list a
    round: seconds of its CPU in each turn before the round.
    """

    machine: dict[str, str]
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    quick: bool = False
    asked: int = 0
    seconds: list[float] = field(default_factory=list)
    values: dict[Row, dict[int, float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)
    warm_up: dict[str, list[list[float]]] = field(default_factory=dict)
    later: list[Result] = field(default_factory=list)  # runs of parts, whose scenarios replaced this run's; not saved

    @property
    def scenarios(self) -> set[str]:
        return {row.scenario for row in self.values}

    def take(self, later: Result) -> None:
        """Replaces the scenarios that another run has measured too by that run's."""
        mine = {row: rounds for row, rounds in self.values.items() if row.scenario not in later.scenarios}
        self.values = mine | later.values
        for ours, theirs in ((self.skipped, later.skipped), (self.failed, later.failed)):
            for what in [what for what in ours if what.rpartition("/")[2] in later.scenarios]:
                del ours[what]
            ours.update(theirs)
        self.later.append(later)

    def add(self, scenario: str, contestant: str, turn: int, sample: Sample) -> None:
        row = Row(scenario, contestant, sample.load, sample.client, sample.metric)
        self.values.setdefault(row, {})[turn if sample.turn is None else sample.turn] = sample.value

    def save(self, directory: Path) -> Path:
        """Replaces the file of the same run in one step: a run that is stopped meanwhile keeps the former file."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{datetime.fromisoformat(self.at):%Y%m%d-%H%M%S}.json"
        rows = [{**asdict(row), "rounds": rounds} for row, rounds in self.values.items()]
        rest = {name: getattr(self, name) for name in _REST}
        path.with_suffix(".part").write_text(json.dumps({**rest, "rows": rows}, indent=1))
        return path.with_suffix(".part").replace(path)

    def of(self, scenario: str) -> dict[Row, dict[int, float]]:
        return {row: rounds for row, rounds in self.values.items() if row.scenario == scenario}


def load(path: Path) -> Result:
    """A saved result.

    Raises:
        BenchError: the file is missing, or is no result.
    """
    try:
        kept: dict[str, Any] = json.loads(path.read_text())
        rows = kept.pop("rows")
        values = {Row(**row): {int(turn): value for turn, value in rounds.items()} for row, rounds in _split(rows)}
        return Result(values=values, **kept)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} is no result of this harness: {error}") from None


def _split(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, str], dict[str, float]]]:
    for row in rows:
        rounds = row.pop("rounds")
        yield row, rounds


def ratios(mine: dict[int, float], theirs: dict[int, float], floor: float) -> list[float]:
    """Round by round, of the rounds that both have; numbers below `floor` count as `floor`."""
    both = [(max(mine[turn], floor), max(theirs[turn], floor)) for turn in mine if turn in theirs]
    return [a / b for a, b in both if b]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was measured for it."""

    row: Row
    target: Target
    measured: list[float]  # for each round: the ratio, or the number in the unit that is shown

    @property
    def middle(self) -> float:
        return median(self.measured)

    @property
    def met(self) -> bool:
        least, most = self.target.least, self.target.most
        return (least is None or self.middle >= least) and (most is None or self.middle <= most)


def verdicts(result: Result, scenario: str, targets: Iterable[Target]) -> list[Verdict]:
    """Each target with each measured row that matches it."""
    found = []
    for target in targets:
        for row, rounds in result.of(scenario).items():
            if _speaks_of(target, row) and (measured := _measured(result, target, row, rounds)):
                found.append(Verdict(row, target, measured))
    return found


def _speaks_of(target: Target, row: Row) -> bool:
    return (
        (row.contestant, row.metric) == (target.contestant, target.metric)
        and fnmatchcase(row.load, target.loads)
        and fnmatchcase(row.client, target.clients)
    )


def _measured(result: Result, target: Target, row: Row, rounds: dict[int, float]) -> list[float]:
    if not target.is_ratio:
        return [value * METRICS[row.metric].scale for value in rounds.values()]
    other = Row(
        row.scenario,
        target.to or row.contestant,
        target.to_load or row.load,
        target.to_client or row.client,
        row.metric,
    )
    return ratios(rounds, result.values.get(other, {}), resolution(row.metric, row.client))
