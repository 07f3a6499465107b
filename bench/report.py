"""The numbers as BENCHMARKS.md, and the targets as a table on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench import plots
from bench.contestants import SHOWN
from bench.model import METRICS, Scenario, Target
from bench.results import Result, Row, Verdict, verdicts
from bench.scenarios import SCENARIOS

_INTRO = """# Benchmarks

Made by `make bench`; do not edit. Ketch in both of its layouts beside Apache Kafka 4.1 and raw Redis commands, in one
run on one machine. Every round starts each server afresh and puts the scenarios on it, contestants in turn; a number is
the median of the rounds with the smallest and the largest, a ratio the median of the rounds' own ratios with theirs.
Client, broker and store share the machine's cores, so only ratios carry over to another machine.

Durability is the same on both sides: Kafka acknowledges what is in the page cache and leaves the flush to the operating
system; the Valkey under Ketch acknowledges what is in its append-only file's buffer and flushes once a second
(`appendfsync everysec`). Producers ask for `acks=all`, one replica.
"""

_LIMITS = Path(__file__).with_name("limits.md")  # by hand: what stands in the way of a target, and how that was seen


def write(result: Result, page: Path, drawings: Path) -> None:
    """BENCHMARKS.md and its plots."""
    drawn = plots.draw(result, drawings)
    parts = [_INTRO, _facts(result), "## Targets\n", _targets(result)]
    for scenario in SCENARIOS:
        if result.of(scenario.name):
            parts += _section(result, scenario)
            shown = [path for path in drawn if path.stem.startswith(scenario.name)]
            parts += [f"![{path.stem}]({path.relative_to(page.parent)})\n" for path in shown]
    parts += _left_out(result)
    parts.append(_LIMITS.read_text())
    page.write_text("\n".join(parts))


def _facts(result: Result) -> str:
    told = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    other = ""
    if result.busy:
        other = (
            f" Other work took {median(result.busy):.0%} of the machine before the contestants' turns (median; at most "
        )
        other += f"{max(result.busy):.0%}): the less, the more a number means."
    parts = [f"Measured at {result.at}{_length(result)} on: {told}.{other}\n"]
    for later in result.later:
        titles = ", ".join(scenario.title for scenario in SCENARIOS if scenario.name in later.scenarios)
        commit = later.machine.get("commit", "unknown")
        parts.append(f"{titles}: from a run of its own at {later.at}{_length(later)} at commit {commit}.\n")
    return "\n".join(parts)


def _length(result: Result) -> str:
    if not result.seconds:
        return ""
    whole = len(result.seconds)
    stopped = f" (of {result.asked}: the run was stopped)" if whole < result.asked else ""
    return f" in {rounds([whole])}{stopped}, which took {sum(result.seconds) / 60:.0f} min,"


def _targets(result: Result) -> str:
    lines = ["| scenario | target | measured | rounds | met |", "|---|---|---|---|---|"]
    for scenario in SCENARIOS:
        for target in scenario.targets:
            if found := verdicts(result, scenario.name, [target]):
                cells = (scenario.title, describe(target), _worst(found), _several(_counts(found)), _met(found))
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def describe(target: Target) -> str:
    """The target in words: "Ketch, batch layout (produce *): rate at least 1 of Apache Kafka"."""
    what = [part for part in (target.loads, target.clients) if part != "*"]
    where = f" ({', '.join(what)})" if what else ""
    return f"{SHOWN[target.contestant]}{where}: {_bound(target)}"


def _bound(target: Target) -> str:
    unit = "rate" if target.metric == "rate" else METRICS[target.metric].unit
    return f"{unit}{_limit(target)}{_beside(target)}"


def _limit(target: Target) -> str:
    if target.least is not None:
        return f" at least {target.least:g}"
    return "" if target.most is None else f" at most {target.most:g}"


def _beside(target: Target) -> str:
    if not target.is_ratio:
        return ""
    other = ", ".join(part for part in (SHOWN.get(target.to or ""), target.to_load) if part)
    return f", {other} being 1" if target.reported else f" of {other}"


def _worst(found: list[Verdict]) -> str:
    least = found[0].target.least is not None
    worst = (min if least else max)(found, key=lambda verdict: verdict.middle)
    where = f" ({worst.row.load}, {worst.row.client})" if len(found) > 1 else ""
    return f"{spread(worst.measured)}{where}"


def _counts(found: list[Verdict]) -> list[int]:
    return [len(verdict.measured) for verdict in found]


def rounds(counts: Iterable[int]) -> str:
    """ "5 rounds", and the fewest and the most where rows differ."""
    told = _several(counts)
    return f"{told} round{'' if told == '1' else 's'}"


def _several(counts: Iterable[int]) -> str:
    found = sorted(set(counts))
    return f"{found[0]}-{found[-1]}" if found[1:] else f"{found[0]}"


def _met(found: list[Verdict]) -> str:
    if found[0].target.reported:
        return "reported"
    met = sum(verdict.met for verdict in found)
    if len(found) == 1:
        return "yes" if met else "**no**"
    return "yes" if met == len(found) else f"**{met} of {len(found)}**"


def _section(result: Result, scenario: Scenario) -> list[str]:
    parts = [f"## {scenario.title}\n", scenario.note + "\n"] if scenario.note else [f"## {scenario.title}\n"]
    rows = result.of(scenario.name)
    judged = verdicts(result, scenario.name, scenario.targets)
    for metric in dict.fromkeys(row.metric for row in rows):
        parts.append(_table(rows, metric, [verdict for verdict in judged if verdict.row.metric == metric]))
    return parts


def _table(rows: dict[Row, dict[int, float]], metric: str, judged: list[Verdict]) -> str:
    mine = {row: values for row, values in rows.items() if row.metric == metric}
    contestants = [name for name in SHOWN if any(row.contestant == name for row in mine)]
    last = ["against the target"] if judged else []
    unit = f"{METRICS[metric].unit}, {rounds(len(values) for values in mine.values())}"
    heads = [unit, "client", *(SHOWN[name] for name in contestants), *last]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for load, client in _rows(mine):
        cells = [_cell(mine, contestant, load, client, metric) for contestant in contestants]
        told = [_judgement(verdict) for verdict in judged if (verdict.row.load, verdict.row.client) == (load, client)]
        lines.append(f"| {load} | {client} | {' | '.join(cells)} |" + (f" {'; '.join(told)} |" if judged else ""))
    return "\n".join(lines) + "\n"


def _rows(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Load and client: by the load's first word, then by its size (the next two), else as they ran first."""
    pairs = list(dict.fromkeys((row.load, row.client) for row in rows))
    verbs, sizes = ([_words(load, part) for load, _ in pairs] for part in (slice(1), slice(1, 3)))
    return sorted(
        pairs, key=lambda pair: (verbs.index(_words(pair[0], slice(1))), sizes.index(_words(pair[0], slice(1, 3))))
    )


