"""The plots of BENCHMARKS.md: plain SVG, so that they need no library and can be read in a diff."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.contestants import SHOWN
from bench.model import METRICS
from bench.results import Result
from bench.scenarios.backlog import BACKLOGS, behind
from bench.scenarios.latency import ALONE, STEADY
from bench.scenarios.partitions import PARTITIONS, partitioned

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 320, 60, 50, 50
_COLOURS = {"valkey": "#8a8a8a", "ketch": "#1b7f79", "ketch-batch": "#e07a1f", "kafka": "#35507a"}


class Group(NamedTuple):
    """Bars side by side: one number, of each contestant that has it."""

    shown: str
    load: str
    metric: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Groups of bars on one axis. `name` begins with the scenario's."""

    name: str
    title: str
    groups: tuple[Group, ...]
    clients: tuple[str, ...]  # one for each contestant

    @property
    def scenario(self) -> str:
        return self.name.partition("-")[0]


@dataclass(frozen=True, slots=True)
class Bar:
    group: str
    contestant: str
    value: float


def _rates(name: str, title: str, loads: dict[str, str], *clients: str) -> Plot:
    """A plot of records per second; `loads` says what each group is called."""
    return Plot(name, title, tuple(Group(shown, load, "rate") for load, shown in loads.items()), clients)


def _percentiles(name: str, title: str, load: str) -> Plot:
    return Plot(name, title, tuple(Group(metric, load, metric) for metric in ("p50", "p99", "p99.9")), ("java",))


PLOTS = (
    *(
        _rates(
            f"throughput-{verb}",
            f"{verb.capitalize()} by record size, kcat",
            {f"{verb} {size}": size for size in ("100 B", "1 KB", "10 KB")},
            "kcat",
            "raw",
        )
        for verb in ("produce", "consume")
    ),
    _percentiles("latency-steady", "Time to acknowledge, 10,000 records/s of 1 KB", STEADY),
    _percentiles("latency-alone", "Producer to consumer, 100 B, one at a time", ALONE),
    *(
        _rates(
            f"partitions-{verb}",
            f"{verb.capitalize()} 100 B by number of partitions, confluent-kafka",
            {partitioned(verb, n): f"{n:,}" for n in PARTITIONS},
            "confluent",
        )
        for verb in ("produce", "consume")
    ),
    *(
        _rates(
            f"backlog-{verb}",
            f"{verb.capitalize()} 100 B at the end of a stream, by records in it",
            {behind(verb, n): f"{n:,}" for n in BACKLOGS},
            "kcat",
        )
        for verb in ("produce", "consume")
    ),
)


def draw(result: Result, directory: Path) -> list[Path]:
    """Writes the plots that there are numbers for."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for plot in PLOTS:
        if bars := list(_bars(result, plot)):
            path = directory / f"{plot.name}.svg"
            path.write_text(_svg(plot, bars))
            drawn.append(path)
    return drawn


def _bars(result: Result, plot: Plot) -> Iterator[Bar]:
    rows = result.of(plot.scenario)
    for group in plot.groups:
        for row, rounds in rows.items():
            if (row.load, row.metric) == (group.load, group.metric) and row.client in plot.clients:
                yield Bar(group.shown, row.contestant, median(rounds.values()) * METRICS[row.metric].scale)


def _svg(plot: Plot, bars: list[Bar]) -> str:
    groups = list(dict.fromkeys(bar.group for bar in bars))
    contestants = [name for name in SHOWN if any(bar.contestant == name for bar in bars)]
    top = _round_up(max(bar.value for bar in bars))
    step = (_WIDTH - _LEFT) / len(groups)
    width = step * 0.8 / len(contestants)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)

    parts = [*_axis(top, _unit(plot), y), *_legend(contestants), _text(_LEFT, 18, plot.title, "title")]
    for bar in bars:
        x = _LEFT + groups.index(bar.group) * step + step * 0.1 + contestants.index(bar.contestant) * width
        parts.append(
            f'<rect x="{x:.1f}" y="{y(bar.value):.1f}" width="{width * 0.92:.1f}"'
            f' height="{y(0) - y(bar.value):.1f}" fill="{_COLOURS[bar.contestant]}"/>'
        )
        parts.append(_text(x + width * 0.46, y(bar.value) - 3, f"{bar.value:.3g}", "small"))
    parts += [_text(_LEFT + (i + 0.5) * step, y(0) + 18, group, "label") for i, group in enumerate(groups)]
    return _PAGE.format(width=_WIDTH, height=_HEIGHT, body="\n".join(parts))


def _unit(plot: Plot) -> str:
    metrics = {group.metric for group in plot.groups}
    return METRICS[metrics.pop()].unit if len(metrics) == 1 else "ms"


def _axis(top: float, unit: str, y: Callable[[float], float]) -> Iterator[str]:
    for i in range(5):
        value = top * i / 4
        yield f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
        yield _text(_LEFT - 6, y(value) + 4, f"{value:g}", "tick")
    yield _text(_LEFT, _HEIGHT - 8, unit, "unit")


def _legend(contestants: Iterable[str]) -> Iterator[str]:
    for i, contestant in enumerate(contestants):
        x = _LEFT + i * 160
        yield f'<rect x="{x}" y="26" width="10" height="10" fill="{_COLOURS[contestant]}"/>'
        yield _text(x + 14, 35, SHOWN[contestant], "unit")


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def _round_up(value: float) -> float:
    """1, 2, 4 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 8, 10) if power * step >= value)


_PAGE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"
 font-size="12">
<style>.title{{font-size:14px;font-weight:bold}}.tick{{text-anchor:end;fill:#555}}.label{{text-anchor:middle}}\
.small{{text-anchor:middle;font-size:9px;fill:#333}}.unit{{fill:#555}}</style>
<rect width="100%" height="100%" fill="#fff"/>
{body}
</svg>
"""
