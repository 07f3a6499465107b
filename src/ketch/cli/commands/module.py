"""`ketch module path`: where the append module lies, to load it into a Redis or Valkey of one's own."""

from __future__ import annotations

import typer

from ketch.append_module.library import module_path
from ketch.errors import KetchError

app = typer.Typer(help="The append module for Redis and Valkey.", no_args_is_help=True)


@app.callback()
def _module() -> None:
    """The append module for Redis and Valkey."""


@app.command()
def path() -> None:
    """Print the file for `loadmodule` in the server's configuration.

    It fits servers of this machine's kind: the same processor, operating system and C library.
    """
    found = module_path()
    if found is None:
        raise KetchError("The append module was not built: install gcc and reinstall Ketch.")
    print(found)
