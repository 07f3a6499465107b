"""The causes of missed targets, from limits.md: which section explains which row.

limits.md is written by hand. A section's heading is a cause in a few words. The paragraph below it,
"Rows: `...`, `...`", holds patterns as of fnmatch for "scenario/contestant/load/client".
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from bench.results import Row

PAGE = Path(__file__).with_name("limits.md")


class Cause(NamedTuple):
    """A section of limits.md."""

    heading: str
    patterns: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """The heading's anchor, as GitHub makes it."""
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")

    def explains(self, row: Row) -> bool:
        where = f"{row.scenario}/{row.contestant}/{row.load}/{row.client}"
        return any(fnmatchcase(where, pattern) for pattern in self.patterns)


def causes() -> list[Cause]:
    """All sections in their order."""
    sections = re.findall(r"^## (.+)\n\nRows: ((?:.+\n)+)", PAGE.read_text(), re.MULTILINE)
    return [Cause(heading, tuple(re.findall(r"`([^`]+)`", patterns))) for heading, patterns in sections]


def cause_of(row: Row) -> Cause | None:
    """The first section that explains the row."""
    return next((cause for cause in causes() if cause.explains(row)), None)
