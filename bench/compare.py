"""What changed from one result to another, row by row."""

from __future__ import annotations

from statistics import median

from rich.console import Console
from rich.table import Table

from bench.model import METRICS, resolution
from bench.results import Result, Row
from bench.wording import spread

TOLERANCE = 0.05  # a median that is worse by more than this part counts as worse


def show(a: Result, b: Result, console: Console) -> None:
    """Prints every row that both have; a change is coloured where the two spreads do not overlap."""
    title = f"{a.machine.get('commit', '?')} to {b.machine.get('commit', '?')}"
    table = Table("row", "unit", "A", "B", "B / A", title=title)
    for row in a.values:
        if row in b.values:
            table.add_row(*_line(row, list(a.values[row].values()), list(b.values[row].values())))
    console.print(table)
    if a.machine.get("processor") != b.machine.get("processor"):
        console.print("The two ran on different machines: compare ratios within each, not these.", style="yellow")


def worse(a: Result, b: Result) -> list[str]:
    """The rows whose median is worse in B than in A by more than TOLERANCE."""
    return [
        f"{shown(row)}, {METRICS[row.metric].shown}"
        for row in a.values
        if row in b.values and _is_worse(row, _ratio(row, list(a.values[row].values()), list(b.values[row].values())))
    ]


def shown(row: Row) -> str:
    return f"{row.scenario}/{row.load}/{row.client}, {row.contestant}"


def _ratio(row: Row, a: list[float], b: list[float]) -> float:
    """Of the medians, B to A; not a number where A's is 0."""
    floor = resolution(row.metric, row.client)
    before, after = max(median(a), floor), max(median(b), floor)
    return after / before if before else float("nan")


def _is_worse(row: Row, ratio: float) -> bool:
    return ratio < 1 - TOLERANCE if METRICS[row.metric].higher else ratio > 1 + TOLERANCE


def _line(row: Row, a: list[float], b: list[float]) -> list[str]:
    metric, ratio = METRICS[row.metric], _ratio(row, a, b)
    before, after = ([value * metric.scale for value in values] for values in (a, b))
    apart = min(after) > max(before) or max(after) < min(before)
    colour = ("[green]" if (ratio > 1) == metric.higher else "[red]") if apart and ratio != 1 else ""
    return [shown(row), metric.heading, spread(before), spread(after), f"{colour}{ratio:.2f}"]
