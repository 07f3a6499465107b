"""Compares the output that a page shows with the output of a run.

Both must agree save for what differs between two runs: times, entry ids and the offsets made of them, ids, durations,
sizes of the process, versions. `...` in a shown line stands for any text, a line `...` for any lines. Runs of blanks
and of dashes count as one.

Numbers that the run chose (offsets and timestamps) are learned: `Learned` maps the number that the page shows to that
of this run, so that a later command of the page may use it. This module starts nothing.
"""

from __future__ import annotations

import re

Learned = dict[str, str]

# An offset, a timestamp, or an entry id.
_PLAIN_NUMBER = r"\d{13,16}(?:-\d+)?"
_NUMBER = rf"({_PLAIN_NUMBER})"
# What differs between two runs -> the pattern that any such text matches. The first that matches at a place counts.
_VARYING = (
    (
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:\+00:00|Z)?",
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:\+00:00|Z)?",
    ),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    (r"(?<![\w-])(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{22}(?![\w-])", r"[\w-]{22}"),
    (rf"(?<!\d){_PLAIN_NUMBER}(?!\d)", _NUMBER),
    (r"\d[\d,.]*(?= ?(?:ms|s|min|records/s|/s|KB|MB|bytes)\b)", r"[\d,.]+"),
    (r"\d[\d.]*[kmg]b\b", r"[\d.]+[kmg]b"),
    (r"(?<=pid )\d+", r"\d+"),
    (r"(?<=session\\\":\\\")[\w-]+", r"[\w-]+"),
    (r"(?<![\d.])\d+\.\d+\.\d+(?![\d.])", r"\d+\.\d+\.\d+\w*"),
    (r"(?<=kernel )(?:cython|python)", r"(?:cython|python)"),
    (r"\.\.\.", r".*"),
)
_TOKEN = re.compile("|".join(f"(?P<v{n}>{shown})" for n, (shown, _) in enumerate(_VARYING)))


def difference(shown: list[str], got: str, learned: Learned, *, exact: bool = False, within: bool = False) -> str:
    """What is wrong with the output of a command; "" where it agrees.

    Args:
        shown: the page's lines.
        got: the output of the run.
        learned: gets the numbers of this run, where the output agrees.
        exact: nothing may differ but what `...` stands for.
        within: other lines may come before and after.
    """
    numbers: list[str] = []
    lines = [_pattern(line, numbers, exact) for line in _plain("\n".join(shown)).splitlines()]
    around = r"(?:.*\n)*?" if within else ""
    found = re.fullmatch(around + "".join(lines) + around, _plain(got), 0)
    if found is None:
        return "\n".join(
            [
                "the page shows",
                *(f"  {line}" for line in shown),
                "and the run gave",
                *(f"  {line}" for line in got.splitlines()),
            ]
        )
    for number, real in zip(numbers, found.groups(), strict=True):
        learned.setdefault(number, real)
    return ""


def real(command: str, learned: Learned) -> str:
    """A command of the page with the numbers of this run."""
    return re.sub(rf"(?<!\d){_PLAIN_NUMBER}(?!\d)", lambda found: learned.get(found[0], found[0]), command)


def _plain(text: str) -> str:
    lines = [re.sub(r"-{4,}", "----", re.sub(r" +", " ", line.lstrip(" "))).rstrip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line)


def _pattern(line: str, numbers: list[str], exact: bool) -> str:
    """A regular expression of a shown line. Each number to learn is a group of it and is added to `numbers`."""
    if line == "...":
        return r"(?:.*\n)*?"
    pattern, at = "", 0
    for token in _TOKEN.finditer(line):
        if exact and token[0] != "...":
            continue
        varying = _VARYING[int(str(token.lastgroup)[1:])][1]
        if varying == _NUMBER:
            numbers.append(token[0])
        pattern += re.escape(line[at : token.start()]) + varying
        at = token.end()
    return pattern + re.escape(line[at:]) + r"\n"
