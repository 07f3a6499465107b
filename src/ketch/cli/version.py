"""`ketch version`: what is installed."""

from __future__ import annotations

import json
import platform
from typing import Annotated

import typer

import ketch


def command(as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False) -> None:
    """Show the version of Ketch, its kernel and Python."""
    from ketch.records import KERNEL

    found = {"version": ketch.__version__, "kernel": KERNEL, "python": platform.python_version()}
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"ketch {ketch.__version__} (kernel {KERNEL}, Python {found['python']})")
