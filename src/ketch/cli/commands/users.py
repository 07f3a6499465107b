"""`ketch users`: list, add, change and delete those who may log in.

A broker is asked, as by kafka-configs.sh; with --redis the credentials are read and written in Redis itself, which is
how the first user comes into being. A password is never an argument, for all users of a machine see those.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ketch.cli import client
from ketch.cli.broker_redis import BrokerOrRedis
from ketch.cli.options import grouped
from ketch.cli.output import Json, Yes, confirm, show_json, show_rows
from ketch.errors import ConfigError, KetchError, reason
from ketch.security.scram import BY_NAME, ITERATIONS, MAX_ITERATIONS
from ketch.views.kafka.users import BrokerUsers
from ketch.views.users import RedisUsers, Users

app = typer.Typer(
    help="List, add, change and delete users.", add_completion=False, no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(help="The user.")]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", metavar="NAME", help=f"{' or '.join(BY_NAME)}; may be repeated; default: both."),
]


@dataclass(frozen=True, slots=True)
class NewPassword:
    """The options that say which password a user gets, and what is kept of it."""

    mechanism: Mechanisms = None
    iterations: Annotated[
        int, typer.Option(min=ITERATIONS, max=MAX_ITERATIONS, help="How often a password is hashed.")
    ] = ITERATIONS
    password_file: Annotated[
        Path | None,
        typer.Option(help="The file whose first line is the password; default: asked for, or the first line of stdin."),
    ] = None


@app.command("list")
@grouped
def list_(*, where: BrokerOrRedis, as_json: Json = False) -> None:
    """List users: their mechanisms and iterations."""
    rows = [
        {"user": name, "mechanism": mechanism, "iterations": iterations}
        for name, credentials in sorted(_users(where).all().items())
        for mechanism, iterations in sorted(credentials.items())
    ]
    if as_json:
        show_json(rows)
    else:
        show_rows(("user", "mechanism", "iterations"), [list(row.values()) for row in rows])


@app.command()
@grouped
def add(user: Name, *, new: NewPassword, where: BrokerOrRedis) -> None:
    """Add a user. The password is asked for, or read from stdin or a file."""
    _set_password(user, new, where, exists=False)
    typer.echo(f"User {user} was added.")


@app.command("set")
@grouped
def set_(user: Name, *, new: NewPassword, where: BrokerOrRedis) -> None:
    """Set a user's password, of all mechanisms or of those that are named."""
    _set_password(user, new, where, exists=True)
    typer.echo(f"The password of user {user} was set.")


@app.command()
@grouped
def delete(user: Name, mechanism: Mechanisms = None, yes: Yes = False, *, where: BrokerOrRedis) -> None:
    """Delete a user, or its credentials of the mechanisms that are named."""
    mechanisms, users = _mechanisms(mechanism), _users(where)
    gone = [each for each in users.all().get(user, {}) if each in mechanisms]
    if not gone:
        raise KetchError(f"There is no user {user}{' with ' + ' or '.join(mechanisms) if mechanism else ''}.")
    confirm(f"Delete user {user} ({', '.join(gone)})?", yes)
    users.delete(user, gone)
    typer.echo(f"User {user} was deleted ({', '.join(gone)}).")


def _set_password(user: str, new: NewPassword, where: BrokerOrRedis, exists: bool) -> None:
    """Raises KetchError where the user is there and should not be, or the other way round (`exists`)."""
    mechanisms, users = _mechanisms(new.mechanism), _users(where)
    found = user in users.all()
    if found and not exists:
        raise KetchError(f"User {user} exists: `ketch users set` changes the password.")
    if exists and not found:
        raise KetchError(f"There is no user {user}: `ketch users add` adds one.")
    users.set(user, _password(user, new.password_file), mechanisms, new.iterations)


def _users(where: BrokerOrRedis) -> Users:
    redis = where.connected()
    return BrokerUsers(client.admin(where.bootstrap)) if redis is None else RedisUsers(redis)


def _mechanisms(given: list[str] | None) -> list[str]:
    names = [name.upper() for name in given or BY_NAME]
    for name in names:
        if name not in BY_NAME:
            raise ConfigError(f"--mechanism {name!r} should be {' or '.join(BY_NAME)}.")
    return names


def _password(user: str, file: Path | None) -> str:
    if file is None and sys.stdin.isatty():
        asked: str = typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True)
        return asked
    try:
        text = sys.stdin.readline() if file is None else file.read_text().partition("\n")[0]
    except OSError as error:
        raise ConfigError(f"The password cannot be read from {file or 'stdin'}: {reason(error)}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The password cannot be read from {file or 'stdin'}: it is not text.") from None
    password = text.rstrip("\r\n")
    if not password:
        raise ConfigError(f"The password is empty: it is the first line of {file or 'stdin'}.")
    return password
