"""The output of commands: tables on a terminal, tab-separated lines in a pipe, JSON when asked; and their questions."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ketch.cli.tables import blocks, fit, numeric
from ketch.errors import ConfigError

Json = Annotated[bool, typer.Option("--json", help="For scripts.")]
Stats = Annotated[
    bool | None,
    typer.Option("--stats/--no-stats", help="Ask for figures too; by default for a table on a terminal alone."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def wants_stats(stats: bool | None, as_json: bool) -> bool:
    """Whether figures are asked for: as the option `Stats` says, or by default for a table on a terminal alone."""
    return not as_json and sys.stdout.isatty() if stats is None else stats


def show_json(data: Any) -> None:
    """One line; what is not UTF-8 has been turned into something else before."""
    typer.echo(json.dumps(data, ensure_ascii=False))


def show_done(what: str, done: Sequence[dict[str, Any]], verbs: Mapping[bool, str], as_json: bool) -> None:
    """What a command has done, a sentence each: "Topic orders was created." Nothing where nothing was done.

    Args:
        what: what kind of thing they are.
        done: the name of each, and whether it was done now: `{"name": "orders", "created": True}`.
        verbs: what is said of one that was done now, and of one that was not.
    """
    if as_json:
        if done:  # else the error alone speaks
            show_json(done)
        return
    for name, now in (each.values() for each in done):
        typer.echo(f"{what} {name} {verbs[now]}.")


def show_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str = "",
    caption: str = "",
    optional: Sequence[str] = (),
) -> None:
    """Rows of cells, None being an empty one. Title and caption are for terminals alone: cut(1) has no use for them.

    Args:
        optional: columns that a narrow terminal goes without, the first one first. Lines in a pipe have all columns.
    """
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            typer.echo("\t".join(row))
        return
    if title:
        typer.echo(title)
    _show_table(columns, cells, optional)
    if caption:
        typer.echo(caption)


def _show_table(columns: Sequence[str], rows: list[list[str]], optional: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    layout = fit(columns, rows, optional, console.width)
    if not layout.columns:
        for line in blocks(columns, rows):
            typer.echo(line)
        return
    table, right = Table(), numeric(columns, rows)
    for index, width in layout.columns:
        table.add_column(columns[index], width=width, justify="right" if right[index] else "left")
    for row in rows:
        table.add_row(*(Text(row[index]) for index, _ in layout.columns))
    console.print(table)
    if layout.left_out:
        missing = ", ".join(columns[index] for index in layout.left_out)
        typer.echo(f"Not shown, for want of width: {missing}.")


def raise_all(errors: Sequence[Exception]) -> None:
    """Prints all but the last, which it raises: each is a sentence of its own. Nothing where there are none."""
    for error in errors[:-1]:
        print(f"ketch: {str(error).rstrip('.')}.", file=sys.stderr)
    if errors:
        raise errors[-1]


def confirm(question: str, yes: bool) -> None:
    """Asks before something is deleted, unless `yes`.

    Raises:
        ConfigError: stdin is no terminal.
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


@contextmanager
def interrupt_held() -> Iterator[None]:
    """Ctrl-C inside is raised at the end. confluent-kafka's consume() may lose it, and raises SystemError then."""
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt
