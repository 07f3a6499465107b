"""How a table fits a terminal: which columns are shown, and how wide each is.

Numbers, ids and names are never broken: only cells of several words are, between words. Where that is not enough, the
columns that a caller calls optional are left out one by one. Where that is not enough either, each row is printed as
a block of lines, one for each column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_BORDERS = 3  # cells that a column takes beside its text; the table takes one more


@dataclass(frozen=True, slots=True)
class Layout:
    """What is shown of a table.

    Attributes:
        columns: (index, width in cells) of each column; empty where no table fits.
        left_out: indexes of the columns that are not shown.
    """

    columns: tuple[tuple[int, int], ...]
    left_out: tuple[int, ...] = ()


def fit(names: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str], width: int) -> Layout:
    """
    Args:
        optional: names of columns in the order in which they are left out; one without any text is not shown at all.
        width: cells of the terminal.
    """
    empty = [n for n, name in enumerate(names) if name in optional and not any(row[n] for row in rows)]
    columns = [[name, *(row[n] for row in rows)] for n, name in enumerate(names)]
    wide = [max(map(len, cells)) for cells in columns]
    least = [max(_longest_word(cell) for cell in cells) for cells in columns]
    shown = [n for n in range(len(names)) if n not in empty or not rows]
    leaving = [names.index(name) for name in optional if names.index(name) in shown]
    left_out: list[int] = []
    while sum(least[n] + _BORDERS for n in shown) + 1 > width:
        if not leaving:
            return Layout(())
        left_out.append(leaving.pop(0))
        shown.remove(left_out[-1])
    spare = width - 1 - sum(least[n] + _BORDERS for n in shown)
    given = []
    for n in shown:
        more = min(spare, wide[n] - least[n])
        given.append((n, least[n] + more))
        spare -= more
    return Layout(tuple(given), tuple(sorted(left_out)))


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def numeric(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Whether a column holds numbers alone: those are set to the right."""
    return [
        any(row[n] for row in rows)
        and all(row[n].replace(",", "").lstrip("-").isdecimal() or not row[n] for row in rows)
        for n in range(len(names))
    ]


def blocks(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines: a column's name and its cell, and an empty line between two rows."""
    indent = max(map(len, names), default=0)
    for number, row in enumerate(rows):
        if number:
            yield ""
        for name, cell in zip(names, row, strict=True):
            yield f"{name:<{indent}}  {cell}".rstrip()
