"""How numbers, targets and verdicts are written, on the pages and on the terminal. It reads no file and writes none."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from bench.contestants import SHOWN
from bench.model import METRICS, Target
from bench.results import Result, Verdict


def number(value: float) -> str:
    """Three digits: such a measurement is worth no more."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: Iterable[float]) -> str:
    """The median, and the smallest and the largest where there are several."""
    ordered = sorted(values)
    middle = number(median(ordered))
    return middle if len(ordered) == 1 else f"{middle} ({number(ordered[0])}-{number(ordered[-1])})"


def rounds(counts: Iterable[int]) -> str:
    """ "5 rounds", or "3-5 rounds" where rows differ."""
    shown = span(counts)
    return f"{shown} round{'' if shown == '1' else 's'}"


def span(counts: Iterable[int]) -> str:
    """ "5", or "3-5"."""
    found = sorted(set(counts))
    return f"{found[0]}-{found[-1]}" if found[1:] else f"{found[0]}"


def length(result: Result) -> str:
    """ "5 rounds", and of how many where the run was stopped."""
    whole = len(result.seconds)
    return rounds([whole]) + (f" (of {result.asked}: the run was stopped)" if whole < result.asked else "")


def describe(target: Target) -> str:
    """The target in words: "Ketch, batch layout (produce *): rate at least 1 x Apache Kafka"."""
    what = [part for part in (target.loads, target.clients) if part != "*"]
    where = f" ({', '.join(what)})" if what else ""
    return f"{SHOWN[target.contestant]}{where}: {bound(target)}"


def bound(target: Target) -> str:
    """ "rate at least 1 x Apache Kafka", "p99 at most 10 ms"; for a ratio without a bound "rate / Apache Kafka"."""
    metric = METRICS[target.metric]
    if target.reported:
        return f"{metric.shown} / {other(target)}"
    beside = f" x {other(target)}" if target.is_ratio else f" {metric.unit}"
    return f"{metric.shown} {limit(target)}{beside}"


def limit(target: Target) -> str:
    """ "at least 0.9"; empty where there is no bound."""
    if target.least is not None:
        return f"at least {target.least:g}"
    return "" if target.most is None else f"at most {target.most:g}"


def other(target: Target) -> str:
    """What a ratio is to: a contestant, another load, both, or the same load through another client."""
    parts = [part for part in (SHOWN.get(target.to or "", ""), target.to_load) if part]
    return ", ".join(parts) or (target.to_client or "")


def judgement(verdict: Verdict) -> str:
    """ "record layout: 0.42 (0.32-0.57) x raw Valkey, at least 0.9: **not met**"."""
    target, measured = verdict.target, spread(verdict.measured)
    who = SHOWN[target.contestant].removeprefix("Ketch, ")
    beside = f" x {other(target)}" if target.is_ratio else ""
    if target.reported:
        return f"{who}: {measured}{beside}"
    return f"{who}: {measured}{beside}, {limit(target)}: {'met' if verdict.met else '**not met**'}"
