"""Cells as a table and as the page BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from bench.model import Cell

BASE = "raw"

_PAGE = """# Benchmarks

Made by `make bench`; do not edit. Ketch and raw Redis commands on the same embedded Valkey (`appendfsync everysec`),
one partition, one client. Every round starts each server afresh, contestants in turn; rates are medians of {rounds}
rounds with their smallest and largest, a ratio is the median of the rounds' own ratios. Client, broker and Valkey
share the machine's cores, so only ratios carry over to another machine.

- raw: one C program on Valkey's unix socket: `XADD` of the fields that Ketch writes, 10,000 in flight;
  `XRANGE COUNT 5000`, page by page.
- kcat: `kcat -P -l FILE` and `kcat -C`, librdkafka's defaults, timed from start to exit.
- confluent: a Python program with confluent-kafka, timed from its first record to its last.

{table}

Other work took {busy:.0%} of the machine right before the runs (median; at most {busiest:.0%}): the less, the more a
figure here means.

Measured on: {facts}.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario through one client, over all rounds."""

    scenario: str
    client: str
    rates: list[float]
    ratios: list[float]  # to the raw client of the same round


def rows(cells: Iterable[Cell]) -> list[Row]:
    """In the order in which they first ran."""
    groups: dict[tuple[str, str], dict[int, float]] = {}
    for cell in cells:
        groups.setdefault((cell.scenario.name, cell.client), {})[cell.round] = cell.rate
    return [
        Row(scenario, client, list(rates.values()), _ratios(rates, groups.get((scenario, BASE), {})))
        for (scenario, client), rates in sorted(groups.items(), key=lambda group: group[0][0].startswith("consume"))
    ]


def _ratios(rates: dict[int, float], base: dict[int, float]) -> list[float]:
    return [rate / base[turn] for turn, rate in rates.items() if turn in base]


def table(found: Iterable[Row]) -> str:
    """Markdown; rates in thousands of records per second."""
    lines = ["| scenario | client | thousand records/s | of raw |", "|---|---|---|---|"]
    lines += [f"| {row.scenario} | {row.client} | {_rates(row)} | {_ratio(row)} |" for row in found]
    return "\n".join(lines)


def _rates(row: Row) -> str:
    low, middle, high = (rate / 1000 for rate in (min(row.rates), median(row.rates), max(row.rates)))
    return f"{middle:.0f} ({low:.0f}-{high:.0f})"


def _ratio(row: Row) -> str:
    if row.client == BASE or not row.ratios:
        return ""
    return f"{median(row.ratios):.2f} ({min(row.ratios):.2f}-{max(row.ratios):.2f})"


def page(cells: list[Cell], rounds: int, facts: dict[str, str]) -> str:
    """BENCHMARKS.md."""
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    busy = [cell.busy for cell in cells]
    return _PAGE.format(rounds=rounds, table=table(rows(cells)), facts=told, busy=median(busy), busiest=max(busy))
