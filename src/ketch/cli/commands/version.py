"""`ketch version`: what is installed."""

from __future__ import annotations

import platform

import typer

import ketch
from ketch.cli.output import Json, show_json


def command(as_json: Json = False) -> None:
    """Show the version of Ketch, its kernel and Python."""
    from ketch.kernels import KERNEL

    found = {"version": ketch.__version__, "kernel": KERNEL, "python": platform.python_version()}
    if as_json:
        show_json(found)
    else:
        typer.echo(f"ketch {ketch.__version__} (kernel {KERNEL}, Python {found['python']})")
