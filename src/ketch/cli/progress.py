"""A progress bar on a terminal, of a command that takes a while. Where standard error is none, there is no bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


@contextmanager
def progress(
    columns: Callable[[], Sequence[ProgressColumn]], total: float | None = None, wanted: bool = True, **fields: Any
) -> Iterator[Callable[..., None]]:
    """Gives the function that brings the bar up to date: it takes what a task of rich's display is updated with.

    Args:
        columns: makes what the bar consists of; called where there is one, so that rich is not imported for nothing.
        total: of `completed`; None where it is not known.
        wanted: False for no bar on a terminal either.
        fields: what the columns show beside, as it is at the beginning.
    """
    if not (wanted and sys.stderr.isatty()):
        yield lambda **_: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(*columns(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, **fields)
        yield lambda **news: bar.update(task, **news)
