"""`--watch`: shows something again every few seconds, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from ketch.cli.output import until_interrupted
from ketch.errors import KetchError

T = TypeVar("T")

Watch = Annotated[
    float | None,
    typer.Option("--watch", min=0.1, metavar="SECONDS", help="Show it again every so many seconds, until Ctrl-C."),
]
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"  # as clear(1) does: home, the screen, and what has scrolled off it


def repeat(seconds: float | None, fetch: Callable[[], T], show: Callable[[T], None]) -> None:
    """Fetches and shows once, or again and again where `seconds` says so. A terminal is cleared in between.

    Raises:
        KetchError: the first fetch failed. Later ones may fail without an end: a broker may come back.
    """
    if seconds is None:
        show(fetch())
        return
    with until_interrupted():
        found = fetch()
        while True:
            _head(seconds)
            show(found)
            sys.stdout.flush()
            time.sleep(seconds)
            found = _again(seconds, fetch)


def _again(seconds: float, fetch: Callable[[], T]) -> T:
    printed = ""
    while True:
        try:
            return fetch()
        except KetchError as error:
            said = f"ketch: {str(error).rstrip('.')}."
            if said != printed:
                print(said, file=sys.stderr, flush=True)
                printed = said
            time.sleep(seconds)


def _head(seconds: float) -> None:
    """For terminals alone: scripts read the same lines as without --watch."""
    if sys.stdout.isatty():
        typer.echo(f"{_CLEAR}{time.strftime('%Y-%m-%d %H:%M:%S')}, every {seconds:g} s; Ctrl-C ends it.")
