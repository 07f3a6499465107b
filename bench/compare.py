"""What changed from one kept run to another."""

from __future__ import annotations

from statistics import median

from rich.console import Console
from rich.table import Table

from bench.model import METRICS
from bench.report import spread
from bench.results import Result, Row


def show(a: Result, b: Result, console: Console) -> None:
    """Every row that both have; a change is marked where the two spreads do not overlap."""
    title = f"{a.machine.get('commit', '?')} to {b.machine.get('commit', '?')}"
    table = Table("row", "unit", "A", "B", "B / A", title=title)
    for row in a.values:
        if row in b.values:
            table.add_row(*_line(row, list(a.values[row].values()), list(b.values[row].values())))
    console.print(table)
    if a.machine.get("processor") != b.machine.get("processor"):
        console.print("The two ran on different machines: compare ratios within each, not these.", style="yellow")


def _line(row: Row, a: list[float], b: list[float]) -> list[str]:
    metric = METRICS[row.metric]
    before, after = ([value * metric.scale for value in values] for values in (a, b))
    ratio = median(after) / median(before) if median(before) else float("nan")
    apart = min(after) > max(before) or max(after) < min(before)
    colour = ("[green]" if (ratio > 1) == metric.higher else "[red]") if apart and ratio != 1 else ""
    where = f"{row.scenario}/{row.load}/{row.client}, {row.contestant}"
    return [where, metric.unit, spread(before), spread(after), f"{colour}{ratio:.2f}"]
