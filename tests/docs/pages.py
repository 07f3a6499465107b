"""Reads the code blocks of a Markdown page.

Three kinds of blocks are run:

- console: an indented block (or one fenced as ```console) with lines that begin with `$ `. Each is a command; the
  lines below it, up to the next command, are the output it shows. A command goes on in the next line after a
  backslash.
- doctest: an indented block with lines that begin with `>>> `, Python with the output it shows.
- python: a block fenced as ```python.

Any other block is text: an example of output, a formula, another language. A text block must not hold a command
(`COMMAND`), so that no command escapes the test for want of a `$ `.

A comment above a block, which a reader of the rendered page does not see, says how to treat it:

    <!-- not run: why it cannot run on a developer's machine -->
    <!-- long: why it takes so long -->   run by `make test-long` only

This module only parses. It starts nothing and reads no file but the page.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# What a command begins with. A text block that has such a line is an error of the page.
_PROGRAMS = "make pip conda python python3 redis-cli redis-server kcat pyspark export docker sudo apt curl git cd"
COMMAND = re.compile(rf"^\s*(?:[A-Z_]+=\S+ )*(?:(?:{_PROGRAMS.replace(' ', '|')}) |ketch (?!ready)|spark-)")
_MARKER = re.compile(r"^\s*<!-- (not run|long): (.*?) -->$")


@dataclass
class Step:
    """A command, and the lines of output that the page shows for it."""

    command: str
    shown: list[str] = field(default_factory=list)

    @property
    def ends_with_message(self) -> bool:
        """Whether the output that is shown ends with an error or a warning of `ketch`."""
        return bool(self.shown) and self.shown[-1].startswith("ketch: ")


@dataclass(frozen=True)
class Block:
    """Consecutive lines of code. `line` is the number of the first in the page, `marker` "", "long" or "not run"."""

    page: str
    line: int
    kind: str
    text: str
    marker: str
    reason: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def steps(self) -> list[Step]:
        """The commands of a console block."""
        steps: list[Step] = []
        continued = False
        for line in self.text.splitlines():
            if continued:
                steps[-1].command += "\n" + line
            elif line.startswith("$ "):
                steps.append(Step(line[2:]))
            elif steps:
                steps[-1].shown.append(line)
            else:
                raise AssertionError(f"{self.where}: output before the first command: {line}")
            continued = line.endswith("\\") and (continued or line.startswith("$ "))
        return steps


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, from top to bottom."""
    return list(_blocks(page.name, page.read_text().splitlines()))


def _blocks(page: str, lines: list[str]) -> Iterator[Block]:
    at = 0
    marker = ("", "")
    while at < len(lines):
        line = lines[at]
        found = _MARKER.match(line)
        if found:
            marker = (found[1], found[2])
            at += 1
            continue
        end, language, body = _code(lines, at)
        if end > at:
            text = textwrap.dedent("\n".join(body))
            yield Block(page, at + 1, _kind(language, text), text, *marker)
        if end > at or line.strip():
            assert end > at or not marker[0], f"{page}:{at + 1}: no block below the marker"
            marker = ("", "")
        at = max(end, at + 1)


def _code(lines: list[str], at: int) -> tuple[int, str | None, list[str]]:
    """The block that begins at a line: the line after it, its fence's language, its lines. No block: the same line."""
    fence = re.match(r"^ *```(\w*)$", lines[at])
    if fence:
        close = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == "```")
        return close + 1, fence[1], lines[at + 1 : close]
    if not lines[at].startswith("    ") or (at and lines[at - 1].strip() and not _MARKER.match(lines[at - 1])):
        return at, None, []
    end = at
    for n in range(at, len(lines)):
        if lines[n].strip() and not lines[n].startswith("    "):
            break
        if lines[n].strip():
            end = n + 1
    return end, None, lines[at:end]


def _kind(language: str | None, text: str) -> str:
    if language == "python":
        return "python"
    if language in {None, "console"} and re.search(r"^\$ ", text, re.MULTILINE):
        return "console"
    return "doctest" if language is None and text.startswith(">>> ") else "text"
