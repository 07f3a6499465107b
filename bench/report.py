"""What a run leaves for readers: BENCHMARKS.md, README's figures, the details page with its charts, and the targets on
the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import details, overview, readme
from bench.results import Result, verdicts
from bench.scenarios import SCENARIOS
from bench.wording import describe, spread

PAGE = Path("BENCHMARKS.md")
README = Path("README.md")
DETAILS = Path("bench/results/details.md")
CHARTS = Path("bench/results/charts")


def write(result: Result, root: Path) -> None:
    """Writes the pages, README's figures and the charts below `root`, the repository or what stands for it.

    Raises:
        BenchError: the README has no place for the figures.
    """
    figures = readme.replaced((root / README).read_text(), result)
    home = (root / DETAILS).parent
    home.mkdir(parents=True, exist_ok=True)
    from bench import charts  # with all of matplotlib

    drawn = charts.draw(result, root / CHARTS)
    (root / DETAILS).write_text(details.page(result, drawn, home))
    (root / PAGE).write_text(overview.page(result, DETAILS.as_posix()))
    (root / README).write_text(figures)


def summary(result: Result, console: Console) -> None:
    """Prints every target and whether it was met."""
    table = Table("scenario", "target", "load", "client", "measured", "met", title="Targets")
    for scenario in SCENARIOS:
        for verdict in verdicts(result, scenario.name, scenario.targets):
            row = verdict.row
            met = "no target" if verdict.target.reported else "[green]yes" if verdict.met else "[red]no"
            table.add_row(scenario.name, describe(verdict.target), row.load, row.client, spread(verdict.measured), met)
    if table.row_count:
        console.print(table)
    for what, why in {**result.skipped, **result.failed}.items():
        console.print(f"{what}: {why}", style="yellow", markup=False)
