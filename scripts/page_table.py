"""A table of a page in docs/ that is written from the source: `write_or_check`, for the scripts beside this one."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, begin: str, end: str, table: str) -> None:
    """Puts the table between two comments of the page; `--check` only compares, and exits with 1 where it differs."""
    text = page.read_text()
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    written = f"{before}{begin}\n{table}\n{end}{after}"
    if "--check" not in sys.argv:
        page.write_text(written)
    elif written != text:
        sys.exit(f"{page.name} differs from the table in the source: run scripts/{Path(sys.argv[0]).name}")
