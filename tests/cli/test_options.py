"""Options that belong together reach a command as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ketch.cli.options import grouped


@dataclass(frozen=True)
class Where:
    url: Annotated[str | None, typer.Option("--url", envvar="TEST_URL", help="An address.")] = None
    port: Annotated[int, typer.Option(min=1)] = 7


app = typer.Typer(add_completion=False)


@app.command()
@grouped
def show(
    name: Annotated[str, typer.Argument()], *, where: Where, loud: Annotated[bool, typer.Option("--loud")] = False
) -> None:
    """Shows what it was given."""
    print(name, where, loud)


@pytest.mark.parametrize(
    ("arguments", "environment", "shown"),
    [
        (["a"], {}, f"a {Where()} False"),
        (["--port", "3", "a", "--loud"], {}, f"a {Where(port=3)} True"),
        (["a", "--url", "u"], {"TEST_URL": "v"}, f"a {Where('u')} False"),
        (["a"], {"TEST_URL": "v"}, f"a {Where('v')} False"),
    ],
)
def test_fields_are_options(arguments: list[str], environment: dict[str, str], shown: str) -> None:
    done = CliRunner().invoke(app, arguments, env=environment)
    assert (done.exit_code, done.stdout) == (0, f"{shown}\n")


def test_they_are_checked_and_helped_as_any_other() -> None:
    assert CliRunner().invoke(app, ["a", "--port", "0"]).exit_code == 2
    text = CliRunner().invoke(app, ["--help"]).stdout
    assert all(part in text for part in ("Shows what it was given.", "--url", "An address.", "--port", "--loud"))