def _words(load: str, part: slice) -> str:
    return " ".join(load.replace(",", "").split()[part])


def _cell(rows: dict[Row, dict[int, float]], contestant: str, load: str, client: str, metric: str) -> str:
    where = (contestant, load, client)
    values = next((found for row, found in rows.items() if (row.contestant, row.load, row.client) == where), {})
    return spread([value * METRICS[metric].scale for value in values.values()]) if values else ""


def spread(values: Iterable[float]) -> str:
    """Median, and smallest and largest where there are several."""
    ordered = sorted(values)
    middle = number(median(ordered))
    return middle if len(ordered) == 1 else f"{middle} ({number(ordered[0])}-{number(ordered[-1])})"


def number(value: float) -> str:
    """Three digits are all that such a measurement is worth."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _judgement(verdict: Verdict) -> str:
    target, told = verdict.target, SHOWN[verdict.target.contestant].removeprefix("Ketch, ") + ": "
    told += f"{spread(verdict.measured)}{_beside(target)}" if target.is_ratio else spread(verdict.measured)
    if target.reported:
        return told
    return f"{told} ({_limit(target).strip()}: {'met' if verdict.met else '**not met**'})"


def _left_out(result: Result) -> list[str]:
    told = [f"- {what}: {why}" for what, why in {**result.skipped, **result.failed}.items()]
    return ["## Left out\n", *told, ""] if told else []


def summary(result: Result, console: Console) -> None:
    """Every target and whether it was met."""
    table = Table("scenario", "target", "load", "client", "measured", "met", title="Targets")
    for scenario in SCENARIOS:
        for verdict in verdicts(result, scenario.name, scenario.targets):
            row = verdict.row
            met = "reported" if verdict.target.reported else "[green]yes" if verdict.met else "[red]no"
            table.add_row(scenario.name, describe(verdict.target), row.load, row.client, spread(verdict.measured), met)
    if table.row_count:
        console.print(table)
    for what, why in {**result.skipped, **result.failed}.items():
        console.print(f"{what}: {why}", style="yellow", markup=False)
