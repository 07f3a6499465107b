"""What commands print: tables on a terminal, tab-separated lines in a pipe, JSON when asked. And what they ask."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ketch.errors import ConfigError

Json = Annotated[bool, typer.Option("--json", help="For scripts.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def show_json(data: Any) -> None:
    """One line; what is not UTF-8 has been turned into something else before."""
    typer.echo(json.dumps(data, ensure_ascii=False))


def show_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", caption: str = "") -> None:
    """Rows of cells, None being an empty one. Title and caption are for terminals alone: cut(1) has no use for them."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            typer.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title) if title else None, caption=Text(caption) if caption else None, title_justify="left"
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def confirm(question: str, yes: bool) -> None:
    """Asks before something is deleted, unless `yes`.

    Raises:
        ConfigError: nobody can be asked.
        typer.Abort: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("Deleting needs --yes where nobody can be asked.")
    typer.confirm(question, abort=True, err=True)


def unescape(option: str, text: str) -> bytes:
    """`text` with \\t, \\n, \\x00 and the like replaced: a shell has no easy way to write them.

    Raises:
        ConfigError: an escape that is none.
    """
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("utf-8", "surrogateescape")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option} {text!r} is not allowed: {error.reason}.") from None


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Ctrl-C, or a reader that has seen enough (`| head`), ends what is inside, and is no error."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # The interpreter flushes stdout once more at its end and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
