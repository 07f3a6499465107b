"""The chart of a run: revenue by minute and region, an SVG file drawn by matplotlib."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

COLOURS = {"north": "#4477aa", "south": "#ee6677", "east": "#228833", "west": "#ccbb44", "unknown": "#bbbbbb"}
_LABELS = 10  # minutes named on the axis, at most


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes the revenue of each minute as a stacked bar, one colour a region.

    Args:
        path: The SVG file.
        rows: Values of topic `revenue`: `minute` (ISO 8601), `region`, `cents`.
    """
    minutes = sorted({row["minute"] for row in rows})
    amounts = {(row["minute"], row["region"]): row["cents"] / 100 for row in rows}
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    below = [0.0] * len(minutes)
    for region in [name for name in COLOURS if any(row["region"] == name for row in rows)]:
        heights = [amounts.get((minute, region), 0.0) for minute in minutes]
        axes.bar(range(len(minutes)), heights, 0.85, below, color=COLOURS[region], label=region)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    named = range(0, len(minutes), max(1, -(-len(minutes) // _LABELS)))
    axes.set_xticks(named, [f"{datetime.fromisoformat(minutes[place]):%H:%M}" for place in named])
    axes.set_title("Revenue of closed minutes", loc="left", fontweight="bold")
    axes.set_xlabel("minute of the shop's day")
    axes.set_ylabel("revenue per minute")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if rows:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(COLOURS), frameon=False, borderaxespad=0.2)
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
