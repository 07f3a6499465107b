"""The charts of the details page: SVG files drawn by matplotlib from a result's medians.

Each chart has groups of bars, one bar a contestant; the thin line on a bar spans the smallest and the largest round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.contestants import SHOWN
from bench.results import Result
from bench.scenarios.backlog import BACKLOGS, after
from bench.scenarios.latency import ALONE, STEADY
from bench.scenarios.partitions import PARTITIONS, partitioned

_INCHES = (8.0, 4.0)
_GROUP_SHARE = 0.84  # of the distance between two groups, taken by the bars of one
_COLOURS = {
    "valkey": "#8a8a8a",
    "ketch": "#1b7f79",
    "ketch-multi": "#8fc9c5",
    "ketch-batch": "#e07a1f",
    "kafka": "#35507a",
}
# Text stays text and ids do not change from run to run, so that a diff shows what changed.
_SVG = {"svg.fonttype": "none", "svg.hashsalt": "ketch", "font.family": "sans-serif", "font.size": 10}


class Group(NamedTuple):
    """Bars side by side: one number, of each contestant that has it."""

    shown: str
    load: str
    metric: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Groups of bars on one axis. `name` is the file's and begins with the scenario's; `along` says what groups are."""

    name: str
    title: str
    along: str
    groups: tuple[Group, ...]
    clients: tuple[str, ...]  # one for each contestant

    @property
    def scenario(self) -> str:
        return self.name.partition("-")[0]

    @property
    def is_rate(self) -> bool:
        """Records per second; otherwise milliseconds."""
        return self.groups[0].metric == "rate"


@dataclass(frozen=True, slots=True)
class Bar:
    """A contestant's number in a group: median, smallest and largest round, in records per second or milliseconds."""

    group: int
    contestant: str
    value: float
    least: float
    most: float


def _rates(name: str, title: str, along: str, loads: dict[str, str], *clients: str) -> Chart:
    """A chart of records per second; `loads` says what each group is called."""
    return Chart(name, title, along, tuple(Group(shown, load, "rate") for load, shown in loads.items()), clients)


def _percentiles(name: str, title: str, load: str) -> Chart:
    groups = tuple(Group(metric, load, metric) for metric in ("p50", "p99", "p99.9"))
    return Chart(name, title, "percentile of records", groups, ("java",))


_VERBS = ("produce", "consume")
CHARTS = (
    *(
        _rates(
            f"throughput-{verb}",
            f"{verb.capitalize()}, one partition, kcat (raw Valkey: a C program)",
            "record size",
            {f"{verb} {size}": size for size in ("100 B", "1 KB", "10 KB")},
            "kcat",
            "raw",
        )
        for verb in _VERBS
    ),
    _percentiles("latency-steady", "From send to acknowledgement, 10,000 records/s of 1 KB, Java producer", STEADY),
    _percentiles("latency-alone", "From producer to consumer, 100 B, one record at a time, Java", ALONE),
    *(
        _rates(
            f"partitions-{verb}",
            f"{verb.capitalize()} 100 B over many partitions, confluent-kafka",
            "partitions",
            {partitioned(verb, n): f"{n:,}" for n in PARTITIONS},
            "confluent",
        )
        for verb in _VERBS
    ),
    *(
        _rates(
            f"backlog-{verb}",
            f"{verb.capitalize()} 100 B at the end of a long stream",
            "records already in the stream",
            {after(verb, n): f"{n:,}" for n in BACKLOGS},
            "kcat",
        )
        for verb in _VERBS
    ),
)


def draw(result: Result, directory: Path) -> list[Path]:
    """Writes the charts that there are numbers for into `directory`; their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for chart in CHARTS:
        if bars := list(_bars(result, chart)):
            path = directory / f"{chart.name}.svg"
            with rc_context(_SVG):
                _figure(chart, bars).savefig(path, metadata={"Date": None})
            drawn.append(path)
    return drawn


def _bars(result: Result, chart: Chart) -> Iterator[Bar]:
    rows = result.of(chart.scenario)
    for place, group in enumerate(chart.groups):
        for row, rounds in rows.items():
            if (row.load, row.metric) == (group.load, group.metric) and row.client in chart.clients:
                values = rounds.values()
                yield Bar(place, row.contestant, median(values), min(values), max(values))


def _figure(chart: Chart, bars: list[Bar]) -> Figure:
    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.add_subplot()
    contestants = [name for name in SHOWN if any(bar.contestant == name for bar in bars)]
    width = _GROUP_SHARE / len(contestants)
    for place, contestant in enumerate(contestants):
        shift = (place - (len(contestants) - 1) / 2) * width
        _draw_contestant(axes, chart, [bar for bar in bars if bar.contestant == contestant], shift, width * 0.92)
    axes.set_title(chart.title, loc="left", fontweight="bold", pad=28)
    axes.set_xlabel(chart.along)
    axes.set_ylabel("records per second" if chart.is_rate else "milliseconds")
    axes.set_xticks(range(len(chart.groups)), [group.shown for group in chart.groups])
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    beside = {"ncols": len(contestants), "columnspacing": 1.2, "fontsize": 9, "frameon": False, "borderaxespad": 0.2}
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), **beside)
    return figure


def _draw_contestant(axes: Axes, chart: Chart, bars: list[Bar], shift: float, width: float) -> None:
    places = [bar.group + shift for bar in bars]
    below = [bar.value - bar.least for bar in bars]
    above = [bar.most - bar.value for bar in bars]
    name = bars[0].contestant
    axes.bar(places, [bar.value for bar in bars], width, label=SHOWN[name], color=_COLOURS[name])
    spans = {"fmt": "none", "ecolor": "#333333", "elinewidth": 0.8}
    axes.errorbar(places, [bar.value for bar in bars], [below, above], **spans)
    for place, bar in zip(places, bars, strict=True):
        # The Java tools count whole milliseconds: their 0 is anything below one.
        shown = label(bar.value) if bar.value or chart.is_rate else "< 1"
        over = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
        axes.annotate(shown, (place, bar.value), bbox=paper, zorder=4, **over)


def label(value: float) -> str:
    """A number as people read it: 1.9 M, 234 k, 4.8 k, 84, 0.5."""
    for size, sign in ((1e6, " M"), (1e3, " k")):
        if value >= size * 0.9995:
            return f"{value / size:.{1 if value < size * 9.95 else 0}f}{sign}"
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"
