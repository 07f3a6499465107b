"""The figures in README.md: a few rows of BENCHMARKS.md's table, between two marks. The rest of the file is by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import fill

from bench.contestants import SHOWN
from bench.model import BenchError
from bench.overview import HEADLINES, PARENTHESES, cell, counted, when
from bench.results import Result

BEGIN, END = "<!-- figures: written by `make bench` -->", "<!-- end of figures -->"
# What a row is called -> the row of BENCHMARKS.md.
ROWS = {
    "produced, kcat": "produce 100 B, kcat",
    "consumed, kcat": "consume 100 B, kcat",
    "produced, Java": "produce 100 B, Java",
    "consumed, Java": "consume 100 B, Java",
}
_COLUMNS = {
    "ketch": "Ketch, entry per record (default)",
    "ketch-multi": "the same, no append module",
    "ketch-batch": "Ketch, entry per batch",
    "kafka": SHOWN["kafka"],
}
_WIDTH = 120


def replaced(text: str, result: Result) -> str:
    """The README with the figures of a result.

    Raises:
        BenchError: it has not the two marks.
    """
    found = re.search(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", text, re.DOTALL)
    if found is None:
        raise BenchError(f"README.md has no place for the figures: {BEGIN} and {END}")
    figures = "\n".join([BEGIN, *_lines(result), END])
    return text[: found.start()] + figures + text[found.end() :]


def _lines(result: Result) -> Iterator[str]:
    yield fill(f"Medians of {counted(result)}, {when(result)}. {PARENTHESES}", _WIDTH) + "\n"
    yield f"| thousand records/s | {' | '.join(_COLUMNS.values())} |"
    yield "|---" + "|---:" * len(_COLUMNS) + "|"
    headlines = {headline.shown: headline for headline in HEADLINES}
    for shown, row in ROWS.items():
        yield f"| {shown} | {' | '.join(cell(result, headlines[row], name) for name in _COLUMNS)} |"
